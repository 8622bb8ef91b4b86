/* A span of keys against all the query rows that see it: dK, dV, and its part of dQ.
 *
 *     P  = exp(S - max) / sum           S as in the forward pass             (tile, rows)
 *     dP = V dO^T, dropped as P was                                          (tile, rows)
 *     dS = P (dP - delta)               delta = dO . O - dlse                (rows)
 *     dQ = scale (dS c)^T K,  dK = scale (dS c) Q,  dV = dropout(P) dO       c: the slope of the softcap
 *
 * Five products a tile. S, dP and dQ keep rows as lanes; dK and dV sum over rows. Where kernels read left factors along
 * the sum, or an engine multiplies, P and dS are taken as they lie; else they are transposed, a pair of blocks at a
 * time. A span of four tiles shares the loading of query rows; its dK and dV stay in scratch until all rows have
 * passed, and are written once, by one owner. */
#include "cpu/attention/backward/span.h"
#include "cpu/attention/backward/span_engine.h"
#include "cpu/attention/careful.h"
#include <string.h>

void mha_span_layout(mha_span *s, mha_arena *arena, const mha_backward *call)
{
    const mha_problem *p = &call->problem;
    int64_t Dp = call->Dp, Ep = call->plan.Ep, keys = MHA_TILES * MHA_KEYS, square = MHA_KEYS * MHA_BLOCK;
    int64_t widest = Dp > Ep ? Dp : Ep, ones = widest > MHA_BLOCK ? widest : MHA_BLOCK;
    mha_tile_layout(&s->tile, arena, p, &call->plan);
    s->clean = false;
    MHA_TAKE(arena, s->keys[0], keys * p->D);
    MHA_TAKE(arena, s->values[0], keys * p->E);
    MHA_TAKE(arena, s->packed, keys * Dp);
    MHA_TAKE(arena, s->dk, keys * Dp);
    MHA_TAKE(arena, s->dv, keys * Ep);
    MHA_TAKE(arena, s->query_room, MHA_PAIR * Dp);
    MHA_TAKE(arena, s->dout_room, MHA_PAIR * Ep);
    MHA_TAKE(arena, s->douts, MHA_PAIR * p->E);
    MHA_TAKE(arena, s->weight_rows, MHA_PAIR * MHA_KEYS);
    MHA_TAKE(arena, s->ds_rows, MHA_PAIR * MHA_KEYS);
    MHA_TAKE(arena, s->dp, square);
    MHA_TAKE(arena, s->ds, square);
    MHA_TAKE(arena, s->capped, square);
    MHA_TAKE(arena, s->ones, ones);
    MHA_TAKE(arena, s->max, MHA_PAIR);
    MHA_TAKE(arena, s->factor, MHA_PAIR);
    MHA_TAKE(arena, s->delta, MHA_PAIR);
    MHA_TAKE(arena, s->lost, MHA_PAIR);
    MHA_TAKE(arena, s->wide, p->D + p->E);
    MHA_TAKE(arena, s->statistics, 3 * call->longest);
    MHA_TAKE(arena, s->bias_sums, call->dbias.rank ? MHA_PAIR * keys : 0);
    mha_span_engine_layout(s, arena, call);
    if (!arena->base) return;
    for (int n = 1; n < MHA_TILES; n++) {
        s->keys[n] = s->keys[0] + n * MHA_KEYS * p->D;
        s->values[n] = s->values[0] + n * MHA_KEYS * p->E;
    }
    for (int64_t i = 0; i < ones; i++) s->ones[i] = 1.0f;
}

void mha_span_place(mha_span *s, const mha_sequence *sequence, int64_t first_head, int64_t heads, int64_t first,
                    int64_t rows)
{
    mha_tile_place(&s->tile, sequence, first_head, heads, first, rows);
}

/* What goes with row r. A row that sees no key may hold anything, and counts as zeros; returns whether it is one. */
static bool load_statistics(mha_span *s, const mha_backward *call, int64_t r)
{
    const mha_tile *t = &s->tile;
    int64_t at = mha_row_index(&call->problem, &t->sequence, mha_tile_head(t, r), mha_tile_query(t, r));
    s->max[r] = call->softmax.max[at];
    s->factor[r] = call->softmax.factor[at];
    s->delta[r] = call->delta[at];
    return s->max[r] == INFINITY;
}

/* Row r of q or dout, and zeros up to `width`. */
static void load_row(const mha_span *s, float *to, mha_tensor x, int64_t r, int64_t width)
{
    const mha_tile *t = &s->tile;
    int64_t n = x.size[3], row = t->sequence.query_row + mha_tile_query(t, r);
    bool blind = s->max[r] == INFINITY;
    if (!blind)
        mha_row_load(t->plan->kernels, to, mha_at(x, t->sequence.query_batch, mha_tile_head(t, r), row, 0), x.type,
                     x.stride[3], n);
    memset(to + (blind ? 0 : n), 0, (size_t)(width - (blind ? 0 : n)) * sizeof *to);
}

/* Zeros for what is not finite. Returns whether there was any. */
static bool wipe(float *x, int64_t n)
{
    bool wiped = false;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) x[i] = 0.0f, wiped = true;
    return wiped;
}

/* The loaded rows of q or dout, for sums over rows: where they lie if they can be read there, else in `room`. */
static mha_rows load_rows(const mha_span *s, float *room, mha_tensor x, int64_t width, bool blind)
{
    const mha_tile *t = &s->tile;
    bool even = x.type == MHA_FLOAT32 && x.stride[3] == 1 && x.size[3] % t->plan->kernels->lanes == 0;
    if (even && t->heads == 1 && !blind && !s->clean && !mha_rows_apart(x)) {
        int64_t row = t->sequence.query_row + mha_tile_query(t, 0);
        return (mha_rows){mha_at(x, t->sequence.query_batch, t->first_head, row, 0), x.stride[2]};
    }
    for (int64_t r = 0; r < t->rows; r++) load_row(s, room + r * width, x, r, width);
    return (mha_rows){room, width};
}

/* A row of queries that counts as zeros, as the tile has it: a lane, or a row where rows are few. */
static void wipe_query(const mha_tile *t, int64_t r)
{
    int64_t D = t->problem->D, step = t->narrow ? 1 : MHA_BLOCK;
    float *query = t->queries.data + (t->narrow ? r * D : r / MHA_BLOCK * MHA_BLOCK * D + r % MHA_BLOCK);
    for (int64_t d = 0; d < D; d++) {
        if (t->dots) t->halves.queries[r * D + d] = 0;
        else query[d * step] = 0.0f;
    }
}

void mha_span_load(mha_span *s, const mha_backward *call)
{
    const mha_problem *p = &call->problem;
    mha_tile *t = &s->tile;
    bool blind = false;
    mha_tile_load(t);
    for (int64_t r = 0; r < t->rows; r++) blind = load_statistics(s, call, r) || blind;
    for (int64_t r = t->rows; r < MHA_PAIR; r++) s->max[r] = INFINITY, s->factor[r] = s->delta[r] = 0.0f;
    if (t->engine) {
        mha_span_engine_load(s, call);
        return;
    }
    for (int64_t r = 0; blind && r < t->rows; r++)
        if (s->max[r] == INFINITY) wipe_query(t, r);
    s->query_rows = load_rows(s, s->query_room, p->q, call->Dp, blind);
    s->dout_rows = load_rows(s, s->dout_room, call->dout, call->plan.Ep, blind);
    for (int64_t r = 0; r < t->rows; r += MHA_BLOCK)
        call->plan.kernels->columns(s->douts + r * p->E, MHA_BLOCK, s->dout_rows.data + r * s->dout_rows.stride,
                                    s->dout_rows.stride, mha_tile_height(t, r), p->E, 1.0f);
    for (int64_t r = 0; r < t->rows; r++) {
        s->lost[r] = s->clean && wipe(s->dout_room + r * call->plan.Ep, p->E);
        if (s->clean) wipe(s->query_room + r * call->Dp, p->D);
    }
}

/* Keys as rows, for dQ. */
static void load_key_rows(mha_span *s, const mha_backward *call, int64_t n)
{
    const mha_problem *p = &call->problem;
    const mha_tile *t = &s->tile;
    mha_tensor k = p->k;
    int64_t g = t->first_head / p->share, row = t->sequence.key_row + t->keys.first, Dp = call->Dp;
    s->key_rows[n] = (mha_rows){mha_at(k, t->sequence.key_batch, g, row, 0), k.stride[2]};
    if (k.type == MHA_FLOAT32 && k.stride[3] == 1 && call->Dm == p->D && !s->clean && !mha_rows_apart(k)) return;
    float *to = s->packed + n * MHA_KEYS * Dp;
    s->key_rows[n] = (mha_rows){to, Dp};
    for (int64_t j = 0; j < t->keys.count; j++, to += Dp) {
        mha_row_load(call->plan.kernels, to, mha_at(k, t->sequence.key_batch, g, row + j, 0), k.type, k.stride[3],
                     p->D);
        memset(to + p->D, 0, (size_t)(Dp - p->D) * sizeof *to);
        if (s->clean) wipe(to, p->D);
    }
}

/* Values for dP: as columns, or as rows where the kernels take them along. */
static void load_values(mha_span *s, const mha_backward *call, int64_t n)
{
    const mha_problem *p = &call->problem;
    mha_tensor v = p->v;
    const mha_tile *t = &s->tile;
    int64_t g = t->first_head / p->share, row = t->sequence.key_row + t->keys.first;
    bool even = v.type == MHA_FLOAT32 && v.stride[3] == 1 && !(call->plan.kernels->along && mha_rows_apart(v));
    s->value_rows[n] = (mha_rows){mha_at(v, t->sequence.key_batch, g, row, 0), v.stride[2]};
    if (!even) {
        float *to = call->plan.kernels->along ? s->values[n] : t->staged;
        s->value_rows[n] = (mha_rows){to, p->E};
        for (int64_t j = 0; j < t->keys.count; j++)
            mha_row_load(call->plan.kernels, to + j * p->E, mha_at(v, t->sequence.key_batch, g, row + j, 0), v.type,
                         v.stride[3], p->E);
    }
    if (!call->plan.kernels->along)
        call->plan.kernels->columns(s->values[n], MHA_KEYS, s->value_rows[n].data, s->value_rows[n].stride,
                                    t->keys.count, p->E, 1.0f);
}

/* Turns the tile to the room for the keys of tile n. */
static void use_room(mha_span *s, int64_t n)
{
    s->tile.room.keys = s->keys[n];
    if (s->tile.engine)
        s->tile.room.left_keys = s->halves.left_keys + n * mha_engine_size(MHA_KEYS, s->tile.problem->D);
}

void mha_span_keys(mha_span *s, const mha_backward *call, int64_t key, int64_t end)
{
    mha_tile *t = &s->tile;
    s->key = key;
    s->end = end;
    for (int64_t n = 0; key < end; n++, key += MHA_KEYS) {
        use_room(s, n);
        mha_tile_keys(t, key, end - key < MHA_KEYS ? end - key : MHA_KEYS);
        s->loaded[n] = t->keys;
        if (t->engine) {
            mha_span_engine_keys(s, call, n);
            continue;
        }
        load_key_rows(s, call, n);
        load_values(s, call, n);
    }
}

/* Whether a row of the block sees a score that left float32 on the way. */
static bool sees_broken(const mha_tile *t, int64_t r, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < mha_tile_height(t, r); i++)
            if (t->scores.broken[j * MHA_BLOCK + i] &&
                mha_careful_sees(t->problem, &t->sequence, mha_tile_head(t, r + i), mha_tile_query(t, r + i),
                                 t->keys.first + j))
                return true;
    return false;
}

int64_t mha_span_ds(mha_span *s, const mha_backward *call, int64_t r, int64_t n, bool *broken)
{
    const mha_problem *p = &call->problem;
    mha_tile *t = &s->tile;
    t->keys = s->loaded[n];
    int64_t lanes = mha_tile_lanes(t, r), count = mha_tile_seen(t, r);
    if (!count) return 0;
    use_room(s, n);
    mha_tile_scores(t, r, count, MHA_STAGE_CAPPED);
    if (p->options.softcap > 0) memcpy(s->capped, t->scores.lanes, (size_t)(count * MHA_BLOCK) * sizeof(float));
    mha_tile_mask(t, r, count);
    if (t->scores.suspect && sees_broken(t, r, count)) *broken = true;
    call->plan.kernels->weights(t->scores.lanes, MHA_BLOCK, count, lanes, s->max + r, s->factor + r);
    if (t->engine) mha_span_engine_dp(s, call, r, n, count);
    else if (call->plan.kernels->along)
        call->plan.kernels->product_along(s->dp, MHA_BLOCK, NULL, s->value_rows[n].data, s->value_rows[n].stride,
                                          s->douts + r * p->E, MHA_BLOCK, count, lanes, p->E);
    else
        call->plan.kernels->product(s->dp, MHA_BLOCK, NULL, s->values[n], MHA_KEYS, s->douts + r * p->E, MHA_BLOCK,
                                    (count + 3) & ~INT64_C(3), lanes, p->E);
    mha_tile_drop(t, s->dp, r, count);
    call->plan.kernels->gradient(s->ds, t->scores.lanes, s->dp, MHA_BLOCK, count, lanes, s->delta + r,
                                 call->problem.kept);
    return count;
}

/* A tile's lanes as rows, with zeros beyond `count`. */
static void lay_rows(const mha_tile *t, float *rows, const float *lanes, int64_t height, int64_t count)
{
    t->plan->kernels->transpose(rows, MHA_KEYS, lanes, MHA_BLOCK, count, height, NULL);
    for (int64_t i = 0; count < MHA_KEYS && i < height; i++)
        memset(rows + i * MHA_KEYS + count, 0, (size_t)(MHA_KEYS - count) * sizeof *rows);
}

/* dK and dV of tile n from the block at row r, whose weights and ds are read along its rows. */
static void add_along(const mha_backward *call, mha_span *s, int64_t r, int64_t n, int64_t count)
{
    const mha_problem *p = &call->problem;
    int64_t D = mha_whole(call->plan.kernels, p->D), E = mha_whole(call->plan.kernels, p->E),
            height = mha_tile_height(&s->tile, r);
    mha_rows q = s->query_rows, dout = s->dout_rows;
    if (call->gradients.v.rank)
        call->plan.kernels->product_along(s->dv + n * MHA_KEYS * call->plan.Ep, call->plan.Ep, s->ones,
                                          s->tile.scores.lanes, MHA_BLOCK, dout.data + r * dout.stride, dout.stride,
                                          count, E, height);
    if (call->gradients.k.rank)
        call->plan.kernels->product_along(s->dk + n * MHA_KEYS * call->Dp, call->Dp, s->ones, s->ds, MHA_BLOCK,
                                          q.data + r * q.stride, q.stride, count, D, height);
}

/* What was wiped from dout must still show: a NaN where such a row has a weight. */
static void mark_lost(mha_span *s, int64_t r, int64_t count)
{
    float *weights = s->tile.scores.lanes;
    int64_t height = mha_tile_height(&s->tile, r);
    for (int64_t i = 0; i < count * MHA_BLOCK; i++)
        if (i % MHA_BLOCK < height && s->lost[r + i % MHA_BLOCK] && weights[i] != 0.0f) weights[i] = NAN;
}

/* The block at row r against tile n: its part of dQ, the sums for slopes, and dK and dV or, where these want P and dS
 * transposed, those: then it returns count, else 0. */
static int64_t pass_block(const mha_backward *call, mha_span *s, int64_t r, int64_t n, float *dq, float *slopes,
                          bool *broken)
{
    const mha_problem *p = &call->problem;
    mha_tile *t = &s->tile;
    int64_t height = mha_tile_height(t, r), lanes = mha_tile_lanes(t, r), count = mha_span_ds(s, call, r, n, broken);
    float distance[MHA_BLOCK];
    if (count && call->slopes) {
        mha_tile_distances(t, r, distance);
        call->plan.kernels->add_distances(slopes + r, s->ds, MHA_BLOCK, count, lanes, distance);
    }
    if (count && p->options.softcap > 0)
        call->plan.kernels->uncap(s->ds, s->capped, MHA_BLOCK, count, lanes, p->options.softcap);
    if (count && call->gradients.q.rank && t->engine) mha_span_engine_dq(s, call, r, n, count, dq + r * call->Dm);
    if (count && call->gradients.q.rank && !t->engine)
        call->plan.kernels->product(dq + r * call->Dm, MHA_BLOCK, s->ones, s->key_rows[n].data, s->key_rows[n].stride,
                                    s->ds, MHA_BLOCK, call->Dm, lanes, count);
    if (count) mha_tile_drop(t, t->scores.lanes, r, count);
    if (count && s->clean) mark_lost(s, r, count);
    if (t->engine || call->plan.kernels->along) {
        if (count && t->engine) mha_span_engine_dkv(s, call, r, n, count);
        else if (count) add_along(call, s, r, n, count);
        return 0;
    }
    lay_rows(t, s->weight_rows + r * MHA_KEYS, t->scores.lanes, height, count);
    lay_rows(t, s->ds_rows + r * MHA_KEYS, s->ds, height, count);
    return count;
}

/* The loaded rows against all tiles of the span. */
static void pass_rows(const mha_backward *call, mha_span *s, float *dq, float *slopes, bool *broken)
{
    const mha_problem *p = &call->problem;
    int64_t D = mha_whole(call->plan.kernels, p->D), E = mha_whole(call->plan.kernels, p->E), rows = s->tile.rows;
    for (int64_t n = 0; s->key + n * MHA_KEYS < s->end; n++) {
        int64_t count = 0;
        for (int64_t r = 0; r < rows; r += MHA_BLOCK) {
            int64_t here = pass_block(call, s, r, n, dq, slopes, broken);
            if (here > count) count = here;
        }
        count = (count + 3) & ~INT64_C(3);
        if (count && call->gradients.v.rank)
            call->plan.kernels->product(s->dv + n * MHA_KEYS * call->plan.Ep, call->plan.Ep, s->ones, s->weight_rows,
                                        MHA_KEYS, s->dout_rows.data, s->dout_rows.stride, count, E, rows);
        if (count && call->gradients.k.rank)
            call->plan.kernels->product(s->dk + n * MHA_KEYS * call->Dp, call->Dp, s->ones, s->ds_rows, MHA_KEYS,
                                        s->query_rows.data, s->query_rows.stride, count, D, rows);
    }
}

/* Rows [key, end) of dK or dV, from scratch or, without it, zeros. Returns whether they are finite. */
static bool write_rows(const mha_backward *call, mha_span *s, mha_tensor to, const float *from, int64_t ld,
                       float factor, int64_t key, int64_t end)
{
    const mha_tile *t = &s->tile;
    const mha_kernels *kernels = call->plan.kernels;
    int64_t g = t->first_head / call->problem.share, n = to.size[3];
    float *room = s->tile.staged;
    if (!to.rank || key >= end) return true;
    if (!from) memset(room, 0, (size_t)n * sizeof *room);
    for (int64_t j = key; j < end; j++) {
        const float *row = from && factor == 1.0f ? from + (j - key) * ld : room;
        for (int64_t d = 0; from && row == room && d < n; d++) room[d] = from[(j - key) * ld + d] * factor;
        void *at = mha_at(to, t->sequence.key_batch, g, t->sequence.key_row + j, 0);
        mha_row_store(kernels, at, to.type, to.stride[3], row, n);
    }
    return !from || isfinite(kernels->largest(from, ld, end - key, ld) * factor);
}

/* The keys of the piece that do not exist. */
static void write_beyond(const mha_backward *call, mha_span *s, const mha_piece *work, const mha_sequence *sequence,
                         int64_t g)
{
    if (work->high != sequence->length) return;
    mha_span_place(s, sequence, g * call->problem.share, call->problem.share, 0, 0);
    write_rows(call, s, call->gradients.k, NULL, 0, 0.0f, sequence->length, sequence->keys);
    write_rows(call, s, call->gradients.v, NULL, 0, 0.0f, sequence->length, sequence->keys);
}

/* One span of keys [key, end) and all rows. Returns whether its dK and dV are finite. */
static bool pass_span(const mha_backward *call, mha_span *s, const mha_sequence *sequence, int64_t g, int64_t key,
                      int64_t end, float *dq, float *slopes, bool *broken)
{
    const mha_problem *p = &call->problem;
    int64_t rows = p->share * sequence->queries, keys = (end - key + 3) & ~INT64_C(3); /* as products write them */
    mha_span_place(s, sequence, g * p->share, p->share, 0, 0);
    mha_span_keys(s, call, key, end);
    memset(s->dk, 0, (size_t)(keys * call->Dp) * sizeof(float));
    memset(s->dv, 0, (size_t)(keys * call->plan.Ep) * sizeof(float));
    for (int64_t first = 0; first < rows; first += MHA_PAIR) {
        int64_t here = rows - first < MHA_PAIR ? rows - first : MHA_PAIR;
        mha_span_place(s, sequence, g * p->share, p->share, first, here);
        if (s->tile.seen.high <= key || s->tile.seen.low >= end) continue;
        mha_span_load(s, call);
        pass_rows(call, s, dq ? dq + first * call->Dm : NULL, slopes ? slopes + first : NULL, broken);
    }
    bool finite = write_rows(call, s, call->gradients.k, s->dk, call->Dp, p->options.scale, key, end);
    return write_rows(call, s, call->gradients.v, s->dv, call->plan.Ep, call->problem.kept, key, end) && finite;
}

/* All spans of the piece. Returns whether everything is finite. */
static bool pass_piece(const mha_backward *call, mha_span *s, const mha_piece *work, int64_t g, bool *broken)
{
    mha_sequence sequence = mha_sequence_get(&call->problem, work->b);
    int64_t padded = mha_backward_padded(call, &sequence), at = work->partial + g * padded;
    int64_t width = MHA_TILES * MHA_KEYS, size = call->gradients.q.rank ? padded * call->Dm : 0;
    float *dq = size ? call->dq + at * call->Dm : NULL, *slopes = call->slopes ? call->slopes + at : NULL;
    bool finite = true;
    if (size) memset(dq, 0, (size_t)size * sizeof *dq);
    if (slopes) memset(slopes, 0, (size_t)padded * sizeof *slopes);
    for (int64_t key = work->low; key < work->high; key += width) {
        int64_t end = work->high - key < width ? work->high : key + width;
        finite = pass_span(call, s, &sequence, g, key, end, dq, slopes, broken) && finite;
    }
    write_beyond(call, s, work, &sequence, g);
    return finite && isfinite(size ? call->plan.kernels->largest(dq, size, 1, size) : 0.0f);
}

/* 0 * NaN is NaN, so a NaN in a key, query or dout reaches gradients that it should not. As in the forward pass the
 * result is looked at, and if need be the piece is done again with whatever is not finite wiped out of the factors that
 * weights and dS are multiplied by: where it counts, the weight or dS beside it is NaN already. */
void mha_backward_piece(const mha_backward *call, mha_span *s, const mha_piece *work, int64_t g)
{
    bool broken = false;
    s->clean = false;
    if (!pass_piece(call, s, work, g, &broken)) {
        s->clean = true;
        bool finite = pass_piece(call, s, work, g, &broken);
        s->clean = false;
        if (!finite) mha_backward_doubt(call, work->b, g, MHA_UNSOUND);
    }
    if (broken) mha_backward_doubt(call, work->b, g, MHA_BROKEN);
}
