"""Embeddings of random small models with random modules behind them, against the `sentence-transformers` library.

    python tests/families/sentence.py MHA [SEED [COUNT]]

prints a line for each model and exits with 1 if one differs. Pooling, products, normalisation, prompts, the most tokens of a text,
lower case and the side on which texts are cut are drawn; a text is long, one is empty."""
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from configs import Draw, bert, llama, t5

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

WORDS = "the cat sat on a mat and The Dog saw two birds in old trees query passage : .".split()
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
TEXTS = ["the cat sat on the mat .", "The Dog saw a cat", "a mat", "query : two birds in the old trees and the cat and the Dog .", "",
         " ".join(WORDS * 3), "Two unknown WORDS and the cat"]
MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
MODELS = {
    "bert": ("BertModel", bert),
    "xlm_roberta": ("XLMRobertaModel", bert),
    "bert_masked": ("BertForMaskedLM", bert),
    "qwen3": ("Qwen3ForCausalLM", lambda r: llama(r, ("default",), rms_norm_eps=r.eps())),
    "t5": ("T5EncoderModel", t5),
}


def tokenizer(r):
    t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(SPECIAL + WORDS + [w.lower() for w in WORDS if w.lower() not in WORDS])},
                                   unk_token="[UNK]"))
    if r.flag():
        t.normalizer = r.choice((normalizers.NFC(), normalizers.Lowercase(), normalizers.Sequence([normalizers.Strip()])))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    if r.random() < 0.8:
        t.post_processor = processors.TemplateProcessing(
            single=r.choice(("[CLS] $A [SEP]", "$A [SEP]")), special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=t, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]",
        truncation_side=r.choice(("right", "right", "left")), model_max_length=r.choice((14, 10**30)))


def folder_of(name, r, folder):
    """A folder of sentence-transformers, and its model in float64."""
    kind, draw = MODELS[name]
    model_class = getattr(transformers, kind)
    keys = draw(r) | dict(pad_token_id=0) | (dict(max_position_embeddings=90) if kind != "T5EncoderModel" else {})
    model = model_class(model_class.config_class(**keys)).eval()
    g = torch.Generator().manual_seed(r.getrandbits(32))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g) * 0.3 + (parameter.ndim == 1))
    plain = folder / "plain"
    model.save_pretrained(plain)
    tokenizer(r).save_pretrained(plain)
    options = {}
    if r.flag():
        options["max_seq_length"] = r.randint(8, 20)
    body = Transformer(str(plain), do_lower_case=r.flag(), **options)
    modes = tuple(r.sample(MODES, r.choice((1, 1, 1, 2, 3))))
    pooling = Pooling(body.get_embedding_dimension(), modes if len(modes) > 1 else modes[0], include_prompt=r.flag())
    width, modules = pooling.get_embedding_dimension(), [body, pooling]
    for _ in range(r.choice((0, 0, 1, 2))):
        out = r.choice((width, r.randint(5, 40)))
        activation = r.choice((torch.nn.Identity, torch.nn.Tanh, torch.nn.ReLU, torch.nn.GELU, torch.nn.SiLU, torch.nn.Sigmoid))
        modules.append(Dense(width, out, bias=r.flag(), activation_function=activation(), use_residual=r.flag()))
        width = out
    if r.flag():
        modules.insert(r.randint(2, len(modules)), Normalize())
    prompts = {"query": "query : ", "passage": "passage : the Dog ", "none": ""}
    best = SentenceTransformer(modules=modules, prompts=prompts, default_prompt_name=r.choice((None, "passage", "query")),
                               truncate_dim=r.choice((None, None, max(1, width - 2))), device="cpu")
    saved = folder / "saved"
    best.save(str(saved))
    if r.flag():  # as older files are written
        path = saved / "1_Pooling" / "config.json"
        keys = {"word_embedding_dimension": pooling.embedding_dimension, "include_prompt": pooling.include_prompt}
        old = dict(cls="cls_token", max="max_tokens", mean="mean_tokens", mean_sqrt_len_tokens="mean_sqrt_len_tokens",
                   weightedmean="weightedmean_tokens", lasttoken="lasttoken")
        path.write_text(json.dumps(keys | {f"pooling_mode_{old[m]}": m in modes for m in MODES}))
    return saved


def run(mha, name, number, r):
    with tempfile.TemporaryDirectory() as work:
        folder = folder_of(name, r, Path(work))
        prompt = r.choice((None, "query", "passage", "none"))
        best = SentenceTransformer(str(folder), device="cpu").double()
        texts = [t for t in TEXTS if t or best.tokenizer("")["input_ids"]]
        skips = not best[1].include_prompt
        if skips:  # the library divides by zero where nothing is left but the prompt
            texts = [t for t in texts if t]
        want = best.encode(texts, prompt_name=prompt, batch_size=3, convert_to_numpy=True)
        options = ["--prompt", prompt] if prompt else []
        made = subprocess.run([mha, "embed", folder, *texts, "--json", *options], capture_output=True, text=True)
        if made.returncode:
            lost = "behind those of the prompt" in made.stderr
            print(f"  {'ok ' if lost else 'FAILED '}   -     sentence_{name}_{number}: {made.stderr.strip()}")
            return lost
        got = np.array([e["values"] for e in json.loads(made.stdout)["embeddings"]])
        share = np.abs(got - want).max() / np.abs(want).max() if got.shape == want.shape else np.inf
        print(f"  {'ok ' if share <= 2e-5 else 'FAILED'} {share:.1e} sentence_{name}_{number}")
        return share <= 2e-5


def main():
    torch.set_num_threads(1)
    mha, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**6)
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    good = [run(mha, name, n, Draw(f"{seed} {name} {n}")) for name in MODELS for n in range(count)]
    print(f"{sum(good)} passed, {len(good) - sum(good)} failed")
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
