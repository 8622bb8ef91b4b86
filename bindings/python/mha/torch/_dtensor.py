"""How attention is sharded over the devices of a mesh (torch.distributed.tensor.DTensor): over sequences and over heads, which need
no communication, or not at all."""

from __future__ import annotations

from typing import Any

import torch

from mha.torch._imports import after_import

#: The first tensors of the operators, of which a gradient may be asked.
_Q, _K, _V, _BIAS, _SINKS, _ALIBI = range(6)


def _of_batch(n: int, x: Any, batch: int, heads: int) -> int | None:
    """The axis of argument n that has the sequences; None if it has none."""
    if n == _BIAS:
        return 0 if x.ndim == 4 and x.shape[0] == batch else None
    if n == _SINKS:
        return None
    return 0 if n != _ALIBI or x.ndim == 2 else None


def _of_heads(n: int, x: Any, batch: int, heads: int) -> int | None:
    """Likewise the heads: lengths have none."""
    if n == _BIAS:
        return x.ndim - 3 if x.ndim >= 3 and x.shape[-3] == heads else None
    if n in (_SINKS, _ALIBI):
        return x.ndim - 1
    return 1 if x.ndim >= 3 else None


def _axes(arguments: tuple, ways: int, seed: int, packed: bool) -> list:
    """The functions above that may be sharded: with dropout none, since it depends on the place of a weight in the whole."""
    q, k = arguments[:2]
    possible = []
    if not seed and not packed:
        possible.append(_of_batch)
    if not seed and k.shape[1] % ways == 0 and q.shape[1] % ways == 0:
        possible.append(_of_heads)
    return possible


def _placements(arguments: tuple, axis: Any) -> list:
    """Those of all arguments; None for what is no tensor."""
    from torch.distributed.tensor import Replicate, Shard

    batch, heads = arguments[_Q].shape[:2]
    placed: list[Any] = []
    for n, x in enumerate(arguments):
        if not hasattr(x, "tensor_meta"):
            placed.append(None)
            continue
        at = axis(n, x, batch, heads) if axis is not None else None
        placed.append(Replicate() if at is None else Shard(at))
    return placed


def _forward_rule(results: int, seed_at: int, starts_at: int | None) -> Any:
    from torch.distributed.tensor import Replicate, Shard

    def rule(*arguments):
        packed = starts_at is not None and (arguments[starts_at] is not None or arguments[starts_at + 1] is not None)
        ways, seed = arguments[_Q].mesh.size(), arguments[seed_at] if len(arguments) > seed_at else 0
        rules = [([Replicate()] * results, _placements(arguments, None))]
        for axis in _axes(arguments, ways, seed, packed):
            at = 0 if axis is _of_batch else 1
            rules.append(([Shard(at)] * results, _placements(arguments, axis)))
        return rules

    return rule


def _backward_rule(gradients: int, seed_at: int, starts_at: int | None) -> Any:
    from torch.distributed.tensor import Partial, Replicate

    def rule(*arguments):
        packed = starts_at is not None and (arguments[starts_at] is not None or arguments[starts_at + 1] is not None)
        wanted = arguments[-1] if starts_at is not None else (True, True, True, *arguments[-2:])
        rules = [([Replicate()] * gradients, _placements(arguments, None))]
        for axis in _axes(arguments, arguments[_Q].mesh.size(), arguments[seed_at], packed):
            placed = _placements(arguments, axis)
            # A gradient of what all devices have is the sum of theirs.
            made = [
                Replicate() if not is_wanted else Partial() if isinstance(at, Replicate) else at
                for at, is_wanted in zip(placed[:gradients], wanted)
            ]
            rules.append((made, placed))
        return rules

    return rule


def _register() -> None:
    from torch.distributed.tensor.experimental import register_sharding

    operators = torch.ops.mha
    register_sharding(operators.attention.default)(_forward_rule(2, 9, None))
    register_sharding(operators.attention_backward.default)(_backward_rule(5, 9, None))
    register_sharding(operators.general_attention.default)(_forward_rule(3, 17, 8))
    register_sharding(operators.general_attention_backward.default)(_backward_rule(6, 17, 8))


def offer() -> None:
    """Registers these rules when somebody imports torch.distributed.tensor, or now."""
    after_import("torch.distributed.tensor", _register)
