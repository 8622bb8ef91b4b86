"""DTensors: attention is sharded over sequences and over heads without communication.

A process group without other processes is enough: every device computes its own part, and any communication would show in the result.
"""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import torch, mha.torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, init_device_mesh

dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
shapes = {"q": (2, 4, 5, 8), "k": (2, 2, 7, 8), "v": (2, 2, 7, 8), "bias": (2, 4, 5, 7), "sinks": (4,), "alibi": (4,)}
full = {name: torch.rand(shape).requires_grad_() for name, shape in shapes.items()}
qkv = [full[name] for name in "qkv"]

def part(x, at):
    return x if at is None else x.detach().chunk(2, at)[1].contiguous()

def sharded(x, at):
    return DTensor.from_local(part(x, at).clone().detach().requires_grad_(), mesh, [Replicate() if at is None else Shard(at)])

for axis, places in ((0, (0, 0, 0, 0, None, None)), (1, (1, 1, 1, 1, 0, 0))):
    local = {name: sharded(x, at) for (name, x), at in zip(full.items(), places)}
    def compare(got, want, inputs):
        for a, b in zip(got, want):
            assert a.placements == (Shard(axis),) and (a.to_local() - part(b, axis)).abs().max() < 1e-6
        grads = torch.autograd.grad(sum(x.sum() for x in got), [local[name] for name in inputs])
        whole = torch.autograd.grad(sum(x.sum() for x in want), [full[name] for name in inputs])
        for name, a, b in zip(inputs, grads, whole):
            at = places[list(full).index(name)]
            assert a.placements == ((Partial() if at is None else Shard(at)),), (name, a.placements)
            assert at is None or (a.to_local() - part(b, at)).abs().max() < 1e-5
    three = [local[name] for name in "qkv"]
    compare([mha.torch.scaled_dot_product_attention(*three, local["bias"], enable_gqa=True)],
            [mha.torch.scaled_dot_product_attention(*qkv, full["bias"], enable_gqa=True)], ["q", "k", "v", "bias"])
    options = dict(causal=True, window=4, align="bottom-right", return_lse=True)
    extras = ["bias", "sinks", "alibi"]
    compare(mha.torch.attention(*three, **options, **{n: local[n] for n in extras}),
            mha.torch.attention(*qkv, **options, **{n: full[n] for n in extras}), ["q", "k", "v", *extras])
print("done")
"""


def test_sharded_attention():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.stdout.endswith("done\n"), done.stderr
