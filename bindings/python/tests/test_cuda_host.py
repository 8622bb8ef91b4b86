"""Arrays on a GPU, over the driver without one of tests/cuda/emulator: its device memory is the host's."""

import os
import subprocess
import sys

import pytest
from conftest import build_folder, without_a_gpu

# A stand-in for CuPy over the driver's own memory, and calls beside those of the CPU.
PROGRAM = r"""
import ctypes, sys, threading, types
import numpy as np

driver = ctypes.CDLL("libcuda.so.1")
api = ctypes.pythonapi
api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
primary = ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(primary), 0) == 0 and driver.cuCtxSetCurrent(primary) == 0

class Memory:
    def __init__(self, bytes):
        self.address = ctypes.c_uint64()
        assert driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(max(bytes, 8))) == 0
    def __del__(self):
        driver.cuMemFree_v2(self.address)

class ndarray:
    __module__ = "cupy"
    def __init__(self, shape, dtype):
        self.dtype, self.shape, self._memory = np.dtype(dtype), tuple(shape), Memory(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        raw = (ctypes.c_char * (int(np.prod(shape)) * self.dtype.itemsize)).from_address(self._memory.address.value)
        self.host = np.frombuffer(raw, self.dtype).reshape(shape)
    def __dlpack_device__(self):
        return 2, 0
    def __array_namespace__(self):
        return sys.modules["cupy"]
    def __dlpack__(self, stream=None):
        assert stream == -1
        capsule = self.host.__dlpack__()
        ctypes.c_int32.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor") + 8).value = 2
        return capsule

def put(array):
    made = ndarray(array.shape, array.dtype)
    made.host[...] = array
    return made

streams = [0]
cupy = sys.modules["cupy"] = types.ModuleType("cupy")
cupy.empty, cupy.float32, cupy.int64 = (lambda shape, dtype: ndarray(shape, dtype)), np.float32, np.int64
cupy.cuda = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=streams[0]))
import mha

def near(got, want):
    assert type(got) is ndarray and got.shape == want.shape
    np.testing.assert_allclose(got.host, want, atol=1e-5)

def calls():
    rng = np.random.default_rng(0)
    q, k, v, bias = (rng.standard_normal(s, dtype=np.float32) for s in ((1, 4, 5, 16), (1, 2, 7, 16), (1, 2, 7, 16), (1, 4, 5, 7)))
    out, lse, weights = mha.attention(q, k, v, bias=bias, return_lse=True, return_weights=True)
    gq, gk, gv, gbias = map(put, (q, k, v, bias))
    for got, want in zip(mha.attention(gq, gk, gv, bias=gbias, return_lse=True, return_weights=True), (out, lse, weights)):
        near(got, want)
    lengths = np.array([4])
    near(mha.attention(gq, gk, gv, key_lengths=put(lengths)), mha.attention(q, k, v, key_lengths=lengths))
    want = mha.attention_backward(np.ones_like(out), q, k, v, out, bias=bias)
    got = mha.attention_backward(put(np.ones_like(out)), gq, gk, gv, put(out), bias=gbias)
    for one, other in zip(got[:4], want[:4]):
        near(one, other)
    near(mha.stats(gq, gk).entropy, mha.stats(q, k).entropy)
    for name, arguments in (("k", (gq, k, gv)), ("v", (gq, gk, v))):
        try:
            mha.attention(*arguments)
            raise AssertionError("not refused")
        except ValueError as error:
            assert str(error) == name + ": is in the memory of the CPU, but q is on cuda:0", error
    stream = ctypes.c_void_p()
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0  # a context of its own
    streams[0] = stream.value
    near(mha.attention(gq, gk, gv, bias=gbias), out)
    streams[0] = 0
    near(mha.attention(gq, gk, gv, bias=gbias), out)
    done.append(stream)

done = []
worker = threading.Thread(target=calls)  # whose contexts end with it
worker.start()
worker.join()
assert done, "the calls have failed"
import gc; gc.collect()
driver.cuStreamDestroy_v2(done[0])
driver.cuDevicePrimaryCtxRelease_v2(0)
print("ok")
"""


def run(gpu):
    environment = os.environ | {
        "MHA_EMULATED_GPU": gpu, "LD_LIBRARY_PATH": str(without_a_gpu()), "PYTHONPATH": str(build_folder() / "python")
    }  # fmt: skip
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120)


def test_calls_on_a_gpu():
    done = run("new")
    assert done.stdout == "ok\n" and done.returncode == 0, done.stderr


@pytest.mark.parametrize("gpu, text", [("none", "this machine has no GPU"), ("old", "has compute capability 8.0")])
def test_gpus_that_are_not_there(gpu, text):
    done = run(gpu)
    assert done.returncode and "RuntimeError: cuda:0: device: " in done.stderr and text in done.stderr, done.stderr
