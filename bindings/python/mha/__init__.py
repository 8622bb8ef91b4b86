"""Multi-head attention: fused kernels in C that also give weights, statistics of heads and the gradient of the bias.

Letters, in all shapes: B batch, H query heads, G key/value heads (H is a multiple of G), Tq queries, Tk keys, D width of a
query or key, E width of a value. Arrays are NumPy's, PyTorch's (on the CPU or an NVIDIA GPU), or anything with ``__dlpack__``; their memory is
read where it lies, with any strides, as float32, bfloat16 or float16. Results are arrays of the caller's kind.

>>> import numpy as np, mha
>>> q = np.ones((1, 2, 3, 4), np.float32)
>>> mha.attention(q, q, q, causal=True).shape
(1, 2, 3, 4)

:class:`Model` runs checkpoints of transformers without PyTorch, and :mod:`mha.torch` has what belongs to PyTorch.
"""

from mha._attention import Gradients, attention, attention_backward, attention_varlen
from mha._data import Data, Score, Step, Trained, train
from mha._generate import Generated
from mha._heads import Attention, Head, HeadMap, Heads, ImageHead
from mha._language import Filled, TextScore
from mha._model import Class, Model
from mha._page import Page, view
from mha._speech import Said, Transcript
from mha._stats import Stats, stats
from mha._threads import get_num_threads, set_num_threads
from mha._tokenizer import Token, Tokenizer
from mha import _mha

__version__: str = _mha.version

__all__ = [
    "Attention",
    "Class",
    "Data",
    "Filled",
    "Generated",
    "Gradients",
    "Head",
    "HeadMap",
    "Heads",
    "ImageHead",
    "Model",
    "Page",
    "Said",
    "Score",
    "Stats",
    "Step",
    "TextScore",
    "Token",
    "Tokenizer",
    "Trained",
    "Transcript",
    "attention",
    "attention_backward",
    "attention_varlen",
    "get_num_threads",
    "set_num_threads",
    "stats",
    "train",
    "view",
]
