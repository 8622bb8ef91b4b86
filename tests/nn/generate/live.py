"""Answers of the `transformers` library for random cases: its logits processors, its sampling filters and its beam search
over a model that is a table of logits. replay.c runs the same cases and compares.

    live.py SEED CASES FILE

A case is a list of little-endian numbers, as replay.c reads them: int32, float32, and lists of either with their count
in front."""
import random
import struct
import sys

import torch
import transformers
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class TableConfig(PretrainedConfig):
    model_type = "mha_table"

    def __init__(self, vocab_size=8, **rest):
        self.vocab_size = vocab_size
        self.num_hidden_layers = 1
        super().__init__(**rest)


class TableModel(PreTrainedModel, GenerationMixin):
    """Logits that depend on the last token and on how many tokens there are."""

    config_class = TableConfig

    def __init__(self, config):
        super().__init__(config)
        self.table = None
        self.anything = torch.nn.Parameter(torch.zeros(1))
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, **rest):
        places, vocabulary, _ = self.table.shape
        rows = [self.table[min(t, places - 1), input_ids[:, t] % vocabulary] for t in range(input_ids.shape[1])]
        return CausalLMOutput(logits=torch.stack(rows, dim=1))

    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        return {"input_ids": input_ids}


class Writer:
    def __init__(self, path):
        self.file = open(path, "wb")

    def ints(self, *values):
        self.file.write(struct.pack("<%di" % len(values), *values))

    def floats(self, *values):
        self.file.write(struct.pack("<%df" % len(values), *values))

    def int_list(self, values):
        self.ints(len(values), *values)

    def tensor(self, t):
        self.ints(t.numel())
        self.file.write(t.detach().to(torch.float32).contiguous().numpy().tobytes())


def pick(r, *choices):
    return r.choice(choices)


def random_rules(r, V, prompt, max_length):
    tokens = lambda most: [r.randrange(V) for _ in range(r.randint(1, most))]
    rules = {
        "repetition_penalty": pick(r, 1.0, 1.0, 1.3, 0.7),
        "no_repeat_ngram_size": pick(r, 0, 0, 1, 2, 3),
        "eos_token_id": tokens(3) if r.random() < 0.9 else None,
        "min_length": pick(r, 0, 0, prompt + 2, prompt),
        "min_new_tokens": pick(r, 0, 0, 1, 3),
        "forced_bos_token_id": pick(r, None, None, r.randrange(V)),
        "forced_eos_token_id": pick(r, None, None, r.randrange(V), tokens(2)),
        "suppress_tokens": pick(r, None, None, tokens(3)),
        "begin_suppress_tokens": pick(r, None, None, tokens(3)),
        "bad_words_ids": pick(r, None, None, [tokens(1), tokens(2), tokens(3)]),
        "max_length": max_length,
    }
    for key in ("forced_bos_token_id", "forced_eos_token_id"):  # a token cannot be forced and suppressed
        for other in ("suppress_tokens", "begin_suppress_tokens"):
            rest = [id for id in as_list(rules[other]) if id not in as_list(rules[key])]
            rules[other] = rest or None
    return rules


def given(rules):
    """Without what would be a value of its own there: 0 new tokens replace min_length."""
    return {key: value for key, value in rules.items() if value or key not in ("min_new_tokens", "min_length")}


def as_list(value):
    return [] if value is None else value if isinstance(value, list) else [value]


def write_rules(w, rules, encoder_penalty=1.0, encoder_ngram=0):
    none = lambda value: -1 if value is None else value
    w.floats(encoder_penalty, rules["repetition_penalty"])
    w.ints(rules["no_repeat_ngram_size"], encoder_ngram)
    words = rules["bad_words_ids"] or []
    w.int_list(sum(words, []))
    w.int_list([sum(len(word) for word in words[: n + 1]) for n in range(len(words))])
    w.int_list(as_list(rules["eos_token_id"]))
    w.ints(rules["min_length"], rules["min_new_tokens"], rules["max_length"], none(rules["forced_bos_token_id"]))
    w.int_list(as_list(rules["forced_eos_token_id"]))
    w.int_list(as_list(rules["suppress_tokens"]))
    w.int_list(as_list(rules["begin_suppress_tokens"]))


def make_model(V, table=None):
    model = TableModel(TableConfig(vocab_size=V))
    model.table = table
    return model.eval()


def processors(model, config, prompt, encoder=None):
    config._eos_token_tensor = None if config.eos_token_id is None else torch.tensor(as_list(config.eos_token_id))
    return model._get_logits_processor(config, input_ids_seq_length=prompt, encoder_input_ids=encoder, device="cpu")


def rules_case(w, r):
    V, prompt, new = r.randint(3, 40), r.randint(1, 6), r.randint(0, 9)
    count = prompt + new
    rules = random_rules(r, V, prompt, count + pick(r, 1, 1, 5))
    history = [r.randrange(V) for _ in range(count)]
    encoder = [r.randrange(V) for _ in range(r.randint(1, 12))] if r.random() < 0.4 else []
    penalty, ngram = (pick(r, 1.0, 1.5), pick(r, 0, 2)) if encoder else (1.0, 0)
    config = GenerationConfig(**given(rules), encoder_repetition_penalty=penalty, encoder_no_repeat_ngram_size=ngram)
    model = make_model(V)
    scores = torch.randn(1, V) * 3
    encoder_ids = torch.tensor([encoder]) if encoder else None
    out = processors(model, config, prompt, encoder_ids)(torch.tensor([history]), scores.clone())
    w.ints(1, V, prompt)
    w.int_list(history)
    w.int_list(encoder)
    write_rules(w, rules, penalty, ngram)
    w.tensor(scores)
    w.tensor(out)


def filter_case(w, r):
    V = pick(r, 2, 7, 33, 500, 5000)
    options = {
        "temperature": pick(r, 1.0, 0.3, 2.5),
        "top_k": pick(r, 0, 1, 5, 50, 4000),
        "top_p": pick(r, 1.0, 0.9, 0.4, 0.01),
        "min_p": pick(r, None, 0.02, 0.3, 1.0),
    }
    config = GenerationConfig(do_sample=True, **options)
    scores = torch.randn(1, V) * pick(r, 0.5, 3.0, 10.0)
    if r.random() < 0.2:
        scores = torch.round(scores)  # with equal ones
        config.top_p = options["top_p"] = 1.0  # whose choice among equals is not specified
    if r.random() < 0.3 and V > 2:
        scores[0, r.randrange(V)] = -float("inf")
    run = lambda scores: processors(make_model(V), config, 1)(torch.zeros(1, 1, dtype=torch.long), scores)
    out = run(scores.clone())
    order = 1e-9 * torch.arange(V)
    nudged = [run(scores.double() + order), run(scores.double() - order)] if options["top_p"] < 1 else []
    if any(not torch.equal(out.isinf(), other.isinf()) for other in nudged):
        return  # a sum of probabilities so close to top_p that rounding decides, or equal scores on both sides of it
    w.ints(2, V, options["top_k"])
    w.floats(options["temperature"], options["top_p"], options["min_p"] or 0.0)
    w.tensor(scores)
    w.tensor(torch.softmax(out, dim=-1))


def first_of_equals(scores, k, dim=-1, **rest):
    """torch.topk, which says nothing about the order of equal ones."""
    values, places = torch.sort(scores, dim=dim, descending=True, stable=True)
    return values.narrow(dim, 0, k), places.narrow(dim, 0, k)


def search(model, ids, config, topk=torch.topk):
    usual, torch.topk = torch.topk, topk
    try:
        with torch.no_grad():
            return model.generate(torch.tensor([ids]), generation_config=config, attention_mask=torch.ones(1, len(ids), dtype=torch.long))
    finally:
        torch.topk = usual


def beam_case(w, r):
    V, prompt, new, N = r.randint(4, 24), r.randint(1, 5), r.randint(1, 12), r.randint(2, 6)
    rules = random_rules(r, V, prompt, prompt + new)
    rules["eos_token_id"] = sorted(set(as_list(rules["eos_token_id"]))) or [0]
    if rules["min_new_tokens"]:
        rules["min_length"] = 0  # which it replaces
    rules["forced_eos_token_id"] = (as_list(rules["forced_eos_token_id"]) or [None])[0]  # not two of equal score
    if r.random() < 0.6:  # plain, as most models are used
        for key in ("suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "forced_eos_token_id", "forced_bos_token_id"):
            rules[key] = None
        rules.update(repetition_penalty=1.0, no_repeat_ngram_size=0, min_length=0, min_new_tokens=0)
    early, penalty = pick(r, False, True, "never"), pick(r, 1.0, 1.0, 0.0, 2.0, -1.0, 0.6)
    table = torch.randn(prompt + new, V, V) * pick(r, 0.3, 2.0, 5.0)
    ids = [r.randrange(V) for _ in range(prompt)]
    renormalize = r.random() < 0.2
    config = GenerationConfig(num_beams=N, num_return_sequences=N, early_stopping=early, length_penalty=penalty, do_sample=False,
                              use_cache=False, pad_token_id=0, return_dict_in_generate=True, output_scores=True,
                              renormalize_logits=renormalize, **given(rules))
    model = make_model(V, table)
    out, other = search(model, ids, config), search(model, ids, config, topk=first_of_equals)
    if not out.sequences_scores[0] > -1e6:
        return  # the rules leave no token: an error for replay.c
    if not torch.equal(out.sequences_scores, other.sequences_scores):
        return  # which of several beams without a token has finished: their scores are equal, and the order of those is not specified
    w.ints(3, V, N, {False: 0, True: 1, "never": 2}[early], int(renormalize), prompt + new)
    w.floats(penalty)
    w.int_list(ids)
    write_rules(w, rules)
    w.tensor(table)
    w.ints(N)
    for n in range(N):
        w.int_list(out.sequences[n].tolist())
        w.floats(out.sequences_scores[n].item())


def main():
    seed, count, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    transformers.logging.set_verbosity_error()
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    r, w = random.Random(seed), Writer(path)
    for n in range(count):
        pick(r, rules_case, filter_case, beam_case)(w, r)
    w.ints(0)


if __name__ == "__main__":
    main()
