/* Attention forward, fused: no Tq x Tk buffer.
 *
 *     for each tile of keys:                                   max, total, sums start at -inf, 0, 0
 *         S = scale Q K^T, softcap, bias, mask                 a block of rows at a time, in L1
 *         max' = max(max, rows of S),  P = exp(S - max')
 *         fade = exp(max - max'),  total = fade total + P 1
 *         sums = fade sums + dropout(P) V
 *     out = sums / total
 *
 * Every piece of work owns its rows of `out`, so threads never meet and results do not depend on their number. Tiles
 * start at multiples of their size, and products run over keys in order, so the bits of a row do not depend on the rows
 * beside it either: keys that a row does not see add exact zeros.
 *
 * That last sentence fails when a hidden value is infinite or NaN, for 0 * inf is NaN. Testing every V in advance would
 * cost everyone, so the result is tested instead: a piece with a row that is not finite is done again with the unseen
 * values of each row wiped out (same bits for all else), and rows that are still not finite go the careful way. */
#include "attention/careful.h"
#include "attention/forward.h"
#include "core/half.h"
#include <stdio.h>
#include <string.h>

typedef struct job {
    const mha_problem *problem;
    const mha_plan *plan;
    mha_shared shared;
    mha_queue queue;
} job;

/* sums = fade sums + P V with a V in which the keys that row r gave no weight are zero. */
static void add_clean_values(mha_tile *t, int64_t r, const float *p, int64_t count)
{
    int64_t Ep = t->plan->Ep, deep = (count + 3) & ~INT64_C(3);
    for (int64_t j = 0; j < deep; j++) {
        if (p[j] != 0.0f) memcpy(t->clean + j * Ep, t->values + j * Ep, (size_t)Ep * sizeof(float));
        else memset(t->clean + j * Ep, 0, (size_t)Ep * sizeof(float));
    }
    t->problem->kernels->product(t->sums + r * Ep, Ep, t->fade + r, p, t->plan->keys, t->clean, Ep, 1, Ep, deep);
}

/* A row that sees a score which left float32 cannot be trusted any more, even if softcap made it look harmless: a NaN
 * as its maximum sends it the careful way. */
static void give_up_broken(mha_tile *t, int64_t r, int64_t rows, int64_t count)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < count; j++)
            if (t->broken[i * t->plan->keys + j] && mha_careful_sees(t->problem, &t->sequence, mha_tile_head(t, r + i),
                                                                     mha_tile_query(t, r + i), t->key + j))
                t->max[r + i] = NAN;
}

/* Rows [r, r + rows) against the loaded tile. */
static void attend_block(mha_tile *t, int64_t r, int64_t rows, bool clean)
{
    const mha_problem *p = t->problem;
    int64_t low = INT64_MAX, high = 0, width = t->plan->keys, Ep = t->plan->Ep;
    for (int64_t i = r; i < r + rows; i++) {
        if (t->ranges[i].low < low) low = t->ranges[i].low;
        if (t->ranges[i].high > high) high = t->ranges[i].high;
    }
    if (high <= t->key || low >= t->key + t->count) return;
    int64_t count = high - t->key < t->count ? high - t->key : t->count, padded = mha_padded(count);
    mha_tile_scores(t, r, rows, count, MHA_STAGE_MASKED);
    if (t->suspect) give_up_broken(t, r, rows, count);
    p->kernels->softmax(t->scores, width, rows, padded, t->max + r, t->total + r, t->fade + r);
    for (int64_t i = 0; p->options.dropout > 0 && i < rows; i++) {
        mha_drop_row row = mha_drop_row_get(p, &t->sequence, mha_tile_head(t, r + i), mha_tile_query(t, r + i));
        p->kernels->drop(t->scores + i * width, padded, t->key, &row);
    }
    if (!clean)
        p->kernels->product(t->sums + r * Ep, Ep, t->fade + r, t->scores, width, t->values, Ep, rows, Ep,
                            (count + 3) & ~INT64_C(3));
    for (int64_t i = 0; clean && i < rows; i++) add_clean_values(t, r + i, t->scores + i * width, count);
}

static void attend(mha_tile *t, bool clean)
{
    int64_t tile = t->plan->keys, block = t->plan->block;
    for (int64_t r = 0; r < t->rows; r++) {
        t->max[r] = -INFINITY;
        t->total[r] = 0.0f;
    }
    memset(t->sums, 0, (size_t)(t->rows * t->plan->Ep) * sizeof(float));
    for (int64_t key = t->seen.low / tile * tile; key < t->seen.high; key += tile) {
        mha_tile_keys(t, key, t->seen.high - key < tile ? t->seen.high - key : tile);
        mha_tile_values(t);
        for (int64_t r = 0; r < t->rows; r += block)
            attend_block(t, r, t->rows - r < block ? t->rows - r : block, clean);
    }
}

static bool is_sound(const mha_tile *t, int64_t r)
{
    return isfinite(t->max[r]) && isfinite(t->total[r]) &&
           t->problem->kernels->finite(t->sums + r * t->plan->Ep, t->plan->Ep);
}

/* Whether some row's softmax is sound but its values are not: the mark of a hidden NaN. */
static bool needs_cleaning(const mha_tile *t)
{
    for (int64_t r = 0; r < t->rows; r++)
        if (isfinite(t->max[r]) && isfinite(t->total[r]) && !is_sound(t, r)) return true;
    return false;
}

/* What a finished row leaves behind. */
typedef struct outcome {
    float max, factor; /* weights are exp(score - max) * factor; a max of NaN sends maps the careful way */
    double lse;
} outcome;

/* sums becomes the row of `out`: divided by the total, with the sink's share in it, and by what dropout keeps. */
static outcome finish_sound(mha_tile *t, int64_t r)
{
    const mha_attention_options *o = &t->problem->options;
    double max = (double)t->max[r], total = (double)t->total[r], shrink = 1;
    if (o->sinks.rank) {
        double sink = (double)*(const float *)mha_at(o->sinks, 0, mha_tile_head(t, r), 0, 0), top = fmax(max, sink);
        shrink = exp(max - top);
        total = total * shrink + exp(sink - top);
        max = top;
    }
    double kept = o->dropout < 1 ? 1 / (1 - (double)o->dropout) : 0;
    t->problem->kernels->multiply(t->sums + r * t->plan->Ep, t->plan->Ep, (float)(kept * shrink / total));
    return (outcome){t->max[r], (float)(shrink / total), t->problem->extras.lse.rank ? max + log(total) : 0};
}

/* A row that sees nothing, or one that float32 could not hold. */
static outcome finish_careful(mha_tile *t, int64_t r)
{
    int64_t h = mha_tile_head(t, r), i = mha_tile_query(t, r);
    float *sums = t->sums + r * t->plan->Ep;
    mha_careful_row row = mha_careful_softmax(t->problem, &t->sequence, h, i);
    memset(sums, 0, (size_t)t->plan->Ep * sizeof *sums);
    if (row.max == -INFINITY) return (outcome){0.0f, 0.0f, -INFINITY};
    mha_careful_values(t->wide, t->problem, &t->sequence, h, i, row);
    for (int64_t e = 0; e < t->problem->E; e++) sums[e] = (float)t->wide[e];
    return (outcome){NAN, NAN, row.max + log(row.sum)};
}

/* All rows are finished before the first is stored: `out` may be `q`, which the careful way still reads. */
static void finish(mha_tile *t, const mha_shared *shared)
{
    const mha_problem *p = t->problem;
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t h = mha_tile_head(t, r), i = mha_tile_query(t, r), row = t->sequence.query_row + i;
        outcome end = is_sound(t, r) ? finish_sound(t, r) : finish_careful(t, r);
        if (p->extras.lse.rank) *(float *)mha_at(p->extras.lse, t->sequence.query_batch, h, row, 0) = (float)end.lse;
        if (shared->max) {
            shared->max[mha_row_index(p, &t->sequence, h, i)] = end.max;
            shared->factor[mha_row_index(p, &t->sequence, h, i)] = end.factor;
        }
    }
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t row = t->sequence.query_row + mha_tile_query(t, r);
        void *to = mha_at(p->out, t->sequence.query_batch, mha_tile_head(t, r), row, 0);
        mha_row_store(p->kernels, to, p->out.type, p->out.stride[3], t->sums + r * t->plan->Ep, p->E);
    }
}

static void forward_task(void *arg, int task)
{
    job *j = arg;
    const mha_problem *p = j->problem;
    mha_tile tile;
    mha_tile_layout(&tile, p->ctx->scratch + (size_t)task * j->plan->task_bytes, p, j->plan);
    for (int64_t piece; (piece = mha_queue_take(&j->queue)) >= 0;) {
        const mha_piece *work = &j->shared.order[piece / p->G];
        mha_sequence sequence = mha_sequence_get(p, work->b);
        mha_tile_rows(&tile, &sequence, piece % p->G * p->share, p->share, work->first, work->rows);
        attend(&tile, false);
        if (needs_cleaning(&tile)) attend(&tile, true);
        finish(&tile, &j->shared);
    }
}

/* Everything a call needs before it may write: checked arguments, a plan, memory. */
static mha_status prepare(mha_problem *problem, mha_plan *plan)
{
    if (!mha_plan_make(plan, problem))
        return mha_fail(problem->ctx, MHA_TOO_LARGE, "q, k, v: their sizes need more scratch than memory can have");
    return MHA_OK;
}

mha_status mha_attention_forward(mha_context *ctx, mha_tensor out, const mha_attention_extras *extras, mha_tensor q,
                                 mha_tensor k, mha_tensor v, const mha_attention_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_problem problem;
    mha_plan plan;
    mha_status status = mha_problem_make(&problem, ctx, MHA_OUTPUT, out, extras, q, k, v, options);
    if (!status) status = prepare(&problem, &plan);
    if (!status) status = mha_scratch_reserve(ctx, plan.total_bytes);
    if (status) return status;
    job j = {.problem = &problem, .plan = &plan, .shared = mha_plan_shared(&plan, &problem)};
    j.queue.count = plan.pieces * problem.G;
    if (j.queue.count) mha_parallel_run(ctx, plan.tasks, forward_task, &j);
    if (plan.maps) mha_maps_write(&problem, &plan, &j.shared);
    return MHA_OK;
}

mha_status mha_attention_explain(mha_context *ctx, mha_attention_plan *answer, mha_tensor out,
                                 const mha_attention_extras *extras, mha_tensor q, mha_tensor k, mha_tensor v,
                                 const mha_attention_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    if (!answer) return mha_fail(ctx, MHA_BAD_ARGUMENT, "plan: is NULL");
    mha_problem problem;
    mha_plan plan;
    mha_status status = mha_problem_make(&problem, ctx, MHA_SHAPE, out, extras, q, k, v, options);
    if (!status) status = prepare(&problem, &plan);
    if (status) return status;
    bool widened = q.type != MHA_FLOAT32 || k.type != MHA_FLOAT32 || v.type != MHA_FLOAT32;
    *answer = (mha_attention_plan){.isa = ctx->kernels->name,
                                   .kernel = widened ? "fused-widened" : "fused",
                                   .threads = plan.tasks,
                                   .tile_rows = plan.rows,
                                   .tile_keys = plan.keys,
                                   .pieces = plan.pieces * problem.G,
                                   .scratch_bytes = plan.total_bytes};
    snprintf(answer->why, sizeof answer->why, "%s is the context's instruction set; %s%s", ctx->kernels->name,
             widened ? "16-bit inputs are widened to float32 as tiles are packed" : "inputs are float32",
             plan.maps ? "; weights or scores take a second pass" : "");
    return MHA_OK;
}
