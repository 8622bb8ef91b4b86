/* A stripe of rows against the keys that they see.
 *
 * Scores come from the same tiles as everywhere; with a row's softmax known, p = exp(score - max) / sum is final at once,
 * and all sums are taken while a tile is in L1. A step has so many rows that a tile of keys is worth its loading; where heads are
 * compared, the weights of all heads for one tile of keys stay in L2 until the last of them is there. Sums over the keys
 * of a tile are float32, sums over tiles float64.
 *
 * Rows with a score that left float32 are weighed in float64, as the forward pass did. */
#include "cpu/attention/stats/stats.h"
#include <string.h>

void mha_stats_layout(mha_stats_task *task, mha_arena *arena, const mha_stats_work *call)
{
    int64_t rows = mha_arena_times(call->heads, call->plan.rows), top = mha_arena_times(rows, call->top);
    *task = (mha_stats_task){.call = call};
    mha_tile_layout(&task->tile, arena, &call->problem, &call->plan);
    MHA_TAKE(arena, task->rows, rows);
    MHA_TAKE(arena, task->top_weights, top);
    MHA_TAKE(arena, task->top_keys, top);
    if (call->pairs) MHA_TAKE(arena, task->weights, mha_arena_times(rows, MHA_KEYS));
}

/* ---- Weights ---------------------------------------------------------------------------------------------------- */

static int64_t index_of(const mha_tile *t, int64_t r)
{
    return mha_row_index(t->problem, &t->sequence, mha_tile_head(t, r), mha_tile_query(t, r));
}

static void turn_careful(const mha_tile *t, mha_row_stats *row, int64_t r)
{
    row->careful = true;
    row->softmax = mha_careful_softmax(t->problem, &t->sequence, mha_tile_head(t, r), mha_tile_query(t, r));
}

/* Rows of the block at `first` that have met a score beyond float32. */
static void look_for_broken(const mha_tile *t, mha_row_stats *rows, int64_t first, int64_t count)
{
    for (int64_t n = 0; n < count * MHA_BLOCK; n++) {
        int64_t r = first + n % MHA_BLOCK;
        if (r >= t->rows || !t->scores.broken[n] || rows[r].careful) continue;
        if (mha_careful_sees(t->problem, &t->sequence, mha_tile_head(t, r), mha_tile_query(t, r),
                             t->keys.first + n / MHA_BLOCK))
            turn_careful(t, &rows[r], r);
    }
}

/* Row r by float64, over the first `count` keys at work; returns its largest weight there. */
static float weigh_carefully(mha_tile *t, mha_row_stats *row, int64_t r, int64_t count)
{
    const mha_problem *p = t->problem;
    int64_t h = mha_tile_head(t, r), i = mha_tile_query(t, r);
    double largest = 0;
    for (int64_t j = 0; j < count; j++) {
        double score = mha_careful_score(p, &t->sequence, h, i, t->keys.first + j, MHA_STAGE_MASKED);
        double w = mha_careful_weight(p, &t->sequence, h, i, t->keys.first + j, score, row->softmax, false);
        t->scores.lanes[j * MHA_BLOCK + r % MHA_BLOCK] = (float)w;
        row->total += w;
        row->squares += w * w;
        if (w != 0) row->log_sum += w * (score - row->softmax.max);
        if (!(w <= largest)) largest = w;
    }
    return (float)largest;
}

/* The block at `first` against the first `count` keys at work: weights in `scores`, their sums in `rows`, and the
 * largest of each row in these keys. */
static void weigh(const mha_stats_work *c, mha_tile *t, mha_row_stats *rows, int64_t first, int64_t count,
                  float largest[MHA_BLOCK])
{
    float max[MHA_BLOCK], factor[MHA_BLOCK], total[MHA_BLOCK], log_sum[MHA_BLOCK], squares[MHA_BLOCK];
    int64_t height = mha_tile_height(t, first);
    mha_tile_scores(t, first, count, MHA_STAGE_MASKED);
    if (t->scores.suspect) look_for_broken(t, rows, first, count);
    for (int64_t i = 0; i < MHA_BLOCK; i++) {
        bool usual = i < height && !rows[first + i].careful;
        max[i] = usual ? c->softmax.max[index_of(t, first + i)] : INFINITY;
        factor[i] = usual ? c->softmax.factor[index_of(t, first + i)] : 0.0f;
    }
    t->plan->kernels->tally(t->scores.lanes, MHA_BLOCK, count, mha_tile_lanes(t, first), max, factor, total, log_sum,
                            squares, largest);
    for (int64_t i = 0; i < height; i++) {
        mha_row_stats *row = &rows[first + i];
        if (row->careful) {
            largest[i] = weigh_carefully(t, row, first + i, count);
        } else {
            row->total += (double)total[i];
            row->log_sum += (double)log_sum[i];
            row->squares += (double)squares[i];
        }
        if (!(largest[i] <= row->largest)) row->largest = largest[i];
    }
}

/* ---- What is made of them, a block at a time -------------------------------------------------------------------- */

static void add_in_line(mha_tile *t, mha_row_stats *rows, int64_t first, int64_t count)
{
    float sum[MHA_BLOCK] = {0}, distance[MHA_BLOCK];
    mha_tile_distances(t, first, distance);
    t->plan->kernels->add_distances(sum, t->scores.lanes, MHA_BLOCK, count, mha_tile_lanes(t, first), distance);
    for (int64_t i = 0; i < mha_tile_height(t, first); i++) {
        rows[first + i].distance += (double)sum[i];
        rows[first + i].placed = rows[first + i].total;
    }
}

static void add_on_grid(const mha_stats_work *c, mha_tile *t, mha_row_stats *rows, int64_t first, int64_t count)
{
    int64_t columns = c->options.grid_columns, start = c->options.grid_first - t->keys.first,
            height = mha_tile_height(t, first);
    float row[MHA_BLOCK] = {0}, column[MHA_BLOCK] = {0}, sum[MHA_BLOCK], total[MHA_BLOCK];
    float key_row[MHA_KEYS], key_column[MHA_KEYS];
    if (start < 0) start = 0; /* keys before it have no place */
    if (start >= count) return;
    for (int64_t j = start; j < count; j++) {
        int64_t place = t->keys.first + j - c->options.grid_first, down = place / columns;
        key_row[j] = (float)down;
        key_column[j] = (float)(place - down * columns);
    }
    int64_t before = c->options.grid_first - t->sequence.offset - mha_tile_query(t, first); /* rows without a place */
    for (int64_t i = before < 0 ? 0 : before; i < height; i++) {
        int64_t place = i - before, down = place / columns;
        row[i] = (float)down;
        column[i] = (float)(place - down * columns);
    }
    t->plan->kernels->sum_grid_distances(sum, total, t->scores.lanes + start * MHA_BLOCK, MHA_BLOCK, count - start,
                                         mha_tile_lanes(t, first), row, column, key_row + start, key_column + start);
    for (int64_t i = before < 0 ? 0 : before; i < height; i++) {
        rows[first + i].distance += (double)sum[i];
        rows[first + i].placed += (double)total[i];
    }
}

/* Where the numbers of row r of the tile lie in a tensor of rows. */
static float *row_at(mha_tensor to, const mha_tile *t, int64_t r, int64_t n)
{
    const mha_sequence *s = &t->sequence;
    return mha_at(to, s->query_batch, mha_tile_head(t, r), s->query_row + mha_tile_query(t, r), n);
}

static void add_mass(const mha_stats_work *c, const mha_tile *t, int64_t first, int64_t count)
{
    mha_tensor to = c->want.mass, sets = c->options.sets;
    int64_t lanes = mha_tile_lanes(t, first);
    for (int64_t i = 0; i < mha_tile_height(t, first); i++) {
        int64_t position = mha_tile_query(t, first + i) + t->sequence.offset;
        const int64_t keys[4] = {position, position - 1, position + 1, 0};
        for (int n = 0; n < 4; n++)
            if (keys[n] >= t->keys.first && keys[n] < t->keys.first + count)
                *row_at(to, t, first + i, n) = t->scores.lanes[(keys[n] - t->keys.first) * MHA_BLOCK + i];
    }
    for (int64_t n = 0; n < to.size[3] - 4; n++) {
        float sum[MHA_BLOCK] = {0};
        for (int64_t j = 0; j < count; j++) {
            if (!*(const uint8_t *)mha_at(sets, n, t->keys.first + j, 0, 0)) continue;
            for (int64_t i = 0; i < lanes; i++) sum[i] += t->scores.lanes[j * MHA_BLOCK + i];
        }
        for (int64_t i = 0; i < mha_tile_height(t, first); i++) *row_at(to, t, first + i, 4 + n) += sum[i];
    }
}

/* Sorts the weights of a row into its list, which is of `top` numbers, largest first. */
static void add_top(const mha_stats_task *k, int64_t list, int64_t lane, int64_t count)
{
    int64_t top = k->call->top, *keys = k->top_keys + list * top;
    float *weights = k->top_weights + list * top;
    for (int64_t j = 0; j < count; j++) {
        float w = k->tile.scores.lanes[j * MHA_BLOCK + lane];
        int64_t n = top;
        if (!(w > weights[top - 1])) continue;
        for (; n > 1 && w > weights[n - 2]; n--) weights[n - 1] = weights[n - 2], keys[n - 1] = keys[n - 2];
        weights[n - 1] = w;
        keys[n - 1] = k->tile.keys.first + j;
    }
}

/* The row of the heatmap that query i adds to: in the output, or beside it while another stripe may be at it. */
static float *heat_at(const mha_stats_work *c, const mha_sequence *s, int64_t h, int64_t stripe, int64_t i,
                      int64_t *stride)
{
    int64_t row = mha_heat_row(c, s, i), first = stripe * mha_stripe_rows(c, s);
    bool edge = first > 0 && mha_heat_row(c, s, first - 1) == row;
    *stride = edge ? 1 : c->want.heatmap.stride[3];
    return edge ? c->edges + mha_stripe_index(c, s->b, h, stripe) * c->want.heatmap.size[3]
                : mha_at(c->want.heatmap, s->b, h, row, 0);
}

/* Numbers of neighbouring keys onto a row of the heatmap. */
static void add_heat(const mha_stats_work *c, const mha_tile *t, float *to, int64_t stride, const float *from,
                     int64_t count)
{
    if (c->want.heatmap.size[3] == t->sequence.length) {
        to += t->keys.first * stride;
        for (int64_t j = 0; stride == 1 && j < count; j++) to[j] += from[j];
        for (int64_t j = 0; stride != 1 && j < count; j++) to[j * stride] += from[j];
        return;
    }
    for (int64_t j = 0; j < count;) {
        int64_t column = mha_heat_column(c, &t->sequence, t->keys.first + j);
        float sum = 0;
        for (; j < count && mha_heat_column(c, &t->sequence, t->keys.first + j) == column; j++) sum += from[j];
        to[column * stride] += sum;
    }
}

/* One block's sums for the keys at work, in fixed point. Weights of a softmax that is none may be of any size: a sum that
 * is larger than there are rows is no sum of weights. */
static void receive(mha_stats_task *k, const float *sum, int64_t count)
{
    int64_t queries = k->tile.sequence.queries;
    double units = 1 / mha_received_unit(&k->tile.sequence),
           most = 1.01 * (double)(queries < MHA_BLOCK ? queries : MHA_BLOCK);
    for (int64_t j = 0; j < count; j++) {
        if (sum[j] >= 0 && (double)sum[j] <= most) k->received[j] += (int64_t)((double)sum[j] * units);
        else k->received[j] |= INT64_MIN;
    }
}

/* A step's sums to everybody's. */
static void hand_over(mha_stats_task *k, int64_t h)
{
    const mha_stats_work *c = k->call;
    atomic_llong *to = c->received + (k->tile.sequence.b * c->problem.H + h) * c->problem.Tk + k->tile.keys.first;
    for (int64_t j = 0; j < k->tile.keys.count; j++) {
        int64_t sum = k->received[j];
        k->received[j] = 0;
        if (sum > 0) atomic_fetch_add_explicit(&to[j], sum, memory_order_relaxed);
        else if (sum < 0) atomic_fetch_or_explicit(&to[j], INT64_MIN, memory_order_relaxed);
    }
}

/* Sums over the rows of a block: what keys received, and the heatmap if all rows add to one row of it. */
static void add_columns(mha_stats_task *k, int64_t stripe, int64_t first, int64_t count)
{
    const mha_stats_work *c = k->call;
    mha_tile *t = &k->tile;
    const mha_sequence *s = &t->sequence;
    const mha_kernels *kernels = t->plan->kernels;
    int64_t h = t->first_head, height = mha_tile_height(t, first), i = t->first + first, stride;
    bool heat = c->want.heatmap.rank != 0;
    bool one = heat && mha_heat_row(c, s, i) == mha_heat_row(c, s, i + height - 1);
    if (c->want.received.rank || one) {
        float sum[MHA_KEYS + MHA_PAD];
        kernels->sum_across(sum, t->scores.lanes, MHA_BLOCK, count, mha_tile_lanes(t, first));
        if (c->want.received.rank) receive(k, sum, count);
        if (one) {
            float *to = heat_at(c, s, h, stripe, i, &stride);
            add_heat(c, t, to, stride, sum, count);
        }
    }
    if (!heat || one) return;
    kernels->transpose(t->staged, MHA_KEYS, t->scores.lanes, MHA_BLOCK, count, height, NULL);
    for (int64_t r = 0; r < height; r++) {
        float *to = heat_at(c, s, h, stripe, i + r, &stride);
        add_heat(c, t, to, stride, t->staged + r * MHA_KEYS, count);
    }
}

/* ---- Steps ------------------------------------------------------------------------------------------------------ */

/* The rows of one head against the keys at work; `n` counts the heads of the piece. */
static void add_head(mha_stats_task *k, int64_t n, int64_t stripe)
{
    const mha_stats_work *c = k->call;
    mha_tile *t = &k->tile;
    mha_row_stats *rows = k->rows + n * c->plan.rows;
    for (int64_t first = 0; first < t->rows; first += MHA_BLOCK) {
        float largest[MHA_BLOCK];
        int64_t count = mha_tile_seen(t, first);
        if (!count) continue;
        weigh(c, t, rows, first, count, largest);
        if (c->want.distance.rank && c->options.grid_columns) add_on_grid(c, t, rows, first, count);
        else if (c->want.distance.rank) add_in_line(t, rows, first, count);
        if (c->want.mass.rank) add_mass(c, t, first, count);
        for (int64_t i = 0; c->top && i < mha_tile_height(t, first); i++) {
            int64_t list = n * c->plan.rows + first + i;
            if (largest[i] > k->top_weights[list * c->top + c->top - 1]) add_top(k, list, i, count);
        }
        add_columns(k, stripe, first, count);
        if (c->pairs)
            memcpy(k->weights + (n * c->plan.rows + first) * MHA_KEYS, t->scores.lanes,
                   (size_t)(count * MHA_BLOCK) * sizeof *t->scores.lanes);
    }
    if (c->want.received.rank) hand_over(k, t->first_head);
}

/* Every head's weights for the keys at work against every other's. */
static void compare(const mha_stats_task *k, double *pair)
{
    const mha_stats_work *c = k->call;
    const mha_tile *t = &k->tile;
    int64_t H = c->problem.H;
    for (int64_t first = 0; first < t->rows; first += MHA_BLOCK) {
        int64_t count = mha_tile_seen(t, first), lanes = mha_tile_lanes(t, first);
        const float *tiles = k->weights + first * MHA_KEYS;
        for (int64_t a = 0; count && a < H; a++)
            for (int64_t b = a + 1; b < H; b++) {
                float log_sum[MHA_BLOCK] = {0}, dot[MHA_BLOCK] = {0};
                double *sums = pair + (a * H + b) * 2;
                c->plan.kernels->add_pair(log_sum, dot, tiles + a * c->plan.rows * MHA_KEYS,
                                          tiles + b * c->plan.rows * MHA_KEYS, MHA_BLOCK, count, lanes);
                for (int64_t i = 0; i < lanes; i++) {
                    sums[0] += (double)log_sum[i];
                    sums[1] += (double)dot[i];
                }
            }
    }
}

static void begin_rows(mha_stats_task *k, int64_t n)
{
    const mha_stats_work *c = k->call;
    for (int64_t r = 0; r < k->tile.rows; r++) {
        int64_t list = (n * c->plan.rows + r) * c->top;
        mha_row_stats *row = &k->rows[n * c->plan.rows + r];
        *row = (mha_row_stats){0};
        if (isnan(c->softmax.max[index_of(&k->tile, r)])) turn_careful(&k->tile, row, r);
        for (int64_t i = 0; i < c->top; i++) k->top_weights[list + i] = 0, k->top_keys[list + i] = -1;
        for (int64_t i = 0; c->want.mass.rank && i < c->want.mass.size[3]; i++)
            *row_at(c->want.mass, &k->tile, r, i) = 0;
    }
}

static double log_of_sum(const mha_stats_task *k, const mha_row_stats *row, int64_t r)
{
    if (row->careful) return log(row->softmax.sum);
    double factor = (double)k->call->softmax.factor[index_of(&k->tile, r)];
    return factor > 0 ? -log(factor) : 0; /* 0: it sees no key */
}

static void finish_rows(mha_stats_task *k, int64_t n, double *whole)
{
    const mha_stats_work *c = k->call;
    const mha_stats *w = &c->want;
    for (int64_t r = 0; r < k->tile.rows; r++) {
        mha_row_stats *row = &k->rows[n * c->plan.rows + r];
        int64_t list = (n * c->plan.rows + r) * c->top;
        row->log_sum -= log_of_sum(k, row, r) * row->total; /* log p = s - max - log(sum) */
        if (w->entropy.rank) *row_at(w->entropy, &k->tile, r, 0) = (float)(0 - row->log_sum);
        if (w->effective.rank)
            *row_at(w->effective, &k->tile, r, 0) = (float)(row->squares != 0 ? 1 / row->squares : 0);
        if (w->largest.rank) *row_at(w->largest, &k->tile, r, 0) = row->largest;
        if (w->distance.rank)
            *row_at(w->distance, &k->tile, r, 0) = (float)(row->placed != 0 ? row->distance / row->placed : 0);
        for (int64_t i = 0; w->top_weights.rank && i < c->top; i++)
            *row_at(w->top_weights, &k->tile, r, i) = k->top_weights[list + i];
        for (int64_t i = 0; w->top_keys.rank && i < c->top; i++)
            *(int64_t *)(void *)row_at(w->top_keys, &k->tile, r, i) = k->top_keys[list + i];
        if (!whole) continue;
        whole[n * 3] += row->total;
        whole[n * 3 + 1] += row->log_sum;
        whole[n * 3 + 2] += row->squares;
    }
}

/* Makes head n of the piece the one of the tile. Returns whether it was another one. */
static bool select_head(mha_stats_task *k, const mha_sequence *s, int64_t head, int64_t n, int64_t first, int64_t rows)
{
    if (k->at == n) return false;
    mha_tile_place(&k->tile, s, head + n, 1, first, rows);
    k->at = n;
    return true;
}

/* Rows [first, first + rows) of a stripe. */
static void step(mha_stats_task *k, const mha_sequence *s, int64_t head, int64_t stripe, int64_t first, int64_t rows)
{
    const mha_stats_work *c = k->call;
    mha_tile *t = &k->tile;
    int64_t H = c->problem.H, index = s->b * c->stripes + stripe;
    k->at = -1;
    for (int64_t n = 0; n < c->heads; n++) {
        select_head(k, s, head, n, first, rows);
        begin_rows(k, n);
    }
    bool loaded = false;
    for (int64_t key = t->seen.low / MHA_KEYS * MHA_KEYS; key < t->seen.high; key += MHA_KEYS) {
        int64_t count = t->seen.high - key < MHA_KEYS ? t->seen.high - key : MHA_KEYS;
        for (int64_t n = 0; n < c->heads; n++) {
            if (select_head(k, s, head, n, first, rows) || !loaded) mha_tile_load(t);
            loaded = true;
            mha_tile_keys(t, key, count);
            add_head(k, n, stripe);
        }
        if (c->pairs) compare(k, c->pair + index * H * H * 2);
    }
    for (int64_t n = 0; n < c->heads; n++) {
        select_head(k, s, head, n, first, rows);
        finish_rows(k, n, c->pairs ? c->whole + index * H * 3 : NULL);
    }
}

/* Zeros where a stripe of head h adds to: its edge, and the rows of the heatmap that begin in it. */
static void clear(const mha_stats_work *c, const mha_sequence *s, int64_t h, int64_t stripe)
{
    mha_tensor heat = c->want.heatmap;
    int64_t index = mha_stripe_index(c, s->b, h, stripe);
    int64_t first = stripe * mha_stripe_rows(c, s), end = first + mha_stripe_rows(c, s);
    if (!heat.rank) return;
    memset(c->edges + index * heat.size[3], 0, (size_t)heat.size[3] * sizeof *c->edges);
    int64_t low = first ? mha_heat_row(c, s, first - 1) + 1 : 0;
    int64_t high = end < s->queries ? mha_heat_row(c, s, end - 1) : heat.size[2] - 1;
    for (int64_t row = low; row <= high; row++) {
        float *to = mha_at(heat, s->b, h, row, 0);
        if (heat.stride[3] == 1) memset(to, 0, (size_t)heat.size[3] * sizeof *to);
        else
            for (int64_t j = 0; j < heat.size[3]; j++) to[j * heat.stride[3]] = 0;
    }
}

void mha_stats_stripe(mha_stats_task *k, const mha_sequence *s, int64_t head, int64_t stripe)
{
    const mha_stats_work *c = k->call;
    int64_t rows = mha_stripe_rows(c, s), first = stripe * rows, H = c->problem.H;
    int64_t end = first + rows < s->queries ? first + rows : s->queries;
    for (int64_t n = 0; n < c->heads; n++) clear(c, s, head + n, stripe);
    if (c->pairs) {
        int64_t index = s->b * c->stripes + stripe;
        memset(c->whole + index * H * 3, 0, (size_t)(H * 3) * sizeof *c->whole);
        memset(c->pair + index * H * H * 2, 0, (size_t)(H * H * 2) * sizeof *c->pair);
    }
    for (int64_t row = first; row < end; row += c->plan.rows)
        step(k, s, head, stripe, row, end - row < c->plan.rows ? end - row : c->plan.rows);
}
