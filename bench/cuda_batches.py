"""Batches of sequences of unlike length on a GPU, padded and packed, beside PyTorch's: kernels as CUDA graphs, replayed in turn.

    python3 bench/cuda_batches.py

Run it in the root of the project after building it. PyTorch's part is varlen_attn (FlashAttention) for packed batches, and
scaled_dot_product_attention with a mask for padded ones."""
import torch
from cuda_calls import Attention, error, exact, random, sdpa, stream, timed

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:
    varlen_attn = None


def integers(numbers):
    return torch.tensor(numbers, device="cuda", dtype=torch.int32)


def starts_of(sizes):
    return integers([sum(sizes[:n]) for n in range(len(sizes) + 1)])


def report(name, forward, backward=None, note=""):
    """A line of times and of the ratio to the fastest of the others."""
    for what, ways in (("forward", forward), ("backward", backward)):
        if ways is None:
            continue
        times = timed(ways)
        others = [t for n, t in times.items() if n != "mha"]
        line = "  ".join(f"{n} {t:8.1f} us" for n, t in times.items())
        print(f"  {name:42} {what:8}  {line}  ratio {min(others, default=float('nan')) / times['mha']:.2f}  {note}", flush=True)


def varlen(lengths, rows, H, G, D, causal):
    """What varlen_attn takes: rows (total,H,D), and the longest of each."""
    if varlen_attn is None:
        return None
    window = {"window_size": (-1, 0)} if causal else {}
    cu_rows, cu_keys = starts_of(rows), starts_of(lengths)
    return lambda q, k, v: varlen_attn(q, k, v, cu_rows, cu_keys, max(rows), max(lengths), **window)


def packed(ours, name, rows, lengths, H, G, D, causal=False, gradients=False, count=10):
    """Sequences one behind another: tensors (total,H,D), seen as (1,H,total,D)."""
    q, k, v = random(sum(rows), H, D), random(sum(lengths), G, D), random(sum(lengths), G, D)
    out, dout = torch.full_like(q, float("nan")), random(sum(rows), H, D)
    softmax, grads = torch.empty(1, H, sum(rows), 2, device="cuda"), [torch.empty_like(x) for x in (q, k, v)]
    view = lambda x: x.transpose(0, 1).unsqueeze(0)
    options = {"query_starts": starts_of(rows), "key_starts": starts_of(lengths), "causal": causal, "align": 1}
    run = lambda: ours.forward(view(out), view(q), view(k), view(v), softmax, **options)
    back = lambda: ours.backward([view(x) for x in grads], view(dout), view(out), view(q), view(k), view(v), softmax, **options)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    n, m = rows[0], lengths[0]
    first = [view(x)[:, :, :size] for x, size in ((out, n), (q, n), (k, m), (v, m))]
    off = error(first[0], exact(*first[1:])) if not causal or n == 1 else float("nan")
    forward, backward = {"mha": [run] * count}, {"mha": [back] * count} if gradients else None
    call = varlen(lengths, rows, H, G, D, causal)
    if call:
        forward["varlen"] = [lambda: call(q, k, v)] * count
    if call and gradients:
        leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
        with torch.cuda.stream(stream):
            y = call(*leaves)
        backward["varlen"] = [lambda: torch.autograd.grad(y, leaves, dout, retain_graph=True)] * count
    report(name, forward, backward, f"error {off:.1e} {ours.explain(view(out), view(q), view(k), view(v), **options)}")


def padded(ours, name, lengths, T, H, D, causal=False, both=False, count=10):
    """Sequences of unlike length in (B,H,T,D); with `both`, rows of padding are none of queries either."""
    B, own = len(lengths), integers(lengths)
    q, k, v, dout = (random(B, H, T, D) for _ in range(4))
    out, softmax, grads = torch.empty_like(q), torch.empty(B, H, T, 2, device="cuda"), [torch.empty_like(x) for x in (q, k, v)]
    options = {"key_lengths": own, "causal": causal, **({"query_lengths": own} if both else {})}
    mask = torch.arange(T, device="cuda")[None, :] < own[:, None]
    mask = mask[:, None, None, :].expand(B, H, T, T)
    if causal:
        mask = mask & torch.ones(T, T, device="cuda", dtype=torch.bool).tril()
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        ours.forward(out, q, k, v, softmax, **options)
        y = sdpa("efficient", *leaves, attn_mask=mask)
    torch.cuda.synchronize()
    forward = {"mha": [lambda: ours.forward(out, q, k, v, softmax, **options)] * count,
               "efficient": [lambda: sdpa("efficient", q, k, v, attn_mask=mask)] * count}
    backward = {"mha": [lambda: ours.backward(grads, dout, out, q, k, v, softmax, **options)] * count,
                "efficient": [lambda: torch.autograd.grad(y, leaves, dout, retain_graph=True)] * count}
    report(name, forward, backward, ours.explain_backward(grads, dout, out, q, k, v, softmax, **options))


def main():
    ours = Attention(stream)
    few, many = [1] * 64, torch.randint(64, 513, (32,), generator=torch.Generator().manual_seed(3)).tolist()
    print("packed batches, bfloat16")
    packed(ours, "generation: 64 rows, 32/8 heads, 8k keys", few, [8192] * 64, 32, 8, 128, count=4)
    packed(ours, "64 rows, 1k keys", few, [1024] * 64, 32, 8, 128)
    packed(ours, "60 rows, 4 prompts of 1k, causal", [1] * 60 + [1024] * 4, [1024 + 16 * n for n in range(60)] + [1024] * 4, 32, 8, 128,
           causal=True)
    packed(ours, "32 of 64 to 512, 12 heads of 64", many, many, 12, 12, 64, gradients=True)
    packed(ours, "8 of 31 to 8k, 16 heads of 128, causal", *[[8192, 3000, 2048, 1500, 1024, 512, 77, 31]] * 2, 16, 16, 128, causal=True,
           gradients=True, count=3)
    print("padded batches, bfloat16")
    padded(ours, "32 of 64 to 512, 12 heads of 64", many, 512, 12, 64)
    padded(ours, "the same, rows of padding as well", many, 512, 12, 64, both=True)
    padded(ours, "the same, causal", many, 512, 12, 64, causal=True, both=True)
    padded(ours, "16 of 64 to 512, 12 heads of 128", many[:16], 512, 12, 128)
    padded(ours, "256 of 20 to 50, 4 heads of 16", [20 + n % 31 for n in range(256)], 50, 4, 16, both=True)


if __name__ == "__main__":
    main()
