"""Times mha.torch beside PyTorch: forward and backward of attention, and the overhead of small calls.

    PYTHONPATH=build/python build/venv/bin/python bench/python_beside.py [--threads N] [--rounds N] [--seconds S] [--type TYPE] [SHAPE...]

Both libraries compute the same call in turns, after a check that their results agree, so that a change of the machine's speed meets both.
Each line has the median of the rounds and the ratio of PyTorch's time to mha's: above 1, mha is faster. Overhead is processor time.
No round begins after S seconds: PyTorch takes minutes for bfloat16 on a processor without instructions for it.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch

import mha
import mha.torch

SHAPES = {  # B, H, T, D, causal: as in bench/shapes.c
    "bert_base": (8, 12, 512, 64, False),
    "gpt2_small": (1, 12, 1024, 64, True),
}
TYPES = {"float32": (torch.float32, 1e-4), "bfloat16": (torch.bfloat16, 0.1)}
LIBRARIES = {"mha": mha.torch.scaled_dot_product_attention, "pytorch": torch.nn.functional.scaled_dot_product_attention}


def steps(function, inputs, dout, causal):
    """The two steps that are timed. The second needs the result of the first."""

    def forward():
        return function(*inputs, is_causal=causal)

    def backward(out):
        return torch.autograd.grad(out, inputs, dout)

    return forward, backward


def seconds(forward, backward):
    """Those of the two steps."""
    start = time.perf_counter()
    out = forward()
    middle = time.perf_counter()
    backward(out)
    return middle - start, time.perf_counter() - middle


def check(pairs, tolerance, name):
    """Results and gradients of the two libraries agree, relative to the largest number."""
    found = []
    for forward, backward in pairs.values():
        out = forward()
        found.append([out.detach(), *backward(out)])
    for ours, theirs in zip(*found, strict=True):
        error = (ours.float() - theirs.float()).abs().max() / theirs.float().abs().max()
        if not error < tolerance:
            raise SystemExit(f"{name}: the results differ by {error:.2g}")


def compare(name, dtype, rounds, limit):
    b, h, t, d, causal = SHAPES[name]
    kind, tolerance = TYPES[dtype]
    torch.manual_seed(1)
    rows = [torch.randn(b, t, h, d).to(kind) for _ in range(4)]  # as projections leave them: heads side by side
    *inputs, dout = (x.transpose(1, 2) for x in rows)
    inputs = [x.requires_grad_() for x in inputs]
    pairs = {library: steps(function, inputs, dout, causal) for library, function in LIBRARIES.items()}
    check(pairs, tolerance, f"{name} {dtype}")
    times, end = {library: [] for library in pairs}, time.perf_counter() + limit
    for done in range(rounds):
        if done and time.perf_counter() > end:
            break
        for library, pair in pairs.items():
            times[library].append(seconds(*pair))
    for step, choose in (("forward", lambda x: x[0]), ("backward", lambda x: x[1]), ("both", sum)):
        ours, theirs = (1e3 * statistics.median(map(choose, times[library])) for library in ("mha", "pytorch"))
        print(f"{name:12}{dtype:10}{step:10}{ours:10.2f}{theirs:12.2f}{theirs / ours:9.2f}", flush=True)


def microseconds(functions, calls=1000, rounds=31):
    """Processor time of this thread per call of each function, the median of rounds in which they take turns."""
    times = [[] for _ in functions]
    for _ in range(rounds):
        for function, found in zip(functions, times):
            start = time.thread_time_ns()
            for _ in range(calls):
                function()
            found.append((time.thread_time_ns() - start) / calls / 1e3)
    return [statistics.median(found) for found in times]


def overhead():
    x = np.ones((1, 1, 4, 8), np.float32)
    q, dout = torch.ones(1, 1, 4, 8), torch.ones(1, 1, 4, 8)
    leaf = torch.ones(1, 1, 4, 8, requires_grad=True)
    leaves = [torch.ones(1, 1, 4, 8, requires_grad=True) for _ in range(3)]
    print(f"\n{'a call with 4 rows':32}{'mha us':>10}{'pytorch us':>12}{'ratio':>9}")
    print(f"{'mha.attention (NumPy)':32}{microseconds([lambda: mha.attention(x, x, x)])[0]:10.1f}")
    for name, call in (
        ("no gradient", lambda f: f(q, q, q)),
        ("gradient, forward", lambda f: f(leaf, leaf, leaf)),
        ("gradient, forward and backward", lambda f: torch.autograd.grad(f(leaf, leaf, leaf), leaf, dout)),
        ("the same, three inputs", lambda f: torch.autograd.grad(f(*leaves), leaves, dout)),
    ):
        ours, theirs = microseconds([lambda f=LIBRARIES[library]: call(f) for library in ("mha", "pytorch")])
        print(f"{name:32}{ours:10.1f}{theirs:12.1f}{theirs / ours:9.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", choices=[[], *SHAPES], help="bert_base, gpt2_small; all of them unless given")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--type", choices=list(TYPES), help="both unless given")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"mha {mha.__version__} beside PyTorch {torch.__version__}, {given.threads} threads, up to {given.rounds} rounds")
    print(f"{'shape':12}{'type':10}{'step':10}{'mha ms':>10}{'pytorch ms':>12}{'ratio':>9}")
    for shape in given.shapes or SHAPES:
        for dtype in [given.type] if given.type else TYPES:
            compare(shape, dtype, given.rounds, given.seconds)
    torch.set_num_threads(1)
    mha.set_num_threads(1)
    overhead()


if __name__ == "__main__":
    main()
