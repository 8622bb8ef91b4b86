"""Vision Transformers: training, heads, pruning, files, classes."""

import copy
import threading

import numpy as np
import pytest

import mha

SETTINGS = {"epochs": 1, "width": 16, "depth": 2, "heads": 2, "batch": 20, "seed": 3}


@pytest.fixture(scope="module")
def data():
    return mha.Data("synthetic:240")


@pytest.fixture(scope="module")
def trained(data):
    return mha.train(data, **SETTINGS)


def test_train(data, trained):
    seen = []
    again = mha.train(data, watch=seen.append, **SETTINGS)
    assert [step.step for step in seen] == list(range(len(seen))) and len(seen) > 5 and seen[0].loss > 0
    images, labels = data.examples("test")
    assert (again.model.logits(images) == trained.model.logits(images)).all()
    score = trained.model.evaluate(data)
    assert score[:2] == trained.test[:2] and score.loss == pytest.approx(trained.test.loss, abs=1e-4)
    assert score.count == 40 and score.accuracy == score.correct / 40
    right = trained.model.logits(images).argmax(1) == labels
    assert right.sum() == score.correct
    few = mha.train(data, watch=lambda step: step.step < 2, **SETTINGS)
    assert (few.model.logits(images) != again.model.logits(images)).any()
    for bad, kind in (({"epochs": "ten"}, ValueError), ({"colour": 1}, ValueError), ({"preset": "none"}, ValueError)):
        with pytest.raises(kind, match=next(iter(bad))):
            mha.train(data, **bad)
    same = copy.deepcopy(trained.model)
    assert (same.logits(images) == trained.model.logits(images)).all()
    name = next(iter(same.parameters))
    same.parameters[name][...] += 1
    assert (same.logits(images) != trained.model.logits(images)).any()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        mha.Data("/nowhere")
    with pytest.raises(ValueError, match="^part: "):
        data.examples("valid")


def test_images_in_any_form(data, trained):
    model = trained.model
    images, _ = data.examples("test")
    want = model.logits(images[:3])
    floats = images[:3] / np.float32(255)
    for same in (floats, floats[:, None], images[:3, None], list(images[:3])):
        assert (model.logits(same) == want).all()
    assert (model.logits(images[1]) == want[1]).all() and (model.logits(floats[1][None]) == want[1]).all()
    assert model.classify(images[0], top=2)[0].number == want[0].argmax()
    assert model.hidden(images[0]).shape == (3, model.info["tokens"], 16) and model.embed(images[:2]).shape == (2, 16)
    for bad, kind in ((floats[:, :20], ValueError), (np.zeros((28, 28), np.int64), TypeError), (None, TypeError), ("no.png", ValueError)):
        with pytest.raises(kind):
            model.logits(bad)
    with pytest.raises(ValueError, match="^inputs: this model does not read tokens"):
        model.generate("text")


def test_heads(data, trained):
    model = trained.model
    heads = model.heads(data, images=30)
    assert len(heads) == 4 and all(head.words and head.importance >= 0 for head in heads)
    np.testing.assert_allclose(heads.map(2).sum(1), 1, atol=1e-5)
    images, _ = data.examples("test")
    found = model.attention(images[0])
    assert [map.shape for map in found.maps] == [(2, 50, 50)] * 2 and found.tokens[0] == "class" and len(found.tokens) == 50
    parts = model.contributions(images[:2])
    np.testing.assert_allclose(parts.sum(1), model.logits(images[:2]), atol=1e-4)
    with pytest.raises(ValueError, match="^text: "):
        model.attention(images[:2])


def test_files_and_heads_off(data, trained, tmp_path):
    model = trained.model
    images, _ = data.examples("test")
    model.save(tmp_path / "vit.safetensors")
    opened = mha.Model(tmp_path / "vit.safetensors")
    assert (opened.logits(images) == model.logits(images)).all()
    small = opened.prune([(0, 1)])
    assert [a["heads"] for a in small.attentions] == [1, 2]
    small.save(tmp_path / "small.safetensors")
    assert (mha.Model(tmp_path / "small.safetensors").logits(images) == small.logits(images)).all()
    opened.switch_off([(0, 1)])
    np.testing.assert_allclose(opened.logits(images), small.logits(images), atol=1e-4)
    with pytest.raises(ValueError):
        opened.save("/nowhere/vit.safetensors")


def test_parameters_are_the_model(data, trained, tmp_path):
    trained.model.save(tmp_path / "vit.safetensors")
    model = mha.Model(tmp_path / "vit.safetensors")
    images, _ = data.examples("test")
    before = model.logits(images[:2])
    bias = model.parameters["head.bias"]
    bias += 1
    np.testing.assert_allclose(model.logits(images[:2]), before + 1, atol=1e-5)
    del model
    assert bias.shape == (10,) and float(bias.sum()) == pytest.approx(float(bias.sum()))  # it holds the model
    with pytest.raises(KeyError):
        trained.model.parameters["nothing"]


def test_trainings_in_threads(data, trained):
    found = []
    workers = [threading.Thread(target=lambda: found.append(mha.train(data, **SETTINGS))) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [one.test for one in found] == [trained.test] * 2
