/* A layer and its parameters: sizes, the order in which the parts lie in a block, views of them. */
#include "layer/layer.h"
#include "core/options.h"
#include <string.h>

typedef long long ll;

enum { PARTS = 14 }; /* without the two that only join others */

/* One part of the block: a matrix, or a vector if it has no columns. */
typedef struct part_size {
    bool there;
    int64_t rows, columns;
} part_size;

/* In the order of mha_layer_parts. */
static void list_parts(part_size list[PARTS], const mha_layer_options *s)
{
    int64_t HD = s->heads * s->head_width, GD = s->kv_heads * s->head_width, GE = s->kv_heads * s->value_head_width;
    bool norm = s->norm_epsilon > 0;
    const part_size all[PARTS] = {{true, HD, s->width},
                                  {true, GD, s->key_width},
                                  {true, GE, s->value_width},
                                  {s->in_bias, HD, 0},
                                  {s->in_bias, GD, 0},
                                  {s->in_bias, GE, 0},
                                  {s->out_projection, s->width, s->heads * s->value_head_width},
                                  {s->out_bias, s->width, 0},
                                  {s->bias_kv, GD, 0},
                                  {s->bias_kv, GE, 0},
                                  {norm, s->head_width, 0},
                                  {norm, s->head_width, 0},
                                  {s->sinks, s->heads, 0},
                                  {s->gates, s->heads, 0}};
    memcpy(list, all, sizeof all);
}

static mha_tensor *part_of(mha_layer_parts *parts, int n) { return &parts->q_weight + n; }

/* Views of a block; returns how many numbers it has. */
static int64_t lay_parts(mha_layer_parts *parts, const mha_layer_options *s, float *block)
{
    part_size list[PARTS];
    int64_t at = 0;
    list_parts(list, s);
    memset(parts, 0, sizeof *parts);
    for (int n = 0; n < PARTS; n++) {
        int64_t rows = list[n].rows, columns = list[n].columns;
        if (!list[n].there) continue;
        float *data = block ? block + at : NULL;
        *part_of(parts, n) =
            columns ? mha_tensor_2d(data, MHA_FLOAT32, rows, columns) : mha_tensor_1d(data, MHA_FLOAT32, rows);
        at += rows * (columns ? columns : 1);
    }
    if (s->key_width == s->width && s->value_width == s->width)
        parts->in_weight = mha_layer_in_weight(parts, MHA_Q, MHA_V);
    if (s->in_bias) parts->in_bias = mha_layer_in_bias(parts, MHA_Q, MHA_V);
    return at;
}

int64_t mha_layer_rows(const mha_layer_options *s, int projection)
{
    return (projection == MHA_Q ? s->heads : s->kv_heads) * (projection == MHA_V ? s->value_head_width : s->head_width);
}

int64_t mha_layer_width(const mha_layer_options *s, int projection)
{
    return projection == MHA_Q ? s->width : projection == MHA_K ? s->key_width : s->value_width;
}

mha_tensor mha_layer_in_weight(const mha_layer_parts *parts, int first, int last)
{
    const mha_tensor weights[MHA_IN] = {parts->q_weight, parts->k_weight, parts->v_weight};
    mha_tensor joined = weights[first];
    for (int n = first + 1; n <= last; n++) joined.size[0] += weights[n].size[0];
    return joined;
}

mha_tensor mha_layer_in_bias(const mha_layer_parts *parts, int first, int last)
{
    const mha_tensor biases[MHA_IN] = {parts->q_bias, parts->k_bias, parts->v_bias};
    mha_tensor joined = biases[first];
    for (int n = first + 1; n <= last; n++) joined.size[0] += biases[n].size[0];
    return joined;
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------ */

#define FAIL(...) return mha_fail(ctx, __VA_ARGS__)

static mha_status check_size(mha_context *ctx, int64_t size, const char *name)
{
    if (size < 1) FAIL(MHA_BAD_SHAPE, "%s: is %lld, must be at least 1", name, (ll)size);
    if (size > INT32_MAX) FAIL(MHA_TOO_LARGE, "%s: %lld is over 2^31", name, (ll)size);
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
            FAIL(MHA_BAD_SHAPE, "heads: %lld do not divide the width %lld; say head_width", (ll)s->heads, (ll)s->width);
        s->head_width = s->width / s->heads;
    }
    if (s->value_head_width == 0) s->value_head_width = s->head_width;
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = {{"width", s->width},
                 {"heads", s->heads},
                 {"kv_heads", s->kv_heads},
                 {"key_width", s->key_width},
                 {"value_width", s->value_width},
                 {"head_width", s->head_width},
                 {"value_head_width", s->value_head_width}};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        mha_status status = check_size(ctx, sizes[n].size, sizes[n].name);
        if (status) return status;
    }
    if (s->heads % s->kv_heads)
        FAIL(MHA_BAD_SHAPE, "kv_heads: %lld do not divide the %lld heads", (ll)s->kv_heads, (ll)s->heads);
    return MHA_OK;
}

static bool is_size(float x) { return x >= 0 && !isinf(x); }

static mha_status check_options(mha_context *ctx, mha_layer_options *s)
{
    if (s->out_bias && !s->out_projection) FAIL(MHA_BAD_ARGUMENT, "out_bias: needs out_projection");
    if (!is_size(s->norm_epsilon)) FAIL(MHA_BAD_ARGUMENT, "norm_epsilon: must be 0 or a positive number");
    if (!(s->rotary_base >= 0) || isinf(s->rotary_base))
        FAIL(MHA_BAD_ARGUMENT, "rotary_base: must be 0 or a positive number");
    if (s->rotary_base > 0 && s->rotary_width == 0) s->rotary_width = s->head_width;
    if (s->rotary_width < 0 || s->rotary_width % 2 || s->rotary_width > s->head_width)
        FAIL(MHA_BAD_ARGUMENT, "rotary_width: %lld must be even and at most %lld, the width of a head",
             (ll)s->rotary_width, (ll)s->head_width);
    if (s->scale == 0)
        FAIL(MHA_BAD_ARGUMENT, "scale: is 0; start from MHA_LAYER_DEFAULTS, where NAN stands for 1/sqrt(D)");
    if (isinf(s->scale)) FAIL(MHA_BAD_ARGUMENT, "scale: must be finite, or NAN for 1/sqrt(D)");
    if (!is_size(s->softcap)) FAIL(MHA_BAD_ARGUMENT, "softcap: must be 0 or a positive number");
    if (s->window_left < MHA_UNLIMITED || s->window_right < MHA_UNLIMITED)
        FAIL(MHA_BAD_ARGUMENT, "window_left, window_right: must be MHA_UNLIMITED or at least 0");
    if (!(s->dropout >= 0 && s->dropout <= 1)) FAIL(MHA_BAD_ARGUMENT, "dropout: must be from 0 to 1");
    if (s->compute != MHA_FLOAT32 && s->compute != MHA_BFLOAT16)
        FAIL(MHA_BAD_TYPE, "compute: is %s, must be float32 or bfloat16", mha_type_name(s->compute));
    return MHA_OK;
}

/* Every part and all of them together must have a place in memory. */
static mha_status check_count(mha_context *ctx, const mha_layer_options *s)
{
    part_size list[PARTS];
    int64_t all = 0, size;
    list_parts(list, s); /* rows are products of two numbers below 2^31 */
    for (int n = 0; n < PARTS; n++) {
        int64_t columns = list[n].columns ? list[n].columns : 1;
        if (!list[n].there) continue;
        if (list[n].rows > MHA_SIZE_LIMIT || columns > MHA_SIZE_LIMIT ||
            __builtin_mul_overflow(list[n].rows, columns, &size) || __builtin_add_overflow(all, size, &all) ||
            all > PTRDIFF_MAX / 16)
            FAIL(MHA_TOO_LARGE, "heads, widths: their products are beyond all memory");
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
    *count = lay_parts(&parts, &shape, NULL);
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

mha_status mha_layer_create(mha_context *ctx, mha_layer **layer, const mha_layer_options *options, float *parameters)
{
    mha_layer_options shape;
    if (!ctx) return MHA_BAD_ARGUMENT;
    MHA_NEED(ctx, layer);
    *layer = NULL;
    mha_status status = resolve(ctx, &shape, options);
    if (status) return status;
    mha_memory none = {.allocator = ctx->allocator}, self = none;
    status = mha_memory_reserve(ctx, &self, sizeof(mha_layer) + MHA_ALIGNMENT);
    if (status) return status;
    mha_layer *made = (mha_layer *)self.start;
    *made = (mha_layer){.self = self, .shape = shape, .own = none, .tables = none};
    for (int n = 0; n < MHA_IN * MHA_IN; n++) (&made->in[0][0])[n].block = none;
    made->out.block = none;
    int64_t count = made->count = lay_parts(&made->parts, &shape, parameters);
    if (!parameters) {
        status = mha_memory_reserve(ctx, &made->own, (size_t)count * sizeof(float) + MHA_ALIGNMENT);
        if (status) {
            mha_layer_free(made);
            return status;
        }
        lay_parts(&made->parts, &shape, (float *)made->own.start);
        fill_own(ctx, made);
    }
    *layer = made;
    return MHA_OK;
}

void mha_layer_free(mha_layer *layer)
{
    if (!layer) return;
    mha_memory self = layer->self;
    mha_memory_release(&layer->own);
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

mha_layer_parts mha_layer_view(const mha_layer *layer, float *block)
{
    mha_layer_parts parts;
    memset(&parts, 0, sizeof parts);
    if (!layer) return parts;
    if (!block) return layer->parts;
    lay_parts(&parts, &layer->shape, block);
    return parts;
}

/* Rows from `first` on, of a matrix or of a vector. */
static mha_tensor some_rows(mha_tensor part, int64_t first, int64_t rows)
{
    if (!part.rank) return part;
    part.data = (float *)part.data + first * part.stride[0];
    part.size[0] = rows;
    return part;
}

mha_layer_parts mha_layer_view_head(const mha_layer *layer, float *block, int64_t h)
{
    static const mha_tensor none = MHA_NO_TENSOR;
    mha_layer_parts p = mha_layer_view(layer, block);
    if (!layer || h < 0 || h >= layer->shape.heads) return mha_layer_view(NULL, NULL);
    const mha_layer_options *s = &layer->shape;
    int64_t g = h / (s->heads / s->kv_heads), D = s->head_width, E = s->value_head_width;
    p.q_weight = some_rows(p.q_weight, h * D, D);
    p.k_weight = some_rows(p.k_weight, g * D, D);
    p.v_weight = some_rows(p.v_weight, g * E, E);
    p.q_bias = some_rows(p.q_bias, h * D, D);
    p.k_bias = some_rows(p.k_bias, g * D, D);
    p.v_bias = some_rows(p.v_bias, g * E, E);
    if (p.out_weight.rank)
        p.out_weight = mha_tensor_swap(some_rows(mha_tensor_swap(p.out_weight, 0, 1), h * E, E), 0, 1);
    p.bias_k = some_rows(p.bias_k, g * D, D);
    p.bias_v = some_rows(p.bias_v, g * E, E);
    p.sinks = some_rows(p.sinks, h, 1);
    p.gates = some_rows(p.gates, h, 1);
    p.in_weight = p.in_bias = none;
    return p;
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

int64_t mha_layer_near(const mha_layer *layer)
{
    enum { ANGLES = 1 << 20 }; /* of 8 bytes, cosine and sine */
    int64_t pairs = layer->shape.rotary_width / 2;
    return pairs > ANGLES ? 1 : pairs ? ANGLES / pairs : ANGLES;
}

mha_status mha_layer_tables(mha_context *ctx, mha_layer *layer, int64_t position, mha_tensor *cos, mha_tensor *sin)
{
    int64_t pairs = layer->shape.rotary_width / 2, positions = layer->positions;
    if (position >= positions) {
        int64_t most = mha_layer_near(layer);
        positions = position + 1 > 2 * positions ? position + 1 : 2 * positions;
        if (positions > most) positions = most;
        layer->positions = 0;
        layer->tabulated = false;
        TRY(mha_memory_reserve(ctx, &layer->tables, (size_t)(positions * pairs) * 2 * sizeof(float) + MHA_ALIGNMENT));
        layer->positions = positions;
    }
    float *start = (float *)layer->tables.start;
    *cos = mha_tensor_2d(start, MHA_FLOAT32, positions, pairs);
    *sin = mha_tensor_2d(start ? start + positions * pairs : NULL, MHA_FLOAT32, positions, pairs);
    if (layer->tabulated) return MHA_OK;
    TRY(mha_rotary_tables(ctx, *cos, *sin, layer->shape.rotary_base));
    layer->tabulated = !ctx->rehearsing; /* a rehearsal only reserves */
    return MHA_OK;
}
