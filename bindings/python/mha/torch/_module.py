"""A drop-in for torch.nn.MultiheadAttention."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mha.torch import _ops
from mha.torch._errors import ShapeError
from mha.torch._sdpa import FLOATS, seed_of
from mha.torch._weights import attention_weights


def _sum_masks(attn_mask: Tensor | None, padding: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """One mask as scaled_dot_product_attention has it, from masks in which True hides a key, or which are added."""
    given = [mask for mask in (attn_mask, padding) if mask is not None]
    if not given:
        return None
    if all(mask.dtype is torch.bool for mask in given):
        return ~given[0] if len(given) == 1 else ~(given[0] | given[1])
    added = [_added(mask, dtype) if mask.dtype is torch.bool else mask for mask in given]
    return added[0] if len(added) == 1 else added[0] + added[1]


def _added(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros_like(hidden, dtype=dtype).masked_fill(hidden, -torch.inf)


class MultiheadAttention(torch.nn.MultiheadAttention):
    """``torch.nn.MultiheadAttention``, with attention computed by mha: the same arguments, parameters and state_dict.

    ``need_weights`` costs only the memory of the weights. What mha does not compute (float64, nested tensors, tensors on a GPU)
    is left to PyTorch's own code. A row that sees no key is the bias of the output projection, and its weights are zeros, where
    PyTorch has NaN. TorchScript cannot compile the module.

    >>> import torch, mha.torch
    >>> layer = mha.torch.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.ones(1, 3, 8)
    >>> out, weights = layer(x, x, x)
    >>> out.shape, weights.shape
    (torch.Size([1, 3, 8]), torch.Size([1, 3, 3]))
    """

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The result, shaped as the query, and the weights, (B,Tq,Tk) or without averaging (B,H,Tq,Tk); None unless needed.

        Args:
            query: (Tq,B,M), with ``batch_first`` (B,Tq,M), or (Tq,M).
            key, value: likewise, with Tk tokens.
            key_padding_mask: (B,Tk), or (Tk): True hides a key; floats are added to its scores.
            attn_mask: (Tq,Tk) or (B*H,Tq,Tk): likewise.
            is_causal: a hint that ``attn_mask``, which must be given, is the causal one.
        """
        for name, x in (("query", query), ("key", key), ("value", value)):
            if not isinstance(x, Tensor):
                raise TypeError(f"{name}: must be a tensor, not {type(x)}")
        for name, x in (("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
            if x is not None and (not isinstance(x, Tensor) or _ops.overrides_functions(x)):
                raise TypeError(f"{name}: must be a tensor with numbers of its own, not {type(x)}")
        if not self._is_ours(query, key, value):
            return super().forward(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        self._check(query, key, value, key_padding_mask, attn_mask, is_causal)
        batched = query.dim() == 3
        first = 0 if batched and self.batch_first else 1
        same = query is key and key is value
        rows = [x if not first else x.transpose(0, 1) if batched else x[None] for x in (query, key, value)]
        if not batched and key_padding_mask is not None:
            key_padding_mask = key_padding_mask[None]
        q, k, v = self._project(*rows, same)
        k, v, extra = self._more_keys(k, v)
        is_causal = is_causal and key_padding_mask is None and not extra
        mask = None if is_causal else self._mask(attn_mask, key_padding_mask, q.dtype, q.size(0), extra)
        out, weights = self._attend(q, k, v, mask, is_causal, need_weights, average_attn_weights)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        if not batched:
            return out[0], None if weights is None else weights[0]
        return out.transpose(0, 1) if first else out, weights

    def _is_ours(self, *inputs):
        """Whether mha computes this; PyTorch's own module takes the rest."""
        return all(
            _ops.is_dense(x) and x.dtype in FLOATS and x.device.type in ("cpu", "cuda", "meta") for x in (*inputs, self.out_proj.weight)
        )

    def _check(self, query, key, value, key_padding_mask, attn_mask, is_causal):
        try:
            batched = functional._mha_shape_check(query, key, value, key_padding_mask, attn_mask, self.num_heads)
        except AssertionError as error:
            raise ShapeError(str(error)) from None
        if is_causal and attn_mask is None:
            raise RuntimeError("attn_mask: must be given with is_causal, which is a hint about it")
        time, first = (1, 0) if self.batch_first and batched else (0, 1)
        batch, queries, keys = query.size(first) if batched else 1, query.size(time), key.size(time)

        def rows(count, width):
            """The shape of an input."""
            return ((batch, count, width) if self.batch_first else (count, batch, width)) if batched else (count, width)

        expected = (
            ("query", query, rows(queries, self.embed_dim)),
            ("key", key, rows(keys, self.kdim)),
            ("value", value, rows(keys, self.vdim)),
            ("key_padding_mask", key_padding_mask, (batch, keys) if batched else (keys,)),
            ("attn_mask", attn_mask, (queries, keys), (batch * self.num_heads, queries, keys)),
        )
        for name, x, *shapes in expected:
            if x is not None and tuple(x.shape) not in shapes:
                raise ShapeError(f"{name}: has shape {tuple(x.shape)}, must be {' or '.join(map(str, shapes))}")
        for name, mask, *_ in expected[3:]:
            if mask is not None and mask.dtype is not torch.bool and not mask.is_floating_point():
                raise TypeError(f"{name}: is {mask.dtype}, must be bool or floats")

    def _project(self, query, key, value, same):
        """(B,T,M) each."""
        width, bias = self.embed_dim, self.in_proj_bias
        if same and self._qkv_same_embed_dim:
            return functional.linear(query, self.in_proj_weight, bias).chunk(3, -1)
        weights = (
            self.in_proj_weight.split(width)
            if self._qkv_same_embed_dim
            else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        )
        biases = (None,) * 3 if bias is None else bias.split(width)
        return [functional.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases)]

    def _more_keys(self, k, v):
        """With the keys and values that the module adds, and how many these are."""
        extra = 0
        if self.bias_k is not None:
            k = torch.cat([k, self.bias_k.to(k.dtype).expand(k.size(0), 1, -1)], 1)
            v = torch.cat([v, self.bias_v.to(v.dtype).expand(v.size(0), 1, -1)], 1)
            extra += 1
        if self.add_zero_attn:
            k, v, extra = functional.pad(k, (0, 0, 0, 1)), functional.pad(v, (0, 0, 0, 1)), extra + 1
        return k, v, extra

    def _mask(self, attn_mask, padding, dtype, batch, extra):
        """One mask of four axes; keys that the module adds are visible."""
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.unflatten(0, (batch, self.num_heads))
        if padding is not None:
            padding = padding[:, None, None, :]
        mask = _sum_masks(attn_mask, padding, dtype)
        if mask is None or not extra:
            return mask
        return functional.pad(mask, (0, extra), value=True if mask.dtype is torch.bool else 0.0)

    def _attend(self, q, k, v, mask, causal, need_weights, mean):
        dropout = self.dropout if self.training else 0.0
        q, k, v = (x.unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2) for x in (q, k, v))
        q, k, v, mask = _ops.lower(q, k, v, mask)
        options = (None, causal, None, None, dropout, seed_of(dropout) if dropout else 0)
        if need_weights:
            return attention_weights(q, k, v, mask, *options, mean)
        return _ops.attention(q, k, v, mask, *options), None
