"""Configurations of torch.nn.MultiheadAttention, drawn at random, and the arrays of one of them.

A case is drawn from the seed and its number alone, so that it can be run again without the others. No row may be left
without a key to see, since PyTorch answers such a row with NaN (mha: zeros): one key is kept visible for all, unless
add_bias_kv or add_zero_attn gives every row one that no mask can hide. Then a row and a sequence are left with that.

In a case with low rows, an additive mask gives every key of some rows the same large negative number, as masks of -1e9 and
of the smallest float do. Adding it to a score rounds away the low bits of the score, or all of them. For everybody to
round the same number, inputs and input projections of such a case are multiples of powers of two, and so are its
scores, exactly."""
import dataclasses
import random

import torch

LENGTHS = [1, 2, 3, 5, 8, 13, 17, 31, 64, 65]
LONG = 200
LOW = [-1e4, -1e6, -1e9, torch.finfo(torch.float32).min]


@dataclasses.dataclass
class Case:
    number: int
    heads: int
    head_width: int
    kdim: int
    vdim: int
    bias: bool
    bias_kv: bool
    zero_kv: bool
    order: str  # "(B,T,M)", "(T,B,M)" or "(T,M)": PyTorch's batch_first, its default, and its unbatched input
    batch: int
    queries: int
    keys: int
    inputs: str  # "self": one tensor; "memory": the key is the value; "three"
    causal: str  # "", "top left" or "bottom right"
    attn_mask: str  # "", "bool" or "float"
    mask_axes: int  # 2: (Tq,Tk); 3: (B*H,Tq,Tk)
    padding: str  # "", "bool", "float", or "lengths": a bool mask of the tail, which mha gets as key_lengths
    weights: str  # "", "mean" or "heads"
    load: str  # which of the three ways the parameters go in, see parity.py
    low: float = 0  # what every key of the low rows carries, or 0 for a case without

    @property
    def width(self):
        return self.heads * self.head_width

    @property
    def extra_keys(self):
        return self.bias_kv + self.zero_kv

    @property
    def given(self):
        """The inputs that are tensors of their own."""
        return ["query", "key", "value"][: {"self": 1, "memory": 2, "three": 3}[self.inputs]]

    @property
    def differentiable(self):
        """The arrays that have a gradient."""
        masks = {"attn_mask": self.attn_mask, "key_padding_mask": self.padding}
        return self.given + [name for name, kind in masks.items() if kind == "float"]

    def __str__(self):
        return " ".join(f"{name}={value!r}" for name, value in dataclasses.asdict(self).items() if value != "")

    def batched(self, x):
        """A tensor of PyTorch's order as (B,T,M), without a copy."""
        return {"(B,T,M)": x, "(T,B,M)": x.transpose(0, 1)}[self.order] if x.dim() == 3 else x.unsqueeze(0)


def draw(seed, number):
    rng = random.Random(f"{seed}, {number}")
    heads, head_width = rng.choice([1, 2, 3, 4, 5, 7, 8]), rng.choice([1, 2, 3, 5, 7, 8, 16, 17, 24, 33, 64])
    if rng.random() < 0.05:
        heads, head_width = 12, 64
    width = heads * head_width
    inputs = rng.choice(["self", "memory", "three"])
    kdim = vdim = width
    if inputs != "self" and rng.random() < 0.5:
        kdim = vdim = rng.choice([1, 3, 10, 48])
        if inputs == "three":
            vdim = rng.choice([1, 5, 16, width])
    queries, keys = rng.choice(LENGTHS), rng.choice(LENGTHS)
    if rng.random() < 0.06:
        queries, keys = rng.choice([(LONG, LONG), (LONG, 7), (7, LONG)])
    if inputs == "self":
        keys = queries
    order = rng.choice(["(B,T,M)", "(T,B,M)", "(T,B,M)", "(B,T,M)", "(T,M)"])
    batch = 1 if order == "(T,M)" else rng.choice([1, 2, 3, 5])
    bias_kv, zero_kv = rng.random() < 0.3, rng.random() < 0.3
    causal = rng.choice(["", "", "top left", "bottom right"])
    if causal == "bottom right" and keys < queries and not (bias_kv or zero_kv):
        causal = "top left"
    attn_mask = rng.choice(["", "", "bool", "float"])
    padding = rng.choice(["", "", "bool", "float", "lengths"])
    if padding == "float" and (attn_mask or causal):
        padding = "bool"  # mha takes one bias, which is the other mask then
    if padding == "lengths" and causal == "bottom right":
        padding = "bool"  # lengths would move the corner for mha, and a PyTorch mask of two axes has one corner
    return Case(
        number,
        heads,
        head_width,
        kdim,
        vdim,
        rng.random() < 0.7,
        bias_kv,
        zero_kv,
        order,
        batch,
        queries,
        keys,
        inputs,
        causal,
        attn_mask,
        rng.choice([2, 3]),
        padding,
        rng.choice(["", "mean", "heads"]),
        rng.choice(["fused", "parts", "heads"]),
    )


def draw_low(seed, number, low):
    """A case with low rows: an additive mask, head widths whose roots are powers of two, no keys that a mask cannot reach."""
    case = draw(seed, number)
    rng = random.Random(f"{seed}, {number}, {low}")
    width = case.heads * (head_width := rng.choice([1, 4, 16, 64]))
    return dataclasses.replace(
        case,
        head_width=head_width,
        kdim=width,
        vdim=width,
        bias_kv=False,
        zero_kv=False,
        queries=(queries := rng.choice(LENGTHS)),
        keys=queries if case.inputs == "self" else rng.choice(LENGTHS),
        causal=rng.choice(["", "top left"]),
        attn_mask="float",
        padding="" if case.padding == "float" else case.padding,
        low=low,
    )


def rounded(x, step):
    """The nearest multiple of a power of two."""
    return (x / step).round() * step


def module_of(case):
    """The module as PyTorch initialises it, but with biases that are not zero."""
    torch.manual_seed(case.number)
    module = torch.nn.MultiheadAttention(
        case.width,
        case.heads,
        bias=case.bias,
        add_bias_kv=case.bias_kv,
        add_zero_attn=case.zero_kv,
        kdim=case.kdim,
        vdim=case.vdim,
        batch_first=case.order == "(B,T,M)",
    )
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in ("in_proj_bias", "out_proj.bias"):
                parameter.normal_(0, 0.5)
            if case.low and name in ("in_proj_weight", "in_proj_bias"):
                parameter.copy_(rounded(parameter.clamp(-0.125, 0.125), 1 / 32))
    return module


def arrays_of(case):
    """query, key, value, dout, and the masks as PyTorch wants them: True or -infinity hides. float32."""
    random_numbers = torch.Generator().manual_seed(case.number)

    def normal(*shape):
        return torch.randn(shape, generator=random_numbers)

    def chance(share, *shape):
        return torch.rand(shape, generator=random_numbers) < share

    def sequence(length, width):
        shape = {"(B,T,M)": (case.batch, length), "(T,B,M)": (length, case.batch), "(T,M)": (length,)}[case.order]
        x = normal(*shape, width)
        return rounded(x, 1 / 4) if case.low else x

    def hiding(kind, *shape):
        """A mask that hides about a third."""
        hidden = chance(0.35, *shape)
        hidden[..., seen] = False
        if case.extra_keys and len(hidden) > 1:
            hidden[0] = True
        return hidden if kind == "bool" else normal(*shape).masked_fill(hidden, -torch.inf)

    # The key that is kept visible: the first is the one that causal masks and lengths leave.
    seen = 0 if case.causal or case.padding == "lengths" else case.number % case.keys
    arrays = {"query": sequence(case.queries, case.width), "dout": sequence(case.queries, case.width)}
    arrays["key"] = arrays["query"] if case.inputs == "self" else sequence(case.keys, case.kdim)
    arrays["value"] = sequence(case.keys, case.vdim) if case.inputs == "three" else arrays["key"]
    if case.attn_mask:
        heads = (case.batch * case.heads,) if case.mask_axes == 3 else ()
        arrays["attn_mask"] = hiding(case.attn_mask, *heads, case.queries, case.keys)
    if case.low:
        rows_of_mask = chance(0.3, *arrays["attn_mask"].shape[:-1])
        rows_of_mask[..., -1] = True
        arrays["attn_mask"][rows_of_mask] = case.low
    rows = () if case.order == "(T,M)" else (case.batch,)
    if case.padding == "lengths":
        least = 0 if case.extra_keys else 1
        arrays["lengths"] = torch.randint(least, case.keys + 1, (case.batch,), generator=random_numbers)
        tail = torch.arange(case.keys) >= arrays["lengths"][:, None]
        arrays["key_padding_mask"] = tail.reshape(*rows, case.keys)
    elif case.padding:
        arrays["key_padding_mask"] = hiding(case.padding, *rows, case.keys)
    return arrays


def later_keys(case):
    """What a causal mask hides, as PyTorch wants it: (Tq,Tk), True hides. (Its is_causal is a hint that the mask is
    this one, and needs the mask all the same.)"""
    corner = case.keys - case.queries if case.causal == "bottom right" else 0
    return torch.ones(case.queries, case.keys, dtype=torch.bool).triu(1 + corner)
