"""PyTorch's own tests of nn.MultiheadAttention and of attention in transformers, with mha in its place.

Its files test/nn/test_multihead_attention.py and test/test_transformers.py are not part of this project: `./dev setup all` downloads
them with fetch_pytorch_tests.sh. MHA_PYTORCH_TESTS names another folder that has them. They need the package expecttest. A file of
another version than the PyTorch here may have tests that PyTorch itself fails: those do not count.
"""

import contextlib
import importlib.util
import os
import pathlib
import re
import sys
import types
import unittest

import pytest

torch = pytest.importorskip("torch")
import mha.torch  # noqa: E402

FOLDER = pathlib.Path(os.environ.get("MHA_PYTORCH_TESTS", pathlib.Path(__file__).parents[3] / "build/pytorch-tests"))
SAMPLE = int(os.environ.get("MHA_SAMPLE", 1))


@contextlib.contextmanager
def module_of_mha():
    """mha's module in the place of PyTorch's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn, "MultiheadAttention", mha.torch.MultiheadAttention)
        patch.setattr(torch.nn.modules.transformer, "MultiheadAttention", mha.torch.MultiheadAttention)
        yield


#: For each file: what takes PyTorch's place, and the tests that fail on purpose, by a pattern, with the reason.
FILES = {
    "test_multihead_attention.py": (
        module_of_mha,
        {"test_multihead_self_attn_two_masks_fast_path_mock_cpu": "it asserts that the module calls PyTorch's fused kernel"},
    ),
    "test_transformers.py": (
        mha.torch.use,
        {
            r"test_scaled_dot_product_attention_.*_dropout_p_0_[25]_cpu": "dropout draws other weights than PyTorch's from the same seed",
            "test_disable_fastpath_cpu": "use() disables the fast path, which the test expects",
            "test_mask_check_fastpath_cpu": "use() disables the fast path, which the test expects",
        },
    ),
}
#: Of tests that exist for thousands of sizes, one in so many runs; and these are left out:
MANY, EVERY = "test_scaled_dot_product_fused_attention", 100
LEFT_OUT = {
    "test_transformerencoder_fastpath": "it compares PyTorch's fast path with PyTorch's slow path, in 20 seconds",
    "TestSDPAPrivateUse1Only": "it compiles a device of its own",
}


def failures(path, only=None):
    """The names of the tests that fail, each with its traceback; of all tests, or of those with certain names."""
    spec = importlib.util.spec_from_file_location("pytorch_tests", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = [test for suite in unittest.defaultTestLoader.loadTestsFromModule(module) for test in suite]
    tests = [test for test in tests if (chosen(test) if only is None else name(test) in only)]
    result = unittest.TestResult()
    unittest.TestSuite(tests).run(result)
    assert only == {} or result.testsRun > len(result.skipped)
    return {name(test): text for test, text in result.failures + result.errors}


def name(test):
    return test.id().rpartition(".")[2]


def chosen(test):
    """Where MHA_SAMPLE asks for less, fewer of the many; always the same ones."""
    if any(left in test.id() for left in LEFT_OUT):
        return False
    return not name(test).startswith(MANY) or sum(name(test).encode()) % (EVERY * min(SAMPLE, 4)) == 0


if FOLDER.is_dir():

    @pytest.mark.parametrize("file", FILES)
    @pytest.mark.filterwarnings("ignore")
    def test_suite_of_pytorch(file, monkeypatch):
        pytest.importorskip("expecttest")
        monkeypatch.setattr(sys, "argv", [file])  # PyTorch's files read arguments, and import each other
        device = types.SimpleNamespace(generate_faked_module=None)
        monkeypatch.setitem(sys.modules, "test_cpp_extensions_open_device_registration", device)
        replace, intended = FILES[file]
        with replace():
            failed = failures(FOLDER / file)
        failed = {test: text for test, text in failed.items() if not any(re.fullmatch(pattern, test) for pattern in intended)}
        excused = failures(FOLDER / file, failed)
        assert not set(failed) - set(excused), "\n".join(failed[test] for test in set(failed) - set(excused))
