"""Calls of the library and of PyTorch on a GPU, as graphs that are timed in turn: for cuda_beside.py."""
import ctypes
import pathlib
import statistics
import sys
import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/parity")]
import mha  # noqa: E402

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
ROUNDS = 7
# PyTorch warns of every reason why a backend does not take a shape; tables leave the backend out instead.
warnings.filterwarnings("ignore", category=UserWarning, module=__name__)


class ContextOptions(ctypes.Structure):
    """mha_context_options, whose functions the binding leaves out."""

    _fields_ = [("size", ctypes.c_size_t), ("threads", ctypes.c_int), ("isa", ctypes.c_char_p)]
    _fields_ += [(f"function{n}", ctypes.c_void_p) for n in range(5)]
    _fields_ += [("error", ctypes.c_char_p), ("error_size", ctypes.c_size_t), ("device", ctypes.c_char_p), ("stream", ctypes.c_void_p)]


class Attention:
    """The library's calls on a stream."""

    def __init__(self, stream, build="build"):
        self.lib = mha.Library(ROOT / "include", build)
        options = ContextOptions(size=ctypes.sizeof(ContextOptions), device=b"cuda", stream=stream.cuda_stream)
        self.lib.mha_context_create(ctypes.byref(self.lib.context), ctypes.byref(options))

    def options(self, **changes):
        changes = {name: self.lib.view(x) if torch.is_tensor(x) else x for name, x in changes.items()}
        return self.lib.defaults("attention", **changes)

    def forward(self, out, q, k, v, softmax=None, **options):
        extras = self.lib.struct["mha_attention_extras"]()
        if softmax is not None:
            extras.softmax = self.lib.view(softmax)
        o = self.options(**options)
        view = self.lib.view
        self.lib.mha_attention_forward(
            self.lib.context, view(out), ctypes.byref(extras), view(q), view(k), view(v), ctypes.byref(o)
        )

    def stats(self, results, q, k, softmax, **options):
        want = self.lib.struct["mha_stats"](**{name: self.lib.view(x) for name, x in results.items()})
        o, view = self.options(**options), self.lib.view
        self.lib.mha_attention_stats(self.lib.context, ctypes.byref(want), view(q), view(k), view(softmax), ctypes.byref(o), None)

    def explain(self, out, q, k, v, **options):
        plan = self.lib.struct["mha_attention_plan"]()
        o, view = self.options(**options), self.lib.view
        self.lib.mha_attention_explain(
            self.lib.context, ctypes.byref(plan), view(out), None, view(q), view(k), view(v), ctypes.byref(o)
        )
        return plan.kernel.decode()

    def saved(self, grads, out, q, k, v, softmax, dbias):
        """What a backward call writes and reads."""
        view = self.lib.view
        g = self.lib.struct["mha_attention_gradients"](q=view(grads[0]), k=view(grads[1]), v=view(grads[2]))
        if dbias is not None:
            g.bias = view(dbias)
        return g, self.lib.struct["mha_attention_saved"](q=view(q), k=view(k), v=view(v), out=view(out), softmax=view(softmax))

    def backward(self, grads, dout, out, q, k, v, softmax, dbias=None, **options):
        g, saved = self.saved(grads, out, q, k, v, softmax, dbias)
        o = self.options(**options)
        self.lib.mha_attention_backward(
            self.lib.context, ctypes.byref(g), ctypes.byref(saved), self.lib.view(dout), self.lib.struct["mha_tensor"](),
            ctypes.byref(o)
        )

    def explain_backward(self, grads, dout, out, q, k, v, softmax, dbias=None, **options):
        plan = self.lib.struct["mha_attention_plan"]()
        g, saved = self.saved(grads, out, q, k, v, softmax, dbias)
        o = self.options(**options)
        self.lib.mha_attention_explain_backward(
            self.lib.context, ctypes.byref(plan), ctypes.byref(g), ctypes.byref(saved), self.lib.view(dout),
            self.lib.struct["mha_tensor"](), ctypes.byref(o)
        )
        return plan.kernel.decode()


stream = torch.cuda.Stream() if torch.cuda.is_available() else None


def captured(calls):
    """A graph of the calls."""
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    return graph


def timed(ways, failed=lambda name, why: print(f"  {name}: {why[:90]}"), rounds=ROUNDS):
    """Median microseconds of a call of every way, whose graphs are replayed in turn; without those that failed."""
    graphs = {}
    for name, calls in ways.items():
        try:
            graphs[name] = captured(calls), len(calls)
        except Exception as error:  # another backend does not take the shape
            torch.cuda.synchronize()
            failed(name, str(error).splitlines()[0])
    times = {name: [] for name in graphs}
    for _ in range(rounds + 1):
        for name, (graph, count) in graphs.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            with torch.cuda.stream(stream):
                start.record()
                graph.replay()
                end.record()
            torch.cuda.synchronize()
            times[name].append(start.elapsed_time(end) * 1000 / count)
    return {name: statistics.median(each[1:]) for name, each in times.items()}


def random(*sizes, dtype=torch.bfloat16):
    return torch.randn(*sizes, device="cuda", dtype=dtype)


def sdpa(backend, q, k, v, **options):
    with sdpa_kernel(BACKENDS[backend]):
        return F.scaled_dot_product_attention(q, k, v, **options)


def exact(q, k, v, bias=None, causal=False):
    """Of the first sequence, in float64, head by head."""
    share, rows = q.shape[1] // k.shape[1], []
    for h in range(q.shape[1]):
        s = q[0, h].double() @ k[0, h // share].double().T / q.shape[-1] ** 0.5
        if bias is not None:
            s = s + bias.expand(q.shape[0], q.shape[1], *bias.shape[-2:])[0, h].double()
        if causal:
            s = s.masked_fill(~torch.ones_like(s, dtype=torch.bool).tril(), float("-inf"))
        rows.append(s.softmax(-1) @ v[0, h // share].double())
    return torch.stack(rows)


def error(got, want):
    return ((got[0].double() - want).norm() / want.norm()).item()


def table(name, times, flops, parts):
    own = times["mha"]
    others = {n: t for n, t in times.items() if n != "mha"}
    best = min(others.values(), default=float("nan"))
    line = "  ".join(f"{n} {t:8.1f} us {flops / t / 1e6:6.1f}" for n, t in times.items())
    print(f"  {name:28} {line}  ratio {best / own:.2f}  {parts}")
