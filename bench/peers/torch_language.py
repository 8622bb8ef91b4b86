"""The language models of `mha bench --pass generate` and `--pass prompt` in PyTorch: the classes of transformers with the
weights and the prompt of the saved file. New tokens are taken with a cache that grows and, where this version has one,
with a cache of a fixed size; the better of the two counts. Imported by torch_peer.py."""
import json
import time

import torch

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def make_model(t, about):
    """The model that the file's config describes, over the file's weights; and the caches that it can use."""
    try:
        import transformers
    except ImportError as problem:
        raise RuntimeError("transformers is not installed") from problem
    config = json.loads(about["config"])
    kind = getattr(transformers, config["architectures"][0])
    settings = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    settings._attn_implementation = "sdpa"
    with torch.device("meta"):
        model = kind(settings)
    weights = {name: x.to(TYPES[about["dtype"]]) for name, x in t.items() if not name.startswith("bench.")}
    missing = model.load_state_dict(weights, strict=False, assign=True).missing_keys
    model.tie_weights()
    if missing and not (settings.tie_word_embeddings and missing == ["lm_head.weight"]):
        raise RuntimeError(f"{missing[0]} is missing")
    if hasattr(model.base_model, "rotary_emb"):  # its frequencies are in no file, and have been on no device so far
        model.base_model.rotary_emb = type(model.base_model.rotary_emb)(settings)
    caches = {"growing cache": transformers.DynamicCache}
    room = int(about["prompt"]) + int(about["tokens"])
    caches["fixed cache"] = lambda: transformers.StaticCache(config=settings, max_cache_len=room)
    return model.eval(), caches


def elapsed(run):
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def prompt(t, about, clock):
    """Time of a pass over the prompt with a cache, as in generation, and the logits of its last token."""
    model, caches = make_model(t, about)
    tokens = t["bench.prompt"].long()[None]

    def run():
        with torch.inference_mode():
            cache = caches["growing cache"]()
            return model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1]

    logits, median, best = clock(run, float(about["seconds"]))
    return "transformers", median, best, [t["bench.logits"]], [logits]


def generate(t, about, clock):
    """Milliseconds per new token: each is the most likely one after the tokens before it."""
    model, caches = make_model(t, about)
    tokens, count = t["bench.prompt"].long()[None], int(about["tokens"])
    timed, first = [], None
    for how, make in caches.items():

        def begin():
            with torch.inference_mode():
                cache = make()
                return cache, model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]

        def steps(cache, logits):
            with torch.inference_mode():
                for n in range(count):
                    at = torch.tensor([tokens.shape[1] + n])
                    new = logits.argmax(-1, keepdim=True)
                    logits = model(new, past_key_values=cache, use_cache=True, position_ids=at[None]).logits[:, -1]

        try:
            times = []
            for _ in range(4):  # the first run warms up
                cache, logits = begin()
                first = logits[0] if first is None else first
                took = elapsed(lambda c=cache, x=logits: steps(c, x))
                times.append(took / count)
        except (AttributeError, TypeError, ValueError):  # a version without such a cache
            continue
        times = sorted(times[1:])
        timed.append((times[len(times) // 2], times[0], f"transformers, {how}"))
    median, best, how = min(timed)
    return how, median, best, [t["bench.logits"]], [first]
