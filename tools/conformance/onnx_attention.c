/* The operator Attention of ONNX, opset 23 and later, as one call of mha_attention_forward.
 *
 *     ONNX                            mha
 *     Q K V (B,T,H*D)                 (B,H,T,D) by strides
 *     past_key, past_value            concatenated with K and V into present_key, present_value
 *     attn_mask of bool               mask
 *     attn_mask of numbers            bias
 *     nonpad_kv_seqlen                key_lengths
 *     is_causal                       causal; the position of query i:
 *                                       with a past    MHA_ALIGN_OFFSET by its length
 *                                       else nonpad    MHA_ALIGN_BOTTOM_RIGHT, as the keys of b are nonpad[b]
 *                                       else           MHA_ALIGN_TOP_LEFT
 *     left_window_size (opset 25)     window_left, from that position; -1 is MHA_UNLIMITED
 *     right_window_size (opset 25)    window_right, likewise
 *     qk_matmul_output, mode 0 to 3   extras.scores at the stage of the same number
 *     softmax_precision               accepted: sums and softmax are float32 here, whatever the types of the tensors
 *
 * A mask whose last axis is shorter than the keys is padded with "masked", even if it has length 1, where broadcasting
 * might be expected: this follows the ONNX definition. */
#include "cli/common/device.h"
#include "tools/conformance/onnx.h"

#include <math.h>
#include <string.h>

enum { Q, K, V, MASK, PAST_KEY, PAST_VALUE, NONPAD };
enum { Y, PRESENT_KEY, PRESENT_VALUE, SCORES };

static const char *const inputs[] = {"Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen", NULL};
static const char *const outputs[] = {"Y", "present_key", "present_value", "qk_matmul_output", NULL};
static const char *const attributes[] = {
    "is_causal",         "kv_num_heads", "left_window_size", "q_num_heads",       "qk_matmul_output_mode",
    "right_window_size", "scale",        "softcap",          "softmax_precision", NULL};
static const int64_t window_max = INT64_C(1) << 40; /* no sequence is longer, and sums of positions do not overflow */
_Static_assert(MHA_UNLIMITED == -1, "as ONNX says it");

typedef struct values {
    int64_t causal, q_heads, kv_heads, mode, precision, left, right;
    float scale, softcap;
} values;

static bool read_attributes(onnx_case *c, values *a)
{
    *a = (values){.precision = 1, .left = MHA_UNLIMITED, .right = MHA_UNLIMITED, .scale = NAN};
    if (!onnx_attributes(c, attributes) || !onnx_integer(c, "is_causal", &a->causal, 0, 1) ||
        !onnx_integer(c, "q_num_heads", &a->q_heads, 0, INT32_MAX) ||
        !onnx_integer(c, "kv_num_heads", &a->kv_heads, 0, INT32_MAX) ||
        !onnx_integer(c, "qk_matmul_output_mode", &a->mode, 0, 3) ||
        !onnx_integer(c, "softmax_precision", &a->precision, 0, 16) ||
        !onnx_integer(c, "left_window_size", &a->left, MHA_UNLIMITED, window_max) ||
        !onnx_integer(c, "right_window_size", &a->right, MHA_UNLIMITED, window_max) ||
        !onnx_float(c, "scale", &a->scale) || !onnx_float(c, "softcap", &a->softcap))
        return false;
    /* ONNX type numbers: float 1, float16 10, double 11, bfloat16 16; 0 means none. */
    int64_t p = a->precision;
    if (p != 0 && p != 1 && p != 10 && p != 11 && p != 16)
        return onnx_fail(c, "softmax_precision %lld is not a floating-point type", (long long)p);
    return true;
}

/* ---- Past and present ------------------------------------------------------------------------------------------- */

/* Copies the rows of (B,G,T,D) `from` after the first `skip` rows of the dense `to`. */
static void copy_rows(mha_tensor to, mha_tensor from, int64_t skip)
{
    size_t size = mha_type_size(from.type), row = (size_t)from.size[3] * size;
    if (!from.size[2] || !row) return; /* B and G are then unbounded, and so would be the loops */
    for (int64_t b = 0; b < from.size[0]; b++)
        for (int64_t g = 0; g < from.size[1]; g++)
            for (int64_t t = 0; t < from.size[2]; t++) {
                int64_t target = b * to.stride[0] + g * to.stride[1] + (skip + t) * to.stride[2];
                int64_t source = b * from.stride[0] + g * from.stride[1] + t * from.stride[2];
                memcpy((char *)to.data + target * (int64_t)size, (const char *)from.data + source * (int64_t)size, row);
            }
}

/* Concatenates past and `now` (B,G,T,D) into *all: the output, if requested. Without past or output, *all is `now`. */
static bool append_to_past(onnx_case *c, int past_slot, int out_slot, int now_slot, mha_tensor now, mha_tensor *all)
{
    const nn_safetensors_tensor *past = c->in[past_slot];
    nn_safetensors_dtype dtype = c->in[now_slot]->dtype;
    int64_t past_rows = past ? past->shape[2] : 0;
    int64_t shape[4] = {now.size[0], now.size[1], 0, now.size[3]};
    mha_tensor before = MHA_NO_TENSOR;
    *all = now;
    if (!past && !c->want[out_slot]) return true;
    if (past && (past->rank != 4 || past->dtype != dtype || past->shape[0] != shape[0] || past->shape[1] != shape[1] ||
                 past->shape[3] != shape[3] || !nn_safetensors_view(past, &before)))
        return onnx_fail(c, "%s does not have the type, batch, heads and width of %s", inputs[past_slot],
                         inputs[now_slot]);
    if (__builtin_add_overflow(past_rows, now.size[2], &shape[2]))
        return onnx_fail(c, "%s is too long", inputs[past_slot]);
    if (c->want[out_slot]) {
        if (!onnx_output(c, out_slot, dtype, 4, shape, all)) return false;
    } else {
        int64_t count = past->count + c->in[now_slot]->count; /* both are in one file */
        void *memory = onnx_memory(c, count, nn_safetensors_dtype_size(dtype));
        if (!memory) return false;
        *all = mha_tensor_4d(memory, now.type, shape[0], shape[1], shape[2], shape[3]);
    }
    if (past) copy_rows(*all, before, 0);
    copy_rows(*all, now, past_rows);
    return true;
}

/* ---- Masks ------------------------------------------------------------------------------------------------------ */

/* The mask with a last axis of `keys`, in a type of the library: a view if possible, otherwise a padded, converted
 * copy. */
static bool mask_view(onnx_case *c, int64_t keys, mha_tensor *view)
{
    nn_safetensors_tensor mask = *c->in[MASK], wide = mask;
    bool boolean = mask.dtype == NN_SAFETENSORS_BOOL;
    char what[100];
    if (mask.rank < 1 || mask.rank > 4 || !onnx_is_number(mask.dtype))
        return onnx_fail(c, "attn_mask is %s; expected bool or numbers with 1 to 4 axes",
                         nn_safetensors_describe(what, sizeof what, &mask));
    int64_t have = mask.shape[mask.rank - 1], width = have < keys ? keys : have, rows = 1, total;
    if (width == have && mask.dtype != NN_SAFETENSORS_I64 && nn_safetensors_view(&mask, view)) return true;

    for (int i = 0; i < mask.rank - 1; i++) rows *= mask.shape[i]; /* cannot overflow: checked by the reader */
    if (__builtin_mul_overflow(rows, width, &total)) return onnx_fail(c, "attn_mask is too large to be padded");
    wide.dtype = boolean ? NN_SAFETENSORS_BOOL : NN_SAFETENSORS_F32;
    wide.shape[mask.rank - 1] = width;
    void *memory = onnx_memory(c, total, nn_safetensors_dtype_size(wide.dtype));
    uint8_t *kept = memory;
    float *added = memory;
    if (!memory) return false;
    for (int64_t i = 0; i < total; i++) {
        bool padding = i % width >= have;
        double value = padding ? (double)-INFINITY : onnx_value(mask.dtype, mask.data, i / width * have + i % width);
        if (boolean) kept[i] = !padding && value != 0;
        else added[i] = (float)value;
    }
    wide.data = memory;
    return nn_safetensors_view(&wide, view);
}

/* Visibility: mask, lengths, causal, windows. `past` is the number of keys that come from the past. */
static bool set_visibility(onnx_case *c, const values *a, int64_t batch, int64_t keys, int64_t past,
                           mha_attention_options *options)
{
    const nn_safetensors_tensor *nonpad = c->in[NONPAD];
    mha_tensor view = MHA_NO_TENSOR;
    if (c->in[MASK]) {
        if (!mask_view(c, keys, &view)) return false;
        if (view.type == MHA_BOOL) options->mask = view;
        else options->bias = view;
    }
    if (nonpad) {
        if (nonpad->dtype != NN_SAFETENSORS_I64 || nonpad->rank != 1 || nonpad->shape[0] != batch)
            return onnx_fail(c, "nonpad_kv_seqlen is not int64 (%lld)", (long long)batch);
        options->key_lengths = mha_tensor_1d(nonpad->data, MHA_INT64, batch);
        options->align = MHA_ALIGN_BOTTOM_RIGHT;
    }
    options->causal = a->causal;
    options->window_left = a->left;
    options->window_right = a->right;
    if (c->in[PAST_KEY]) {
        int64_t *offsets = onnx_memory(c, batch, sizeof *offsets);
        if (!offsets) return false;
        for (int64_t b = 0; b < batch; b++) offsets[b] = past;
        options->offsets = mha_tensor_1d(offsets, MHA_INT64, batch);
        options->align = MHA_ALIGN_OFFSET;
    }
    return true;
}

/* ---- The operator ----------------------------------------------------------------------------------------------- */

/* Y has the layout of Q: three axes, or four. */
static bool make_y(onnx_case *c, mha_tensor q, mha_tensor v, mha_tensor *y)
{
    int64_t heads = q.size[1], width = v.size[3], four[4] = {q.size[0], heads, q.size[2], width};
    if (c->in[Q]->rank == 4) return onnx_output(c, Y, c->in[Q]->dtype, 4, four, y);
    int64_t three[3] = {q.size[0], q.size[2], 0};
    if (__builtin_mul_overflow(heads, width, &three[2]))
        return onnx_fail(c, "V is too wide for %lld heads", (long long)heads);
    if (!onnx_output(c, Y, c->in[Q]->dtype, 3, three, y)) return false;
    *y = mha_tensor_swap(mha_tensor_4d(y->data, y->type, q.size[0], q.size[2], heads, width), 1, 2);
    return true;
}

/* The call, on the context's device. Results are in the tensors that were given. */
static bool call_attention(onnx_case *c, mha_tensor y, mha_attention_extras extras, mha_tensor q, mha_tensor k,
                           mha_tensor v, mha_attention_options options)
{
    device_copies there = {.ctx = c->ctx};
    mha_tensor *const given[] = {&q, &k, &v, &options.mask, &options.bias, &options.key_lengths, &options.offsets};
    for (size_t n = 0; n < sizeof given / sizeof *given; n++) device_give(&there, given[n]);
    device_give_result(&there, &y);
    device_give_result(&there, &extras.scores);
    if (!there.status) there.status = mha_attention_forward(c->ctx, y, &extras, q, k, v, &options);
    return device_end(&there) || onnx_fail(c, "%s", mha_context_error(c->ctx));
}

static bool compare_all(onnx_case *c, mha_tensor y, mha_tensor k, mha_tensor v, mha_tensor scores)
{
    bool passed = onnx_compare(c, Y, y.data);
    if (passed && c->want[PRESENT_KEY]) passed = onnx_compare(c, PRESENT_KEY, k.data);
    if (passed && c->want[PRESENT_VALUE]) passed = onnx_compare(c, PRESENT_VALUE, v.data);
    if (passed && c->want[SCORES]) passed = onnx_compare(c, SCORES, scores.data);
    return passed;
}

bool onnx_attention(onnx_case *c)
{
    values a;
    mha_tensor q = MHA_NO_TENSOR, k = q, v = q, all_k = q, all_v = q, y = q;
    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    if (!onnx_bind(c, inputs, 3, outputs) || !read_attributes(c, &a)) return false;
    if (c->in[K]->rank != c->in[Q]->rank || c->in[V]->rank != c->in[Q]->rank)
        return onnx_fail(c, "Q, K and V have %d, %d and %d axes", c->in[Q]->rank, c->in[K]->rank, c->in[V]->rank);
    if (!onnx_heads(c, c->in[Q], a.q_heads, &q) || !onnx_heads(c, c->in[K], a.kv_heads, &k) ||
        !onnx_heads(c, c->in[V], a.kv_heads, &v))
        return false;
    if (!c->in[PAST_KEY] != !c->in[PAST_VALUE]) return onnx_fail(c, "past_key and past_value must be given together");
    if (!append_to_past(c, PAST_KEY, PRESENT_KEY, K, k, &all_k) ||
        !append_to_past(c, PAST_VALUE, PRESENT_VALUE, V, v, &all_v))
        return false;
    int64_t keys = all_k.size[2];
    if (!set_visibility(c, &a, q.size[0], keys, keys - k.size[2], &options) || !make_y(c, q, v, &y)) return false;
    if (c->want[SCORES]) {
        int64_t shape[4] = {q.size[0], q.size[1], q.size[2], keys};
        if (!onnx_output(c, SCORES, c->in[Q]->dtype, 4, shape, &extras.scores)) return false;
        extras.scores_stage = (mha_stage)a.mode;
    }
    options.scale = a.scale;
    options.softcap = a.softcap;
    if (!call_attention(c, y, extras, q, all_k, all_v, options)) return false;
    return compare_all(c, y, all_k, all_v, extras.scores);
}
