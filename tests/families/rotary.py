"""Greedy generation beside the `transformers` library where rotary embeddings depend on the length of a sequence, and
sequences outgrow the length of training, in the prompt or behind it:

    python tests/families/rotary.py MHA SEED

A cache keeps its keys as they were turned (dynamic, LongRoPE), but that of Phi 3 is computed anew: there, the library runs
without a cache, since 5.17 forgets the tokens before that point with one. Prompts run alone and in one batch."""
import json
import random
import subprocess
import sys
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, logging, Phi3Config, Phi3ForCausalLM

logging.set_verbosity_error()
TRAINED, NEW = 32, 12
SIZES = dict(vocab_size=90, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def longrope(r):
    return dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1 + r.random() for _ in range(4)],
                long_factor=[2 + 9 * r.random() for _ in range(4)], original_max_position_embeddings=TRAINED, factor=32.0)


MODELS = {
    "phi3 longrope": lambda r: Phi3ForCausalLM(Phi3Config(
        **SIZES, max_position_embeddings=1024, original_max_position_embeddings=TRAINED, rope_parameters=longrope(r))),
    "llama longrope": lambda r: LlamaForCausalLM(LlamaConfig(
        **SIZES, max_position_embeddings=1024, rope_parameters=longrope(r))),
    "llama dynamic": lambda r: LlamaForCausalLM(LlamaConfig(
        **SIZES, max_position_embeddings=TRAINED, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=4.0))),
}


def generate(mha, folder, prompts):
    words = [word for p in prompts for word in ("--ids", ",".join(map(str, p)))]
    out = subprocess.run([mha, "generate", folder, *words, "--tokens", str(NEW), "--min-tokens", str(NEW), "--greedy",
                          "--json", "--quiet"], capture_output=True, text=True, check=True)
    return [s["tokens"] for s in json.loads(out.stdout)["sequences"]]


def main(mha, seed):
    passed = failed = 0
    r = random.Random(seed)
    torch.manual_seed(seed)
    for name, make in MODELS.items():
        model = make(r).eval()
        with torch.no_grad():
            for key, p in model.named_parameters():
                p.copy_(1 + 0.1 * torch.randn_like(p) if "norm" in key else 0.5 * torch.randn_like(p))
        # Below the border, across it while generating, beyond it, and, in pieces of 512, far beyond it.
        lengths = (5, r.randint(TRAINED - NEW + 2, TRAINED - 1), TRAINED, r.randint(TRAINED + 1, 60), 512 + r.randint(1, 40))
        prompts = [[r.randrange(3, 90) for _ in range(n)] for n in lengths]
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            together = generate(mha, folder, prompts)
            for prompt, batched in zip(prompts, together):
                fresh = type(model)(model.config).double().eval()  # the tables of one that has run do not shrink
                fresh.load_state_dict(model.state_dict())
                want = fresh.generate(torch.tensor([prompt]), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False,
                                      use_cache="phi3" not in name)[0, len(prompt):].tolist()
                alone = generate(mha, folder, [prompt])[0]
                good = alone == want and batched == want
                passed, failed = passed + good, failed + (not good)
                if not good:
                    print(f"FAILED  {name}, {len(prompt)} tokens: {alone}, in a batch {batched}, not {want}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
