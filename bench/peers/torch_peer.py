"""PyTorch on the very same arrays: reads the path of a file of `mha bench --save` from each line of standard input,
does the same work with torch, and answers with one JSON object a line: its time, and how far its results are from ours.

Run by bench/report.py, which keeps it for a whole table: importing torch takes longer than most measurements."""
import json
import math
import mmap
import struct
import sys
import time
import warnings

import torch

import torch_language
import torch_vit

F = torch.nn.functional
TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "U8": torch.uint8, "I32": torch.int32}
RUNS_MOST, PATIENCE = 200, 2.0  # the rule of bench/timing.c


def load(path):
    """The tensors of a safetensors file, in place, and its metadata."""
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    about = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        kind, shape, begin = TYPES[entry["dtype"]], entry["shape"], 8 + length + entry["data_offsets"][0]
        flat = torch.frombuffer(data, dtype=kind, count=math.prod(shape), offset=begin)
        # A copy, since torch aligns what it allocates, and a mapped file is not memory until it has been read.
        tensors[name] = flat.reshape(shape).clone()
    return tensors, about


def attention(q, k, v, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] > k.shape[1])


def clock(run, seconds):
    """Median and best milliseconds, after one run to warm up. If that was slow, one more run stands for all: the first
    of a kind may have had its libraries to load."""
    start = time.perf_counter()
    result = run()
    if time.perf_counter() - start > PATIENCE:
        start = time.perf_counter()
        result = run()
        took = 1e3 * (time.perf_counter() - start)
        return result, took, took
    times, begun = [], time.perf_counter()
    while len(times) < 3 or (len(times) < RUNS_MOST and time.perf_counter() - begun < seconds):
        start = time.perf_counter()
        result = run()
        times.append(1e3 * (time.perf_counter() - start))
    times.sort()
    return result, times[len(times) // 2], times[0]


def difference(ours, theirs):
    """The largest difference, as a share of their largest number; infinite if a NaN is in it."""
    theirs = theirs.detach().float()
    worst = float((ours.float() - theirs).abs().max() / theirs.abs().max())
    return math.inf if math.isnan(worst) else worst


def layer(t, about):
    """torch.nn.MultiheadAttention, ready for inference; or a step with a cache, which it does not have, spelled out."""
    x, heads, cached = t["x"], int(about["heads"]), int(about["cached"])
    module = torch.nn.MultiheadAttention(x.shape[2], heads, batch_first=True, dtype=x.dtype).eval()
    module.load_state_dict({name: t[name] for name in module.state_dict()})
    if not cached:
        options = {"need_weights": about["weights"] == "1", "average_attn_weights": False}
        if about["causal"] == "1":
            options["attn_mask"] = torch.nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
            options["is_causal"] = True
        return "MultiheadAttention", lambda: module(x, x, x, **options), [t["out"]]

    def split(y):
        return y.unflatten(-1, (heads, -1)).transpose(1, 2)

    keys, values = [split(y).contiguous() for y in F.linear(x, t["in_proj_weight"], t["in_proj_bias"]).chunk(3, -1)[1:]]

    def step():
        q, k, v = F.linear(x[:, -1:], t["in_proj_weight"], t["in_proj_bias"]).chunk(3, -1)
        keys[:, :, -1:], values[:, :, -1:] = split(k), split(v)
        out = attention(split(q), keys, values, False)
        return (F.linear(out.transpose(1, 2).flatten(2), t["out_proj.weight"], t["out_proj.bias"]),)

    return "linear, attention, linear", step, [t["out"]]


def work(t, about):
    """What to time, and ours to compare with what it gives."""
    causal = about["causal"] == "1"
    if about["pass"] == "gemm":
        return "matmul", lambda: (t["a"] @ t["b"],), [t["c"]]
    if about["pass"] == "layer":
        return layer(t, about)
    how = "scaled_dot_product_attention"
    if about["pass"] != "backward":
        return how, lambda: (attention(t["q"], t["k"], t["v"], causal),), [t["out"]]
    inputs = [t[name].requires_grad_() for name in "qkv"]
    with torch.enable_grad():
        out = attention(*inputs, causal)
    return (
        how,
        lambda: torch.autograd.grad(out, inputs, t["dout"], retain_graph=True),
        [t["dq"], t["dk"], t["dv"]],
    )


def timed_work(t, about):
    """How it was done, median and best milliseconds, ours, theirs."""
    if about["pass"] in ("train", "infer"):
        return (torch_vit.train if about["pass"] == "train" else torch_vit.infer)(t, about, attention, clock)
    if about["pass"] in ("prompt", "generate"):
        return (torch_language.prompt if about["pass"] == "prompt" else torch_language.generate)(t, about, clock)
    how, run, ours = work(t, about)
    results, median, best = clock(run, float(about["seconds"]))
    return how, median, best, ours, results


def answer(path):
    t, about = load(path)
    torch.set_num_threads(int(about["threads"]))
    said = {"peer": "torch", "version": torch.__version__.split("+")[0]}
    with torch.no_grad():
        how, median, best, ours, theirs = timed_work(t, about)
        worst = max(difference(a, b) for a, b in zip(ours, theirs))
    return {**said, "how": how, "ms_median": median, "ms_best": best, "difference": worst}


def main():
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        try:
            said = answer(line.strip())
        except (RuntimeError, TypeError) as problem:  # an operation that this version lacks
            said = {"peer": "torch", "version": torch.__version__, "error": str(problem).splitlines()[0]}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
