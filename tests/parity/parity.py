"""mha beside torch.nn.MultiheadAttention: results, attention weights and every gradient, for random configurations.

    parity.py PREFIX [--seed S] [--cases N] [--case N]      the tree that `cmake --install` made; --case runs one alone

The truth is the same module with the same float32 numbers, computed by PyTorch in float64. How far a tensor is from
it is max |x - truth| / scale, and the bound is 2e-6, about 30 roundings. The scale is max |truth|: an element that is
small because its terms cancel carries the rounding of those terms, so it is measured by the largest of its tensor.

A whole tensor may cancel, too. Gradients through the softmax are differences A - B, of w_j dw_j and of w_j sum w dw,
and with a single key, or values that are alike, nothing but rounding is left of them. And where a tensor has few
numbers, the sums behind all of them may be small by chance. The scale is therefore max |A| where that is larger: the
gradients that PyTorch finds when the denominator of its softmax is held constant, for this dout and for three others.

Then come cases with low rows (see cases.py). Their truth is the same in float64, but over scores that were rounded to
float32 after the mask was added: what the mask leaves of a score is a property of float32, which every float32
computation shares. Besides the bound, none of their tensors may be off by three times what PyTorch's float32 is off by.

The table at the end has the worst of all cases: ours, PyTorch's float32, the one from the other. The line below it
counts the tensors, those that are zero by nature aside, that max |truth| alone would refuse. That is where a fused
backward pass pays: it finds sum w dw as dout . out, and the two do not round alike."""
import argparse
import copy
import math
import sys
import warnings
from unittest import mock

import cases
import mha
import torch
from ours import LOAD, ours

BOUND = 2e-6
TIMES, FLOOR = 3, 5e-7  # with low rows: so many times PyTorch's own distance, and so much for free, 8 roundings
LOW_CASES = 10  # for each number of cases.LOW
ZERO = 1e-9  # of its scale: what float64 leaves of a tensor that is zero by nature
FEATURES = {
    "head width 1": lambda c: c.head_width == 1,
    "head width 3": lambda c: c.head_width == 3,
    "head width 64": lambda c: c.head_width == 64,
    "an odd number of heads": lambda c: c.heads % 2 and c.heads > 1,
    "kdim and vdim apart": lambda c: c.kdim != c.vdim,
    "kdim = vdim, not embed_dim": lambda c: c.kdim == c.vdim != c.width,
    "no biases": lambda c: not c.bias,
    "add_bias_kv": lambda c: c.bias_kv and not c.zero_kv,
    "add_zero_attn": lambda c: c.zero_kv and not c.bias_kv,
    "add_bias_kv and add_zero_attn": lambda c: c.bias_kv and c.zero_kv,
    "a row that sees nothing else": lambda c: c.extra_keys and (c.attn_mask or c.padding),
    "batch_first": lambda c: c.order == "(B,T,M)" and c.batch > 1,
    "(T,B,M)": lambda c: c.order == "(T,B,M)" and c.batch > 1,
    "unbatched": lambda c: c.order == "(T,M)",
    "batch 1": lambda c: c.order != "(T,M)" and c.batch == 1,
    "one query": lambda c: c.queries == 1,
    "one key": lambda c: c.keys == 1,
    "long": lambda c: cases.LONG in (c.queries, c.keys),
    "self-attention": lambda c: c.inputs == "self",
    "key is value": lambda c: c.inputs == "memory",
    "three inputs": lambda c: c.inputs == "three",
    "causal alone": lambda c: c.causal == "top left" and not (c.attn_mask or c.padding),
    "causal at the bottom right": lambda c: c.causal == "bottom right" and c.queries != c.keys,
    "causal and other masks": lambda c: c.causal and c.attn_mask and c.padding,
    "bool attn_mask (Tq,Tk)": lambda c: c.attn_mask == "bool" and c.mask_axes == 2,
    "bool attn_mask (B*H,Tq,Tk)": lambda c: c.attn_mask == "bool" and c.mask_axes == 3,
    "float attn_mask (Tq,Tk)": lambda c: c.attn_mask == "float" and c.mask_axes == 2,
    "float attn_mask (B*H,Tq,Tk)": lambda c: c.attn_mask == "float" and c.mask_axes == 3,
    "bool key_padding_mask": lambda c: c.padding == "bool",
    "float key_padding_mask": lambda c: c.padding == "float",
    "padding as lengths": lambda c: c.padding == "lengths",
    "two bool masks": lambda c: c.attn_mask == c.padding == "bool",
    "no mask": lambda c: not (c.causal or c.attn_mask or c.padding),
    "weights": lambda c: c.weights == "heads",
    "average_attn_weights": lambda c: c.weights == "mean",
}


# ---- PyTorch -------------------------------------------------------------------------------------------------------


def theirs(case, module, arrays, kind, need_weights=False):
    """Results by name, of the module in float32 or float64; gradients have the name of what they belong to."""
    module = copy.deepcopy(module).to(kind)
    own = {id(x): x.to(kind, copy=True).requires_grad_() for x in arrays.values() if x.is_floating_point()}
    a = {name: own.get(id(x), x) for name, x in arrays.items()}  # what was one tensor stays one
    attn_mask = a.get("attn_mask")
    if case.causal:
        later = cases.later_keys(case)
        if attn_mask is None:
            attn_mask = later
        else:
            attn_mask = attn_mask | later if case.attn_mask == "bool" else attn_mask.masked_fill(later, -torch.inf)
    out, weights = module(
        a["query"],
        a["key"],
        a["value"],
        attn_mask=attn_mask,
        key_padding_mask=a.get("key_padding_mask"),
        need_weights=need_weights or case.weights != "",
        average_attn_weights=case.weights == "mean",
    )
    out.backward(a["dout"].detach())
    results = {"out": out.detach(), "out, with a tape": out.detach()}
    if case.weights:
        results["weights"] = weights.detach()
    results.update((f"d {name}", a[name].grad) for name in case.differentiable)
    results.update((f"d {name}", x.grad) for name, x in module.named_parameters())
    return results


def uncentred_softmax(scores, dim):
    """exp(scores) / sum, whose gradient is w dw, without the - w sum w dw that the sum would bring."""
    return (scores - scores.logsumexp(dim, keepdim=True).detach()).exp()


def float32_softmax(scores, dim):
    """The softmax of the scores rounded to float32, in float64; the gradient passes the rounding unchanged."""
    moved = (scores.float().double() - scores).detach().nan_to_num(0)  # infinities stay
    return (scores + moved).softmax(dim)


def truth_of(case, module, arrays):
    if not case.low:
        return theirs(case, module, arrays, torch.float64)
    with mock.patch.object(torch.nn.functional, "softmax", float32_softmax):
        return theirs(case, module, arrays, torch.float64, need_weights=True)


def scales(case, module, arrays, truth):
    """What each tensor is measured by. (Asked for weights, PyTorch calls softmax whatever its version.)"""
    scale = {name: largest(x) for name, x in truth.items()}
    others = torch.randn(3, *arrays["dout"].shape, generator=torch.Generator().manual_seed(0))
    with mock.patch.object(torch.nn.functional, "softmax", uncentred_softmax):
        for dout in [arrays["dout"], *others]:
            uncentred = theirs(case, module, {**arrays, "dout": dout}, torch.float64, need_weights=True)
            scale.update((name, max(scale[name], largest(x))) for name, x in uncentred.items())
    return scale


# ---- the two side by side ------------------------------------------------------------------------------------------


def largest(x):
    return float(x.abs().max())


def distance(x, y, scale):
    """max |x - y| / scale; infinite if a NaN is in it, or where all should be zero and is not."""
    far = largest(x.double() - y.double())
    if math.isnan(far) or (far > 0 and scale == 0):
        return math.inf
    return far / scale if scale else 0


class Ledger:
    """Counts, and the worst distances of each tensor over all cases."""

    def __init__(self):
        self.passed = self.failed = self.tensors = 0
        self.worst, self.cancelled = {}, [0, 0]

    def say(self, wrong, name):
        """One test: what is wrong with it, a line each, or nothing."""
        self.passed, self.failed = self.passed + (not wrong), self.failed + bool(wrong)
        for line in wrong:
            print(f"    {line}")
        if wrong:
            print(f"FAILED  {name}")

    def compare(self, x, torch32, truth, scale, times=math.inf):
        """Lines about the tensors of x that are too far from the truth, or from it by too many times as PyTorch's."""
        if [(name, x[name].shape) for name in sorted(x)] != [(name, truth[name].shape) for name in sorted(truth)]:
            return ["the tensors have other names or shapes than PyTorch's"]
        wrong = []
        for name in truth:
            far, torch_far = (distance(y[name], truth[name], scale[name]) for y in (x, torch32))
            numbers = far, torch_far, distance(x[name], torch32[name], scale[name])
            self.worst[name] = list(map(max, self.worst.get(name, numbers), numbers))
            self.tensors += 1
            if largest(truth[name]) > ZERO * scale[name]:
                for i, y in enumerate((x, torch32)):
                    self.cancelled[i] += distance(y[name], truth[name], largest(truth[name])) > BOUND
            allowed = min(BOUND, times * torch_far + FLOOR)
            if far > allowed:
                wrong.append(f"{name} is off by {far:.1e}, PyTorch's float32 by {torch_far:.1e}; allowed is {allowed:.1e}")
        return wrong

    def close(self):
        print(f"\n  {'worst of all cases':24}{'ours':>10}{'PyTorch':>12}{'between':>12}")
        for name, (far, torch_far, apart) in self.worst.items():
            print(f"  {name:24}{far:10.1e}{torch_far:12.1e}{apart:12.1e}")
        beyond = "{} of ours and {} of PyTorch's".format(*self.cancelled)
        print(f"\n  by max |truth| alone, {beyond} are beyond {BOUND:g}, of {self.tensors} tensors")
        print(f"{self.passed} passed, {self.failed} failed")


def check_case(lib, ledger, case):
    module, arrays = cases.module_of(case), cases.arrays_of(case)
    torch32, truth = theirs(case, module, arrays, torch.float32), truth_of(case, module, arrays)
    try:
        results = ours(lib, case, module, arrays)
        times = TIMES if case.low else math.inf
        wrong = ledger.compare(results, torch32, truth, scales(case, module, arrays, truth), times)
    except mha.Error as problem:
        wrong = [str(problem)]
    ledger.say(wrong, f"case {case.number}: {case}")


def check_loading(lib, ledger, case):
    """Whichever way the parameters went in, results and gradients are the same bits."""
    module, arrays = cases.module_of(case), cases.arrays_of(case)
    wrong, first = [], None
    for case.load in LOAD:
        results = ours(lib, case, module, arrays)
        first = first or results
        wrong += [f"{case.load}: {name} differs" for name in results if not torch.equal(results[name], first[name])]
    ledger.say(wrong, f"loading in three ways, {case}")


def main():
    parser = argparse.ArgumentParser(description="mha beside torch.nn.MultiheadAttention")
    parser.add_argument("prefix", help="where mha is installed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--case", type=int, help="the number of one case to run alone")
    wanted = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # cases are small
    lib, ledger = mha.Library(wanted.prefix), Ledger()

    drawn = [cases.draw(wanted.seed, n) for n in range(wanted.cases)]
    if wanted.case is not None:
        drawn = [cases.draw(wanted.seed, wanted.case)]
        print(drawn[0])
    isa = lib.mha_context_isa(lib.context).decode()
    print(f"mha {lib.mha_version().decode()} with {isa}, torch {torch.__version__}, seed {wanted.seed}")
    print(f"{len(drawn)} random cases; the truth is torch in float64, {BOUND:g} is allowed")
    for case in drawn:
        check_case(lib, ledger, case)
    if wanted.case is None:
        for number in range(LOW_CASES):
            for low in cases.LOW:
                check_case(lib, ledger, cases.draw_low(wanted.seed, number, low))
        for case in drawn[:10]:
            check_loading(lib, ledger, case)
    if len(drawn) >= 200:
        missing = [name for name, has in FEATURES.items() if not any(map(has, drawn))]
        ledger.say([f"no case has: {name}" for name in missing], "every feature is drawn")
    ledger.close()
    return ledger.failed > 0


if __name__ == "__main__":
    sys.exit(main())
