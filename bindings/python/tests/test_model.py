"""mha.Model and mha.Tokenizer beside the transformers and tokenizers libraries, on small random models."""

import os
import signal
import threading
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
import mha  # noqa: E402
from mha import _mha  # noqa: E402
from models import TEXT, byte_level  # noqa: E402


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A folder with a random GPT-2 and its tokenizer."""
    folder = tmp_path_factory.mktemp("gpt2")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=0,
                                     eos_token_id=0, attn_implementation="eager")  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.2)
    model.save_pretrained(folder)
    tokenizer = byte_level()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder, model, tokenizer


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(1)
    config = transformers.BertConfig(vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                     num_attention_heads=4, max_position_embeddings=32)  # fmt: skip
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(folder)
    return folder, model


def test_about(gpt2):
    model = mha.Model(gpt2[0])
    assert model.info["family"] == "gpt2" and model.info["blocks"] == 2 and model.info["causal"]
    assert [a["heads"] for a in model.attentions] == [4, 4]
    assert isinstance(model.description, dict) and "gpt2" in repr(model) and "BPE" in repr(model.tokenizer)


def test_logits_hidden_and_maps(gpt2):
    folder, theirs, tokenizer = gpt2
    model = mha.Model(folder)
    text = "The cat sat on"
    ids = tokenizer.encode(text).ids
    with torch.no_grad():
        want = theirs(torch.tensor([ids]), output_attentions=True, output_hidden_states=True)
    for inputs in (text, ids, np.array(ids)):
        np.testing.assert_allclose(model.logits(inputs), want.logits[0].numpy(), atol=2e-4)
    hidden = model.hidden(text)
    for n in range(3):
        np.testing.assert_allclose(hidden[n], want.hidden_states[n][0].numpy(), atol=2e-4)
    found = model.attention(text)
    assert "".join(found.tokens) == text
    for got, map in zip(found.maps, want.attentions, strict=True):
        np.testing.assert_allclose(got, map[0].numpy(), atol=2e-5)


def test_inside_of_a_block(gpt2):
    folder, theirs, tokenizer = gpt2
    model, text, seen = mha.Model(folder), "The cat sat on", {}
    block = theirs.transformer.h[1]
    parts = {"read": block.ln_1, "attended": block.attn.c_proj, "mlp_read": block.ln_2, "hidden": block.mlp.act, "mlp": block.mlp.c_proj}
    hooks = [
        part.register_forward_hook(lambda _, args, out, name=name: seen.update({name: out[0].numpy()}))
        for name, part in parts.items()
    ]
    with torch.no_grad():
        theirs(torch.tensor([tokenizer.encode(text).ids]))
    for hook in hooks:
        hook.remove()
    found, hidden = model.inside(text, 1), model.hidden(text)
    for name, want in seen.items():
        np.testing.assert_allclose(found[name], want, atol=2e-4, err_msg=name)
    assert (found["x"] == hidden[1]).all() and (found["weights"] == model.attention(text).maps[1]).all()
    assert (model.inside(text)["y"] == hidden[1]).all()
    np.testing.assert_allclose(found["middle"], found["x"] + found["attended"], atol=1e-6)
    np.testing.assert_allclose(found["y"], found["middle"] + found["mlp"], atol=1e-6)
    np.testing.assert_allclose(found["heads"], found["weights"] @ found["v"], atol=1e-5)
    D, shown = found["q"].shape[-1], np.isfinite(found["scores"])
    scores = found["q"] @ found["k"].swapaxes(1, 2) / np.sqrt(D)
    np.testing.assert_allclose(found["scores"][shown], scores[shown], rtol=1e-5, atol=1e-4)


def test_batches_have_the_bits_of_single_texts(gpt2):
    model = mha.Model(gpt2[0])
    texts = ["The cat", "The dog sat on the log"]
    for got, text in zip(model.logits(texts), texts, strict=True):
        assert (got == model.logits(text)).all()


def test_padding_changes_nothing(bert):
    model = mha.Model(bert[0])
    rows = [[3, 4, 5, 6], [7, 8]]
    for got, row in zip(model.hidden(rows), rows, strict=True):
        assert (got == model.hidden(row)).all()


def test_generate(gpt2):
    folder, theirs, tokenizer = gpt2
    model = mha.Model(folder)
    ids = tokenizer.encode("The cat").ids
    want = theirs.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)[0].tolist()[len(ids) :]
    want = [id for id in want if id != 0]
    text = model.generate("The cat", method="greedy", max_new_tokens=12)
    assert text == tokenizer.decode(want)
    assert "".join(model.stream("The cat", method="greedy", max_new_tokens=12)) == text
    assert model.generate(["The cat", "The dog sat"], method="greedy", max_new_tokens=12)[0] == text
    one, two, other = (model.generate("The", method="sample", temperature=2.0, seed=s, max_new_tokens=20) for s in (1, 1, 2))
    assert one == two != other
    letter = text[len(text) // 2]
    assert model.generate("The cat", method="greedy", max_new_tokens=12, stop=letter) == text[: text.index(letter)]


def test_generate_without_a_tokenizer(bert, gpt2, tmp_path):
    import shutil

    for name in ("config.json", "model.safetensors", "generation_config.json"):
        shutil.copy(gpt2[0] / name, tmp_path)
    model = mha.Model(tmp_path)
    found = model.generate([5, 6, 7], method="greedy", max_new_tokens=3)
    assert found.text is None and found.tokens[:3] == [5, 6, 7] and found.prompt == 3
    assert found.finish in ("length", "end") and len(found.tokens) <= 6
    with pytest.raises(ValueError):
        model.logits("text")
    assert mha.Model(tmp_path, tokenizer=gpt2[0] / "tokenizer.json").logits("The cat").shape[1] == 300


def test_heads(gpt2):
    heads = mha.Model(gpt2[0]).heads(TEXT, window=16, windows=4)
    assert len(heads) == 8 and {(h.block, h.head) for h in heads} == {(b, h) for b in range(2) for h in range(4)}
    assert all(isinstance(h.words, str) and 0 < h.entropy <= h.uniform for h in heads)


def test_embed(bert):
    folder, theirs = bert
    model = mha.Model(folder)
    rows = [[3, 4, 5, 6], [7, 8]]
    got = model.embed(rows)
    for one, row in zip(got, rows):
        with torch.no_grad():
            want = theirs(torch.tensor([row])).last_hidden_state[0]
        np.testing.assert_allclose(one, torch.nn.functional.normalize(want.mean(0), dim=0).numpy(), atol=1e-5)
        np.testing.assert_allclose(model.embed(row, pool="first", normalize=False), want[0].numpy(), atol=1e-5)


def test_vision(tmp_path):
    torch.manual_seed(2)
    config = transformers.ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
                                    image_size=8, patch_size=4, num_channels=3, num_labels=5)  # fmt: skip
    theirs = transformers.ViTForImageClassification(config).eval()
    theirs.save_pretrained(tmp_path)
    model = mha.Model(tmp_path)
    images = np.random.default_rng(0).random((2, 3, 8, 8), np.float32)
    with torch.no_grad():
        pixels = (torch.from_numpy(images) - model.info["mean"]) / model.info["deviation"]
        want = theirs(pixels).logits.numpy()
    np.testing.assert_allclose(model.logits(images), want, atol=1e-4)
    np.testing.assert_allclose(model.logits(images[1]), want[1], atol=1e-4)
    with pytest.raises(ValueError, match="^inputs: "):
        model.generate("text")


def test_a_saved_folder_is_opened_by_transformers(gpt2, tmp_path):
    model = mha.Model(gpt2[0])
    model.save(tmp_path / "copy")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "copy").eval()
    ids = torch.arange(3, 12)[None]
    with torch.no_grad():
        assert torch.equal(theirs(ids).logits, transformers.AutoModelForCausalLM.from_pretrained(gpt2[0]).eval()(ids).logits)
    with pytest.raises(ValueError, match="has a config.json"):
        model.save(tmp_path / "copy")


def test_tokenizer(gpt2):
    folder, _, theirs = gpt2
    tokenizer = mha.Tokenizer(folder)
    for text in ("", "The cat", " naïve  CAFÉ\n\t42", "日本 🙂", "a <|endoftext|> b", "with\0zero"):
        assert tokenizer.encode(text) == theirs.encode(text).ids
        assert tokenizer.decode(theirs.encode(text).ids, special=True) == theirs.decode(theirs.encode(text).ids, False)
    assert len(tokenizer) == theirs.get_vocab_size() and tokenizer.piece(0) == "<|endoftext|>" and tokenizer.piece(10**6) is None
    assert 0 not in tokenizer.encode("<|endoftext|>", literal=True)
    tokens = tokenizer.tokens("The cat")
    assert "".join(token.text for token in tokens) == "The cat" and tokens[0].id == tokenizer.encode("The cat")[0]


def test_threads_share_a_model(gpt2):
    model = mha.Model(gpt2[0])
    want, got = model.logits("The cat sat"), []
    workers = [threading.Thread(target=lambda: got.append(model.logits("The cat sat"))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(got) == 4 and all((one == want).all() for one in got)


def test_generation_outlives_its_model(gpt2):
    pieces = mha.Model(gpt2[0]).stream("The cat", method="greedy", max_new_tokens=6)
    first = next(pieces)
    assert first + "".join(pieces) == mha.Model(gpt2[0]).generate("The cat", method="greedy", max_new_tokens=6)


@pytest.mark.parametrize(
    "call, kind, text",
    [
        (lambda m: mha.Model("/nowhere"), FileNotFoundError, "/nowhere"),
        (lambda m: mha.Model(None), TypeError, None),
        (lambda m: mha.Model("a\0b"), ValueError, None),
        (lambda m: mha.Tokenizer("/nowhere"), FileNotFoundError, "/nowhere"),
        (lambda m: m.logits([1, 300]), ValueError, "300"),
        (lambda m: m.logits([1, -1]), ValueError, "-1"),
        (lambda m: m.logits([1.5]), TypeError, "^tokens: "),
        (lambda m: m.logits([1 << 40]), ValueError, "^tokens: "),
        (lambda m: m.logits([]), ValueError, "no tokens"),
        (lambda m: m.logits(""), ValueError, "no tokens"),
        (lambda m: m.logits(["a", None]), TypeError, "^tokens: "),
        (lambda m: m.logits([1] * 65), ValueError, "64"),
        (lambda m: m.attention(["a", "b"]), ValueError, "^text: "),
        (lambda m: m.inside("a", 9), ValueError, "^attention: "),
        (lambda m: m.inside("a", "first"), ValueError, "^attention: "),
        (lambda m: m.inside(["a", "b"]), ValueError, "^text: "),
        (lambda m: m.embed("a", pool="best"), ValueError, "^pool: "),
        (lambda m: m.embed("a", prompt="query"), ValueError, "^prompt: "),
        (lambda m: m.generate("a", method="guess"), ValueError, "^method: "),
        (lambda m: m.generate("a", temperature=-1.0), ValueError, "temperature"),
        (lambda m: m.generate("a", colour="red"), TypeError, "colour"),
        (lambda m: m.generate("a", stop=[1]), TypeError, None),
        (lambda m: m.generate("a", stop=[""]), ValueError, "stop_strings"),
        (lambda m: m.heads("a"), ValueError, None),
        (lambda m: m.tokenizer.encode(None), TypeError, "^text: "),
        (lambda m: m.tokenizer.encode("\ud800"), ValueError, None),
        (lambda m: m.tokenizer.decode("text"), TypeError, "^ids: "),
        (lambda m: mha._mha.model_run(m.tokenizer._handle, None), ValueError, None),
        (lambda m: mha._mha.model_run(m._handle, [None]), ValueError, "^maps: "),
        (lambda m: mha._mha.generation_create(m._handle, None, (), starts=None), TypeError, "^starts: "),
    ],
)  # fmt: skip
def test_errors(gpt2, call, kind, text):
    with pytest.raises(kind, match=text):
        call(mha.Model(gpt2[0]))


def test_arguments_that_change_the_number_of_threads(gpt2, tmp_path):
    """Reading an argument may run anything: here it replaces the context of this thread, and uses the new one."""
    model, threads = mha.Model(gpt2[0]), iter(range(1, 1000))
    tokens, starts = np.array([[3, 5, 7]], np.int32), np.array([0, 3], np.int64)
    want = model.logits([3, 5, 7])

    def change():
        for n in (next(threads) % 3 + 1, next(threads) % 3 + 1):
            mha.set_num_threads(n)
            _mha.model_about(model._handle)

    class Number:
        def __init__(self, of):
            self.of = of

        def __index__(self):
            change()
            return self.of

        def __float__(self):
            change()
            return float(self.of)

    class Array:
        def __init__(self, of):
            self.of = of

        @property
        def __array_struct__(self):
            change()
            return self.of.__array_struct__

        def __dlpack_device__(self):
            change()
            return 1, 0

        def __dlpack__(self, **options):
            return self.of.__dlpack__()

    try:
        for _ in range(3):
            logits = np.empty((1, 3, 300), np.float32)
            _mha.model_run(model._handle, None, tokens=Array(tokens), logits=logits, inside_attention=Number(-1))
            np.testing.assert_array_equal(logits[0], want)
            generation = _mha.generation_create(model._handle, None, (), tokens=Array(tokens[0]), starts=starts,
                                                temperature=Number(0.5), max_new_tokens=Number(2))  # fmt: skip
            while not _mha.generation_step(generation):
                pass
            assert len(_mha.generation_get(generation, 0)[0]) == 5
            survey = _mha.survey_make(model._handle, tokens=Array(tokens[0]), starts=starts, repeats=Number(0))
            assert len(_mha.survey_heads(survey)) == 8
            assert len(_mha.text_ablate(model._handle, tokens=Array(tokens[0]), starts=starts, window=Number(3))) == 1
            assert _mha.tokenizer_decode(model.tokenizer._handle, Array(tokens[0]), False)
            _mha.tokenizer_train(str(tmp_path / "t.json"), "a text of words " * 9, Number(300), Number(1), "<s>")
            _mha.speech_features(Array(np.zeros(400, np.float32)), np.empty((2, 3), np.float32))
            _mha.model_save(model._handle, str(tmp_path / "smaller"), Array(np.arange(8) != 3))
    finally:
        mha.set_num_threads(0)


@pytest.mark.parametrize("use", ["logits", "encode"])
def test_fork_while_another_thread_uses_the_model(gpt2, use):
    model, done = mha.Model(gpt2[0]), threading.Event()
    call = (lambda: model.logits(list(range(1, 60)))) if use == "logits" else (lambda: model.tokenizer.encode("a b c " * 50))
    want = call()

    def work():
        while not done.is_set():
            call()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(10):
            time.sleep(0.003)
            child = os.fork()
            if child == 0:
                signal.alarm(30)  # it ends a child that waits for a lock
                os._exit(0 if np.array_equal(call(), want) else 3)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        done.set()
        for worker in workers:
            worker.join()
    np.testing.assert_array_equal(call(), want)  # and the parent goes on


def test_fork_during_a_long_call(gpt2, monkeypatch):
    """The fork does not wait for ever, and the child is told."""
    model, started, done = mha.Model(gpt2[0]), threading.Event(), threading.Event()
    monkeypatch.setattr("mha._lock._PATIENCE", 0.05)

    def work():
        with model._lock:
            started.set()
            done.wait(30)

    worker = threading.Thread(target=work)
    worker.start()
    started.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            model.logits([1, 2])
        except RuntimeError as error:
            os._exit(0 if "when this process was forked" in str(error) else 4)
        os._exit(3)
    done.set()
    worker.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(model.logits([1, 2])) == 2
