/* The softmax of rows.
 *
 * A maximum and a sum, not their logarithm: m + log(sum) in float32 has no bits left for the sum when m is large, and
 * exp(s - lse) is then wrong by as much as the sum is. exp(s - m) / sum is as exact as a softmax that keeps its weights,
 * because s - m is exact for every score that matters. */
#include "cpu/attention/softmax.h"

static mha_softmax_row with_sink(const mha_tile *t, int64_t r)
{
    mha_softmax_row row = {(double)t->running.max[r], (double)t->running.total[r]};
    if (!t->problem->options.sinks.rank) return row;
    double sink = (double)*(const float *)mha_at(t->problem->options.sinks, 0, mha_tile_head(t, r), 0, 0);
    double max = fmax(row.max, sink);
    return (mha_softmax_row){max, row.sum * exp(row.max - max) + exp(sink - max)};
}

mha_softmax_row mha_softmax_of(const mha_tile *t, int64_t r)
{
    if (isfinite(t->running.max[r]) && isfinite(t->running.total[r])) return with_sink(t, r);
    mha_softmax_row row = mha_careful_softmax(t->problem, &t->sequence, mha_tile_head(t, r), mha_tile_query(t, r));
    double max = (double)(float)row.max, off = row.max - max; /* by which it moves when it is kept */
    if (row.sum == 0 || isnan(row.max)) return row;
    return fabs(off) < 64 ? (mha_softmax_row){max, row.sum * exp(off)} : (mha_softmax_row){INFINITY, row.sum};
}

/* max and total of the loaded rows over all the keys that they see. */
static void stream(mha_tile *t)
{
    for (int64_t r = 0; r < (t->rows + MHA_BLOCK - 1) / MHA_BLOCK * MHA_BLOCK; r++) {
        t->running.max[r] = -INFINITY;
        t->running.total[r] = 0.0f;
    }
    for (int64_t key = t->seen.low / MHA_KEYS * MHA_KEYS; key < t->seen.high; key += MHA_KEYS) {
        mha_tile_keys(t, key, t->seen.high - key < MHA_KEYS ? t->seen.high - key : MHA_KEYS);
        for (int64_t r = 0; r < t->rows; r += MHA_BLOCK) {
            int64_t count = mha_tile_seen(t, r);
            if (!count) continue;
            mha_tile_scores(t, r, count, MHA_STAGE_MASKED);
            if (t->scores.suspect) mha_careful_give_up(t, r, count);
            t->plan->kernels->softmax(t->scores.lanes, MHA_BLOCK, count, mha_tile_lanes(t, r), t->running.max + r,
                                      t->running.total + r, t->fade + r);
        }
    }
}

/* Returns whether the row's scores left float32. */
static bool put(mha_softmax_rows rows, int64_t at, float max, float sum)
{
    rows.max[at] = max;
    rows.factor[at] = 1.0f / sum;
    if (isfinite(max)) return false; /* as nearly all are */
    bool blind = sum == 0.0f, beyond = !blind && isinf(max);
    rows.max[at] = blind ? INFINITY : NAN;
    rows.factor[at] = blind ? 0.0f : 1.0f;
    return beyond;
}

bool mha_softmax_fill(mha_softmax_rows rows, mha_tile *t, const mha_sequence *s, int64_t h, mha_range queries,
                      bool anew)
{
    const mha_problem *p = t->problem;
    mha_tensor from = p->extras.softmax;
    bool beyond = false;
    const float *max = anew ? NULL : mha_at(from, s->query_batch, h, s->query_row, 0);
    int64_t at = mha_row_index(p, s, h, 0);
    for (int64_t i = queries.low; !anew && i < queries.high; i++)
        beyond |= put(rows, at + i, max[i * from.stride[2]], max[i * from.stride[2] + from.stride[3]]);
    for (int64_t first = queries.low; anew && first < queries.high; first += t->plan->rows) {
        int64_t left = queries.high - first;
        mha_tile_place(t, s, h, 1, first, left < t->plan->rows ? left : t->plan->rows);
        mha_tile_load(t);
        stream(t);
        for (int64_t r = 0; r < t->rows; r++) {
            mha_softmax_row row = mha_softmax_of(t, r);
            beyond |= put(rows, at + first + r, (float)row.max, (float)row.sum);
        }
    }
    return beyond;
}
