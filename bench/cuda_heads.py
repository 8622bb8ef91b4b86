"""Attention on a GPU with many query heads for each key head, beside PyTorch's, as cuda_beside.py has it.

    python3 bench/cuda_heads.py [many] [grouped]

Run it in the root of the project after building it; both parts without an argument."""
import sys

import torch

from cuda_beside import both_ways
from cuda_calls import Attention, error, exact, random, sdpa, stream, table, timed


def many(ours):
    """Decoding with many query heads for a key head; (B,H,G,Tq,Tk,D,E)."""
    print("\nmany rows of a key head: us")
    for B, H, G, Tq, T, D, E in [
        (8, 8, 1, 1, 4096, 128, 128), (8, 16, 1, 1, 4096, 128, 128), (8, 32, 1, 1, 4096, 128, 128), (8, 64, 1, 1, 4096, 128, 128),
        (8, 71, 1, 1, 4096, 64, 64), (8, 128, 1, 1, 4096, 192, 192), (8, 128, 1, 1, 4096, 192, 128), (8, 32, 8, 4, 4096, 128, 128),
        (8, 32, 8, 8, 4096, 128, 128), (64, 64, 4, 1, 4096, 128, 128), (32, 128, 1, 1, 8192, 192, 128), (1, 32, 1, 1, 4096, 128, 128)]:
        buffers = max(2, min(24, int(400e6 / (B * G * T * (D + E) * 2)) + 1))
        q = random(B, H, Tq, D)
        ks, vs = [random(B, G, T, D) for _ in range(buffers)], [random(B, G, T, E) for _ in range(buffers)]
        out = torch.full((B, H, Tq, E), float("nan"), device="cuda", dtype=q.dtype)
        ways = {"mha": [lambda n=n: ours.forward(out, q, ks[n % buffers], vs[n % buffers]) for n in range(24)]}
        for name in ("cudnn", "flash"):
            ways[name] = [lambda n=n, name=name: sdpa(name, q, ks[n % buffers], vs[n % buffers], enable_gqa=True) for n in range(24)]
        times = timed(ways, lambda name, why: None)
        with torch.cuda.stream(stream):
            ours.forward(out, q, ks[0], vs[0])
        torch.cuda.synchronize()
        line = "  ".join(f"{name} {t:8.2f}" for name, t in times.items())
        print(f"  B{B:3} {H}/{G} {Tq} of {T:6} keys, {D} and {E}  {line}  error {error(out, exact(q, ks[0], vs[0])):.1e}")
        del ks, vs
        torch.cuda.empty_cache()


def grouped(ours):
    """The shapes of NVIDIA's table of cuDNN's attention on an H200: 64 query heads on 8 key heads, one sequence."""
    print("\ngrouped heads, B1 64/8 D128: us, TFLOP/s, ratio to cuDNN")
    for T in (2048, 4096, 8192, 16384):
        for causal in (False, True):
            forward, backward, off, kernel = both_ways(ours, 1, 64, 8, T, 128, causal, backends=("cudnn",), count=10 if T < 8192 else 3)
            flops = 4 * 64 * T * T * 128 / (2 if causal else 1)
            table(f"T{T} {'causal ' if causal else ''}forward", forward, flops, f"error {off:.1e} {kernel}")
            table(f"T{T} {'causal ' if causal else ''}backward", backward, 2.5 * flops, "")


def main():
    parts = {"many": many, "grouped": grouped}
    torch.manual_seed(int.from_bytes(b"mha", "big"))
    ours = Attention(stream)
    for name in sys.argv[1:] or parts:
        parts[name](ours)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
