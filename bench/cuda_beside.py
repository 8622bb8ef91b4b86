"""Attention on a GPU beside PyTorch's, in one process: kernels as CUDA graphs over rotating buffers, replayed in turn.

    python3 bench/cuda_beside.py [decode] [stats] [small] [bias] [widths] [wide] [masks] [options] [gradients] [scores] [profile]
    python3 bench/cuda_beside.py answer BUILD

Run it in the root of the project after building it; all parts without an argument. PyTorch's part is scaled_dot_product_attention
with cuDNN, FlashAttention and the efficient kernel, and for biases flex_attention, compiled. With "answer" it is the peer of
`./dev bench --device cuda`: it reads paths of files of `mha bench --save` and answers each with a line of JSON; BUILD is the
folder of the library."""
import json
import pathlib
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench/peers")]
import torch_peer  # noqa: E402
from cuda_calls import BACKENDS, Attention, error, exact, random, sdpa, stream, table, timed  # noqa: E402


def decode(ours):
    print("\ndecode: us (TB/s of keys and values)")
    for B, H, G, T, D in [
        (64, 32, 8, 8192, 128), (8, 32, 8, 8192, 128), (1, 32, 8, 8192, 128), (64, 32, 8, 1024, 128), (16, 16, 16, 4096, 64),
        (1, 32, 8, 1024, 128), (1, 32, 8, 65536, 128), (64, 16, 16, 2048, 64), (1, 32, 8, 8192, 64), (16, 16, 16, 4096, 96),
        (16, 16, 8, 8192, 256), (1, 16, 8, 8192, 256), (1, 8, 1, 32768, 256)]:
        bytes_each = 2 * B * G * T * D * 2
        buffers = max(2, min(24, int(400e6 / bytes_each) + 1))
        q, ks, vs = random(B, H, 1, D), [random(B, G, T, D) for _ in range(buffers)], [random(B, G, T, D) for _ in range(buffers)]
        out = torch.full_like(q, float("nan"))
        ways = {"mha": [lambda n=n: ours.forward(out, q, ks[n % buffers], vs[n % buffers]) for n in range(24)]}
        for name in ("cudnn", "flash"):
            ways[name] = [lambda n=n, name=name: sdpa(name, q, ks[n % buffers], vs[n % buffers], enable_gqa=True) for n in range(24)]
        times = timed(ways)
        with torch.cuda.stream(stream):
            ours.forward(out, q, ks[0], vs[0])
        torch.cuda.synchronize()
        off = error(out, exact(q, ks[0], vs[0]))
        line = "  ".join(f"{name} {t:8.2f} ({bytes_each / t / 1e6:4.2f})" for name, t in times.items())
        print(f"  B{B:3} {H}/{G} {T:6} of {D:3}  {line}  error {off:.1e}")
        del ks, vs
        torch.cuda.empty_cache()


def stats(ours):
    print("\nstatistics: ms (times the forward call)")
    for B, H, T, D, causal in [
        (1, 8, 65536, 64, True), (1, 8, 16384, 64, False), (1, 8, 16384, 128, True), (2, 12, 8192, 64, True), (1, 16, 8192, 64, True)]:
        q, k, v = (random(B, H, T, D) for _ in range(3))
        out, softmax = torch.empty_like(q), torch.empty(B, H, T, 2, device="cuda")
        rows = {name: torch.empty(B, H, T, device="cuda") for name in ("entropy", "effective", "largest", "distance")}
        columns = {"received": torch.empty(B, H, T, device="cuda")}
        pairs = {name: torch.empty(B, H, H, device="cuda") for name in ("divergence", "cosine")}
        wanted = {"rows": rows, "columns": rows | columns, "pairs": rows | columns | pairs}
        ways = {"forward": [lambda: ours.forward(out, q, k, v, softmax, causal=causal)]}
        for name, results in wanted.items():
            ways[name] = [lambda results=results: ours.stats(results, q, k, softmax, causal=causal)]
        times = timed(ways)
        print(f"  B{B} H{H} T{T} D{D}{' causal' if causal else ''}:",
              "  ".join(f"{name} {t / 1000:.3f} ({t / times['forward']:.2f})" for name, t in times.items()))


def both_ways(ours, B, H, G, T, D, causal, bias=None, backends=("cudnn", "flash", "efficient"), flex=None, count=10, dbias=False):
    """Forward and backward of one shape; times, and the error of results."""
    q, k, v, dout = random(B, H, T, D), random(B, G, T, D), random(B, G, T, D), random(B, H, T, D)
    out, grads = torch.empty_like(q), [torch.empty_like(x) for x in (q, k, v)]
    softmax = torch.empty(B, H, T, 2, device="cuda")
    options = {"causal": causal}
    if bias is not None:
        options["bias"] = bias
    forward = {"mha": [lambda: ours.forward(out, q, k, v, softmax, **options)] * count}
    sum_bias = torch.empty(bias.shape, device="cuda") if dbias else None
    backward = {"mha": [lambda: ours.backward(grads, dout, out, q, k, v, softmax, dbias=sum_bias, **options)] * count}
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    keep = []

    def add(name, function):
        forward[name] = [lambda: function(q, k, v)] * count
        try:
            with torch.cuda.stream(stream):
                y = function(*leaves)
            keep.append(y)
            backward[name] = [lambda: torch.autograd.grad(y, leaves, dout, retain_graph=True)] * count
        except Exception as why:
            print(f"  {name}: {str(why).splitlines()[0][:90]}")

    for name in backends:
        add(name, lambda a, b, c, name=name: sdpa(name, a, b, c, is_causal=causal, enable_gqa=H != G))
    if flex:
        add("flex", flex)
    with torch.cuda.stream(stream):
        ours.forward(out, q, k, v, softmax, **options)
    torch.cuda.synchronize()
    off = error(out, exact(q, k, v, bias, causal)) if T <= 8192 else float("nan")
    return timed(forward), timed(backward), off, ours.explain(out, q, k, v, **options)


def small(ours):
    print("\nsmall shapes: us, TFLOP/s, ratio to the best of PyTorch")
    for name, B, H, T, D, causal in [
        ("vit_b16 B32", 32, 12, 197, 64, False), ("vit_b16 B8", 8, 12, 197, 64, False), ("bert_base B8", 8, 12, 512, 64, False),
        ("bert_base B32", 32, 12, 512, 64, False), ("gpt2_small B8", 8, 12, 1024, 64, True), ("gpt2_small B1", 1, 12, 1024, 64, True),
        ("vit_mnist B256", 256, 4, 50, 16, False)]:
        forward, backward, off, kernel = both_ways(ours, B, H, H, T, D, causal)
        flops = 4 * B * H * T * T * D / (2 if causal else 1)
        table(f"{name} forward", forward, flops, f"error {off:.1e} {kernel}")
        table(f"{name} backward", backward, 2.5 * flops, "")


def bias(ours):
    from torch.nn.attention.flex_attention import flex_attention

    print("\nbias (H,T,T), B2 H16 T8192, beside flex_attention: us, TFLOP/s")
    for D in (128, 64):
        torch._dynamo.reset()
        compiled = torch.compile(flex_attention, dynamic=False)
        b = random(16, 8192, 8192)
        flex = lambda q, k, v, b=b: compiled(q, k, v, score_mod=lambda s, _, h, i, j: s + b[h, i, j])
        forward, backward, off, kernel = both_ways(ours, 2, 16, 16, 8192, D, False, bias=b, backends=(), flex=flex, count=3)
        flops = 4 * 2 * 16 * 8192 * 8192 * D
        table(f"D{D} forward", forward, flops, f"error {off:.1e} {kernel}")
        table(f"D{D} backward", backward, 2.5 * flops, "")


def widths(ours):
    print("\nother widths, B2 H16 T8192: us, TFLOP/s, ratio to the best of PyTorch")
    for D in (96, 256):
        for causal in (False, True):
            forward, backward, off, kernel = both_ways(ours, 2, 16, 16, 8192, D, causal, backends=("cudnn", "flash"), count=3)
            flops = 4 * 2 * 16 * 8192 * 8192 * D / (2 if causal else 1)
            table(f"D{D} {'causal ' if causal else ''}forward", forward, flops, f"error {off:.1e} {kernel}")
            table(f"D{D} {'causal ' if causal else ''}backward", backward, 2.5 * flops, "")


def forward_only(ours, name, q, k, v, flops, others, count=3, want=None, **options):
    """The forward call with options beside `others`, by name; `want`: results of the first sequence in float64."""
    out = torch.full((*q.shape[:-1], v.shape[-1]), float("nan"), device="cuda", dtype=q.dtype)
    run = lambda: ours.forward(out, q, k, v, **options)
    torch.cuda.synchronize()  # what the other stream fills
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    off = "" if want is None else f"error {error(out, want):.1e} "
    ways = {"mha": [run] * count, **{n: [call] * count for n, call in others.items()}}
    table(name, timed(ways), flops, off + ours.explain(out, q, k, v, **options))


def plain(ours, D, E):
    """Forward calls without options, full and causal."""
    B, H, T = 2, 16, 8192
    q, k, v = random(B, H, T, D), random(B, H, T, D), random(B, H, T, E)
    for causal in (False, True):
        names, flops = ("cudnn", "flash") if D == E else ("cudnn",), 2 * B * H * T * T * (D + E) // (2 if causal else 1)
        others = {name: lambda name=name: sdpa(name, q, k, v, is_causal=causal) for name in names}
        forward_only(ours, f"D{D} E{E}{' causal' if causal else ''}", q, k, v, flops, others, want=exact(q, k, v, causal=causal),
                     causal=causal)


def mask_and_dropout(ours, D, q, k, v):
    """The same with a mask (T,T), and with dropout."""
    B, H, T, _ = q.shape
    flops, flex, mask = 4 * B * H * T * T * D, compiled(), torch.rand(T, T, device="cuda") < 0.7
    call = lambda: flex(q, k, v, score_mod=lambda s, _, h, i, j: torch.where(mask[i, j], s, -float("inf")))
    hidden = torch.zeros(T, T, device="cuda").masked_fill(~mask, -float("inf"))
    forward_only(ours, f"D{D} mask (T,T)", q, k, v, flops, {"flex": call}, want=exact(q, k, v, hidden), mask=mask)
    dropped = {"flash": lambda: sdpa("flash", q, k, v, dropout_p=0.1)}
    forward_only(ours, f"D{D} dropout 0.1", q, k, v, flops, dropped, dropout=0.1)


def compiled():
    """FlexAttention, compiled for one call: it gives up after eight versions."""
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.reset()
    return torch.compile(flex_attention, dynamic=False)


def ragged(H, D):
    """A batch of sequences of unlike length: their starts, q, k and v, how many pairs are visible, and FlexAttention's mask, causal or not."""
    from torch.nn.attention.flex_attention import create_block_mask

    sizes = [8192, 3000, 2048, 1500, 1024, 512, 77, 31]
    starts = torch.tensor([sum(sizes[:n]) for n in range(len(sizes) + 1)], device="cuda", dtype=torch.int32)
    total = int(starts[-1])
    owner = torch.repeat_interleave(torch.arange(len(sizes), device="cuda"), torch.tensor(sizes, device="cuda"))

    def seen(causal):
        rule = (lambda b, h, i, j: (owner[i] == owner[j]) & (i >= j)) if causal else (lambda b, h, i, j: owner[i] == owner[j])
        return create_block_mask(rule, 1, None, total, total, device="cuda")

    return starts, [random(1, H, total, D) for _ in range(3)], sum(n * n for n in sizes), seen


def options(ours):
    """Forward calls with bias, masks, lengths, dropout and other widths, beside flex_attention and cuDNN."""
    from torch.nn.attention.flex_attention import create_block_mask

    print("\noptions, forward: us, TFLOP/s, ratio to the best of PyTorch")
    B, H, T = 2, 16, 8192
    for D in (128, 64):
        q, k, v = random(B, H, T, D), random(B, H, T, D), random(B, H, T, D)
        flops = 4 * B * H * T * T * D
        for dtype in (torch.bfloat16, torch.float32):
            b, flex = random(H, T, T, dtype=dtype), compiled()
            call = lambda b=b, flex=flex: flex(q, k, v, score_mod=lambda s, _, h, i, j: s + b[h, i, j])
            kind = "bfloat16" if dtype == torch.bfloat16 else "float32"
            forward_only(ours, f"D{D} bias {kind} (H,T,T)", q, k, v, flops, {"flex": call}, want=exact(q, k, v, b), bias=b)
            del b
        mask_and_dropout(ours, D, q, k, v)

        lengths = torch.tensor([T, T // 2 - 77], device="cuda", dtype=torch.int32)
        flex = compiled()
        seen = create_block_mask(lambda b, h, i, j: j < lengths[b], B, None, T, T, device="cuda")
        call = lambda flex=flex, seen=seen: flex(q, k, v, block_mask=seen)
        forward_only(ours, f"D{D} key_lengths", q, k, v, 4 * H * T * int(lengths.sum()) * D, {"flex": call}, want=exact(q, k, v),
                     key_lengths=lengths)
        starts, (x, y, z), pairs, mask_of = ragged(H, D)
        for causal in (False, True):
            flex, seen = compiled(), mask_of(causal)
            call = lambda flex=flex, seen=seen: flex(x, y, z, block_mask=seen)
            forward_only(ours, f"D{D} ragged{' causal' if causal else ''}", x, y, z, 4 * H * pairs * D // (2 if causal else 1),
                         {"flex": call}, query_starts=starts, key_starts=starts, causal=causal)
        del q, k, v, x, y, z
        torch.cuda.empty_cache()
    for D in (96, 80, 40):
        plain(ours, D, D)


def wide(ours):
    print("\nwide heads, forward, B2 H16 T8192: us, TFLOP/s, ratio to the best of PyTorch")
    for D, E in ((256, 256), (192, 192), (192, 128), (160, 160)):
        plain(ours, D, E)


def masks(ours):
    print("\nmasks and dropout, forward, B2 H16 T8192: us, TFLOP/s, ratio to the best of PyTorch")
    for D in (64, 128, 256):
        mask_and_dropout(ours, D, *(random(2, 16, 8192, D) for _ in range(3)))


def backward_only(ours, name, q, k, v, flops, others, count=3, same=True, dbias=False, **options):
    """The backward call with options beside functions of q, k and v; `same`: the first of them computes the same gradients."""
    dout = torch.randn(*q.shape[:-1], v.shape[-1], device="cuda").to(q.dtype)
    out, softmax = torch.empty_like(dout), torch.empty(*q.shape[:3], 2, device="cuda")
    grads = [torch.full_like(x, float("nan")) for x in (q, k, v)]
    sums = torch.empty(options["bias"].shape, device="cuda") if dbias else None
    torch.cuda.synchronize()  # what the other stream fills
    with torch.cuda.stream(stream):
        ours.forward(out, q, k, v, softmax, **options)
        ours.backward(grads, dout, out, q, k, v, softmax, dbias=sums, **options)
    torch.cuda.synchronize()
    ways = {"mha": [lambda: ours.backward(grads, dout, out, q, k, v, softmax, dbias=sums, **options)] * count}
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    if dbias:
        leaves.append(options["bias"].detach().clone().requires_grad_())
    apart = []
    for n, (who, function) in enumerate(others.items()):
        try:
            with torch.cuda.stream(stream):
                y = function(*leaves)
                theirs = torch.autograd.grad(y, leaves, dout, retain_graph=True)
            torch.cuda.synchronize()
            if same and not n:
                apart = [((a.float() - b.float()).norm() / b.float().norm()).item() for a, b in zip(grads, theirs)]
            ways[who] = [lambda y=y: torch.autograd.grad(y, leaves, dout, retain_graph=True)] * count
            del theirs
        except Exception as why:
            print(f"  {who}: {str(why).splitlines()[0][:90]}")
    kernel = ours.explain_backward(grads, dout, out, q, k, v, softmax, dbias=sums, **options)
    table(name, timed(ways), flops, f"apart {' '.join(f'{x:.1e}' for x in apart)} {kernel}")


def gradients(ours, widths=(128, 64)):
    """Backward calls with lengths, ragged batches, masks, bias and dropout, beside flex_attention and FlashAttention."""
    from torch.nn.attention.flex_attention import create_block_mask

    print("\noptions, backward: us, TFLOP/s, ratio to the best of PyTorch, relative distance of dq, dk and dv")
    B, H, T = 2, 16, 8192
    for D in widths:
        q, k, v = random(B, H, T, D), random(B, H, T, D), random(B, H, T, D)
        flops = 10 * B * H * T * T * D
        lengths = torch.tensor([T, T // 2 - 77], device="cuda", dtype=torch.int32)
        flex = compiled()
        seen = create_block_mask(lambda b, h, i, j: j < lengths[b], B, None, T, T, device="cuda")
        backward_only(ours, f"D{D} key_lengths", q, k, v, flops * int(lengths.sum()) // (B * T),
                      {"flex": lambda a, b, c: flex(a, b, c, block_mask=seen)}, key_lengths=lengths)
        starts, (x, y, z), pairs, mask_of = ragged(H, D)
        for causal in (False, True):
            packed, hidden = compiled(), mask_of(causal)
            backward_only(ours, f"D{D} ragged{' causal' if causal else ''}", x, y, z, 10 * H * pairs * D // (2 if causal else 1),
                          {"flex": lambda a, b, c: packed(a, b, c, block_mask=hidden)}, query_starts=starts, key_starts=starts,
                          causal=causal)
        del x, y, z
        m, flex = torch.rand(T, T, device="cuda") < 0.7, compiled()
        backward_only(ours, f"D{D} mask (T,T)", q, k, v, flops, {"flex": lambda a, b, c: flex(
            a, b, c, score_mod=lambda s, _, h, i, j: torch.where(m[i, j], s, -float("inf")))}, mask=m)
        for dtype in (torch.bfloat16, torch.float32):
            b, flex = random(H, T, T, dtype=dtype), compiled()
            backward_only(ours, f"D{D} bias {'bfloat16' if dtype == torch.bfloat16 else 'float32'} (H,T,T)", q, k, v, flops,
                          {"flex": lambda x, y, z: flex(x, y, z, score_mod=lambda s, _, h, i, j: s + b[h, i, j])}, bias=b)
            if dtype == torch.bfloat16:
                flex = compiled()
                backward_only(ours, f"D{D} bias (H,T,T), with dbias", q, k, v, flops,
                              {"flex": lambda x, y, z, m: flex(x, y, z, score_mod=lambda s, _, h, i, j: s + m[h, i, j])}, bias=b,
                              dbias=True)
            del b
        backward_only(ours, f"D{D} dropout 0.1", q, k, v, flops,
                      {"flash": lambda a, b, c: sdpa("flash", a, b, c, dropout_p=0.1)}, same=False, dropout=0.1)
        del q, k, v
        torch.cuda.empty_cache()


def scores(ours):
    """Slopes, a softcap and a window, causal, forward and backward, beside flex_attention."""
    from torch.nn.attention.flex_attention import create_block_mask

    print("\nscores with options, causal, B2 H16 T8192: us, TFLOP/s, ratio to FlexAttention")
    B, H, T, window = 2, 16, 8192, 1024
    slopes = 2.0 ** -torch.arange(0.5, 8.5, 0.5, device="cuda")
    before = create_block_mask(lambda b, h, i, j: i >= j, None, None, T, T, device="cuda")
    near = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < window), None, None, T, T, device="cuda")
    ways = [("ALiBi", {"alibi_slopes": slopes}, {"score_mod": lambda s, b, h, i, j: s - slopes[h] * (i - j), "block_mask": before}),
            ("softcap 30", {"softcap": 30.0}, {"score_mod": lambda s, b, h, i, j: 30 * torch.tanh(s / 30), "block_mask": before}),
            ("window 1024", {"window_left": window - 1}, {"block_mask": near})]
    for D in (128, 64):
        q, k, v = random(B, H, T, D), random(B, H, T, D), random(B, H, T, D)
        for name, options, theirs in ways:
            pairs = T * window - window * window // 2 if "window_left" in options else T * T // 2
            flex = compiled()
            call = lambda a, b, c, flex=flex, theirs=theirs: flex(a, b, c, **theirs)
            forward_only(ours, f"D{D} {name}", q, k, v, 4 * B * H * pairs * D, {"flex": lambda: call(q, k, v)}, causal=True, **options)
            backward_only(ours, f"D{D} {name} backward", q, k, v, 10 * B * H * pairs * D, {"flex": call}, causal=True, **options)


def profile(ours):
    """Microseconds of single kernels."""
    from torch.profiler import ProfilerActivity, profile as profiler

    print("\nkernels, us each")
    def run(name, calls):
        with torch.cuda.stream(stream):
            for call in calls:
                call()
            torch.cuda.synchronize()
            with profiler(activities=[ProfilerActivity.CUDA]) as p:
                for _ in range(10):
                    for call in calls:
                        call()
                torch.cuda.synchronize()
        for event in p.key_averages():
            if event.device_time_total:
                print(f"  {name:24} {event.device_time_total / event.count:9.2f} x{event.count / 10:4.1f}  {event.key[:90]}")

    q, k, v = random(1, 32, 1, 128), random(1, 8, 8192, 128), random(1, 8, 8192, 128)
    out = torch.empty_like(q)
    run("decode B1 8k", [lambda: ours.forward(out, q, k, v), lambda: sdpa("cudnn", q, k, v, enable_gqa=True)])
    for name, B, H, T, causal in [("vit_b16 B32", 32, 12, 197, False), ("gpt2_small B8", 8, 12, 1024, True)]:
        a, b, c, d = (random(B, H, T, 64) for _ in range(4))
        y, s, grads = torch.empty_like(a), torch.empty(B, H, T, 2, device="cuda"), [torch.empty_like(a) for _ in range(3)]
        leaves = [x.clone().requires_grad_() for x in (a, b, c)]
        with torch.cuda.stream(stream):
            z = sdpa("cudnn", *leaves, is_causal=causal)
        run(name, [lambda: ours.forward(y, a, b, c, s, causal=causal), lambda: sdpa("cudnn", a, b, c, is_causal=causal)])
        run(name + " backward", [lambda: ours.backward(grads, d, y, a, b, c, s, causal=causal),
                                 lambda: torch.autograd.grad(z, leaves, d, retain_graph=True)])


# ---- The peer of ./dev bench --device cuda ----------------------------------------------------------------------------


def calls_of(q, k, parts):
    """How many calls a graph has: ten, but only three where a call takes milliseconds. `parts`: the operations relative to forward."""
    flops = parts * 4 * q.numel() * k.shape[2]
    return max(3, min(10, int(5e12 / flops)))


def forward_ways(ours, t, causal):
    """Calls of every way, over as many copies of keys and values as no cache holds if there are few queries."""
    q, out = t["q"], torch.empty_like(t["q"])
    bytes_each = 2 * t["k"].nbytes
    copies = int(400e6 / bytes_each) + 1 if q.shape[2] <= 8 else 1
    ks, vs = [t["k"].clone() for _ in range(copies)], [t["v"].clone() for _ in range(copies)]
    torch.cuda.synchronize()  # what the other stream copied
    count = max(calls_of(q, t["k"], 1), min(copies, 24))
    options = {"is_causal": causal, "enable_gqa": q.shape[1] != ks[0].shape[1]}
    ways = {"mha": [lambda n=n: ours.forward(out, q, ks[n % copies], vs[n % copies], causal=causal) for n in range(count)]}
    for name in BACKENDS:
        ways[name] = [lambda n=n, name=name: sdpa(name, q, ks[n % copies], vs[n % copies], **options) for n in range(count)]
    return ways


def backward_ways(ours, t, causal):
    """The same for gradients; without the backends that have none."""
    q, k, v, dout, out = (t[name] for name in ("q", "k", "v", "dout", "out"))
    softmax = torch.empty(*q.shape[:3], 2, device="cuda")
    grads = [torch.empty_like(x) for x in (q, k, v)]
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    torch.cuda.synchronize()  # what the other stream copied
    with torch.cuda.stream(stream):
        ours.forward(out, q, k, v, softmax, causal=causal)
    count = calls_of(q, k, 2.5)
    ways = {"mha": [lambda: ours.backward(grads, dout, out, q, k, v, softmax, causal=causal)] * count}
    for name in BACKENDS:
        try:
            with torch.cuda.stream(stream):
                y = sdpa(name, *leaves, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
        except RuntimeError:
            continue
        ways[name] = [lambda y=y: torch.autograd.grad(y, leaves, dout, retain_graph=True)] * count
    return ways


def theirs(name, t, about):
    """PyTorch's results and ours, by the files' names."""
    causal = about["causal"] == "1"
    inputs = [t[x].detach().clone().requires_grad_(about["pass"] == "backward") for x in "qkv"]
    out = sdpa(name, *inputs, is_causal=causal, enable_gqa=t["q"].shape[1] != t["k"].shape[1])
    if about["pass"] != "backward":
        return [(t["out"], out)]
    return list(zip([t["dq"], t["dk"], t["dv"]], torch.autograd.grad(out, inputs, t["dout"])))


def answer(ours, path):
    """What report.py prints beside `mha bench`: milliseconds of every way in turns, and how far results are apart."""
    t, about = torch_peer.load(path)
    t = {name: x.cuda() for name, x in t.items()}
    failed = {}
    ways = (backward_ways if about["pass"] == "backward" else forward_ways)(ours, t, about["causal"] == "1")
    times = {name: us / 1000 for name, us in timed(ways, failed.setdefault, rounds=5).items()}
    del ways
    best = min((name for name in times if name != "mha"), key=times.get, default=None)
    said = {"peer": "torch", "version": torch.__version__.split("+")[0], "cudnn": torch.backends.cudnn.version()}
    if not best:
        return {**said, "error": next(iter(failed.values()), "no backend takes this shape")}
    apart = max(torch_peer.difference(a, b) for a, b in theirs(best, t, about))
    return {**said, "how": best, "ms_median": times[best], "ms": times, "failed": failed, "difference": apart}


def serve(build):
    """One answer for each line; `build` is the folder of the library."""
    ours = None
    for line in sys.stdin:
        try:
            if not stream:
                raise RuntimeError("this PyTorch has no CUDA")
            ours = ours or Attention(stream, build)
            said = answer(ours, line.strip())
        except Exception as problem:
            said = {"peer": "torch", "version": torch.__version__, "error": (str(problem).splitlines() or [""])[0]}
        print(json.dumps(said), flush=True)
        if stream:
            torch.cuda.empty_cache()


def main():
    if sys.argv[1:2] == ["answer"]:
        serve(sys.argv[2])
        return
    parts = {"decode": decode, "stats": stats, "small": small, "bias": bias, "widths": widths, "wide": wide, "masks": masks,
             "options": options, "gradients": gradients, "scores": scores, "profile": profile}
    torch.manual_seed(int.from_bytes(b"mha", "big"))
    ours = Attention(stream)
    for name in sys.argv[1:] or parts:
        try:
            parts[name](ours)
        except Exception as why:
            print(f"{name}: {type(why).__name__}: {why}")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
