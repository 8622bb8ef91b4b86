"""PyTorch's own tests of nn.MultiheadAttention, with mha's module in its place.

They run if MHA_PYTORCH_TESTS names PyTorch's file test/nn/test_multihead_attention.py, which is not part of this project, and need
the package expecttest.
"""

import importlib.util
import os
import unittest

import pytest

torch = pytest.importorskip("torch")
import mha.torch  # noqa: E402

# It asserts that the module calls PyTorch's fused kernel.
INTENDED = {"test_multihead_self_attn_two_masks_fast_path_mock_cpu"}


def failures(only=None):
    """The names of the tests that fail, each with its traceback; of all tests, or of those with certain names."""
    spec = importlib.util.spec_from_file_location("pytorch_tests", os.environ["MHA_PYTORCH_TESTS"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    classes = [suite for suite in unittest.defaultTestLoader.loadTestsFromModule(module)]
    tests = [test for suite in classes for test in suite if only is None or name(test) in only]
    result = unittest.TestResult()
    unittest.TestSuite(tests).run(result)
    assert only == {} or result.testsRun > len(result.skipped)
    return {name(test): text for test, text in result.failures + result.errors}


def name(test):
    return test.id().rpartition(".")[2]


if "MHA_PYTORCH_TESTS" in os.environ:

    def test_suite_of_pytorch(monkeypatch):
        """A file of another version than the PyTorch here may have tests that PyTorch's own module fails: those do not count."""
        pytest.importorskip("expecttest")
        with monkeypatch.context() as patch:
            patch.setattr(torch.nn, "MultiheadAttention", mha.torch.MultiheadAttention)
            patch.setattr(torch.nn.modules.transformer, "MultiheadAttention", mha.torch.MultiheadAttention)
            failed = failures()
        excused = failures(failed)
        failed = {test: text for test, text in failed.items() if test not in excused}
        assert set(failed) == INTENDED, "\n".join(failed.values())
