"""What models are for: missing words, classes, losses, speech; and models with two stacks."""

import copy
import math
import pickle
import wave

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
import mha  # noqa: E402
import models  # noqa: E402


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """name -> (folder, model of transformers), each made once."""
    found = {}

    def make(name):
        if name not in found:
            folder = tmp_path_factory.mktemp(name)
            found[name] = folder, getattr(models, name)(folder)
        return found[name]

    return make


def test_fill(made):
    folder, theirs = made("masked")
    model = mha.Model(folder)
    ids = model.tokenizer.encode("the [MASK] sat on the [MASK].")
    with torch.no_grad():
        p = theirs(torch.tensor([ids])).logits[0].softmax(-1).numpy()
    found = model.fill("the [MASK] sat on the [MASK].", top=4)
    assert len(found) == 2 and all(len(one) == 4 for one in found)
    for tokens, at in zip(found, [n for n, id in enumerate(ids) if id == 4]):
        assert [token.id for token in tokens] == np.argsort(-p[at], kind="stable")[:4].tolist()
        assert tokens[0].probability == pytest.approx(p[at].max(), abs=1e-5)
        assert tokens[0].piece == model.tokenizer.piece(tokens[0].id)
    with pytest.raises(ValueError, match=r"^text: has no \[MASK\]"):
        model.fill("the cat")


def test_classify(made):
    folder, theirs = made("classifier")
    model = mha.Model(folder)
    ids = model.tokenizer.encode("the cat sat")
    with torch.no_grad():
        p = theirs(torch.tensor([ids])).logits[0].softmax(-1).numpy()
    found = model.classify("the cat sat")
    assert [one.number for one in found] == np.argsort(-p).tolist()
    assert [one.name for one in found] == [["bad", "so <b>", "good"][n] for n in np.argsort(-p)]
    assert found[0].probability == pytest.approx(p.max(), abs=1e-5)
    assert model.classify(["the cat sat", "a dog"], top=1)[0] == found[:1]
    with pytest.raises(ValueError, match="^model: "):
        mha.Model(made("masked")[0]).classify("the cat")


def test_two_stacks(made):
    folder, theirs = made("pair")
    model = mha.Model(folder)
    source, target = model.tokenizer.encode("The cat sat"), [0, 5, 6, 7]
    with torch.no_grad():
        want = theirs(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target]), output_attentions=True,
                      output_hidden_states=True)  # fmt: skip
    found = model.attention("The cat sat", target)
    assert len(found.tokens) == len(source) and len(found.target) == 4 and "".join(found.tokens) == "The cat sat"
    for ours, other in ((found.encoder, want.encoder_attentions), (found.decoder, want.decoder_attentions),
                        (found.cross, want.cross_attentions)):  # fmt: skip
        for got, map in zip(ours, other, strict=True):
            np.testing.assert_allclose(got, map[0].numpy(), atol=2e-5)
    assert len(found.maps) == 6 and found[5, 1].weights.shape == (4, len(source)) and found[5, 1].keys == found.tokens
    np.testing.assert_allclose(model.logits("The cat sat", target), want.logits[0].numpy(), atol=1e-3)
    for got, other in ((model.hidden("The cat sat"), want.encoder_hidden_states),
                       (model.hidden("The cat sat", target), want.decoder_hidden_states)):  # fmt: skip
        np.testing.assert_allclose(got[-1], other[-1][0].numpy(), atol=1e-3)
    inside = model.inside("The cat sat", 5, target)  # of a cross-attention
    assert inside["scores"].shape == (4, 4, len(source)) and (inside["weights"] == found.cross[1]).all()
    np.testing.assert_allclose(inside["heads"], inside["weights"] @ inside["v"], atol=1e-5)
    mean = want.encoder_last_hidden_state[0].mean(0)
    np.testing.assert_allclose(model.embed("The cat sat"), (mean / mean.norm()).numpy(), atol=1e-4)


def test_two_stacks_generate(made):
    folder, theirs = made("pair")
    model = mha.Model(folder)
    ids = model.tokenizer.encode("The dog")
    want = theirs.generate(torch.tensor([ids]), max_new_tokens=6, do_sample=False)[0].tolist()
    text = model.generate("The dog", method="greedy", max_new_tokens=6)
    assert text == model.tokenizer.decode(want[1:])
    generated = model.attention("The dog")
    assert len(generated.target) >= 2 and all(map.shape[1] == len(generated.target) for map in generated.cross)
    heads = model.heads(["The cat sat", "The dog saw the log"], ["the mat", "a log"])
    assert len(heads) == 24 and sum(head.cross for head in heads) == 8
    assert all(not math.isnan(head.monotone) for head in heads if head.cross)
    with pytest.raises(ValueError, match="^target: has 1"):
        model.heads(["a", "b"], ["c"])


def test_heads_see_the_sides(made):
    """[CLS] and [SEP] are part of each window."""
    model = mha.Model(made("masked")[0])
    heads = model.heads("the cat sat on the mat. " * 8, window=10)
    assert heads.map(0).shape == (10, 10) and len(heads) == 8
    np.testing.assert_allclose(heads.map(3).sum(1), 1, atol=1e-5)
    one = model.heads("the cat sat on")  # a window of its own: [CLS] the cat sat on [SEP]
    np.testing.assert_allclose(one.map(5), model.attention("the cat sat on").maps[1][1], atol=1e-6)
    with pytest.raises(IndexError):
        heads.map(8)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt2")
    config = transformers.GPT2Config(vocab_size=300, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0)
    return folder, models.save(folder, transformers.GPT2LMHeadModel(config), models.byte_level())


def test_evaluate_a_text(gpt2):
    model = mha.Model(gpt2[0])
    ids = model.tokenizer.encode(models.TEXT)[:60]
    with torch.no_grad():
        want = float(gpt2[1](torch.tensor([ids]), labels=torch.tensor([ids])).loss)
    found = model.evaluate(ids)
    assert found.loss == pytest.approx(want, abs=1e-4) and found.scored == 59
    assert found.perplexity == pytest.approx(math.exp(want), rel=1e-3) and found.bits_per_byte is None
    # In windows that overlap, each token is scored once, with at least half a window before it.
    ids, losses = model.tokenizer.encode(models.TEXT), []
    for start in range(0, len(ids), 8):
        with torch.no_grad():
            logits = gpt2[1](torch.tensor([ids[start : start + 16]])).logits[0].log_softmax(-1)
        for at in range(start + 1 if start == 0 else start + 8, min(start + 16, len(ids))):
            losses.append(-float(logits[at - 1 - start, ids[at]]))
    found = model.evaluate(models.TEXT, window=16, stride=8)
    assert found.scored == len(losses) == len(ids) - 1 and found.loss == pytest.approx(np.mean(losses), abs=1e-4)
    bytes_ = len(models.TEXT.encode()) - len(model.tokenizer.tokens(models.TEXT)[0].text.encode())
    assert found.bits_per_byte == pytest.approx(sum(losses) / math.log(2) / bytes_, rel=1e-4)


def test_heads_off(gpt2, tmp_path):
    model = mha.Model(gpt2[0])
    before = model.logits("The cat sat")
    without = np.zeros((2, 8), bool)
    without[1, [1, 6]] = True
    scores = model.ablate(models.TEXT, without, window=16)
    assert scores[0].loss != scores[1].loss and scores[0].count == scores[1].count > 0
    model.save(tmp_path / "small.safetensors", without=[(0, 1), (1, 2)])
    small, pruned = mha.Model(tmp_path / "small.safetensors"), model.prune([(0, 1), (1, 2)])
    assert [a["heads"] for a in small.attentions] == [a["heads"] for a in pruned.attentions] == [3, 3]
    ids = model.tokenizer.encode("The cat sat")
    assert (small.logits(ids) == pruned.logits(ids)).all() and pruned.generate("The", max_new_tokens=2) is not None
    weight = model.parameters["decoder.blocks.0.attn.proj.weight"]  # GPT-2's lies transposed in the file
    np.testing.assert_array_equal(weight, gpt2[1].transformer.h[0].attn.c_proj.weight.detach().numpy().T)
    assert not weight.flags.writeable and len(model.parameters) > 20
    model.switch_off([(0, 1), (1, 2)])
    np.testing.assert_allclose(model.logits(ids), small.logits(ids), atol=1e-4)
    assert abs(model.logits(ids) - before).max() > 1e-3
    model.switch_off([(0, 1)])
    with pytest.raises(ValueError, match="heads were switched off"):
        model.view(text="The cat")
    same = copy.deepcopy(model)
    assert (same.logits(ids) == model.logits(ids)).all()
    same.switch_off([(0, 2)])
    assert (same.logits(ids) != model.logits(ids)).any()
    with pytest.raises(TypeError, match="cannot be pickled; save"):
        pickle.dumps(model)
    for bad in ([(0, 4)], [(2, 0)], [(-1, 0)]):
        with pytest.raises(ValueError, match="^heads: there is no head"):
            model.prune(bad)


def sound(path, seconds=1.3):
    t = np.arange(int(16000 * seconds)) / 16000
    samples = (0.3 * np.sin(2 * np.pi * 440 * t) * 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(16000), file.writeframes(samples.tobytes())
    return samples.astype(np.float32) / 32768


def test_transcribe(made, tmp_path):
    folder, theirs = made("whisper")
    model = mha.Model(folder)
    samples = sound(tmp_path / "tone.wav")
    found = model.transcribe(tmp_path / "tone.wav", max_new_tokens=5)
    assert found == model.transcribe(samples, max_new_tokens=5)
    assert [(one.start, one.end) for one in found.windows] == [(0.0, 1.0), (1.0, 1.3)]
    extract = transformers.WhisperFeatureExtractor(feature_size=80, chunk_length=1)
    features = extract(samples[:16000], sampling_rate=16000, return_tensors="pt").input_features
    want = theirs.generate(features, decoder_input_ids=torch.tensor([[1]]), max_new_tokens=5, do_sample=False)[0].tolist()
    assert found.windows[0].tokens == want[-len(found.windows[0].tokens) :]
    heads = model.attention(samples)
    assert len(heads.tokens) == 50 and heads.cross[0].shape == (2, len(heads.target), 50) and heads.tokens[1] == "0.02 s"
    with pytest.raises(ValueError, match="^model: "):
        model.heads("text")
    with pytest.raises(ValueError, match="^sound: has no samples"):
        model.transcribe(np.empty(0, np.float32))
    for bad in (None, 3, np.zeros((2, 2), np.float32), np.zeros(4, np.int16)):
        with pytest.raises(TypeError, match="^sound: "):
            model.transcribe(bad)
    with pytest.raises(FileNotFoundError, match="nowhere.wav"):
        model.transcribe("nowhere.wav")
    with pytest.raises(ValueError, match="^model: does not read audio"):
        mha.Model(made("masked")[0]).transcribe(samples)
