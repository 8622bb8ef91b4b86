/* The first steps of a pass: inputs to queries, keys and values; and the products with the weights. */
#include "attention/rotary.h"
#include "layer/pass.h"

/* ---- Packed weights --------------------------------------------------------------------------------------------- */

static bool is_packed(const mha_context *ctx, const mha_packed *packed)
{
    return packed->backend == ctx->backend && packed->isa == ctx->isa;
}

/* Packs a weight (columns,width) for an a of the compute type. A copy in bfloat16 lies in the room meanwhile. */
static mha_status pack(mha_context *ctx, mha_packed *packed, mha_tensor weight, mha_type compute)
{
    size_t bytes;
    if (is_packed(ctx, packed)) return MHA_OK;
    packed->backend = NULL;
    if (compute == MHA_BFLOAT16) {
        mha_arena arena = {0};
        mha_tensor half = mha_arena_matrix(&arena, MHA_BFLOAT16, weight.size[0], weight.size[1]);
        TRY(mha_memory_reserve(ctx, &ctx->room, arena.used + MHA_ALIGNMENT));
        half.data = ctx->room.start;
        ctx->backend->copy(ctx, half, weight, false);
        weight = half;
    }
    mha_tensor b = mha_tensor_swap(weight, 0, 1);
    TRY(mha_matmul_pack_size(ctx, &bytes, b, compute));
    TRY(mha_memory_reserve(ctx, &packed->block, bytes + MHA_ALIGNMENT));
    TRY(mha_matmul_pack(ctx, packed->block.start, bytes, b, compute));
    packed->backend = ctx->backend;
    packed->isa = ctx->isa;
    return MHA_OK;
}

bool mha_pass_is_packed(const mha_pass *p)
{
    for (int n = 0; n < p->projections; n++)
        if (!is_packed(p->ctx, &p->layer->in[p->projection[n].first][p->projection[n].last])) return false;
    return !(p->attends && p->layer->shape.out_projection) || is_packed(p->ctx, &p->layer->out);
}

mha_status mha_pass_pack(mha_pass *p)
{
    mha_layer *layer = p->layer;
    mha_type compute = layer->shape.compute;
    for (int n = 0; n < p->projections; n++) {
        const mha_projection *j = &p->projection[n];
        TRY(pack(p->ctx, &layer->in[j->first][j->last], j->weight, compute));
    }
    if (p->attends && layer->shape.out_projection) TRY(pack(p->ctx, &layer->out, layer->parts.out_weight, compute));
    return MHA_OK;
}

mha_status mha_pass_multiply(mha_pass *p, int n, mha_tensor c, mha_tensor a)
{
    mha_matmul_options options = MHA_MATMUL_DEFAULTS;
    const mha_layer *layer = p->layer;
    bool out = n == MHA_IN;
    const mha_projection *j = out ? NULL : &p->projection[n];
    const mha_packed *packed = out ? &layer->out : &layer->in[j->first][j->last];
    mha_tensor weight = out ? p->out_weight : j->weight;
    if (out) options.bias = layer->parts.out_bias;
    else if (layer->shape.in_bias) options.bias = mha_layer_in_bias(&layer->parts, j->first, j->last);
    if (!p->packs || a.type != layer->shape.compute)
        return mha_matmul(p->ctx, c, a, mha_tensor_swap(weight, 0, 1), &options);
    return mha_matmul_packed(p->ctx, c, a, packed->block.start, &options);
}

/* ---- Inputs to heads -------------------------------------------------------------------------------------------- */

mha_status mha_pass_rotate(const mha_pass *p, mha_tensor x, mha_tensor places, bool inverse)
{
    mha_rotary_options options = MHA_ROTARY_DEFAULTS;
    mha_tensor cos, sin;
    if (!(p->layer->shape.rotary_base > 0)) return MHA_OK;
    options.interleaved = p->layer->shape.rotary_interleaved;
    options.width = p->layer->shape.rotary_width;
    options.inverse = inverse;
    options.positions = places;
    TRY(mha_layer_tables(p->ctx, p->layer, p->last_place, &cos, &sin));
    return mha_rotary_apply_beyond(p->ctx, x, x, cos, sin, p->layer->shape.rotary_base, &options);
}

static void normalize(const mha_pass *p, mha_tensor to, mha_tensor from, mha_tensor gain)
{
    float epsilon = p->layer->shape.norm_epsilon;
    if (epsilon > 0) p->ctx->backend->normalize(p->ctx, to, from, gain, epsilon);
}

mha_status mha_pass_project(mha_pass *p)
{
    const mha_layer_parts *parts = &p->layer->parts;
    for (int n = 0; n < p->projections; n++) {
        mha_projection *j = &p->projection[n];
        if (j->copied)
            p->ctx->backend->copy(p->ctx, mha_as_input(j->x, j->across, j->input.size[0], j->input.size[1]), j->input,
                                  false);
        if (j->weight.type != MHA_FLOAT32)
            p->ctx->backend->copy(p->ctx, j->weight, mha_layer_in_weight(parts, j->first, j->last), false);
        TRY(mha_pass_multiply(p, n, j->y, j->x));
    }
    if (p->attends) {
        normalize(p, p->q, p->raw_q, parts->q_norm);
        TRY(mha_pass_rotate(p, p->q, p->query_places, false));
    }
    if (p->appends) {
        normalize(p, p->k, p->raw_k, parts->k_norm);
        TRY(mha_pass_rotate(p, p->k, p->key_places, false));
    }
    return MHA_OK;
}
