/* The first steps of a pass: inputs to queries, keys and values; and the products with the weights. */
#include "attention/rotary.h"
#include "layer/pass.h"

/* ---- Packed weights --------------------------------------------------------------------------------------------- */

static bool is_packed(const mha_context *ctx, const mha_packed *packed)
{
    return packed->backend == ctx->backend && packed->isa == ctx->isa;
}

/* A device whose packed form the host cannot read keeps a dense matrix instead. */
static mha_status keep_matrix(mha_context *ctx, mha_packed *packed, mha_tensor matrix)
{
    size_t bytes = (size_t)mha_element_count(matrix) * mha_type_size(matrix.type);
    TRY(mha_memory_reserve(ctx, &packed->block, bytes + MHA_ALIGNMENT));
    packed->matrix = mha_tensor_2d(packed->block.start, matrix.type, matrix.size[0], matrix.size[1]);
    ctx->backend->copy(ctx, packed->matrix, matrix, false);
    packed->backend = mha_is_recording(ctx) ? NULL : ctx->backend;
    packed->isa = ctx->isa;
    return MHA_OK;
}

/* Packs the weights first to last, as one matrix, for an a of the compute type. Where they are none, or not of the type
 * that is multiplied, a copy lies in the room meanwhile. */
static mha_status pack(mha_context *ctx, mha_packed *packed, const mha_tensor weights[MHA_IN], int first, int last,
                       mha_type compute)
{
    size_t bytes;
    if (is_packed(ctx, packed)) return MHA_OK;
    packed->backend = NULL;
    mha_weight_walk walk = {.part = first};
    mha_weight_next(&walk, weights, last);
    mha_tensor matrix = walk.matrix;
    mha_type type = mha_weights_type(weights, first, last, compute);
    if (walk.part <= last || matrix.type != type) {
        mha_arena arena = {0};
        int64_t columns = 0, width = matrix.size[1];
        for (int n = first; n <= last; n++)
            columns += weights[n].size[0] * (weights[n].rank == 3 ? weights[n].size[1] : 1);
        matrix = mha_arena_matrix(&arena, type, columns, width);
        TRY(mha_memory_reserve(ctx, &ctx->room, arena.used + MHA_ALIGNMENT));
        matrix.data = ctx->room.start;
        mha_weights_gather(ctx, matrix, weights, first, last);
    }
    mha_tensor b = mha_tensor_swap(matrix, 0, 1);
    if (ctx->backend->remote) return keep_matrix(ctx, packed, matrix);
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
        TRY(pack(p->ctx, &layer->in[j->first][j->last], j->weight, j->first, j->last, compute));
    }
    const mha_tensor out[MHA_IN] = {layer->parts.out_weight};
    if (p->attends && layer->shape.out_projection) TRY(pack(p->ctx, &layer->out, out, 0, 0, compute));
    return MHA_OK;
}

/* Columns first to first + count - 1 of a matrix or of a vector. */
static mha_tensor columns_of(mha_tensor t, int64_t first, int64_t count)
{
    int last = t.rank - 1;
    if (!t.rank) return t;
    t.data = (char *)t.data + first * t.stride[last] * (int64_t)mha_type_size(t.type);
    t.size[last] = count;
    return t;
}

/* c = a times the weights of projection j as they lie, plus their bias. */
static mha_status multiply_pieces(mha_context *ctx, const mha_projection *j, mha_tensor c, mha_tensor a,
                                  const mha_matmul_options *options)
{
    mha_weight_walk walk = {.part = j->first};
    while (mha_weight_next(&walk, j->weight, j->last)) {
        mha_matmul_options piece = *options;
        int64_t count = walk.matrix.size[0];
        piece.bias = columns_of(options->bias, walk.column, count);
        TRY(mha_matmul(ctx, columns_of(c, walk.column, count), a, mha_tensor_swap(walk.matrix, 0, 1), &piece));
    }
    return MHA_OK;
}

mha_status mha_pass_multiply(mha_pass *p, int n, mha_tensor c, mha_tensor a)
{
    mha_matmul_options options = MHA_MATMUL_DEFAULTS;
    const mha_layer *layer = p->layer;
    bool out = n == MHA_IN;
    const mha_projection *j = out ? NULL : &p->projection[n];
    const mha_packed *packed = out ? &layer->out : &layer->in[j->first][j->last];
    if (out) options.bias = p->parts.out_bias;
    else if (layer->shape.in_bias) options.bias = mha_layer_in_bias(&p->parts, j->first, j->last);
    if (p->packs && packed->matrix.rank)
        return mha_matmul(p->ctx, c, a, mha_tensor_swap(packed->matrix, 0, 1), &options);
    if (p->packs && a.type == layer->shape.compute)
        return mha_matmul_packed(p->ctx, c, a, packed->block.start, &options);
    if (out) return mha_matmul(p->ctx, c, a, mha_tensor_swap(p->out_weight, 0, 1), &options);
    return multiply_pieces(p->ctx, j, c, a, &options);
}

/* ---- Inputs to heads -------------------------------------------------------------------------------------------- */

mha_status mha_pass_rotate(const mha_pass *p, mha_tensor x, mha_tensor places, bool inverse)
{
    mha_rotary_options options = MHA_ROTARY_DEFAULTS;
    mha_tensor cos, sin;
    if (!mha_layer_turns(&p->layer->shape)) return MHA_OK;
    options.interleaved = p->layer->shape.rotary_interleaved;
    options.width = p->layer->shape.rotary_width;
    options.inverse = inverse;
    options.positions = places;
    TRY(mha_layer_tables(p->ctx, p->layer, p->last_place, &cos, &sin));
    return mha_rotary_apply_beyond(p->ctx, x, x, cos, sin, mha_layer_frequencies(p->layer), &options);
}

mha_norm_about mha_pass_norm(const mha_pass *p, int projection)
{
    const mha_layer_options *s = &p->layer->shape;
    bool q = projection == MHA_Q;
    return (mha_norm_about){.gain = q ? p->parts.q_norm : p->parts.k_norm,
                            .bias = q ? p->parts.q_norm_bias : p->parts.k_norm_bias,
                            .epsilon = s->norm_epsilon,
                            .centred = s->norm == MHA_NORM_LAYER,
                            .all_heads = s->norm_span == MHA_NORM_ALL_HEADS};
}

static void normalize(const mha_pass *p, mha_tensor to, mha_tensor from, int projection)
{
    mha_norm_about norm = mha_pass_norm(p, projection);
    mha_tensor none = MHA_NO_TENSOR;
    if (norm.epsilon > 0) p->ctx->backend->normalize(p->ctx, to, none, from, none, &norm);
}

mha_status mha_pass_project(mha_pass *p)
{
    const mha_layer_parts *given = &p->layer->parts;
    const mha_tensor weights[MHA_IN] = {given->q_weight, given->k_weight, given->v_weight};
    for (int n = 0; n < p->projections; n++) {
        mha_projection *j = &p->projection[n];
        if (j->copied)
            p->ctx->backend->copy(p->ctx, mha_as_input(j->x, j->across, j->input.size[0], j->input.size[1]), j->input,
                                  false);
        if (j->gathered.rank) mha_weights_gather(p->ctx, j->gathered, weights, j->first, j->last);
        TRY(mha_pass_multiply(p, n, j->y, j->x));
    }
    if (p->attends) {
        normalize(p, p->q, p->raw_q, MHA_Q);
        TRY(mha_pass_rotate(p, p->q, p->query_places, false));
    }
    if (p->appends) {
        normalize(p, p->k, p->raw_k, MHA_K);
        TRY(mha_pass_rotate(p, p->k, p->key_places, false));
    }
    return MHA_OK;
}
