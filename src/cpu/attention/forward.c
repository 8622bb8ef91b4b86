/* Attention forward: pieces of work, their results, and the call itself.
 *
 * Every piece owns its rows of `out`, so threads never meet and results do not depend on their number. A sequence with
 * few rows and many keys is cut along its keys: pieces leave partial results, and a second round merges those of each
 * row in the order of the keys. */
#include "cpu/attention/attend.h"
#include "cpu/attention/forward.h"
#include "cpu/attention/padding.h"
#include "cpu/attention/softmax.h"
#include <string.h>

typedef struct job {
    const mha_problem *problem;
    const mha_plan *plan;
    mha_shared shared;
    mha_round pieces, merges; /* the rounds; the second has no pieces if there are no partial results */
} job;

/* What a finished row leaves behind. */
typedef struct outcome {
    float share;       /* what its weighted values are multiplied by */
    float max, factor; /* weights are exp(score - max) * factor; a max of NaN sends maps the careful way */
    double lse;
    mha_softmax_row softmax;
} outcome;

/* A sound row: its values are divided by the total, with the sink's share in it, and by what dropout keeps. */
static outcome settle(const mha_tile *t, int64_t r)
{
    const mha_problem *p = t->problem;
    float max = t->running.max[r], sum = t->running.total[r];
    bool wanted = p->extras.lse.rank;
    if (!p->options.sinks.rank)
        return (outcome){
            p->kept / sum, max, 1.0f / sum, wanted ? (double)max + log((double)sum) : 0, {(double)max, (double)sum}};
    mha_softmax_row row = mha_softmax_of(t, r);
    double shrink = exp((double)max - row.max);
    return (outcome){(float)((double)p->kept * shrink / row.sum), max, (float)(shrink / row.sum),
                     wanted ? row.max + log(row.sum) : 0, row};
}

/* A row that sees nothing, or one that float32 could not hold: its values (E) are made anew. */
static outcome settle_carefully(const mha_tile *t, int64_t r, float *row)
{
    int64_t h = mha_tile_head(t, r), i = mha_tile_query(t, r);
    mha_softmax_row soft = mha_careful_softmax(t->problem, &t->sequence, h, i);
    memset(row, 0, (size_t)t->problem->E * sizeof *row);
    if (soft.max == -INFINITY) return (outcome){0.0f, 0.0f, 0.0f, -INFINITY, {-INFINITY, 0}};
    mha_careful_values(t->wide, t->problem, &t->sequence, h, i, soft);
    for (int64_t e = 0; e < t->problem->E; e++) row[e] = (float)t->wide[e];
    return (outcome){1.0f, NAN, NAN, soft.max + log(soft.sum), mha_softmax_of(t, r)};
}

/* What was asked for beside `out`. */
static void write_extras(const mha_tile *t, const mha_shared *shared, int64_t r, outcome end)
{
    const mha_problem *p = t->problem;
    int64_t h = mha_tile_head(t, r), i = mha_tile_query(t, r);
    if (p->extras.lse.rank)
        *(float *)mha_at(p->extras.lse, t->sequence.query_batch, h, t->sequence.query_row + i, 0) = (float)end.lse;
    if (p->extras.softmax.rank) {
        float *to = mha_at(p->extras.softmax, t->sequence.query_batch, h, t->sequence.query_row + i, 0);
        to[0] = (float)end.softmax.max;
        to[p->extras.softmax.stride[3]] = (float)end.softmax.sum;
    }
    if (!shared->max) return;
    shared->max[mha_row_index(p, &t->sequence, h, i)] = end.max;
    shared->factor[mha_row_index(p, &t->sequence, h, i)] = end.factor;
}

static void *out_row(const mha_tile *t, int64_t r)
{
    int64_t row = t->sequence.query_row + mha_tile_query(t, r);
    return mha_at(t->problem->out, t->sequence.query_batch, mha_tile_head(t, r), row, 0);
}

/* Rows of the block at row r, weighted values (height,E), become results and are written. A row of `out` is written
 * after the last look at the same row of q, which may be the same memory. */
static void finish_rows(mha_tile *t, const mha_shared *shared, int64_t r, float *rows)
{
    const mha_problem *p = t->problem;
    for (int64_t n = r; n < r + mha_tile_height(t, r); n++, rows += p->E) {
        outcome end = t->sound[n] ? settle(t, n) : settle_carefully(t, n, rows);
        for (int64_t e = 0; e < p->E; e++) rows[e] *= end.share;
        write_extras(t, shared, n, end);
        mha_row_store(t->plan->kernels, out_row(t, n), p->out.type, p->out.stride[3], rows, p->E);
    }
}

static bool are_sound(const mha_tile *t, int64_t r)
{
    int unsound = 0;
    for (int64_t i = r; i < r + mha_tile_height(t, r); i++) unsound |= !t->sound[i];
    return !unsound;
}

/* The same for a block of sound rows that are lanes: they are multiplied on their way to being rows, which are those of
 * `out` where it is float32 and even. False if the block is not of that kind. */
static bool finish_lanes(mha_tile *t, const mha_shared *shared, int64_t r)
{
    const mha_problem *p = t->problem;
    int64_t height = mha_tile_height(t, r);
    float share[MHA_BLOCK] = {0};
    bool even = t->heads == 1 && p->out.type == MHA_FLOAT32 && p->out.stride[3] == 1;
    bool bare = !p->options.sinks.rank && !p->extras.lse.rank && !p->extras.softmax.rank &&
                !shared->max; /* nothing beside `out` */
    if (t->narrow || !are_sound(t, r)) return false;
    for (int64_t i = 0; bare && i < height; i++) share[i] = p->kept / t->running.total[r + i];
    for (int64_t i = 0; !bare && i < height; i++) {
        outcome end = settle(t, r + i);
        share[i] = end.share;
        write_extras(t, shared, r + i, end);
    }
    float *rows = even ? out_row(t, r) : t->staged;
    t->plan->kernels->transpose(rows, even ? p->out.stride[2] : p->E, mha_tile_sums(t, r), MHA_BLOCK, p->E, height,
                                share);
    for (int64_t i = 0; !even && i < height; i++)
        mha_row_store(t->plan->kernels, out_row(t, r + i), p->out.type, p->out.stride[3], rows + i * p->E, p->E);
    return true;
}

/* Where chunk c of row r of a piece, for key/value head g, leaves its partial result. */
static float *partial_at(const job *j, const mha_piece *work, const mha_sequence *s, int64_t c, int64_t g, int64_t r)
{
    int64_t rows = j->problem->share * s->queries, row = (c * j->problem->G + g) * rows + work->first + r;
    return j->shared.partials + (work->partial + row) * (j->plan->Ep + 2);
}

/* Rows that are not sound leave a NaN as their maximum. */
static void leave_partials(const job *j, const mha_tile *t, const mha_piece *work, int64_t g, const float *rows)
{
    int64_t E = j->problem->E, keys = mha_chunks_get(&t->sequence).keys;
    for (int64_t r = 0; r < t->rows; r++) {
        float *to = partial_at(j, work, &t->sequence, work->low / keys, g, r);
        to[0] = t->sound[r] || t->running.max[r] == -INFINITY ? t->running.max[r] : NAN;
        to[1] = t->running.total[r];
        memcpy(to + 2, rows + r * E, (size_t)E * sizeof *to);
        memset(to + 2 + E, 0, (size_t)(j->plan->Ep - E) * sizeof *to);
    }
}

/* Row r (E) from its partial results, folded as one piece of work would have; returns whether it is sound. The first
 * that saw anything is taken as it is. */
static bool merge_row(const job *j, mha_tile *t, const mha_piece *work, int64_t g, int64_t r, float *row)
{
    const mha_kernels *kernels = j->plan->kernels;
    int64_t Ep = j->plan->Ep, count = mha_chunks_get(&t->sequence).count;
    float *sums = t->folded.sums;
    bool first = true;
    memset(sums, 0, (size_t)Ep * sizeof *sums);
    t->running.max[r] = -INFINITY;
    t->running.total[r] = 0.0f;
    for (int64_t c = 0; c < count; c++) {
        const float *from = partial_at(j, work, &t->sequence, c, g, r);
        if (isnan(from[0])) {
            t->running.max[r] = NAN;
            return false;
        }
        if (first) {
            t->running.max[r] = from[0];
            t->running.total[r] = from[1];
            memcpy(sums, from + 2, (size_t)Ep * sizeof *sums);
            first = from[0] == -INFINITY;
        } else {
            kernels->fold_row(sums, t->running.max + r, t->running.total + r, from + 2, from[0], from[1], Ep);
        }
    }
    memcpy(row, sums, (size_t)j->problem->E * sizeof *row);
    return isfinite(t->running.max[r]) && isfinite(t->running.total[r]) && isfinite(kernels->largest(sums, Ep, 1, Ep));
}

static void attend_piece(const job *j, mha_tile *t, const mha_piece *work, int64_t g)
{
    mha_tile_load(t);
    mha_attend(t, work->low, work->high);
    for (int64_t r = 0; r < t->rows; r += MHA_BLOCK) {
        if (work->partial < 0 && finish_lanes(t, &j->shared, r)) continue;
        mha_attend_rows(t, r, t->staged);
        if (work->partial < 0) finish_rows(t, &j->shared, r, t->staged);
        else leave_partials(j, t, work, g, t->staged);
    }
}

/* The first of the pieces that a row's keys were cut into merges all of them. */
static void merge_piece(const job *j, mha_tile *t, const mha_piece *work, int64_t g)
{
    if (work->partial < 0 || work->low > 0) return;
    for (int64_t r = 0; r < t->rows; r++) t->sound[r] = merge_row(j, t, work, g, r, t->staged + r * j->problem->E);
    finish_rows(t, &j->shared, 0, t->staged);
}

/* The pieces of a round that this task can take. */
static void run_round(job *j, mha_tile *t, mha_round *round,
                      void (*run)(const job *, mha_tile *, const mha_piece *, int64_t))
{
    const mha_problem *p = j->problem;
    for (int64_t piece; (piece = mha_queue_take(&round->queue)) >= 0; mha_round_finish(round)) {
        const mha_piece *work = &j->shared.order[piece / p->G];
        mha_sequence sequence = mha_sequence_get(p, work->b);
        mha_tile_place(t, &sequence, piece % p->G * p->share, p->share, work->first, work->rows);
        run(j, t, work, piece % p->G);
    }
}

static void forward_task(void *arg, int task)
{
    job *j = arg;
    const mha_problem *p = j->problem;
    mha_arena arena = {.base = p->ctx->scratch + (size_t)task * j->plan->task_bytes};
    mha_tile tile;
    mha_tile_layout(&tile, &arena, p, j->plan);
    if (j->plan->engine) j->plan->engine->open();
    run_round(j, &tile, &j->pieces, attend_piece);
    if (j->merges.queue.count) {
        mha_round_wait(&j->pieces);
        run_round(j, &tile, &j->merges, merge_piece);
    }
    if (j->plan->engine) j->plan->engine->close();
}

static mha_status make_plan(const mha_problem *problem, mha_plan *plan)
{
    if (!mha_plan_make(plan, problem, mha_plan_engine(problem)))
        return mha_fail(problem->ctx, MHA_TOO_LARGE, "q, k, v: their sizes need more scratch than memory can have");
    return MHA_OK;
}

mha_status mha_cpu_attention_forward(const mha_problem *problem)
{
    mha_plan plan;
    TRY(make_plan(problem, &plan));
    TRY(mha_scratch_reserve(problem->ctx, plan.total_bytes));
    if (problem->ctx->rehearsing) return MHA_OK;
    const mha_padding padding[] = {
        {problem->out, 0, 0}, {problem->extras.lse, -INFINITY, 0}, {problem->extras.softmax, -INFINITY, 0}};
    job j = {.problem = problem, .plan = &plan, .shared = mha_plan_shared(&plan, problem)};
    mha_padding_write(problem, padding, 3);
    j.pieces.queue.count = plan.pieces * problem->G;
    j.merges.queue.count = plan.partials ? j.pieces.queue.count : 0;
    if (j.pieces.queue.count) mha_parallel_run(problem->ctx, plan.tasks, forward_task, &j);
    if (plan.maps) mha_maps_write(problem, &plan, &j.shared);
    return MHA_OK;
}

mha_status mha_cpu_attention_explain(const mha_problem *problem, mha_attention_plan *answer)
{
    mha_plan plan;
    TRY(make_plan(problem, &plan));
    bool widened = problem->q.type != MHA_FLOAT32 || problem->k.type != MHA_FLOAT32 || problem->v.type != MHA_FLOAT32;
    *answer = mha_plan_answer(&plan, problem, plan.engine, widened,
                              plan.maps ? "; weights or scores take a second pass" : "");
    answer->threads = plan.tasks;
    answer->pieces = plan.pieces * problem->G;
    answer->scratch_bytes = plan.total_bytes;
    return MHA_OK;
}
