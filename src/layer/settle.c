/* Where everything lies that a pass has between its inputs and its results: one piece of memory, cut up. */
#include "layer/pass.h"

static const mha_tensor none = MHA_NO_TENSOR;

/* ---- Projections ------------------------------------------------------------------------------------------------ */

/* The weights as the product takes them: where they lie, or one matrix (columns,W) that they are copied to. In training
 * they are one matrix always, so that sums over its columns have one order. */
static void lay_weights(mha_pass *p, mha_arena *arena, mha_projection *j, int64_t columns)
{
    const mha_layer_parts *parts = &p->layer->parts;
    const mha_tensor weights[MHA_IN] = {parts->q_weight, parts->k_weight, parts->v_weight};
    mha_type compute = p->layer->shape.compute;
    bool rounded = false;
    for (int n = j->first; n <= j->last; n++) {
        j->weight[n] = weights[n];
        rounded = rounded || (compute == MHA_BFLOAT16 && weights[n].type != MHA_BFLOAT16);
    }
    j->gathered = none;
    if (p->packs || !(rounded || (p->training && !mha_weights_are_one(weights, j->first, j->last)))) return;
    mha_type type = mha_weights_type(weights, j->first, j->last, compute);
    mha_tensor to = j->gathered = mha_arena_matrix(arena, type, columns, j->input.size[2]);
    for (int n = j->first; n <= j->last; n++) {
        j->weight[n] = to;
        j->weight[n].size[0] = mha_layer_rows(&p->layer->shape, n);
        if (to.data) to.data = (char *)to.data + j->weight[n].size[0] * to.stride[0] * (int64_t)mha_type_size(to.type);
    }
}

/* Whether a product may take an input as it is. With float32 compute it must not be a matter for a matrix engine, which
 * takes two factors of one narrow type. */
static bool fits(const mha_pass *p, const mha_projection *j)
{
    if (p->layer->shape.compute == MHA_BFLOAT16) return j->input.type == MHA_BFLOAT16;
    for (int n = j->first; n <= j->last && j->input.type != MHA_FLOAT32; n++)
        if (j->weight[n].type == j->input.type) return false;
    return true;
}

static void lay_projection(mha_pass *p, mha_arena *arena, mha_projection *j)
{
    const mha_layer_options *s = &p->layer->shape;
    int64_t rows = j->input.size[0] * j->input.size[1], columns = 0;
    for (int n = j->first; n <= j->last; n++) columns += mha_layer_rows(s, n);
    lay_weights(p, arena, j, columns);
    bool as_is = fits(p, j);
    j->across = as_is && !mha_as_rows(&j->x, j->input, false);
    j->copied = !as_is || (j->across && !mha_as_rows(&j->x, j->input, true));
    if (j->copied) {
        j->across = false;
        j->x = mha_arena_matrix(arena, s->compute, rows, j->input.size[2]);
    }
    j->y = mha_arena_matrix(arena, s->compute, rows, columns);
}

/* Which inputs are one, and so one product. */
static void lay_projections(mha_pass *p, mha_arena *arena)
{
    const mha_tensor inputs[MHA_IN] = {p->inputs.query, p->inputs.key, p->inputs.value};
    p->projections = 0;
    const int first = p->attends ? MHA_Q : MHA_K, last = p->appends ? MHA_V : MHA_Q;
    for (int n = first; n <= last;) {
        mha_projection *j = &p->projection[p->projections++];
        *j = (mha_projection){.first = n, .input = inputs[n]};
        for (n++; n <= last && mha_same_view(inputs[n], j->input);) n++;
        j->last = n - 1;
        lay_projection(p, arena, j);
    }
}

/* ---- Heads and results ------------------------------------------------------------------------------------------ */

/* Projection n, which may be among the columns of another, as (B,heads,T,width). */
static mha_tensor heads_of(const mha_pass *p, int n)
{
    const mha_layer_options *s = &p->layer->shape;
    const mha_projection *j = p->projection;
    int64_t first = 0;
    while (j->last < n) j++;
    for (int before = j->first; before < n; before++) first += mha_layer_rows(s, before);
    return mha_as_heads(j->y, j->across, j->input.size[0], j->input.size[1], first, n == MHA_Q ? s->heads : s->kv_heads,
                        n == MHA_V ? s->value_head_width : s->head_width);
}

/* Room for a second version of heads (B,heads,T,width), laid out by sequences. */
static mha_tensor second(mha_arena *arena, mha_tensor x)
{
    mha_tensor rows = mha_arena_matrix(arena, x.type, x.size[0] * x.size[2], x.size[1] * x.size[3]);
    return mha_as_heads(rows, false, x.size[0], x.size[2], 0, x.size[1], x.size[3]);
}

static void lay_heads(mha_pass *p, mha_arena *arena)
{
    bool norm = p->layer->shape.norm_epsilon > 0;
    if (p->attends) {
        p->raw_q = heads_of(p, MHA_Q);
        p->q = norm && p->training ? second(arena, p->raw_q) : p->raw_q;
    }
    if (p->appends) {
        p->raw_k = heads_of(p, MHA_K);
        p->k = norm && p->training ? second(arena, p->raw_k) : p->raw_k;
        p->v = heads_of(p, MHA_V);
    }
}

static void lay_results(mha_pass *p, mha_arena *arena)
{
    const mha_layer_options *s = &p->layer->shape;
    int64_t H = s->heads, E = s->value_head_width, rows = p->B * p->Tq;
    bool half = s->compute == MHA_BFLOAT16, gates = s->gates && p->training;
    p->out_across = !mha_as_rows(&p->result, p->out, false);
    p->out_copied = !s->out_projection || (p->out_across && !mha_as_rows(&p->result, p->out, true));
    if (p->out_copied) {
        p->out_across = false;
        p->result = s->out_projection ? mha_arena_matrix(arena, MHA_FLOAT32, rows, s->out_width) : none;
    }
    p->head_rows = mha_arena_matrix(arena, s->compute, rows, H * E);
    p->gated_rows = gates ? mha_arena_matrix(arena, s->compute, rows, H * E) : p->head_rows;
    p->heads = mha_as_heads(p->head_rows, p->out_across, p->B, p->Tq, 0, H, E);
    p->gated = mha_as_heads(p->gated_rows, p->out_across, p->B, p->Tq, 0, H, E);
    p->out_weight = p->layer->parts.out_weight;
    p->out_rounded = half && !p->packs && s->out_projection && p->out_weight.type != MHA_BFLOAT16;
    if (p->out_rounded) p->out_weight = mha_arena_matrix(arena, MHA_BFLOAT16, s->out_width, H * E);
    p->softmax = p->maps = none;
    if (p->training || p->extra || p->extras.softmax.rank) {
        mha_tensor all = mha_arena_matrix(arena, MHA_FLOAT32, p->B * H, p->Tq * 2);
        p->softmax = mha_tensor_4d(all.data, MHA_FLOAT32, p->B, H, p->Tq, 2);
    }
    if (p->extra && p->extras.weights.rank == 3) {
        const int64_t *size = p->extras.weights.size;
        mha_tensor all = mha_arena_matrix(arena, MHA_FLOAT32, size[0] * H, size[1] * size[2]);
        p->maps = mha_tensor_4d(all.data, MHA_FLOAT32, size[0], H, size[1], size[2]);
    }
}

/* ---- Starts and positions --------------------------------------------------------------------------------------- */

/* Starts of ragged sequences, counted from the first row that is not cut off, where the device reads them. */
static mha_tensor lay_starts(const mha_pass *p, mha_arena *arena, mha_tensor starts)
{
    enum { SOME = 64 };
    if (!starts.rank || !mha_pass_reads_starts(p)) return starts;
    int64_t first = mha_integer_at(starts, 0), count = starts.size[0], some[SOME], *moved;
    if (!first && !p->ctx->backend->remote) return starts;
    MHA_TAKE(arena, moved, count);
    for (int64_t b = 0; moved && b < count; b += SOME) {
        int64_t end = count - b < SOME ? count - b : SOME;
        for (int64_t n = 0; n < end; n++) some[n] = mha_integer_at(starts, b + n) - first;
        p->ctx->backend->upload(p->ctx, moved + b, some, (size_t)end * sizeof *some);
    }
    return mha_tensor_1d(moved, MHA_INT64, count);
}

/* The lengths of a cache's rows, which the host knows, where the device reads them. */
static mha_tensor lay_lengths(const mha_pass *p, mha_arena *arena)
{
    int64_t B = mha_pass_sequences(p), *at = mha_arena_take(arena, B, sizeof *at);
    if (at) p->ctx->backend->upload(p->ctx, at, p->lengths, (size_t)B * sizeof *at);
    return mha_tensor_1d(at, MHA_INT64, B);
}

static void lay_places(const mha_pass *p, mha_arena *arena, mha_tensor *places, mha_tensor x, mha_tensor starts)
{
    int64_t B = x.size[0], T = x.size[1];
    if (!(starts.rank || p->lengths) || places->rank || !mha_layer_turns(&p->layer->shape)) return;
    int64_t *at = mha_arena_take(arena, B * T, sizeof *at);
    if (!arena->base) return;
    *places = mha_tensor_2d(at, MHA_INT64, B, T);
    p->ctx->backend->places(p->ctx, *places, starts, p->lengths ? p->options.key_lengths : none);
}

/* ---- Vectors ---------------------------------------------------------------------------------------------------- */

/* Biases, gains, sinks and gates as operations read them: dense float32, those of q, k and v one behind another. Tensors
 * of the caller that are not so get a copy. */
static void lay_vectors(mha_pass *p, mha_arena *arena)
{
    p->parts = p->layer->parts;
    for (int part = 0; p->layer->borrowed && part < MHA_PARTS; part++) {
        mha_tensor *t = mha_part_of(&p->parts, part);
        mha_part_size size = mha_part_size_of(&p->layer->shape, part);
        bool in_bias = part == MHA_PART_Q_BIAS || part == MHA_PART_K_BIAS || part == MHA_PART_V_BIAS;
        bool dense = t->rank == 1 && t->type == MHA_FLOAT32 && t->stride[0] == 1 && !in_bias;
        if (!size.there || size.columns || dense) continue;
        *t = mha_tensor_1d(NULL, MHA_FLOAT32, size.rows);
        if (in_bias) continue;
        t->data = mha_arena_take(arena, size.rows, sizeof(float));
    }
    if (!p->layer->borrowed || !p->layer->shape.in_bias) return;
    mha_tensor *biases[MHA_IN] = {&p->parts.q_bias, &p->parts.k_bias, &p->parts.v_bias};
    int64_t count = 0;
    for (int n = 0; n < MHA_IN; n++) count += biases[n]->size[0];
    float *at = mha_arena_take(arena, count, sizeof *at);
    for (int n = 0; at && n < MHA_IN; at += biases[n++]->size[0]) biases[n]->data = at;
}

static void fill_vector(mha_pass *p, int part)
{
    mha_layer_parts given = p->layer->parts;
    mha_tensor from = *mha_part_of(&given, part), to = *mha_part_of(&p->parts, part);
    if (!from.rank || mha_part_size_of(&p->layer->shape, part).columns || to.data == from.data) return;
    p->ctx->backend->copy(p->ctx, from.rank == 2 ? mha_part_split(to, from.size[0]) : to, from, false);
}

/* ---- All of it -------------------------------------------------------------------------------------------------- */

static void lay_out(mha_pass *p, mha_arena *arena)
{
    lay_vectors(p, arena);
    if (p->layer->shape.sinks) p->options.sinks = p->parts.sinks;
    lay_projections(p, arena);
    lay_heads(p, arena);
    if (p->attends) lay_results(p, arena);
    if (p->lengths) p->options.key_lengths = lay_lengths(p, arena);
    p->options.query_starts = lay_starts(p, arena, p->query_starts);
    p->options.key_starts = lay_starts(p, arena, p->key_starts);
    mha_tensor keys = p->lengths ? p->options.query_starts : p->options.key_starts;
    if (p->attends) lay_places(p, arena, &p->query_places, p->inputs.query, p->options.query_starts);
    if (p->appends) lay_places(p, arena, &p->key_places, p->inputs.key, keys);
}

mha_status mha_pass_measure(mha_pass *p, size_t *bytes)
{
    mha_arena measure = {0};
    lay_out(p, &measure);
    if (measure.too_large)
        return mha_fail(p->ctx, MHA_TOO_LARGE, "query, key, value: what lies between has no place in memory");
    *bytes = measure.used + MHA_ALIGNMENT;
    return MHA_OK;
}

mha_status mha_pass_settle(mha_pass *p, mha_memory *home)
{
    mha_arena arena = {0};
    size_t bytes = 0;
    TRY(mha_pass_measure(p, &bytes));
    if (p->packs) TRY(mha_pass_pack(p));
    TRY(mha_memory_reserve(p->ctx, home, bytes));
    arena.base = home->start;
    lay_out(p, &arena);
    for (int part = 0; p->layer->borrowed && part < MHA_PARTS; part++) fill_vector(p, part);
    return MHA_OK;
}
