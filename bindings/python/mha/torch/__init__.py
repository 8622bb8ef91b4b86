"""What belongs to PyTorch: differentiable attention, a drop-in for nn.MultiheadAttention, and ways to use them in existing models.

Tensors are those of the CPU, in float32, bfloat16 or float16. Calls use ``torch.get_num_threads()`` threads.

>>> import torch, mha.torch
>>> q = torch.ones(1, 2, 3, 4, requires_grad=True)
>>> mha.torch.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
>>> q.grad.shape
torch.Size([1, 2, 3, 4])

Models of the transformers library take ``attn_implementation="mha"``.
"""

from mha.torch._attention import attention, attention_varlen
from mha.torch._flash import flash_attn_func, flash_attn_varlen_func
from mha.torch._module import MultiheadAttention
from mha.torch._sdpa import scaled_dot_product_attention
from mha.torch._statistics import statistics
from mha.torch._transformers import offer
from mha.torch._use import use
from mha.torch import _dtensor, _vmap  # noqa: F401 (they register rules)

offer()
_dtensor.offer()

__all__ = [
    "MultiheadAttention",
    "attention",
    "attention_varlen",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "scaled_dot_product_attention",
    "statistics",
    "use",
]
