/* The operator RotaryEmbedding of ONNX, opset 23, as one call of mha_rotary_apply.
 *
 * With position_ids (B,T) the caches are tables (P,w/2), one row per position; otherwise they are (B,T,w/2), one row
 * per row of the input. The input is (B,H,T,D), or (B,T,H*D) with num_heads, viewed as (B,H,T,D) by strides. */
#include "cli/common/device.h"
#include "tools/conformance/onnx.h"

enum { INPUT, COS, SIN, POSITIONS };

static const char *const inputs[] = {"input", "cos_cache", "sin_cache", "position_ids", NULL};
static const char *const outputs[] = {"output", NULL};
static const char *const attributes[] = {"interleaved", "num_heads", "rotary_embedding_dim", NULL};

/* The call, on the context's device. The result is in the tensor that was given. */
static bool call_rotary(onnx_case *c, mha_tensor out, mha_tensor x, mha_tensor cos, mha_tensor sin,
                        mha_rotary_options options)
{
    device_copies there = {.ctx = c->ctx};
    device_give(&there, &x);
    device_give(&there, &cos);
    device_give(&there, &sin);
    device_give(&there, &options.positions);
    device_give_result(&there, &out);
    if (!there.status) there.status = mha_rotary_apply(c->ctx, out, x, cos, sin, &options);
    return device_end(&there) || onnx_fail(c, "%s", mha_context_error(c->ctx));
}

bool onnx_rotary(onnx_case *c)
{
    int64_t interleaved = 0, heads = 0, width = 0;
    mha_tensor x = MHA_NO_TENSOR, out = x, cos = x, sin = x;
    mha_rotary_options options = MHA_ROTARY_DEFAULTS;
    if (!onnx_bind(c, inputs, 3, outputs) || !onnx_attributes(c, attributes) ||
        !onnx_integer(c, "interleaved", &interleaved, 0, 1) || !onnx_integer(c, "num_heads", &heads, 0, INT32_MAX) ||
        !onnx_integer(c, "rotary_embedding_dim", &width, 0, INT32_MAX))
        return false;
    const nn_safetensors_tensor *input = c->in[INPUT], *positions = c->in[POSITIONS];
    int table_rank = positions ? 2 : 3;
    if (c->in[COS]->rank != table_rank || c->in[SIN]->rank != table_rank)
        return onnx_fail(c, "%s position_ids, cos_cache and sin_cache must have %d axes",
                         positions ? "with" : "without", table_rank);
    if (!nn_safetensors_view(c->in[COS], &cos) || !nn_safetensors_view(c->in[SIN], &sin) ||
        (positions && !nn_safetensors_view(positions, &options.positions)))
        return onnx_fail(c, "cos_cache, sin_cache or position_ids has an unsupported type");
    if (!onnx_heads(c, input, heads, &x) || !onnx_output(c, 0, input->dtype, input->rank, input->shape, &out))
        return false;
    options.interleaved = interleaved != 0;
    options.width = width;
    if (input->rank == 3)
        out = mha_tensor_swap(mha_tensor_4d(out.data, out.type, x.size[0], x.size[2], x.size[1], x.size[3]), 1, 2);
    return call_rotary(c, out, x, cos, sin, options) && onnx_compare(c, 0, out.data);
}
