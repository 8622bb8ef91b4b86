"""What mha gives for a case, by the names of PyTorch's module: a layer made of its parameters, run over its arrays."""
import ctypes
import math

import torch

PARTS = {
    "in_proj_weight": "in_weight",
    "q_proj_weight": "q_weight",
    "k_proj_weight": "k_weight",
    "v_proj_weight": "v_weight",
    "in_proj_bias": "in_bias",
    "bias_k": "bias_k",
    "bias_v": "bias_v",
    "out_proj.weight": "out_weight",
    "out_proj.bias": "out_bias",
}


# ---- parameters ----------------------------------------------------------------------------------------------------


def renamed(state):
    """The tensors of a state_dict by the names of the layer's parts. bias_k and bias_v are (1,1,M) there."""
    return {PARTS[name]: x[0, 0] if x.dim() == 3 else x for name, x in state.items()}


def separate(state):
    """The same with queries, keys and values apart."""
    pieces = renamed(state)
    for kind in "weight", "bias":
        whole = pieces.pop(f"in_{kind}", None)
        if whole is not None:
            pieces.update(zip((f"{letter}_{kind}" for letter in "qkv"), whole.chunk(3)))
    return pieces


def load_fused(lib, layer, state, _):
    """As they come: the projections of queries, keys and values are one matrix where their inputs are of one width."""
    parts = lib.mha_layer_view(layer, None)
    for name, x in renamed(state).items():
        lib.mha_tensor_copy(lib.context, getattr(parts, name), lib.view(x))


def load_parts(lib, layer, state, _):
    """One matrix each."""
    parts = lib.mha_layer_view(layer, None)
    for name, x in separate(state).items():
        lib.mha_tensor_copy(lib.context, getattr(parts, name), lib.view(x))


def load_heads(lib, layer, state, case):
    """Head by head, as if each had been trained alone."""
    for h in range(case.heads):
        parts = lib.mha_layer_view_head(layer, None, h)
        own = slice(h * case.head_width, (h + 1) * case.head_width)
        for name, x in separate(state).items():
            if name != "out_bias":
                x = x[:, own] if name == "out_weight" else x[own]
            lib.mha_tensor_copy(lib.context, getattr(parts, name), lib.view(x))


# The three ways to fill a layer.
LOAD = {"fused": load_fused, "parts": load_parts, "heads": load_heads}


def layer_options(lib, case):
    return lib.defaults(
        "layer",
        width=case.width,
        heads=case.heads,
        key_width=case.kdim,
        value_width=case.vdim,
        in_bias=case.bias,
        out_bias=case.bias,
        bias_kv=case.bias_kv,
        zero_kv=case.zero_kv,
        causal=case.causal == "top left",
    )


def parameter_count(lib, options):
    count = ctypes.c_int64()
    lib.mha_layer_parameter_count(lib.context, ctypes.byref(count), ctypes.byref(options))
    return count.value


# ---- masks ---------------------------------------------------------------------------------------------------------


def spread(case, name, mask):
    """attn_mask or key_padding_mask with the axes (B,H,Tq,Tk), or the last two of them, in the same memory."""
    if name == "key_padding_mask":
        return mask.view(case.batch, 1, 1, case.keys)
    return mask if mask.dim() == 2 else mask.view(case.batch, case.heads, case.queries, case.keys)


def visible(case, arrays):
    """PyTorch's bool masks as one that is true where a key is visible, or None."""
    hidden = []
    if case.attn_mask == "bool":
        hidden.append(spread(case, "attn_mask", arrays["attn_mask"]))
    if case.padding == "bool":
        hidden.append(spread(case, "key_padding_mask", arrays["key_padding_mask"]))
    if len(hidden) == 2:
        return ~(hidden[0] | hidden[1])
    return ~hidden[0] if hidden else None


# ---- results -------------------------------------------------------------------------------------------------------


def empty_results(case, arrays):
    """Results start as NaN, since all must be written; gradients as zero, since they are added to what is there."""
    results = {name: torch.full_like(arrays["query"], math.nan) for name in ("out", "out, with a tape")}
    if case.weights:
        batch = () if case.order == "(T,M)" else (case.batch,)
        heads = (case.heads,) if case.weights == "heads" else ()
        shape = (*batch, *heads, case.queries, case.keys + case.extra_keys)
        results["weights"] = torch.full(shape, math.nan)
    results.update((f"d {name}", torch.zeros_like(arrays[name])) for name in case.differentiable)
    return results


def ours(lib, case, module, arrays):
    """The same results as parity.theirs gives. mha sees PyTorch's arrays as they lie, (T,B,M) among them."""

    def view(x):
        return lib.view(case.batched(x))

    made_with = layer_options(lib, case)
    count = parameter_count(lib, made_with)
    parameters, gradient = torch.full((count,), math.nan), torch.zeros(count)
    memory = None if case.load == "heads" else parameters.data_ptr()  # the layer's own, or ours

    results, mask = empty_results(case, arrays), visible(case, arrays)
    inputs, gradients = lib.struct["mha_layer_inputs"](), lib.struct["mha_layer_gradients"]()
    for name in case.given:
        setattr(inputs, name, view(arrays[name]))
        setattr(gradients, name, view(results[f"d {name}"]))
    gradients.parameters = gradient.data_ptr()

    with lib.made("layer", ctypes.byref(made_with), memory) as layer, lib.made("tape") as tape:
        options = lib.mha_layer_attention(layer)
        if mask is not None:
            options.mask = lib.view(mask)
        for name in set(case.differentiable) - set(case.given):
            options.bias = lib.view(spread(case, name, arrays[name]))
            gradients.bias = lib.view(spread(case, name, results[f"d {name}"]))
        if case.padding == "lengths":
            options.key_lengths = lib.view(arrays["lengths"])
        if case.causal == "bottom right":
            options.causal, options.align = True, lib.constant["MHA_ALIGN_BOTTOM_RIGHT"]
        as_the_layer_does = not (case.attn_mask or case.padding or case.causal == "bottom right")
        rest = ctypes.byref(inputs), None if as_the_layer_does else ctypes.byref(options)

        extras = None
        if case.weights:
            weights = results["weights"]
            extras = lib.struct["mha_attention_extras"]()
            extras.weights = lib.view(weights.unsqueeze(0) if case.order == "(T,M)" else weights)
            extras = ctypes.byref(extras)

        LOAD[case.load](lib, layer, module.state_dict(), case)
        lib.mha_layer_forward(lib.context, layer, view(results["out"]), extras, *rest, None)
        lib.mha_layer_forward(lib.context, layer, view(results["out, with a tape"]), None, *rest, tape)
        lib.mha_layer_backward(lib.context, layer, ctypes.byref(gradients), view(arrays["dout"]), tape)

        parts = lib.mha_layer_view(layer, gradient.data_ptr())
        for name, parameter in module.named_parameters():
            results[f"d {name}"] = lib.part(gradient, getattr(parts, PARTS[name])).view(parameter.shape)
    return results
