"""Bad input is an exception that names the argument."""

import numpy as np
import pytest

import mha

X = np.zeros((2, 2, 3, 4), np.float32)


def but(**changed):
    return {"q": X, "k": X, "v": X, **changed}


def unaligned():
    return np.frombuffer(bytes(X.nbytes + 1), np.uint8)[1:].view(np.float32).reshape(X.shape)


def read_only():
    x = X.copy()
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("name", ["q", "k", "v"])
@pytest.mark.parametrize(
    "value, kind",
    [
        (None, TypeError),
        (3, TypeError),
        ("text", TypeError),
        ([[1.0]], TypeError),
        (X.astype(np.float64), TypeError),
        (X.astype(np.complex64), TypeError),
        (X.astype(object), TypeError),
        (np.zeros(X.shape, [("a", "f4"), ("b", "f4")]), TypeError),
        (X.astype(">f4"), ValueError),
        (X.astype(np.int64), TypeError),
        (X.astype(bool), TypeError),
        (X[0], ValueError),
        (X[None], ValueError),
        (np.zeros((), np.float32), ValueError),
        (X[..., :0], ValueError),
        (unaligned(), ValueError),
        (np.zeros((2, 2, 3, 4), [("a", "f4"), ("b", "u1")])["a"], ValueError),
    ],
)
def test_arrays(name, value, kind):
    with pytest.raises(kind, match=rf"^{name}: "):
        mha.attention(**but(**{name: value}))


@pytest.mark.parametrize(
    "name, value, kind",
    [
        ("k", X[:1], ValueError),
        ("k", X[:, :, :2], ValueError),
        ("v", np.concatenate([X, X], 1), ValueError),
        ("mask", np.ones((3, 2), bool), ValueError),
        ("mask", np.ones((2, 2, 3), bool), ValueError),
        ("mask", np.ones((3, 3), np.float32), TypeError),
        ("mask", [[True]], TypeError),
        ("bias", np.zeros((2, 3, 3), np.float32), ValueError),
        ("bias", np.zeros((4, 3), np.float32), ValueError),
        ("bias", np.zeros((3, 3), np.float64), TypeError),
        ("bias", np.zeros((3, 3), bool), TypeError),
        ("key_padding_mask", np.zeros((2, 4), bool), ValueError),
        ("key_padding_mask", np.zeros((2, 3), np.float32), TypeError),
        ("key_lengths", [1, 9], ValueError),
        ("key_lengths", [1], ValueError),
        ("key_lengths", np.ones(2, np.float32), TypeError),
        ("window", -3, ValueError),
        ("window", (1, 2, 3), ValueError),
        ("window", 1.5, TypeError),
        ("window", (None, "all"), TypeError),
        ("window_left", -3, TypeError),
        ("align", "middle", ValueError),
        ("softcap", -1.0, ValueError),
        ("softcap", "much", TypeError),
        ("scale", float("inf"), ValueError),
        ("scale", float("nan"), ValueError),
        ("softcap", float("nan"), ValueError),
        ("dropout", 2, ValueError),
        ("seed", -1, ValueError),
        ("seed", 0.5, TypeError),
        ("sinks", np.zeros(3, np.float32), ValueError),
        ("out", np.zeros((2, 2, 3, 5), np.float32), ValueError),
        ("out", read_only(), ValueError),
        ("out", X[:, :, :1].repeat(1, 2) * np.ones((1, 1, 3, 1), np.float64), TypeError),
        ("out", np.broadcast_to(X[:1], X.shape), ValueError),
    ],
)
def test_arguments(name, value, kind):
    with pytest.raises(kind, match=rf"{name}\b"):
        mha.attention(**but(**{name: value}))


def test_out_that_overlaps():
    q = X.copy()
    with pytest.raises(ValueError, match="^out"):
        mha.attention(q, X, X, out=q[:, :, ::-1])


def test_nothing_is_written_on_error():
    out = np.full(X.shape, 7, np.float32)
    with pytest.raises(ValueError):
        mha.attention(X, X[:1], X, out=out)
    assert (out == 7).all()


def test_a_type_that_is_not_read():
    with pytest.raises(TypeError, match="^q: is float64; mha reads numbers as float32, bfloat16 or float16"):
        mha.attention(X.astype(np.float64), X, X)


@pytest.mark.parametrize("starts", [[0, 2], [1, 3], np.array([0, 2]), np.array([0, 1, 2], np.int32)])
def test_rows_without_a_sequence(starts):
    """Starts that do not reach the last row would silently give zeros."""
    x = np.zeros((3, 1, 4), np.float32)
    with pytest.raises(ValueError, match="^query_starts: goes from . to ., must go from 0 to 3, the rows of q"):
        mha.attention_varlen(x, x, x, starts)
    with pytest.raises(ValueError, match="^key_starts: goes from . to ., must go from 0 to 3, the rows of k"):
        mha.attention_varlen(x, x, x, [0, 3] if len(starts) == 2 else [0, 1, 3], starts)


def test_files_that_do_not_exist():
    for opened in (mha.Model, mha.Tokenizer, mha.Data):
        with pytest.raises(FileNotFoundError, match="^/nope"):
            opened("/nope")
    with pytest.raises(ValueError, match="^synthetic:"):
        mha.Data("synthetic:-4")


@pytest.mark.parametrize("starts", [[0, 9], [2, 1], [], None, [0.5], "ab"])
def test_starts(starts):
    x = np.zeros((3, 1, 4), np.float32)
    with pytest.raises((ValueError, TypeError), match="query_starts|starts"):
        mha.attention_varlen(x, x, x, starts)


def test_backward_and_stats():
    with pytest.raises(TypeError, match="^dout: "):
        mha.attention_backward(None, X, X, X, X)
    with pytest.raises(ValueError, match="^dout: "):
        mha.attention_backward(X[:1], X, X, X, X)
    with pytest.raises(TypeError, match="^out: "):
        mha.attention_backward(X, X, X, X, None)
    with pytest.raises(ValueError, match="^want: "):
        mha.attention_backward(X, X, X, X, X, want=["bias"])
    with pytest.raises(ValueError, match="^want: "):
        mha.stats(X, X, want=["beauty"])
    for call in (lambda want: mha.stats(X, X, want=want), lambda want: mha.attention_backward(X, X, X, X, X, want=want)):
        with pytest.raises(TypeError, match="^want: 'q' must be a list of names"):
            call("q")
    for heatmap, kind in ((4, TypeError), ((1, 2, 3), TypeError), ((1.5, 2), TypeError), ((0, 2), ValueError)):
        with pytest.raises(kind, match="^heatmap: "):
            mha.stats(X, X, heatmap=heatmap)
    for top, kind in ((-1, ValueError), (1.5, TypeError), (None, TypeError)):
        with pytest.raises(kind, match="^top: "):
            mha.stats(X, X, top=top)
    with pytest.raises(TypeError, match="^k: "):
        mha.stats(X, None)
    with pytest.raises(ValueError, match="^threads: "):
        mha.set_num_threads(-1)
    for threads in ("two", 1.5, None):
        with pytest.raises(TypeError, match="^threads: "):
            mha.set_num_threads(threads)
