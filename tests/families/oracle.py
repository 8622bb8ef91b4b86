"""Small models of random configurations, with the answers of `transformers`: one folder each, as the library saves them,
and expected.safetensors beside it, computed in float64.

    python tests/families/oracle.py DIR [--seed N] [--only NAME,...] [--sample K] [--count N] [--spelling 4|5] [--dtype T]
                                    [--shards] [--base] [--heads] [--check]
    python tests/families/oracle.py -      runs of which standard input has the arguments, one per line

prints the seed and the name of every folder. The same seed writes the same folders. The kinds of expected.safetensors:

    decoder  input_ids (2,13) -> logits, attentions.N; prompt_ids, prompt_mask (2,13), row 1 padded on the left by 4
             -> greedy (2,25), the end token suppressed. Without greedy where it depends on the batch (dynamic rotary)
    encoder  input_ids, attention_mask (2,13), row 1 padded on the right -> logits, hidden, attentions.N
    pair_head input_ids, attention_mask (2,11), which the decoder reads as well -> as pair, without greedy and beam4
    pair     input_ids, attention_mask (2,11) or input_features, decoder_input_ids (2,7) -> logits, encoder_hidden,
             encoder_attentions.N, decoder_attentions.N, cross_attentions.N, greedy, beam4: 10 new tokens at most
    image    pixel_values -> logits, attentions.N
    base     models without a head: as encoder, but logits are the rows of the last block; base_pair and base_image likewise

Models whose answers move by more than rounding when their weights do (a near tie of two tokens or experts) are drawn
again, so that float32 arithmetic must give the same tokens. --check loads each folder again with the library."""
import argparse
import copy
import json
import random
import shutil
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers.models.falcon import modeling_falcon

from configs import BASES, FAMILIES, GPT_OSS_ROPE, HEADS, Draw

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_grad_enabled(False)

transformers.GPTBigCodeForCausalLM  # which compiles functions with softmax in them when it is imported

# The library computes softmax in float32. Its masks of float64 are infinite there, so that a row of padding, which sees
# no key, is NaN and spoils the others; and XGLM makes the number of such a mask in float32.
float32_softmax, full = torch.nn.functional.softmax, torch.full
torch.nn.functional.softmax = lambda x, *args, **named: float32_softmax(
    x.clamp(min=torch.finfo(x.dtype).min), *args, **{k: v for k, v in named.items() if k != "dtype" or x.dtype != torch.float64})
torch.full = lambda size, fill_value, **named: full(
    size, max(fill_value, torch.finfo(torch.float32).min) if isinstance(fill_value, float) else fill_value, **named)

# Falcon adds ALiBi twice where it shows attentions, and once where it does not.
alibi_of_falcon = modeling_falcon.build_alibi_tensor
modeling_falcon.build_alibi_tensor = lambda *args, **named: alibi_of_falcon(*args, **named) / 2


# ---- Weights -------------------------------------------------------------------------------------------------------


def randomize(model, seed, dtype):
    """Random numbers of the type `dtype` everywhere, norms and biases too; but fixed tables of positions stay."""
    g = torch.Generator().manual_seed(seed)
    tensors = dict(model.named_parameters()) | {k: b for k, b in model.named_buffers() if "final_logits_bias" in k}
    for name, t in tensors.items():
        if name.endswith("embed_positions.weight") and not t.requires_grad:
            if name not in (model._keys_to_ignore_on_save or ()):
                t.copy_(t.to(dtype))
            continue
        plain = t.ndim == 1 and name.endswith(("weight", "lambda1"))
        t.copy_((torch.randn(t.shape, generator=g) * (0.2 if t.ndim > 1 else 0.3) + (1 if plain else 0)).to(dtype))


def nudged(model, seed):
    """A copy whose weights differ by some units of float32's rounding."""
    other = copy.deepcopy(model)
    g = torch.Generator().manual_seed(seed)
    for p in other.parameters():
        p.mul_(1 + 1e-5 * torch.randn(p.shape, generator=g, dtype=p.dtype))
    return other


# ---- Answers: one function per kind, from the model and a source of inputs -------------------------------------------


def number(prefix, tensors):
    return {f"{prefix}.{i}": t for i, t in enumerate(tensors)}


def tokens(r, rows, columns, vocabulary):
    return torch.tensor([[r.randrange(3, vocabulary) for _ in range(columns)] for _ in range(rows)])


def batch_dependent(config):
    """Whether the cache of a row depends on the other rows: rotary tables that change with the longest position."""
    config = config.get_text_config(decoder=True)
    rope = getattr(config, "rope_parameters", None) or {}
    return rope.get("rope_type") == "dynamic" and config.max_position_embeddings < 25


def decoder(model, r):
    ids = tokens(r, 2, 13, model.config.get_text_config(decoder=True).vocab_size)
    out = model(ids, output_attentions=True)
    found = dict(input_ids=ids, logits=out.logits, **number("attentions", out.attentions))
    if batch_dependent(model.config):
        return found
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    prompt = ids * mask
    options = dict(max_new_tokens=12, min_new_tokens=12, do_sample=False, pad_token_id=0)
    greedy = model.generate(prompt, attention_mask=mask, **options)
    alone = model.generate(prompt[1:, 4:], **options)
    if not torch.equal(greedy[1:, 4:], alone):
        sys.exit(f"oracle: {model.config.model_type}: padding changes the continuation of a prompt")
    return found | dict(prompt_ids=prompt, prompt_mask=mask, greedy=greedy)


def encoder(model, r):
    ids = tokens(r, 2, 13, model.config.vocab_size)
    mask = torch.ones_like(ids)
    mask[1, -4:] = 0
    ids[mask == 0] = model.config.pad_token_id
    out = model(ids, attention_mask=mask, output_attentions=True, output_hidden_states=True)
    return dict(input_ids=ids, attention_mask=mask, logits=logits_of(out), hidden=out.hidden_states[-1],
                **number("attentions", out.attentions))


def logits_of(out):
    """Those of starts and ends, of question answering, are the two classes of each row."""
    return torch.stack((out.start_logits, out.end_logits), -1) if "start_logits" in out else out.logits


def filled(sequences, config, length=11):
    """Sequences to `length` columns, with the padding token behind the end token."""
    out = torch.full((len(sequences), length), config.pad_token_id)
    for row, tokens in zip(out, sequences.tolist()):
        end = next((i for i, t in enumerate(tokens) if i and t == config.eos_token_id), length) + 1
        row[: len(tokens[:end])] = torch.tensor(tokens[:end])
    return out


def sources(c, r):
    """What an encoder reads: features, or tokens of which row 1 is padded."""
    if c.model_type == "whisper":
        shape = 2, c.num_mel_bins, 2 * c.max_source_positions
        numbers = torch.tensor([r.gauss(0, 1) for _ in range(shape[0] * shape[1] * shape[2])])
        return dict(input_features=numbers.view(shape).float().double())
    ids = tokens(r, 2, 11, c.vocab_size)
    mask = torch.ones_like(ids)
    mask[1, -3:] = 0
    ids[mask == 0] = c.pad_token_id
    return dict(input_ids=ids, attention_mask=mask)


def stacks(out):
    return dict(encoder_hidden=out.encoder_last_hidden_state, **number("encoder_attentions", out.encoder_attentions),
                **number("decoder_attentions", out.decoder_attentions), **number("cross_attentions", out.cross_attentions))


def pair(model, r):
    c = model.config
    given = sources(c, r)
    vocabularies = c.vocab_size, getattr(c, "decoder_vocab_size", c.vocab_size)
    start = tokens(r, 2, 7, vocabularies[1])
    out = model(**given, decoder_input_ids=start, output_attentions=True)
    c.vocab_size = vocabularies[1]  # beam search reads this one
    shallow = getattr(c, "num_decoder_layers", 0) > getattr(c, "num_layers", 0)  # the cache of T5 has num_layers layers
    greedy, beam4 = (transformers.GenerationMixin.generate(
        model, **given, do_sample=False, num_beams=n, length_penalty=1.0, max_new_tokens=10, use_cache=not shallow)
        for n in (1, 4))
    c.vocab_size = vocabularies[0]
    return dict(given, decoder_input_ids=start, logits=out.logits, greedy=filled(greedy, c), beam4=filled(beam4, c), **stacks(out))


def pair_head(model, r):
    """A head whose decoder reads the tokens of the encoder; both rows have an end token in the middle and at the end."""
    given = sources(model.config, r)
    ids, end = given["input_ids"], model.config.eos_token_id
    ids[ids == end] = end + 1
    ids[0, -1] = ids[1, -4] = ids[0, 2] = ids[1, 4] = end
    out = model(**given, output_attentions=True)
    return dict(given, logits=logits_of(out), **stacks(out))


def picture(c, r):
    h, w = c.image_size if isinstance(c.image_size, (list, tuple)) else (c.image_size, c.image_size)
    pixels = torch.tensor([r.gauss(0, 1) for _ in range(2 * c.num_channels * h * w)])
    return pixels.view(2, -1, h, w).float().double()


def image(model, r):
    pixels = picture(model.config, r)
    out = model(pixels, output_attentions=True)
    return dict(pixel_values=pixels, logits=out.logits, **number("attentions", out.attentions))


def base(model, r):
    ids = tokens(r, 2, 13, model.config.vocab_size)
    mask = torch.ones_like(ids)
    mask[1, -4:] = batch_dependent(model.config)
    ids[mask == 0] = model.config.pad_token_id
    out = model(ids, attention_mask=mask, output_attentions=True)
    return dict(input_ids=ids, attention_mask=mask, logits=out.last_hidden_state, **number("attentions", out.attentions))


def base_pair(model, r):
    given = sources(model.config, r)
    start = tokens(r, 2, 7, getattr(model.config, "decoder_vocab_size", model.config.vocab_size))
    out = model(**given, decoder_input_ids=start, output_attentions=True)
    return dict(given, decoder_input_ids=start, logits=out.last_hidden_state, **stacks(out))


def base_image(model, r):
    pixels = picture(model.config, r)
    out = model(pixels, output_attentions=True)
    return dict(pixel_values=pixels, logits=out.last_hidden_state, **number("attentions", out.attentions))


KINDS = dict(decoder=decoder, encoder=encoder, pair=pair, pair_head=pair_head, image=image, base=base, base_pair=base_pair, base_image=base_image)


def steady(a, b):
    """Whether two answers have the same tokens, and numbers that differ by little, so that the 2e-5 which
    tools/conformance allows are ten times what one rounding of each weight to float32 does."""
    return all(torch.equal(x, b[k]) if not x.is_floating_point() else (x - b[k]).abs().max() <= 3e-4 * x.abs().max()
               for k, x in a.items())


# ---- Folders -------------------------------------------------------------------------------------------------------


def version4(path, r):
    """Rewrites config.json in the spelling of version 4 of `transformers`."""
    c = json.loads(path.read_text())
    kind, rope = c["model_type"], c.pop("rope_parameters", None)
    c.update(torch_dtype=c.pop("dtype"), transformers_version="4.57.1")
    if "id2label" in c and r.flag():  # as some people write it
        c["num_labels"] = len(c.pop("id2label"))
        del c["label2id"]
    if kind == "t5":
        c["tie_word_embeddings"] = c.pop("scale_decoder_outputs")
    if kind == "modernbert":
        c["global_rope_theta"] = rope["full_attention"]["rope_theta"]
        c["local_rope_theta"] = rope["sliding_attention"]["rope_theta"]
        rope = None
    if kind == "gemma3_text":
        c["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
    if kind in ("gemma3_text", "olmo3"):
        rope = rope["full_attention"]
    if rope:
        share = rope.pop("partial_rotary_factor", None)
        if kind == "gpt_neox":
            c.update(rotary_emb_base=rope.pop("rope_theta"), rotary_pct=share)
        else:
            c["rope_theta"] = rope.pop("rope_theta")
            if share is not None:
                c["partial_rotary_factor"] = share
        if kind == "phi3":
            rope.pop("original_max_position_embeddings", None)
        unsaid = kind == "gpt_oss" and rope == {k: v for k, v in GPT_OSS_ROPE.items() if k != "rope_theta"}
        if r.flag():
            rope["type"] = rope.pop("rope_type")
        plain = "default" in rope.values() and kind not in ("gpt_oss", "cwm")  # in which null means another one
        c["rope_scaling"] = None if plain or unsaid else rope
    config_class = transformers.CONFIG_MAPPING[kind]
    short = {k: v for k, v in c.items() if k != "layer_types"}
    if getattr(config_class.from_dict(copy.deepcopy(short)), "layer_types", None) == c.get("layer_types"):
        c = short
    path.write_text(json.dumps(c, indent=2, sort_keys=True) + "\n")


def separate(model, r):
    """Gives the head of a tied model a tensor of its own in some of them, as files have it. Whether it shall be a copy."""
    head = getattr(model, "get_output_embeddings", lambda: None)()
    if head is None or head.weight is not model.get_input_embeddings().weight or r.flag():
        return False
    head.weight = torch.nn.Parameter(head.weight.clone())
    return r.flag()


def build(name, r, dtype):
    """A model in float32 whose weights are rounded to `dtype`, the kind and the seed of its inputs, and its answers."""
    kind_of_model, kind, draw = FAMILIES[name]
    model_class = getattr(transformers, kind_of_model)
    for _ in range(30):
        config = model_class.config_class(**draw(r))
        config._attn_implementation = config._experts_implementation = "eager"
        model = model_class(config).eval()
        copied = separate(model, r)
        seed, inputs = r.getrandbits(32), r.getrandbits(32)
        randomize(model, seed, dtype)
        if copied:
            model.get_output_embeddings().weight.copy_(model.get_input_embeddings().weight)
        exact = copy.deepcopy(model).double()
        if kind == "pair" and r.flag():  # a token that ends the text in the middle
            end = pair(exact, Draw(inputs))["greedy"][r.randrange(2), r.randrange(2, 8)].item()
            for m in (model, exact):
                m.config.eos_token_id = m.generation_config.eos_token_id = end
        answers = KINDS[kind](exact, Draw(inputs))
        if answers["logits"].isfinite().all() and steady(answers, KINDS[kind](nudged(exact, seed), Draw(inputs))):
            return model, kind, inputs, answers
    sys.exit(f"oracle: {name}: no configuration with steady answers in 30 tries")


def write(folder, name, r, args):
    dtype = getattr(torch, args.dtype)
    model, kind, inputs, answers = build(name, r, dtype)
    shutil.rmtree(folder, ignore_errors=True)
    model.to(dtype).save_pretrained(folder, max_shard_size="4KB" if args.shards else "1GB")
    if r.version4:
        version4(folder / "config.json", r)
    numbers = {k: (t.float() if t.is_floating_point() else t.long()).contiguous().clone() for k, t in answers.items()}
    save_file(numbers, folder / "expected.safetensors",
              dict(kind=kind.removeprefix("base_").removesuffix("_head"), seed=str(args.seed), made_by=f"transformers {transformers.__version__}"))
    if args.check:
        again = type(model).from_pretrained(folder, attn_implementation="eager", experts_implementation="eager", dtype=torch.float32).double().eval()
        got = KINDS[kind](again, Draw(inputs))
        if not steady(answers, got) or (got["logits"] - answers["logits"]).abs().max() > 1e-6:
            sys.exit(f"oracle: {folder}: `transformers` gives other answers after loading it")


def run(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="default: a new one each time")
    parser.add_argument("--only", help="names of families, with commas between them: " + ", ".join(FAMILIES))
    parser.add_argument("--base", action="store_true", help="models without a head")
    parser.add_argument("--heads", action="store_true", help="decoders with another head than that of a language model")
    parser.add_argument("--sample", type=int, default=1, metavar="K", help="one in K of these")
    parser.add_argument("--count", type=int, default=1, help="models per family")
    parser.add_argument("--spelling", default="5", choices=("4", "5"), help="of config.json: version of transformers")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"), help="of the weights")
    parser.add_argument("--shards", action="store_true", help="split the weights over several files with an index")
    parser.add_argument("--check", action="store_true", help="load each folder again and compare")
    args = parser.parse_args(words)
    names = args.only.split(",") if args.only else [n for n in FAMILIES if (n in BASES, n in HEADS) == (args.base, args.heads)]
    for name in names:
        if name not in FAMILIES:
            parser.error(f"no family {name}; there are {', '.join(FAMILIES)}")
    print(f"seed {args.seed}", flush=True)
    chosen = random.Random(f"{args.seed} {args.spelling} {args.dtype}").sample(names, -(-len(names) // args.sample))
    for name in sorted(chosen, key=names.index):
        for i in range(args.count):
            r = Draw(f"{args.seed} {name} {i}")
            r.version4 = args.spelling == "4"
            folder = args.folder / (name if args.count == 1 else f"{name}_{i}")
            write(folder, name, r, args)
            print(folder.name, flush=True)


def main():
    torch.set_num_threads(1)  # the models are too small for more
    for words in [line.split() for line in sys.stdin] if sys.argv[1:] == ["-"] else [sys.argv[1:]]:
        run(words)


if __name__ == "__main__":
    main()
