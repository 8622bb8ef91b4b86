"""Arrays of PyTorch on a GPU: NumPy's results on the CPU, streams, gradients, drop-ins. On machines with torch.cuda."""

import numpy as np
import pytest
import torch

import mha
import mha.torch

DEVICE = "cuda"
NEAR = {torch.float32: 2e-3, torch.bfloat16: 2e-2, torch.float16: 4e-3}


@pytest.fixture
def qkv():
    torch.manual_seed(0)
    return [torch.randn(2, h, t, 64, device=DEVICE) for h, t in ((8, 33), (2, 40), (2, 40))]


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(qkv, dtype, causal):
    q, k, v = (x.to(dtype) for x in qkv)
    out, lse = mha.attention(q, k, v, causal=causal, return_lse=True)
    assert out.device == q.device and out.dtype == dtype and lse.dtype == torch.float32
    want = mha.attention(*(x.float().cpu().numpy() for x in (q, k, v)), causal=causal)
    np.testing.assert_allclose(out.float().cpu().numpy(), want, atol=NEAR[dtype])


def test_stats_and_gradients(qkv):
    q, k, v = qkv
    bias = torch.randn(1, 8, 33, 40, device=DEVICE)
    out = mha.attention(q, k, v, bias=bias)
    got = mha.attention_backward(torch.ones_like(out), q, k, v, out, bias=bias)
    host = [x.cpu().numpy() for x in (q, k, v, out, bias)]
    want = mha.attention_backward(np.ones_like(host[3]), *host[:4], bias=host[4])
    for name in ("q", "k", "v", "bias"):
        np.testing.assert_allclose(getattr(got, name).cpu().numpy(), getattr(want, name), atol=5e-3)
    np.testing.assert_allclose(mha.stats(q, k).entropy.cpu().numpy(), mha.stats(*host[:2]).entropy, atol=1e-3)
    lengths = torch.tensor([7, 40], device=DEVICE)
    np.testing.assert_allclose(mha.attention(q, k, v, key_lengths=lengths).cpu().numpy(),
                               mha.attention(*host[:3], key_lengths=[7, 40]), atol=2e-3)  # fmt: skip


def test_streams(qkv):
    """Calls run in the current stream, after what was put there."""
    q, k, v = qkv
    want = mha.attention(q * 2, k, v)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        doubled = q * 2
        out = mha.attention(doubled, k, v)
    stream.synchronize()
    assert torch.equal(out, want)


def test_devices_that_differ(qkv):
    q, k, v = qkv
    with pytest.raises(ValueError, match="^k: is in the memory of the CPU, but q is on cuda:"):
        mha.attention(q, k.cpu(), v)


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("kind", [None, "bool", "added"])
def test_sdpa(dtype, kind):
    torch.manual_seed(0)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    inputs = [torch.randn(2, 4, 40, 64, device=DEVICE, dtype=dtype, requires_grad=True) for _ in range(3)]
    mask = None if kind is None else torch.randn(4, 40, 40, device=DEVICE, dtype=dtype)
    if kind == "bool":
        mask = mask > -1
    elif kind == "added":
        mask.requires_grad_()
    everything = inputs + ([mask] if kind == "added" else [])
    got, want = (f(*inputs, attn_mask=mask) for f in (mha.torch.scaled_dot_product_attention, sdpa))
    torch.testing.assert_close(got, want, atol=NEAR[dtype], rtol=2e-2)
    for one, other in zip(torch.autograd.grad(got.square().sum(), everything), torch.autograd.grad(want.square().sum(), everything)):
        torch.testing.assert_close(one, other, atol=10 * NEAR[dtype], rtol=5e-2)


def test_module_compile_autocast():
    torch.manual_seed(0)
    ours = mha.torch.MultiheadAttention(64, 4, batch_first=True, device=DEVICE)
    theirs = torch.nn.MultiheadAttention(64, 4, batch_first=True, device=DEVICE)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 20, 64, device=DEVICE)
    for got, want in zip(ours(x, x, x), theirs(x, x, x)):
        torch.testing.assert_close(got, want, atol=2e-3, rtol=1e-2)
    compiled = torch.compile(lambda q: mha.torch.scaled_dot_product_attention(q, q, q, is_causal=True))
    q = torch.randn(1, 2, 16, 64, device=DEVICE)
    torch.testing.assert_close(compiled(q), mha.torch.scaled_dot_product_attention(q, q, q, is_causal=True))
    with torch.autocast("cuda", torch.bfloat16):
        assert mha.torch.scaled_dot_product_attention(q, q, q).dtype == torch.bfloat16


def test_graph_behind_memory_operations_and_another_stream():
    """Kernels start early: they must wait for whatever comes before them, which need not be a kernel."""
    torch.manual_seed(3)
    sources = [torch.randn(2, 4, 300, 64, device=DEVICE, dtype=torch.bfloat16) for _ in range(3)]
    inputs = [torch.zeros_like(x, requires_grad=True) for x in sources]
    lengths = torch.zeros(2, device=DEVICE, dtype=torch.int64)
    many = torch.full((2,), 170, device=DEVICE, dtype=torch.int64)
    side, stream = torch.cuda.Stream(), torch.cuda.Stream()

    def step():
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            inputs[0].copy_(sources[0])
        with torch.no_grad():
            inputs[1].copy_(sources[1]), inputs[2].copy_(sources[2])
            lengths.copy_(many)
        torch.cuda.current_stream().wait_stream(side)
        plain = mha.torch.scaled_dot_product_attention(*inputs, is_causal=True)
        grads = torch.autograd.grad(plain.sum(), inputs)
        for x in inputs:
            x.detach().zero_()
        return plain, mha.attention(*sources, key_lengths=lengths), *grads

    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = step()
    for _ in range(20):
        for x in sources:
            x.normal_()
        many.copy_(torch.randint(1, 300, (2,)))
        with torch.cuda.stream(stream):
            stream.wait_stream(torch.cuda.default_stream())
            want = step()
            torch.cuda.synchronize()
            graph.replay()
        torch.cuda.synchronize()
        for a, b in zip(found, want, strict=True):
            assert torch.equal(a, b)
