/* Attention forward, fused: no Tq x Tk buffer.
 *
 *     for each tile of keys:                                   max, total, sums start at -inf, 0, 0
 *         S = scale K Q^T, softcap, bias, mask                 a block of rows at a time, in L1
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
#include <stdio.h>
#include <string.h>

typedef struct job {
    const mha_problem *problem;
    const mha_plan *plan;
    mha_shared shared;
    mha_queue queue;
} job;

/* sums = fade sums + V^T P for row r alone, with a V in which the keys that it gave no weight are zero. The whole vector
 * that its lane is in goes along; only that lane is kept. */
static void add_clean_values(mha_tile *t, int64_t r, int64_t count)
{
    int64_t Em = t->plan->Em, lanes = t->problem->kernels->lanes, lane = r % MHA_BLOCK, base = lane / lanes * lanes;
    float *sums = mha_tile_sums(t, r - lane) + base, *copy = t->staged;
    const float *p = t->scores + base;
    for (int64_t j = 0; j < count; j++) {
        float *to = t->clean + j * Em;
        if (p[j * MHA_BLOCK + lane - base] != 0.0f)
            memcpy(to, t->values + j * t->value_stride, (size_t)Em * sizeof *to);
        else memset(to, 0, (size_t)Em * sizeof *to);
    }
    for (int64_t e = 0; e < Em; e++) memcpy(copy + e * lanes, sums + e * MHA_BLOCK, (size_t)lanes * sizeof *copy);
    t->problem->kernels->product(copy, lanes, t->fade + r - lane + base, t->clean, Em, p, MHA_BLOCK, Em, lanes, count);
    for (int64_t e = 0; e < Em; e++) sums[e * MHA_BLOCK + lane - base] = copy[e * lanes + lane - base];
}

/* A row that sees a score which left float32 cannot be trusted any more, even if softcap made it look harmless: a NaN
 * as its maximum sends it the careful way. */
static void give_up_broken(mha_tile *t, int64_t r, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < mha_tile_height(t, r); i++)
            if (t->broken[j * MHA_BLOCK + i] && mha_careful_sees(t->problem, &t->sequence, mha_tile_head(t, r + i),
                                                                 mha_tile_query(t, r + i), t->key + j))
                t->max[r + i] = NAN;
}

/* The block that starts at row r against the loaded tile. */
static void attend_block(mha_tile *t, int64_t r, bool clean)
{
    const mha_problem *p = t->problem;
    int64_t low = INT64_MAX, high = 0, height = mha_tile_height(t, r), lanes = mha_tile_lanes(t, r);
    for (int64_t i = r; i < r + height; i++) {
        if (t->ranges[i].low < low) low = t->ranges[i].low;
        if (t->ranges[i].high > high) high = t->ranges[i].high;
    }
    if (high <= t->key || low >= t->key + t->count) return;
    int64_t count = high - t->key < t->count ? high - t->key : t->count;
    mha_tile_scores(t, r, count, MHA_STAGE_MASKED);
    if (t->suspect) give_up_broken(t, r, count);
    p->kernels->softmax(t->scores, MHA_BLOCK, count, lanes, t->max + r, t->total + r, t->fade + r);
    mha_tile_drop(t, r, count);
    if (!clean)
        p->kernels->product(mha_tile_sums(t, r), MHA_BLOCK, t->fade + r, t->values, t->value_stride, t->scores,
                            MHA_BLOCK, t->plan->Em, lanes, count);
    for (int64_t i = 0; clean && i < height; i++) add_clean_values(t, r + i, count);
}

static void attend(mha_tile *t, bool clean)
{
    int64_t lanes = (t->rows + MHA_BLOCK - 1) / MHA_BLOCK * MHA_BLOCK;
    for (int64_t r = 0; r < lanes; r++) {
        t->max[r] = -INFINITY;
        t->total[r] = 0.0f;
    }
    memset(t->sums, 0, (size_t)(lanes * t->plan->Em) * sizeof(float));
    for (int64_t key = t->seen.low / MHA_KEYS * MHA_KEYS; key < t->seen.high; key += MHA_KEYS) {
        mha_tile_keys(t, key, t->seen.high - key < MHA_KEYS ? t->seen.high - key : MHA_KEYS);
        mha_tile_values(t);
        for (int64_t r = 0; r < t->rows; r += MHA_BLOCK) attend_block(t, r, clean);
    }
}

/* Whether the softmax of a row is sound. */
static bool has_softmax(const mha_tile *t, int64_t r) { return isfinite(t->max[r]) && isfinite(t->total[r]); }

/* Whether some row's softmax is sound but its values are not: the mark of a hidden NaN. */
static bool needs_cleaning(const mha_tile *t)
{
    for (int64_t r = 0; r < t->rows; r += MHA_BLOCK) {
        float unsound[MHA_BLOCK];
        t->problem->kernels->unsound(unsound, mha_tile_sums(t, r), MHA_BLOCK, t->plan->Em, mha_tile_lanes(t, r));
        for (int64_t i = 0; i < mha_tile_height(t, r); i++)
            if (has_softmax(t, r + i) && unsound[i] != 0.0f) return true;
    }
    return false;
}

/* What a finished row leaves behind. */
typedef struct outcome {
    float max, factor; /* weights are exp(score - max) * factor; a max of NaN sends maps the careful way */
    double lse;
} outcome;

/* row (E) becomes the row of `out`: divided by the total, with the sink's share in it, and by what dropout keeps. */
static outcome finish_sound(mha_tile *t, int64_t r, float *row)
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
    float factor = (float)(kept * shrink / total);
    for (int64_t e = 0; e < t->problem->E; e++) row[e] *= factor;
    return (outcome){t->max[r], (float)(shrink / total), t->problem->extras.lse.rank ? max + log(total) : 0};
}

/* A row that sees nothing, or one that float32 could not hold. */
static outcome finish_careful(mha_tile *t, int64_t r, float *row)
{
    int64_t h = mha_tile_head(t, r), i = mha_tile_query(t, r);
    mha_careful_row soft = mha_careful_softmax(t->problem, &t->sequence, h, i);
    memset(row, 0, (size_t)t->problem->E * sizeof *row);
    if (soft.max == -INFINITY) return (outcome){0.0f, 0.0f, -INFINITY};
    mha_careful_values(t->wide, t->problem, &t->sequence, h, i, soft);
    for (int64_t e = 0; e < t->problem->E; e++) row[e] = (float)t->wide[e];
    return (outcome){NAN, NAN, soft.max + log(soft.sum)};
}

/* The block that starts at row r: its columns become rows, then results. A row of `out` is written after the last look
 * at the same row of q, which may be the same memory. */
static void finish_block(mha_tile *t, const mha_shared *shared, int64_t r)
{
    const mha_problem *p = t->problem;
    int64_t height = mha_tile_height(t, r);
    float unsound[MHA_BLOCK], *rows = t->staged, *sums = mha_tile_sums(t, r);
    p->kernels->unsound(unsound, sums, MHA_BLOCK, t->plan->Em, mha_tile_lanes(t, r));
    p->kernels->transpose(rows, p->E, sums, MHA_BLOCK, p->E, height);
    for (int64_t n = 0; n < height; n++) {
        int64_t h = mha_tile_head(t, r + n), i = mha_tile_query(t, r + n), at = t->sequence.query_row + i;
        float *row = rows + n * p->E;
        bool sound = has_softmax(t, r + n) && unsound[n] == 0.0f;
        outcome end = sound ? finish_sound(t, r + n, row) : finish_careful(t, r + n, row);
        if (p->extras.lse.rank) *(float *)mha_at(p->extras.lse, t->sequence.query_batch, h, at, 0) = (float)end.lse;
        if (shared->max) {
            shared->max[mha_row_index(p, &t->sequence, h, i)] = end.max;
            shared->factor[mha_row_index(p, &t->sequence, h, i)] = end.factor;
        }
        void *to = mha_at(p->out, t->sequence.query_batch, h, at, 0);
        mha_row_store(p->kernels, to, p->out.type, p->out.stride[3], row, p->E);
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
        for (int64_t r = 0; r < tile.rows; r += MHA_BLOCK) finish_block(&tile, &j->shared, r);
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
                                   .tile_keys = MHA_KEYS,
                                   .pieces = plan.pieces * problem.G,
                                   .scratch_bytes = plan.total_bytes};
    snprintf(answer->why, sizeof answer->why, "%s is the context's instruction set; %s%s", ctx->kernels->name,
             widened ? "16-bit inputs are widened to float32 as tiles are packed" : "inputs are float32",
             plan.maps ? "; weights or scores take a second pass" : "");
    return MHA_OK;
}
