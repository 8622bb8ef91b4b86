"""What the tests share: the oracle, random arrays."""

import importlib.util
import pathlib

import numpy as np
import pytest

import mha


def has_gpu():
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def build_folder():
    """Of the package under test; None for one that is installed."""
    folder = pathlib.Path(mha.__file__).resolve().parents[2]
    return folder if (folder / "CMakeCache.txt").exists() else None


def without_a_gpu():
    """The driver without a GPU of tests/cuda/emulator, where the build has it and the plug-in."""
    build = build_folder()
    driver = build and build / "tests/emulator"
    return driver if driver and (driver / "libcuda.so.1").exists() and (build / "src/libmha-cuda.so").exists() else None


# As the other tests of GPUs, these are not there on machines that cannot run them.
collect_ignore = [
    name for name, runs in (("test_cuda.py", has_gpu()), ("test_cuda_host.py", without_a_gpu() is not None)) if not runs
]


def pytest_collection_modifyitems(items):
    """What runs JAX comes last: its threads do not outlive a fork, which other tests make."""
    items.sort(key=lambda item: item.path.name == "test_jax.py" or item.name in ("test_docstrings[mha.jax]", "test_readme"))


def pytest_report_header():
    return [f"{name}: left out, it needs {'a GPU' if name == 'test_cuda.py' else 'libmha-cuda.so'}" for name in collect_ignore]



def oracle(q, k, v, *, visible=None, bias=None, scale=None):
    """Attention in float64 from the formula; dead rows are zeros. Returns out, weights and lse."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        s = s + np.asarray(bias, np.float64)
    if visible is not None:
        s = np.where(visible, s, -np.inf)
    top = s.max(-1, keepdims=True, initial=-1e300)
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True)
    weights = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    with np.errstate(divide="ignore"):
        return weights @ v, weights, (top + np.log(total))[..., 0]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def normal(rng):
    return lambda *shape: rng.standard_normal(shape, dtype=np.float32)
