"""`mha layer` beside attention modules as tutorials write them, in PyTorch: saved with state_dict(), loaded as they are.

    modules.py PREFIX      the tree that `cmake --install` made

The truth is the module in float64; the output of `mha layer` may be off by 3e-6 of the largest number. The gradients of
parameters come back under the names of the file."""
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

import torch
from torch import nn

WIDTH, HEADS, BATCH, LENGTH = 24, 4, 2, 9
BOUND = 3e-6


def save(path, tensors):
    """A safetensors file of float32 and bool tensors."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        kind = {torch.float32: "F32", torch.bool: "BOOL"}[tensor.dtype]
        raw = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def load(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    found = {}
    for name, about in header.items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in about["data_offsets"])
            found[name] = torch.frombuffer(bytearray(raw[begin:end]), dtype=torch.float32).reshape(about["shape"])
    return found


def attend(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf)
    return scores.softmax(-1) @ v


class Split(nn.Module):
    """One linear layer per projection, cut into heads by a view."""

    def __init__(self, names, bias=True, causal=None, out_width=WIDTH):
        super().__init__()
        self.names = names
        for name in names[:3]:
            self.add_linear(name, nn.Linear(WIDTH, WIDTH, bias=bias))
        if names[3]:
            self.add_linear(names[3], nn.Linear(WIDTH, out_width, bias=bias))
        self.causal = causal
        if causal:
            square = torch.ones(LENGTH, LENGTH)
            self.register_buffer(causal, square.triu(1) if causal == "mask" else square.tril())

    def add_linear(self, name, linear):
        """A name with a dot is an element of a list, or of a sequence with dropout behind it."""
        first, _, index = name.partition(".")
        if not index:
            self.add_module(first, linear)
        elif not hasattr(self, first):
            self.add_module(first, nn.ModuleList([linear]))
        else:
            getattr(self, first).append(linear)

    def forward(self, x):
        q, k, v = (self.get_submodule(name)(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for name in self.names[:3])
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1) if self.causal else None
        y = attend(q, k, v, mask).transpose(1, 2).flatten(2)
        return self.get_submodule(self.names[3])(y) if self.names[3] else y


class Head(nn.Module):
    def __init__(self, names, causal):
        super().__init__()
        self.names = names
        for name in names:
            self.add_module(name, nn.Linear(WIDTH, WIDTH // HEADS, bias=False))
        if causal:
            self.register_buffer("tril", torch.ones(LENGTH, LENGTH).tril())
        self.causal = causal

    def forward(self, x):
        mask = self.tril == 0 if self.causal else None
        return attend(*(self.get_submodule(name)(x) for name in self.names), mask)


class List(nn.Module):
    """One module per head, and perhaps an output projection."""

    def __init__(self, names, out=None, causal=False):
        super().__init__()
        self.heads = nn.ModuleList([Head(names, causal) for _ in range(HEADS)])
        self.out = out
        if out:
            self.add_module(out, nn.Linear(WIDTH, WIDTH))

    def forward(self, x):
        y = torch.cat([head(x) for head in self.heads], -1)
        return self.get_submodule(self.out)(y) if self.out else y


HEADS_GIVEN = ["--heads", str(HEADS)]
CASES = {
    "W_q ... W_o": (lambda: Split(["W_q", "W_k", "W_v", "W_o"]), HEADS_GIVEN),
    "query_linear ...": (lambda: Split(["query_linear", "key_linear", "value_linear", "out_linear"]), HEADS_GIVEN),
    "W_query ... out_proj, causal": (
        lambda: Split(["W_query", "W_key", "W_value", "out_proj"], bias=False, causal="mask"),
        HEADS_GIVEN,
    ),
    "keys, queries, values, fc_out": (lambda: Split(["queries", "keys", "values", "fc_out"]), HEADS_GIVEN),
    "linears.0 to linears.3": (lambda: Split([f"linears.{n}" for n in range(4)]), HEADS_GIVEN),
    "to_q ... to_out.0": (lambda: Split(["to_q", "to_k", "to_v", "to_out.0"], bias=False), HEADS_GIVEN),
    "results of another width": (lambda: Split(["W_q", "W_k", "W_v", "W_o"], out_width=7), HEADS_GIVEN),
    "no output projection": (lambda: Split(["W_q", "W_k", "W_v", None]), HEADS_GIVEN),
    "heads.N.W_query": (lambda: List(["W_query", "W_key", "W_value"]), []),
    "heads.N.query, proj, causal": (lambda: List(["query", "key", "value"], "proj", causal=True), []),
    "names by --map": (
        lambda: Split(["alpha", "beta", "gamma", "delta"]),
        HEADS_GIVEN + [f"--map={part}={name}" for part, name in zip("qkvo", ["alpha", "beta", "gamma", "delta"])],
    ),
}


def check(command, work, make, options):
    """The largest distance from PyTorch, of the output and of the gradients."""
    module = make()
    x = torch.randn(BATCH, LENGTH, WIDTH)
    wide = make().double()
    wide.load_state_dict({name: tensor.double() for name, tensor in module.state_dict().items()})
    truth = wide(x.double())
    dout = torch.randn(truth.shape)
    truth.backward(dout.double())
    save(work / "layer", {name: tensor.float() for name, tensor in module.state_dict().items()})
    save(work / "x", {"query": x, "grad_output": dout})
    subprocess.run([command, "layer", work / "layer", work / "x", "-o", work / "y", "--grad", *options], check=True,
                   capture_output=True)
    ours, off = load(work / "y"), 0.0
    pairs = [(ours["output"], truth)]
    pairs += [(ours["grad." + name], parameter.grad) for name, parameter in wide.named_parameters()]
    for have, want in pairs:
        assert have.shape == want.shape, f"{tuple(have.shape)} instead of {tuple(want.shape)}"
        off = max(off, ((have.double() - want).abs().max() / max(1.0, want.abs().max())).item())
    return off


def main():
    command = pathlib.Path(sys.argv[1]) / "bin" / "mha"
    torch.manual_seed(1)
    torch.set_num_threads(1)
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, options) in CASES.items():
            try:
                off = check(command, pathlib.Path(folder), make, options)
                why = "" if off <= BOUND else f"off by {off:.2g}"
            except subprocess.CalledProcessError as error:
                why = error.stderr.decode().strip()
            except (AssertionError, KeyError) as error:
                why = str(error)
            print(f"  ok    {name}" if not why else f"FAILED  {name}: {why}")
            passed, failed = passed + (not why), failed + bool(why)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
