/* The five products of a span by a matrix engine: bfloat16 factors, float32 sums.
 *
 * Rows are lanes in S, dP and dQ, as everywhere. dK and dV sum over rows: P and dS lie as an engine's left factor wants
 * them, keys down and rows along, so nothing is transposed. P and dS are rounded to bfloat16 on their way. */
#include "cpu/attention/backward/span_engine.h"
#include <string.h>

/* Numbers of a factor of a block whose sum runs over its rows, n wide. */
static int64_t size_down(int64_t n) { return mha_engine_size(n, MHA_BLOCK); }

void mha_span_engine_layout(mha_span *s, mha_arena *arena, const mha_backward *call)
{
    const mha_problem *p = &call->problem;
    mha_span_halves *h = &s->halves;
    int64_t tiles = call->plan.engine ? MHA_TILES : 0, blocks = call->plan.engine ? MHA_PAIR / MHA_BLOCK : 0;
    MHA_TAKE(arena, h->queries, blocks * MHA_BLOCK * p->D);
    MHA_TAKE(arena, h->douts, blocks * MHA_BLOCK * p->E);
    MHA_TAKE(arena, h->left_keys, tiles * mha_engine_size(MHA_KEYS, p->D));
    MHA_TAKE(arena, h->left_values, tiles * mha_engine_size(MHA_KEYS, p->E));
    MHA_TAKE(arena, h->left_across, tiles * mha_engine_size(p->D, MHA_KEYS));
    MHA_TAKE(arena, h->right_douts, blocks * mha_engine_size(MHA_BLOCK, p->E));
    MHA_TAKE(arena, h->right_queries_down, blocks * size_down(p->D));
    MHA_TAKE(arena, h->right_douts_down, blocks * size_down(p->E));
    MHA_TAKE(arena, h->right_ds, blocks * mha_engine_size(MHA_BLOCK, MHA_KEYS));
    MHA_TAKE(arena, h->left_rows, blocks * mha_engine_size(MHA_KEYS, MHA_BLOCK));
}

/* Row r of q or dout, or zeros if it sees no key: such a row may hold anything. */
static void load_half_row(const mha_span *s, uint16_t *to, mha_tensor x, int64_t r)
{
    const mha_tile *t = &s->tile;
    int64_t n = x.size[3], row = t->sequence.query_row + mha_tile_query(t, r), ignored;
    if (s->max[r] == INFINITY) {
        memset(to, 0, (size_t)n * sizeof *to);
        return;
    }
    const uint16_t *from = mha_tile_halves(&ignored, to, x, t->sequence.query_batch, mha_tile_head(t, r), row, 1);
    if (from != to) memcpy(to, from, (size_t)n * sizeof *to);
}

/* Zeros for what is not finite. Returns whether there was any. */
static bool wipe(uint16_t *x, int64_t n)
{
    bool wiped = false;
    for (int64_t i = 0; i < n; i++)
        if ((x[i] & 0x7f80) == 0x7f80) x[i] = 0, wiped = true;
    return wiped;
}

/* The queries of a block for S, once more, now that rows which see no key are zeros. */
static void repack_queries(mha_span *s, const uint16_t *queries, int64_t r)
{
    const mha_tile *t = &s->tile;
    const mha_problem *p = t->problem;
    int64_t lanes = mha_tile_lanes(t, r);
    uint16_t *scaled = (uint16_t *)t->staged;
    if (t->plan->score_scale == 1.0f)
        t->plan->kernels->scale_bf16(scaled, queries, p->D, p->options.scale, lanes, p->D);
    t->engine->pack_right(mha_tile_right(t, r), t->plan->score_scale == 1.0f ? scaled : queries, p->D, true, lanes,
                          p->D);
}

static void load_block(mha_span *s, const mha_backward *call, int64_t r)
{
    const mha_problem *p = &call->problem;
    mha_tile *t = &s->tile;
    mha_span_halves *h = &s->halves;
    int64_t height = mha_tile_height(t, r), lanes = mha_tile_lanes(t, r), block = r / MHA_BLOCK;
    uint16_t *queries = h->queries + r * p->D, *douts = h->douts + r * p->E;
    bool blind = false;
    for (int64_t i = 0; i < height; i++) {
        blind = blind || s->max[r + i] == INFINITY;
        load_half_row(s, queries + i * p->D, p->q, r + i);
        load_half_row(s, douts + i * p->E, call->dout, r + i);
    }
    memset(queries + height * p->D, 0, (size_t)((lanes - height) * p->D) * sizeof *queries);
    memset(douts + height * p->E, 0, (size_t)((lanes - height) * p->E) * sizeof *douts);
    if (blind) repack_queries(s, queries, r);
    t->engine->pack_right(h->right_douts + block * mha_engine_size(MHA_BLOCK, p->E), douts, p->E, true, lanes, p->E);
    for (int64_t i = 0; i < height; i++) {
        s->lost[r + i] = s->clean && wipe(douts + i * p->E, p->E);
        if (s->clean) wipe(queries + i * p->D, p->D);
    }
    t->engine->pack_right(h->right_queries_down + block * size_down(p->D), queries, p->D, false, p->D, lanes);
    t->engine->pack_right(h->right_douts_down + block * size_down(p->E), douts, p->E, false, p->E, lanes);
}

void mha_span_engine_load(mha_span *s, const mha_backward *call)
{
    for (int64_t r = 0; r < s->tile.rows; r += MHA_BLOCK) load_block(s, call, r);
}

void mha_span_engine_keys(mha_span *s, const mha_backward *call, int64_t n)
{
    const mha_problem *p = &call->problem;
    mha_tile *t = &s->tile;
    mha_span_halves *h = &s->halves;
    int64_t g = t->first_head / p->share, row = t->sequence.key_row + t->keys.first, stride;
    uint16_t *room = (uint16_t *)t->staged;
    const uint16_t *from = mha_tile_halves(&stride, room, p->v, t->sequence.key_batch, g, row, t->keys.count);
    t->engine->pack_left(h->left_values + n * mha_engine_size(MHA_KEYS, p->E), from, stride, true, t->keys.count, p->E);
    from = mha_tile_halves(&stride, room, p->k, t->sequence.key_batch, g, row, t->keys.count);
    for (int64_t j = 0; s->clean && j < t->keys.count; j++) {
        if (from != room) memcpy(room + j * p->D, from + j * stride, (size_t)p->D * sizeof *room);
        wipe(room + j * p->D, p->D);
    }
    if (s->clean) from = room, stride = p->D;
    t->engine->pack_left(h->left_across + n * mha_engine_size(p->D, MHA_KEYS), from, stride, false, p->D,
                         t->keys.count);
}

void mha_span_engine_dp(mha_span *s, const mha_backward *call, int64_t r, int64_t n, int64_t count)
{
    int64_t E = call->problem.E;
    s->tile.engine->product(&(mha_product){
        s->dp, MHA_BLOCK, NULL, 1.0f, s->halves.left_values + n * mha_engine_size(MHA_KEYS, E),
        s->halves.right_douts + r / MHA_BLOCK * mha_engine_size(MHA_BLOCK, E), count, mha_tile_lanes(&s->tile, r), E});
}

void mha_span_engine_dq(mha_span *s, const mha_backward *call, int64_t r, int64_t n, int64_t count, float *dq)
{
    const mha_engine *engine = s->tile.engine;
    int64_t D = call->problem.D, lanes = mha_tile_lanes(&s->tile, r);
    int64_t all = s->tile.keys.count; /* as K was packed */
    memset(s->ds + count * MHA_BLOCK, 0, (size_t)((all - count) * MHA_BLOCK) * sizeof *s->ds);
    engine->round_right(s->halves.right_ds, s->ds, MHA_BLOCK, lanes, all);
    engine->product(&(mha_product){dq, MHA_BLOCK, s->ones, 1.0f,
                                   s->halves.left_across + n * mha_engine_size(D, MHA_KEYS), s->halves.right_ds, D,
                                   lanes, all});
}

void mha_span_engine_dkv(mha_span *s, const mha_backward *call, int64_t r, int64_t n, int64_t count)
{
    const mha_problem *p = &call->problem;
    const mha_engine *engine = s->tile.engine;
    mha_span_halves *h = &s->halves;
    int64_t lanes = mha_tile_lanes(&s->tile, r), block = r / MHA_BLOCK;
    int64_t D = mha_whole(call->plan.kernels, p->D), E = mha_whole(call->plan.kernels, p->E);
    float *weights = s->tile.scores.lanes;
    int64_t height = mha_tile_height(&s->tile, r);
    for (int64_t j = 0; height < lanes && j < count; j++) { /* a NaN in a hidden key shows in lanes without a row */
        memset(weights + j * MHA_BLOCK + height, 0, (size_t)(lanes - height) * sizeof *weights);
        memset(s->ds + j * MHA_BLOCK + height, 0, (size_t)(lanes - height) * sizeof *weights);
    }
    if (call->gradients.v.rank) {
        engine->round_left(h->left_rows, weights, MHA_BLOCK, count, lanes);
        engine->product(&(mha_product){s->dv + n * MHA_KEYS * call->plan.Ep, call->plan.Ep, s->ones, 1.0f, h->left_rows,
                                       h->right_douts_down + block * size_down(p->E), count, E, lanes});
    }
    if (call->gradients.k.rank) {
        engine->round_left(h->left_rows, s->ds, MHA_BLOCK, count, lanes);
        engine->product(&(mha_product){s->dk + n * MHA_KEYS * call->Dp, call->Dp, s->ones, 1.0f, h->left_rows,
                                       h->right_queries_down + block * size_down(p->D), count, D, lanes});
    }
}
