"""Compares tokenizers with the `tokenizers` library, and with `sentencepiece` if it is there: random tokenizers of every
kind on random texts, and merges that are learned from a text.

    oracle.py MHA [SEED [COUNT]]

MHA is the command. For each of COUNT tokenizers (60 by default), a tokenizer.json and a cases.json with the library's
answers are written to a temporary folder, and tools/conformance runs them. Failures are kept in the folder that is
printed. The seed is printed, too; without one, the time is taken.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

try:
    import sentencepiece
except ImportError:
    sentencepiece = None
try:
    import tokenizers
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError:
    print("  -     oracle: this Python has no `tokenizers`")
    print("0 passed, 0 failed, 1 skipped")
    sys.exit(0)

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and then it isn't there; we've seen that they're 1234 times faster.",
    "Call me Ishmael. Some years ago - never mind how long precisely - having little or no money in my purse ...",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë au delà des îles, près du mälström.",
    "Съешь ещё этих мягких французских булок, да выпей же чаю. Ещё раз: 42 булки!",
    "いろはにほへと ちりぬるを わかよたれそ つねならむ。東京都に住んでいます。",
    "敏捷的棕色狐狸跳过懒狗。价格是 100 元。",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر",
    "다람쥐 헌 쳇바퀴에 타고파. 정 참판 양반댁 규수 큰 교자 타고 혼례 치른 날",
    "ὦ ξεῖν', ἀγγέλλειν Λακεδαιμονίοις ὅτι τῇδε κείμεθα",
    "def f(x):\n    return {'a': x ** 2, \"b\": [1, 2.5e-3]}  # comment\n\n\tif x >= 10:\n\t\tpass\r\n",
    "I'll say it's what you'd do; DON'T shout. Ünïcödé ﬁne ½ ² Ⅷ ①",
    "😀 👍🏽 👨‍👩‍👧‍👦 🇩🇪 e\u0301 n\u0303 \u1e9b\u0323 \u00a0\u2003\u3000 \u200b\ufeff",
] * 3
WORDS = sorted({w for line in CORPUS for w in line.split()})
PIECES = [
    " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u2003", "\u3000", "\u2581", "\u200b", "\u200d", "\u00ad", "\ufeff", "\ufffd",
    "\u0000", "\u0007", "\u001b", "\u007f", "\u0085", "\u2028", "'", "'s", "'S", "'\u017f", "'ll", "don't", "I'VE", "...", "!?", "--", "_", "a_b",
    "\u0301", "e\u0301", "\u0301\u0323", "\u00e9", "\u00c5", "\u212b", "\ufb01", "\u00bd", "\u00b2", "\u2160", "\u0130", "\u0131", "\u00df", "\u1e9e", "\u03a3\u03c2", "\uff21\uff11",
    "\u0915\u094d\u0937\u093f", "\u0e01\u0e33", "\u1112\u1161\u11ab", "\ud55c", "\uff76\uff9e", "\u304b\u3099", "\u4e2d\u6587", "\u3402", "\U00020000", "\U0001f600", "\U0001f44d\U0001f3fd",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u24b6", "123", "3.14", "1,000", "\u0663", "<s>", "</s>", "<unk>", "[MASK]", "[mask]",
    "<|endoftext|>", "<T>", "<t>", "tok", "Tok", " tok ", "ab", "abc", "<0x41>", "##ing", "</w>", "\u0120", "\u010a", "aaaaaaaa", "\U0010ffff", "\ue000", "\u0378",
]


def random_text(rng):
    if rng.random() < 0.05:
        return rng.choice(["", " ", "\n", "a" * rng.randint(1, 3000), " " * rng.randint(1, 200), "ab " * 500])
    parts = []
    for _ in range(rng.randint(1, 14)):
        kind = rng.random()
        if kind < 0.45:
            parts.append(rng.choice(PIECES))
        elif kind < 0.85:
            word = rng.choice(WORDS)
            parts.append(word.upper() if rng.random() < 0.1 else word)
            if rng.random() < 0.6:
                parts.append(" ")
        elif kind < 0.95:
            parts.append("".join(rng.choice("abcdeABC 0123,.-'") for _ in range(rng.randint(1, 8))))
        else:
            parts.append(chr(rng.choice([rng.randint(0xA0, 0x24F), rng.randint(0x370, 0x3FF), rng.randint(0x900, 0x97F), rng.randint(0x4E00, 0x9FFF)])))
    return "".join(parts)


# ---- Components ------------------------------------------------------------------------------------------------------

EXPRESSIONS = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+", r"\w+|[^\w\s]+", r"\d", r"\d{1,3}(?=(\d{3})*\b)", r"[[:punct:]]", r"\s", r"[a-z&&[^aeiou]]+",
    r"^\w", r"\b", r"\h+", r"x*", r"[\p{L}--[a]]", r"\p{Han}", r"[\u4e00-\u9fa5]+", r"a{,2}", r"(?m:a.)", r".", r"\S+\s?", r"[^\W\d_]+",
]
SYMBOLS = ["-", " ", "a", "\u2581", "th", "''", "."]
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]


EMPTY = {r"\b", r"x*", r"a{,2}"}  # can match nothing, after which the library's normalizers duplicate text


def pattern(rng, empty=True):
    chosen = rng.choice(EXPRESSIONS) if rng.random() < 0.7 else None
    return Regex(chosen) if chosen and (empty or chosen not in EMPTY) else rng.choice(SYMBOLS)


def one_normalizer(rng):
    return rng.choice([
        normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD, normalizers.Lowercase, normalizers.StripAccents, normalizers.Nmt,
        normalizers.ByteLevel,
        lambda: normalizers.Strip(rng.random() < 0.5, rng.random() < 0.5),
        lambda: normalizers.Replace(pattern(rng, False), rng.choice(["", " ", "\u2581", "zz", "\u00e9"])),
        lambda: normalizers.Prepend(rng.choice(["\u2581", "x", "ab"])),
        lambda: normalizers.BertNormalizer(*[rng.random() < 0.5 for _ in range(2)], rng.choice([None, True, False]), rng.random() < 0.5),
    ])()


def one_splitter(rng):
    return rng.choice([
        lambda: pre_tokenizers.Split(pattern(rng), rng.choice(BEHAVIORS), rng.random() < 0.3),
        lambda: pre_tokenizers.Split(pattern(rng), rng.choice(BEHAVIORS), rng.random() < 0.3),
        lambda: pre_tokenizers.Metaspace(rng.choice("\u2581_"), rng.choice(["always", "first", "never"]), rng.random() < 0.6),
        lambda: pre_tokenizers.Digits(rng.random() < 0.5), lambda: pre_tokenizers.Punctuation(rng.choice(BEHAVIORS)),
        pre_tokenizers.Whitespace, pre_tokenizers.WhitespaceSplit, pre_tokenizers.BertPreTokenizer,
        lambda: pre_tokenizers.CharDelimiterSplit(rng.choice(" a-")), lambda: pre_tokenizers.FixedLength(rng.randint(1, 6)),
        lambda: pre_tokenizers.ByteLevel(rng.random() < 0.5, rng.random() < 0.5, rng.random() < 0.5),
    ])()


def one_decoder(rng):
    return rng.choice([
        decoders.ByteLevel, decoders.ByteFallback, decoders.Fuse,
        lambda: decoders.Metaspace(rng.choice("\u2581_"), rng.choice(["always", "first", "never"])),
        lambda: decoders.WordPiece(rng.choice(["##", "", "_"]), rng.random() < 0.5), lambda: decoders.Replace(pattern(rng), rng.choice(["", " ", "x"])),
        lambda: decoders.CTC(rng.choice(["<unk>", "<s>", "e"]), rng.choice(["\u2581", "|", "the"]), rng.random() < 0.5),
        lambda: decoders.Strip(rng.choice(" a\u2581"), rng.randint(0, 2), rng.randint(0, 2)), lambda: decoders.BPEDecoder(rng.choice(["</w>", "e"])),
    ])()


def several(rng, one, make, most):
    n = rng.randint(0, most)
    if n == 0:
        return None
    if n == 1 and rng.random() < 0.5:
        return one(rng)
    parts = [one(rng) for _ in range(n)]
    return make([make(parts[:1]), make(parts[1:])] if n > 1 and rng.random() < 0.2 else parts)


def token_of(rng, tokenizer):
    piece = rng.choice(sorted(tokenizer.get_vocab()))
    return piece, tokenizer.token_to_id(piece)


def processor(rng, tokenizer):
    a, b = token_of(rng, tokenizer), token_of(rng, tokenizer)
    trim = lambda: processors.ByteLevel(rng.random() < 0.5, rng.random() < 0.5, True)  # noqa: E731
    if ":" in a[0] + b[0] or "$" in a[0] + b[0] or " " in a[0] + b[0]:
        return trim()
    c = dict(id="two", ids=[a[1], b[1]], tokens=[a[0], b[0]])  # a special token of two
    template = lambda: processors.TemplateProcessing(  # noqa: E731
        single=rng.choice([["$A"], [a[0], "$A"], ["$A", b[0]], [a[0], "$A:1", b[0] + ":2"], ["two", "$0", "two:1"], [a[0]]]),
        pair=rng.choice([["$A", "$B:1"], [a[0], "$A", b[0], "$B:1", b[0] + ":1"], ["$B", "$A:1"], ["two", "$0", "$B:3"]]), special_tokens=[a, b, c])
    return rng.choice([
        trim, template, lambda: processors.BertProcessing(a, b),
        lambda: processors.RobertaProcessing(a, b, rng.random() < 0.5, rng.random() < 0.5), lambda: processors.Sequence([trim(), template()]),
        lambda: None,
    ])()


# ---- Tokenizers ------------------------------------------------------------------------------------------------------

def bpe(rng):
    unk = rng.choice([None, "<unk>"])
    fallback = rng.random() < 0.4
    byte_level = rng.random() < 0.5
    affix = not byte_level and rng.random() < 0.3
    model = models.BPE(unk_token=unk, fuse_unk=rng.random() < 0.5, byte_fallback=fallback, ignore_merges=rng.random() < 0.3,
                       **({"continuing_subword_prefix": rng.choice(["", "##"]), "end_of_word_suffix": rng.choice(["", "</w>"])} if affix else {}))
    t = Tokenizer(model)
    special = ["<unk>", "<s>"] + ([f"<0x{i:02X}>" for i in range(rng.choice([256, 128, 200]))] if fallback else [])
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if byte_level else pre_tokenizers.Metaspace() if rng.random() < 0.5 else pre_tokenizers.Whitespace()
    extra = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()} if byte_level and rng.random() < 0.8 else {"limit_alphabet": rng.choice([40, 100, 1000])}
    if affix:
        extra["continuing_subword_prefix"], extra["end_of_word_suffix"] = model.continuing_subword_prefix or "", model.end_of_word_suffix or ""
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=rng.choice([300, 400, 700]), special_tokens=special, show_progress=False, **extra))
    return t, byte_level


def unigram(rng):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = rng.choice([pre_tokenizers.Metaspace(), pre_tokenizers.Whitespace(), pre_tokenizers.Metaspace(split=False)])
    t.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=rng.choice([400, 600]), special_tokens=["<unk>", "<s>"], unk_token="<unk>", show_progress=False))
    if rng.random() < 0.4:
        spec = json.loads(t.to_str())
        spec["model"]["vocab"] += [[f"<0x{i:02X}>", 0.0] for i in range(rng.choice([256, 200]))]
        spec["model"]["byte_fallback"] = True
        t = Tokenizer.from_str(json.dumps(spec))
    return t, False


def wordpiece(rng):
    prefix = rng.choice(["##", "##", "_", "@@"])
    t = Tokenizer(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=rng.choice([5, 20, 100]), continuing_subword_prefix=prefix))
    t.pre_tokenizer = rng.choice([pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Whitespace()])
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=rng.choice([300, 600]), special_tokens=["<unk>", "<s>"], show_progress=False,
                                                                  continuing_subword_prefix=prefix))
    return t, False


def wordlevel(rng):
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.train_from_iterator(CORPUS, trainers.WordLevelTrainer(vocab_size=200, special_tokens=["<unk>", "<s>"], show_progress=False))
    return t, False


def build(rng):
    t, byte_level = rng.choice([bpe, bpe, bpe, unigram, unigram, wordpiece, wordlevel])(rng)
    if rng.random() < 0.7:
        t.normalizer = several(rng, one_normalizer, normalizers.Sequence, 3)
    if rng.random() < 0.6 and not byte_level:
        t.pre_tokenizer = several(rng, one_splitter, pre_tokenizers.Sequence, 3)
    elif byte_level:
        last = pre_tokenizers.ByteLevel(rng.random() < 0.5, rng.random() < 0.5, rng.random() < 0.7)
        t.pre_tokenizer = last if rng.random() < 0.4 else pre_tokenizers.Sequence([one_splitter(rng) for _ in range(rng.randint(0, 2))] + [last])
    flag = lambda p: rng.random() < p  # noqa: E731
    added = ["[MASK]", "<T>", "tok", "ab", "abc", " tok ", "<|endoftext|>", "\u2581", "\u00e9", "th", "the"]
    for content in rng.sample(added, rng.randint(0, 5)):
        token = AddedToken(content, single_word=flag(0.3), lstrip=flag(0.3), rstrip=flag(0.3), normalized=flag(0.5), special=flag(0.5))
        (t.add_special_tokens if token.special else t.add_tokens)([token])
    # Which of two added tokens with the same normalized text is found, or whether an empty one is, is chance in the library.
    shown = [t.normalizer.normalize_str(a.content) if a.normalized and t.normalizer else a.content for a in t.get_added_tokens_decoder().values()]
    if len(set(shown)) < len(shown) or "" in shown:
        raise ValueError("added tokens that are not told apart")
    t.post_processor = processor(rng, t)
    t.decoder = several(rng, one_decoder, decoders.Sequence, 3)
    return respell(rng, t.to_str())


# Fields that may be absent, with what the library takes then.
ABSENT = dict(dropout=None, byte_fallback=False, ignore_merges=False, fuse_unk=False, continuing_subword_prefix=None, end_of_word_suffix=None)


def respell(rng, text):
    """The text of a file as older versions of the library or other programs write it, and the tokenizer that the library reads."""
    spec = json.loads(text)
    model = spec["model"]
    if rng.random() < 0.3 and model["type"] == "BPE":
        for key in [k for k, v in ABSENT.items() if k in model and model[k] == v and rng.random() < 0.5]:
            del model[key]
        if not any(" " in part for merge in model["merges"] for part in merge):
            model["merges"] = [" ".join(merge) for merge in model["merges"]]
    if rng.random() < 0.2 and model["type"] == "Unigram" and not model.get("byte_fallback"):
        model["unk_id"] = None
        model.pop("byte_fallback", None)
    if rng.random() < 0.2 and model["type"] == "BPE":
        model["dropout"] = 0.0

    def older(part):
        if isinstance(part, dict) and part.get("type") == "Metaspace" and part["prepend_scheme"] != "first" and rng.random() < 0.5:
            part["add_prefix_space"] = part["prepend_scheme"] == "always"
            if rng.random() < 0.5:
                del part["prepend_scheme"]
                part.pop("split", None)
                part["str_rep"] = part["replacement"]
        for value in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            older(value)

    older([spec["pre_tokenizer"], spec["decoder"]])
    ascii_only = rng.random() < 0.5
    for _ in range(4):
        text = json.dumps(spec, ensure_ascii=ascii_only)
        t = Tokenizer.from_str(text)
        read = json.loads(t.to_str())["model"]["vocab"]
        if read == model["vocab"]:
            return t, text
        model["vocab"] = read  # the library reads some scores wrong by a unit of rounding, which decides between equal paths
    raise ValueError("scores that change whenever they are read")


# ---- SentencePiece -----------------------------------------------------------------------------------------------------

def train_model(rng, folder):
    """Trains a random model into the folder; its table of characters, too, for the library's normalizer."""
    corpus = os.path.join(folder, "corpus")
    with open(corpus, "w", encoding="utf-8") as out:
        out.write("\n".join(line.replace("\n", " ") for line in CORPUS))
    extra = rng.choice([{}, {"user_defined_symbols": ["<T>", "[MASK]", "ab"], "control_symbols": ["<c>"]},
                        {"user_defined_symbols": rng.sample(["\u2581the", "th", "he ", "at", "in", "ing", ", ", "A", "1", "\u65e5\u672c"], 4)},
                        {"add_dummy_prefix": False}, {"remove_extra_whitespaces": False}, {"treat_whitespace_as_suffix": True}])
    sentencepiece.SentencePieceTrainer.train(
        input=corpus, model_prefix=os.path.join(folder, "tokenizer"), vocab_size=rng.choice([650, 800]), model_type=rng.choice(["unigram", "bpe"]),
        byte_fallback=rng.random() < 0.5, normalization_rule_name=rng.choice(["nmt_nfkc", "nfkc_cf", "identity"]), character_coverage=0.98,
        hard_vocab_limit=False, minloglevel=3, **extra)
    os.remove(corpus)
    os.remove(os.path.join(folder, "tokenizer.vocab"))


def model_cases(rng, folder, count):
    model = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
    cases = []
    for _ in range(count):
        text = random_text(rng)
        ids = model.encode(text)
        cases.append({"text": text, "ids": ids, "tokens": model.encode(text, out_type=str), "decoded": model.decode(ids), "special": False,
                      "literal": True})
    return cases


def charsmap(path):
    """The normalizer's table in a model: field 3 of the message, and field 2 of that."""
    def fields(data):
        at = 0

        def number():
            nonlocal at
            n = shift = 0
            while True:
                byte = data[at]
                at += 1
                n |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return n
        while at < len(data):
            tag = number()
            if tag & 7 == 0:
                number()
            elif tag & 7 == 2:
                size = number()
                yield tag >> 3, data[at:at + size]
                at += size
            else:
                at += 4 if tag & 7 == 5 else 8
    with open(path, "rb") as file:
        spec = dict(fields(file.read()))[3]
    return dict(fields(spec)).get(2, b"")


def byte_offsets(text, offsets):
    at = [0]
    for c in text:
        at.append(at[-1] + len(c.encode()))
    return [[at[min(s, len(text))], at[min(e, len(text))]] for s, e in offsets]


# Characters that these normalize together share a place here, and have one each in the library.
COARSE = ("NF", "Precompiled", "BertNormalizer")


def cases_of(rng, t, count):
    cases = []
    spec = json.loads(t.to_str())
    exact = not any(word in json.dumps(spec["normalizer"]) for word in COARSE) and '"trim_offsets": true' not in json.dumps(spec["post_processor"])
    loses = spec["model"]["type"] == "BPE"  # characters without a token, whose length the library forgets
    for _ in range(count):
        text = random_text(rng)
        case = {"text": text, "special": rng.random() < 0.8}
        try:
            if rng.random() < 0.15:
                case["pair"] = random_text(rng)
                e = t.encode(text, case["pair"], add_special_tokens=case["special"])
            else:
                e = t.encode(text, add_special_tokens=case["special"])
                if exact and not loses:
                    case["offsets"] = byte_offsets(text, e.offsets)
            case["ids"], case["tokens"], case["type_ids"] = e.ids, e.tokens, e.type_ids
        except BaseException as error:  # the library panics on some texts
            if isinstance(error, KeyboardInterrupt):
                raise
            continue
        try:
            case["decoded"] = t.decode(e.ids)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
        cases.append(case)
    return cases


def same_training(mha, rng, folder):
    """Whether `mha tokenize --train` learns the merges that the library learns."""
    text, out = os.path.join(folder, "text"), os.path.join(folder, "trained.json")
    with open(text, "w", encoding="utf-8", newline="") as file:
        file.write("\n".join(random_text(rng).replace("\0", "") for _ in range(300)))
    size = rng.choice([300, 600, 5000])
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train([text], trainers.BpeTrainer(vocab_size=size, special_tokens=["<|endoftext|>"], show_progress=False,
                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    want = json.loads(t.to_str())["model"]
    subprocess.run([mha, "tokenize", "--train", text, "--vocab", str(size), "-o", out], check=True, capture_output=True)
    with open(out, encoding="utf-8") as file:
        got = json.load(file)["model"]
    os.remove(text)
    os.remove(out)
    return got["vocab"] == want["vocab"] and got["merges"] == want["merges"]


def save(folder, cases):
    with open(os.path.join(folder, "cases.json"), "w", encoding="utf-8") as out:
        json.dump(cases, out, ensure_ascii=False)


def main():
    mha = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] != "-" else int(time.time())
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    print(f"tokenizers {tokenizers.__version__}, seed {seed}")
    folder = tempfile.mkdtemp(prefix="mha-oracle-")
    made = 0
    for number in range(count * 4):
        if made == count:
            break
        rng = random.Random(seed * 1000003 + number)
        try:
            t, text = build(rng)
            t.encode("a b")
        except BaseException as error:  # combinations that the library refuses
            if isinstance(error, KeyboardInterrupt):
                raise
            continue
        here = os.path.join(folder, f"{made:04d}")
        os.mkdir(here)
        with open(os.path.join(here, "tokenizer.json"), "w", encoding="utf-8") as out:
            out.write(text)
        save(here, cases_of(rng, t, 40))
        made += 1
    rng = random.Random(seed)
    for number in range(count // 10 if sentencepiece else 0):
        here = os.path.join(folder, f"spm{number}")
        os.mkdir(here)
        train_model(rng, here)
        save(here, model_cases(rng, here, 40))
        table = charsmap(os.path.join(here, "tokenizer.model"))
        if table:
            t, _ = unigram(rng)
            t.normalizer = normalizers.Precompiled(table)
            here = os.path.join(folder, f"table{number}")
            os.mkdir(here)
            t.save(os.path.join(here, "tokenizer.json"))
            save(here, cases_of(rng, t, 40))
    trained = same_training(mha, rng, folder)
    print(f"{'  ok    ' if trained else 'FAILED  '}training")
    run = subprocess.run([os.path.join(os.path.dirname(mha), "tools/conformance"), folder], capture_output=True, text=True, errors="replace")
    lines = run.stdout.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("FAILED"):
            print(line)
            if i + 1 < len(lines):
                print(lines[i + 1])
    print(run.stderr, end="")
    if run.returncode == 0:
        shutil.rmtree(folder)
    else:
        print(f"kept {folder}; to repeat: oracle.py MHA {seed} {count}")
    passed, failed = (int(lines[-1].split()[i]) for i in (0, 2)) if lines else (0, 1)
    print(f"{passed + trained} passed, {failed + (not trained)} failed")
    return run.returncode or not trained


if __name__ == "__main__":
    sys.exit(main())
