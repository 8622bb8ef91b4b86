/* A layer: its options checked, its making and its end. */
#include "layer/layer.h"
#include "core/options.h"
#include <string.h>

typedef long long ll;

/* ---- Sizes ------------------------------------------------------------------------------------------------------ */

static mha_status check_size(mha_context *ctx, int64_t size, const char *name)
{
    if (size < 1) return mha_fail(ctx, MHA_BAD_SHAPE, "%s: is %lld, must be at least 1", name, (ll)size);
    if (size > INT32_MAX) return mha_fail(ctx, MHA_TOO_LARGE, "%s: %lld is over 2^31", name, (ll)size);
    return MHA_OK;
}

/* Sizes that were left out, then every rule about them. */
static mha_status resolve_sizes(mha_context *ctx, mha_layer_options *s)
{
    if (s->kv_heads == 0) s->kv_heads = s->heads;
    if (s->key_width == 0) s->key_width = s->width;
    if (s->value_width == 0) s->value_width = s->width;
    if (s->head_width == 0 && s->heads > 0) {
        if (s->width % s->heads)
            return mha_fail(ctx, MHA_BAD_SHAPE, "heads: %lld do not divide the width %lld; say head_width",
                            (ll)s->heads, (ll)s->width);
        s->head_width = s->width / s->heads;
    }
    if (s->value_head_width == 0) s->value_head_width = s->head_width;
    if (s->out_width == 0 && s->out_projection) s->out_width = s->width;
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = {{"width", s->width},
                 {"heads", s->heads},
                 {"kv_heads", s->kv_heads},
                 {"key_width", s->key_width},
                 {"value_width", s->value_width},
                 {"head_width", s->head_width},
                 {"value_head_width", s->value_head_width},
                 {"out_width", s->out_projection ? s->out_width : 1}};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        mha_status status = check_size(ctx, sizes[n].size, sizes[n].name);
        if (status) return status;
    }
    if (s->heads % s->kv_heads)
        return mha_fail(ctx, MHA_BAD_SHAPE, "kv_heads: %lld do not divide the %lld heads", (ll)s->kv_heads,
                        (ll)s->heads);
    int64_t results = s->heads * s->value_head_width; /* sizes below 2^31 by now */
    if (s->out_width == 0) s->out_width = results;
    if (!s->out_projection && s->out_width != results)
        return mha_fail(ctx, MHA_BAD_SHAPE, "out_width: is %lld, but without out_projection results have %lld numbers",
                        (ll)s->out_width, (ll)results);
    return MHA_OK;
}

static bool is_size(float x) { return x >= 0 && !isinf(x); }

static mha_status check_options(mha_context *ctx, mha_layer_options *s)
{
    if (s->out_bias && !s->out_projection) return mha_fail(ctx, MHA_BAD_ARGUMENT, "out_bias: needs out_projection");
    if (!is_size(s->norm_epsilon))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "norm_epsilon: must be 0 or a positive number");
    if ((unsigned)s->norm > MHA_NORM_LAYER)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "norm: %d is no mha_norm", (int)s->norm);
    if ((unsigned)s->norm_span > MHA_NORM_ALL_HEADS)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "norm_span: %d is no mha_norm_span", (int)s->norm_span);
    if (!(s->norm_epsilon > 0) && (s->norm || s->norm_span || s->norm_bias))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "norm, norm_span, norm_bias: need norm_epsilon, which is 0");
    TRY(mha_layer_check_rotary(ctx, s));
    if (s->scale == 0)
        return mha_fail(ctx, MHA_BAD_ARGUMENT,
                        "scale: is 0; start from MHA_LAYER_DEFAULTS, where NAN stands for 1/sqrt(D)");
    if (isinf(s->scale)) return mha_fail(ctx, MHA_BAD_ARGUMENT, "scale: must be finite, or NAN for 1/sqrt(D)");
    if (!is_size(s->softcap)) return mha_fail(ctx, MHA_BAD_ARGUMENT, "softcap: must be 0 or a positive number");
    if (s->window_left < MHA_UNLIMITED || s->window_right < MHA_UNLIMITED)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "window_left, window_right: must be MHA_UNLIMITED or at least 0");
    if (!(s->dropout >= 0 && s->dropout <= 1)) return mha_fail(ctx, MHA_BAD_ARGUMENT, "dropout: must be from 0 to 1");
    if (s->compute != MHA_FLOAT32 && s->compute != MHA_BFLOAT16)
        return mha_fail(ctx, MHA_BAD_TYPE, "compute: is %s, must be float32 or bfloat16", mha_type_name(s->compute));
    return MHA_OK;
}

/* Every part and all of them together must have a place in memory. */
static mha_status check_count(mha_context *ctx, const mha_layer_options *s)
{
    int64_t all = 0, size;
    for (int n = 0; n < MHA_PARTS; n++) {
        mha_part_size part = mha_part_size_of(s, n); /* rows are products of two numbers below 2^31 */
        int64_t columns = part.columns ? part.columns : 1;
        if (!part.there) continue;
        if (part.rows > MHA_SIZE_LIMIT || columns > MHA_SIZE_LIMIT ||
            __builtin_mul_overflow(part.rows, columns, &size) || __builtin_add_overflow(all, size, &all) ||
            all > PTRDIFF_MAX / 16)
            return mha_fail(ctx, MHA_TOO_LARGE, "heads, widths: their products are beyond all memory");
    }
    return MHA_OK;
}

static mha_status resolve(mha_context *ctx, mha_layer_options *s, const mha_layer_options *options)
{
    mha_succeed(ctx);
    MHA_NEED(ctx, options);
    *s = (mha_layer_options)MHA_LAYER_DEFAULTS;
    mha_status status = mha_options_take(ctx, s, sizeof *s, options, "MHA_LAYER_DEFAULTS");
    if (!status) status = resolve_sizes(ctx, s);
    if (!status) status = check_options(ctx, s);
    if (!status) status = check_count(ctx, s);
    return status;
}

/* ---- The public calls ------------------------------------------------------------------------------------------- */

mha_status mha_layer_parameter_count(mha_context *ctx, int64_t *count, const mha_layer_options *options)
{
    mha_layer_options shape;
    mha_layer_parts parts;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_status status = resolve(ctx, &shape, options);
    if (status) return status;
    MHA_NEED(ctx, count);
    *count = mha_parts_lay(&parts, &shape, NULL);
    return MHA_OK;
}

/* Parameters that the layer brings: zeros, but for gains and gates. */
static void fill_own(mha_context *ctx, const mha_layer *layer)
{
    const mha_tensor ones[] = {layer->parts.q_norm, layer->parts.k_norm, layer->parts.gates};
    ctx->backend->fill(ctx, mha_tensor_1d(layer->own.start, MHA_FLOAT32, layer->count), 0.0f);
    for (int n = 0; n < 3; n++)
        if (ones[n].rank) ctx->backend->fill(ctx, ones[n], 1.0f);
}

/* Goes on if a step of making a layer succeeded; otherwise there is none. */
static mha_status made_by(mha_layer **layer, mha_status status)
{
    if (!status) return MHA_OK;
    mha_layer_free(*layer);
    *layer = NULL;
    return status;
}

/* A layer without parameters. */
static mha_status make_bare_layer(mha_context *ctx, mha_layer **layer, const mha_layer_options *options)
{
    mha_layer_options shape;
    mha_layer_parts parts;
    MHA_NEED(ctx, layer);
    *layer = NULL;
    mha_succeed(ctx);
    TRY(resolve(ctx, &shape, options));
    mha_memory none = mha_device_memory(ctx), self = {.allocator = ctx->allocator};
    TRY(mha_memory_reserve(ctx, &self, sizeof(mha_layer) + MHA_ALIGNMENT));
    mha_layer *made = (mha_layer *)self.start;
    *made = (mha_layer){
        .self = self, .backend = ctx->backend, .shape = shape, .own = none, .frequencies = none, .tables = none};
    for (int first = 0; first < MHA_IN; first++)
        for (int last = 0; last < MHA_IN; last++) made->in[first][last].block = none;
    made->out.block = none;
    made->count = mha_parts_lay(&parts, &shape, NULL);
    *layer = made;
    return made_by(layer, mha_layer_keep_frequencies(ctx, made));
}

mha_status mha_layer_create(mha_context *ctx, mha_layer **layer, const mha_layer_options *options, float *parameters)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    TRY(make_bare_layer(ctx, layer, options));
    mha_layer *made = *layer;
    size_t bytes = (size_t)made->count * sizeof(float) + MHA_ALIGNMENT;
    mha_tensor given = mha_tensor_1d(parameters, MHA_FLOAT32, made->count);
    TRY(made_by(layer, mha_check_memory(ctx, given, "parameters")));
    if (!parameters) TRY(made_by(layer, mha_memory_reserve(ctx, &made->own, bytes)));
    mha_parts_lay(&made->parts, &made->shape, parameters ? parameters : (float *)made->own.start);
    if (!parameters) fill_own(ctx, made);
    return made_by(layer, mha_call_end(ctx));
}

mha_status mha_layer_create_over(mha_context *ctx, mha_layer **layer, const mha_layer_options *options,
                                 const mha_layer_weights *weights)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    TRY(make_bare_layer(ctx, layer, options));
    return made_by(layer, mha_layer_borrow(ctx, *layer, weights));
}

void mha_layer_free(mha_layer *layer)
{
    if (!layer) return;
    mha_memory self = layer->self;
    mha_memory_release(&layer->own);
    mha_memory_release(&layer->frequencies);
    mha_memory_release(&layer->tables);
    mha_memory_release(&layer->out.block);
    for (int first = 0; first < MHA_IN; first++)
        for (int last = 0; last < MHA_IN; last++) mha_memory_release(&layer->in[first][last].block);
    mha_memory_release(&self);
}

const mha_layer_options *mha_layer_shape(const mha_layer *layer) { return layer ? &layer->shape : NULL; }

mha_attention_options mha_layer_attention(const mha_layer *layer)
{
    mha_attention_options o = MHA_ATTENTION_DEFAULTS;
    if (!layer) return o;
    const mha_layer_options *s = &layer->shape;
    o.scale = s->scale;
    o.softcap = s->softcap;
    o.causal = s->causal;
    o.window_left = s->window_left;
    o.window_right = s->window_right;
    o.dropout = s->dropout;
    return o;
}

void mha_layer_unpack(mha_layer *layer)
{
    for (int first = 0; first < MHA_IN; first++)
        for (int last = 0; last < MHA_IN; last++) layer->in[first][last].backend = NULL;
    layer->out.backend = NULL;
}

void mha_layer_freeze(mha_layer *layer, bool frozen)
{
    if (!layer) return;
    mha_layer_unpack(layer);
    layer->frozen = frozen;
}
