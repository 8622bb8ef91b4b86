"""Calls from PyTorch run on the threads of its OpenMP library, and write to memory that they have brought."""

import ctypes
import mmap
import os
import resource
import signal
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")

from mha import _mha  # noqa: E402
from mha.torch import _ops, scaled_dot_product_attention as sdpa  # noqa: E402

pytestmark = pytest.mark.skipif(not _mha.know_team(_ops.OPENMP), reason="PyTorch without OpenMP")


def both(q):
    """The result and the gradient."""
    leaf = q.clone().requires_grad_()
    out = sdpa(leaf, leaf, leaf)
    return out.detach(), *torch.autograd.grad(out, leaf, torch.ones_like(out))


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
    assert _mha.know_team(_ops.OPENMP)


COUNT = """
import os, sys, torch, mha.torch
from mha import _mha
torch.set_num_threads(3)
(torch.ones(512, 512) @ torch.ones(512, 512)).exp()  # PyTorch starts its threads
_mha.know_team(sys.argv[1])
before = len(os.listdir("/proc/self/task"))
q = torch.ones(2, 4, 256, 32, requires_grad=True)
mha.torch.scaled_dot_product_attention(q, q, q).sum().backward()
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs Linux")
@pytest.mark.parametrize("path, more", [(_ops.OPENMP, 0), ("/none/libtorch_cpu.so", 2)])
def test_starts_threads_only_without_openmp(path, more):
    done = subprocess.run([sys.executable, "-c", COUNT, path], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"{more}\n", done.stderr


def test_same_bits(threads):
    q, found = torch.randn(2, 3, 200, 16), []
    for count in (1, 2, 5):
        for path in (_ops.OPENMP, "/none/libtorch_cpu.so"):
            threads(count)
            assert _mha.know_team(path) == (path == _ops.OPENMP)
            found.append(both(q))
    for one in found[1:]:
        assert all((a == b).all() for a, b in zip(one, found[0], strict=True))


def test_fork(threads):
    threads(2)
    q = torch.randn(1, 4, 256, 32)
    want = both(q)  # on threads that a child does not have
    child = os.fork()
    if child == 0:
        os._exit(0 if (sdpa(q, q, q) == want[0]).all() else 3)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 0


def resident(memory, page):
    """Which pages of it are there."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    found = (ctypes.c_ubyte * (len(memory) // page))()
    assert not ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(memory)), found)
    return [x & 1 for x in found]


@pytest.mark.skipif(sys.platform != "linux", reason="needs mincore of Linux")
@pytest.mark.parametrize("gap", [0, 8])
def test_brings_the_memory_of_a_result_and_no_more(threads, gap):
    """Of a result of 8 MB with heads side by side, between pages that nobody writes; with a gap behind each row, nothing is brought."""
    threads(2)
    page, shape = mmap.PAGESIZE, (1, 512, 64, 64)
    width = shape[2] * shape[3] + gap
    size, guard = shape[1] * width * 4, 64 * page
    memory = mmap.mmap(-1, -(-(size + 2 * guard) // page) * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    array = torch.frombuffer(memory, dtype=torch.float32, offset=guard, count=size // 4)
    out = array.view(1, shape[1], width)[:, :, : width - gap].view(shape).transpose(1, 2)
    q, k, v = (torch.randn(shape).transpose(1, 2) for _ in range(3))
    sdpa(q, k, v)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    _mha.forward(q=q, k=k, v=v, out=out, team=2)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    pages = resident(memory, page)
    assert not any(pages[:64]) and not any(pages[-(len(memory) - guard - size) // page :])
    assert gap or faults < 1.1 * size // page, "two threads wait for one page"
    assert torch.allclose(out, sdpa(q, k, v))
