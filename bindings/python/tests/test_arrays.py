"""Kinds of arrays, threads, processes, memory."""

import ctypes
import os
import sys
import tempfile
import threading
import time
import types

import numpy as np
import pytest

import mha


class Foreign:
    """An array of some other library: DLPack and the array API, and no buffer."""

    from_dlpack = staticmethod(lambda array: Foreign(np.from_dlpack(array)))

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device
        self.shape, self.dtype = array.shape, array.dtype

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.device

    def __array_namespace__(self):
        return Foreign


def test_dlpack_in_and_out(normal):
    rows = normal(2, 5, 3, 4)
    q = rows.transpose(0, 2, 1, 3)
    out, weights = mha.attention(*[Foreign(q)] * 3, return_weights=True)
    assert type(out) is type(weights) is Foreign
    assert (out.array == mha.attention(q, q, q)).all()
    before = sys.getrefcount(q)
    for _ in range(10):
        mha.attention(Foreign(q), q, q)
    assert sys.getrefcount(q) == before


class OnGpu(Foreign):
    """An array that claims to be on a GPU: of CuPy if its module says so."""

    def __dlpack__(self, stream=None):
        assert stream == -1  # calls run in the stream that its library uses
        capsule = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + 8).value = 2  # the device, behind the address
        return capsule


def test_dlpack_elsewhere(normal):
    q = normal(1, 1, 2, 4)
    with pytest.raises(ValueError, match="^k: is neither in the memory of the CPU nor on an NVIDIA GPU"):
        mha.attention(q, Foreign(q, device=(8, 0)), q)
    with pytest.raises(ValueError, match="^k: is on cuda:0, but q is in the memory of the CPU"):
        mha.attention(q, OnGpu(q, device=(2, 0)), q)
    with pytest.raises(TypeError, match="^q: is on a GPU; there, arrays of PyTorch and CuPy"):
        mha.attention(OnGpu(q, device=(2, 0)), q, q)
    with pytest.raises(ValueError, match="^ids: is on a GPU, must be in the memory of the CPU"):
        mha._mha.tokenizer_decode(tokenizer_of_bytes()._handle, OnGpu(np.zeros(1, np.int32), device=(2, 0)), False)
    with pytest.raises(TypeError, match="^out: "):
        mha.attention(q, q, q, out=Foreign(q))


def tokenizer_of_bytes():
    with tempfile.TemporaryDirectory() as folder:
        return mha.Tokenizer.train("text", folder + "/tokenizer.json", tokens=257)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_no_plugin(normal):
    """What is said about arrays on a GPU where the plug-in or the GPU is missing."""
    q = normal(1, 1, 2, 4)
    cupy = types.ModuleType("cupy")
    kind = type("ndarray", (OnGpu,), {"__module__": "cupy"})
    cupy.empty, cupy.float32 = lambda shape, dtype: kind(np.empty(shape, dtype), device=(2, 0)), np.float32
    cupy.cuda = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=0))
    sys.modules["cupy"] = cupy
    try:
        with pytest.raises(RuntimeError, match="^cuda:0: device: cuda"):
            mha.attention(*[kind(q, device=(2, 0))] * 3)
    finally:
        del sys.modules["cupy"]


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_torch_in_and_out(normal, name):
    torch = pytest.importorskip("torch")
    q = torch.from_numpy(normal(2, 5, 3, 4)).to(getattr(torch, name)).transpose(1, 2)
    mask = torch.rand(5, 5) < 0.8
    out, lse, weights = mha.attention(q, q, q, mask=mask, return_lse=True, return_weights=True)
    assert out.dtype == weights.dtype == q.dtype and lse.dtype == torch.float32
    want = torch.nn.functional.scaled_dot_product_attention(*[q.double()] * 3, attn_mask=mask)
    assert (out.double() - want).abs().max() < {"float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}[name]
    packed = mha.attention_varlen(q[0].transpose(0, 1), q[0].transpose(0, 1), q[0].transpose(0, 1), [0, 5])
    assert (packed.transpose(0, 1) == mha.attention(q[:1], q[:1], q[:1])[0]).all()


def test_torch_that_is_refused():
    torch = pytest.importorskip("torch")
    x = torch.zeros(1, 1, 2, 4)
    cases = {
        "k: is a negated": torch._neg_view(x),
        "k: is a tensor": x.to_sparse(),
        "k: is a tensor without dense memory on the CPU": x.to("meta"),
        "k: is torch.float64": x.double(),
    }
    for text, k in cases.items():
        with pytest.raises((ValueError, TypeError), match=text):
            mha.attention(x, k, x)
    with pytest.raises(ValueError, match="^out: is a negated"):
        mha.attention(x, x, x, out=torch._neg_view(x.clone()))
    leaf = x.clone().requires_grad_()
    for name in ("q", "k", "v"):
        with pytest.raises(ValueError, match=f"^{name}: requires grad; use mha.torch"):
            mha.attention(**{"q": x, "k": x, "v": x, name: leaf})


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_numpy_without_copies(normal, dtype):
    """Negative and odd strides, subclasses and sizes of 0 and 1 give what a dense copy gives."""
    rows = normal(3, 9, 5, 2, 8).astype(dtype)
    views = {
        "dense": rows[0, :, :2],
        "transposed": rows[1].transpose(1, 2, 0, 3)[..., ::2],
        "backwards": rows[2, ::-1, 1::2, :, ::-1],
        "repeated": np.broadcast_to(rows[:1, :1, 0], (2, 3, 2, 8)),
        "one": rows[0, :1, :1, :1],
        "none": rows[0, :0],
    }
    for name, x in views.items():
        want = mha.attention(*[np.ascontiguousarray(x)] * 3)
        for same in (x, x.view(type("Subclass", (np.ndarray,), {}))):
            got = mha.attention(same, same, same)
            assert got.shape == want.shape and (got == want).all(), name
        got = mha.attention(x, x, x, out=(out := np.empty_like(want)))
        assert got is out and (got == want).all()


def test_older_versions_of_torch(normal):
    """Before 2.10, PyTorch has no __dlpack_c_exchange_api__; tensors are read through capsules."""
    torch = pytest.importorskip("torch")
    from mha import _mha
    from mha._tensors import know_torch

    q = torch.from_numpy(normal(2, 5, 3, 4)).transpose(1, 2)
    want = mha.attention(q, q, q)
    plain = type("Plain", (), {})
    try:
        _mha.know_torch(plain, torch.Tensor, torch.utils.dlpack.to_dlpack, lambda tensor: False)
        assert (mha.attention(q, q, q) == want).all()
        with pytest.raises(ValueError, match="^k: is a tensor without dense memory"):
            mha.attention(q, q.to("meta"), q)
    finally:
        know_torch(torch)


def test_memoryviews_are_keys(normal):
    q = normal(1, 2, 3, 4)
    assert (mha.attention(q, memoryview(q), q) == mha.attention(q, q, q)).all()


def test_threads_have_the_same_bits(normal):
    q = normal(1, 4, 64, 16)
    want = mha.attention(q, q, q)
    got = {}
    workers = [threading.Thread(target=lambda n=n: got.update({n: mha.attention(q, q, q)})) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(got) == 6 and all((out == want).all() for out in got.values())
    for threads in (1, 2, 3):
        mha.set_num_threads(threads)
        assert (mha.attention(q, q, q) == want).all()
    mha.set_num_threads(0)


def test_gil_is_released(normal):
    q = normal(1, 8, 2048, 64)
    seconds = -time.monotonic()
    mha.attention(q, q, q)
    seconds += time.monotonic()
    count = max(1, round(0.3 / seconds))
    big = np.broadcast_to(q, (count, *q.shape[1:]))
    done = threading.Event()
    worker = threading.Thread(target=lambda: (mha.attention(big, big, big), done.set()))
    worker.start()
    steps = 0
    while not done.wait(0.005):
        steps += 1
    worker.join()
    assert steps >= 5  # with the GIL held there are one or two, before and after the call


def test_fork(normal):
    q = normal(1, 4, 256, 32)
    want = mha.attention(q, q, q)  # starts threads, which a child does not have
    child = os.fork()
    if child == 0:
        os._exit(0 if (mha.attention(q, q, q) == want).all() else 3)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        assert time.monotonic() < deadline, "the child does not end"
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 0


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux")
def test_no_leaks(normal):
    q, mask = normal(1, 1, 4, 8), np.ones((4, 4), bool)

    def calls(count):
        for _ in range(count):
            mha.attention(q, q, q, mask=mask, return_lse=True)
            mha.stats(q, q, heatmap=(2, 2))
            try:
                mha.attention(q, q[:, :, :2], q)
            except ValueError:
                pass

    calls(2000)
    before = resident()
    calls(340000 if os.environ.get("MHA_SAMPLE") == "1" else 20000)  # a million of them in .ci/run
    assert resident() - before < 2 << 20
