/* Attention weights and scores, for those who ask.
 *
 * The fused pass never has a finished weight: its maximum is known only at the end. So this is a second pass over Q and
 * K, with each row's maximum and factor known: weight = exp(score - max) * factor. A piece of work is a stretch of query
 * rows of one sequence and head; it walks over the tiles of keys, and each tile is loaded once for all of its rows. Where
 * a mean over heads is asked for, a piece has all heads and one block of rows, and inside each tile the heads follow one
 * another, so that the mean is one sum in a fixed order. Tiles that nobody sees are walked too: their places must be
 * written. */
#include "cpu/attention/careful.h"
#include "cpu/attention/forward.h"
#include "core/half.h"

/* One map to write: a view of four axes, with head axis 1 where heads are averaged. */
typedef struct map {
    mha_tensor to;
    mha_stage stage;
    bool averaged;
} map;

typedef struct job {
    const mha_problem *problem;
    const mha_plan *plan;
    const mha_shared *shared;
    map maps[2];
    int count;         /* of maps */
    bool averaged;     /* a mean over heads is among them */
    int64_t heads;     /* of a piece: one, or all */
    int64_t rows;      /* of a piece, at most */
    int64_t longest;   /* query rows of a map */
    int64_t stretches; /* pieces of a sequence and head */
    mha_queue queue;
} job;

static bool after_softmax(mha_stage stage) { return stage >= MHA_STAGE_SOFTMAX; }

/* Scores that float32 could not hold, again in float64. A key that is not visible and whose score is not finite even so
 * shows -inf. */
static void mend_scores(mha_tile *t, int64_t first, mha_stage stage)
{
    for (int64_t n = 0; t->scores.suspect && n < t->keys.count * MHA_BLOCK; n++) {
        int64_t r = first + n % MHA_BLOCK, j = t->keys.first + n / MHA_BLOCK;
        if (r >= t->rows || !t->scores.broken[n]) continue;
        int64_t h = mha_tile_head(t, r), i = mha_tile_query(t, r);
        double score = mha_careful_score(t->problem, &t->sequence, h, i, j, stage);
        bool shown = isfinite(score) || mha_careful_sees(t->problem, &t->sequence, h, i, j);
        t->scores.lanes[n] = shown ? (float)score : -INFINITY;
    }
}

/* Weights of row r in float64: for rows that the first pass could not hold in float32. */
static void weigh_carefully(mha_tile *t, int64_t r, mha_stage stage)
{
    const mha_problem *p = t->problem;
    int64_t h = mha_tile_head(t, r), i = mha_tile_query(t, r);
    mha_softmax_row row = mha_careful_softmax(p, &t->sequence, h, i);
    for (int64_t j = 0; j < t->keys.count; j++) {
        double score = mha_careful_score(p, &t->sequence, h, i, t->keys.first + j, MHA_STAGE_MASKED);
        bool dropped = stage == MHA_STAGE_DROPPED;
        t->scores.lanes[j * MHA_BLOCK + r % MHA_BLOCK] =
            (float)mha_careful_weight(p, &t->sequence, h, i, t->keys.first + j, score, row, dropped);
    }
}

/* Masked scores of the block that starts at row `first` to weights, in place. */
static void weigh(mha_tile *t, int64_t first, const mha_shared *shared, mha_stage stage)
{
    const mha_problem *p = t->problem;
    float max[MHA_BLOCK] = {0}, factor[MHA_BLOCK] = {0};
    int64_t height = mha_tile_height(t, first);
    for (int64_t r = 0; r < height; r++) {
        int64_t h = mha_tile_head(t, first + r), i = mha_tile_query(t, first + r);
        int64_t row = mha_row_index(p, &t->sequence, h, i);
        max[r] = shared->max[row];
        factor[r] = shared->factor[row] * (stage == MHA_STAGE_DROPPED ? p->kept : 1.0f);
    }
    t->plan->kernels->weights(t->scores.lanes, MHA_BLOCK, t->keys.count, mha_tile_lanes(t, first), max, factor);
    if (stage == MHA_STAGE_DROPPED) mha_tile_drop(t, t->scores.lanes, first, t->keys.count);
    for (int64_t r = 0; r < height; r++)
        if (isnan(max[r])) weigh_carefully(t, first + r, stage);
}

/* Numbers for one query of one head and the loaded keys. */
static void write_row(const mha_tile *t, const map *m, int64_t h, int64_t i, const float *from)
{
    void *to = mha_at(m->to, t->sequence.b, h, i, t->keys.first);
    mha_row_store(t->plan->kernels, to, m->to.type, m->to.stride[3], from, t->keys.count);
}

/* A block of head h against the loaded keys, from lanes to rows: into the map, at once if that has rows of floats. */
static void write_block(const mha_tile *t, const map *m, int64_t h, int64_t first)
{
    const mha_kernels *kernels = t->plan->kernels;
    int64_t height = mha_tile_height(t, first), i = t->first + first;
    bool even = m->to.type == MHA_FLOAT32 && m->to.stride[3] == 1;
    float *rows = even ? mha_at(m->to, t->sequence.b, h, i, t->keys.first) : t->staged;
    kernels->transpose(rows, even ? m->to.stride[2] : MHA_KEYS, t->scores.lanes, MHA_BLOCK, t->keys.count, height,
                       NULL);
    for (int64_t r = 0; !even && r < height; r++) write_row(t, m, h, i + r, t->staged + r * MHA_KEYS);
}

/* The same onto the mean over heads, which stays in lanes. */
static void add_to_mean(mha_tile *t, int64_t first)
{
    float share = 1.0f / (float)t->problem->H;
    int64_t lanes = mha_tile_lanes(t, first);
    for (int64_t j = 0; j < t->keys.count; j++)
        for (int64_t r = 0; r < lanes; r++) t->mean[j * MHA_BLOCK + r] += t->scores.lanes[j * MHA_BLOCK + r] * share;
}

/* The loaded rows of head h against the loaded keys. */
static void add_head(mha_tile *t, const mha_shared *shared, const map *m, int64_t h)
{
    for (int64_t first = 0; first < t->rows; first += MHA_BLOCK) {
        mha_tile_scores(t, first, t->keys.count, after_softmax(m->stage) ? MHA_STAGE_MASKED : m->stage);
        if (after_softmax(m->stage)) weigh(t, first, shared, m->stage);
        else mend_scores(t, first, m->stage);
        if (m->averaged) add_to_mean(t, first);
        else write_block(t, m, h, first);
    }
}

/* A piece: query rows [first, first + rows) of some heads against all keys. */
static void write_piece(mha_tile *t, const job *j, const mha_sequence *s, int64_t head, int64_t first, int64_t rows)
{
    int64_t placed = -1;
    mha_tile_place(t, s, head, 1, first, rows); /* also where a mean is over no heads at all */
    for (int64_t key = 0; key < s->keys; key += MHA_KEYS) {
        t->keys.first = key;
        t->keys.count = s->keys - key < MHA_KEYS ? s->keys - key : MHA_KEYS;
        memset(t->mean, 0, (size_t)(MHA_BLOCK * MHA_KEYS) * sizeof *t->mean);
        for (int64_t h = head; h < head + j->heads; h++) {
            if (h != placed) {
                mha_tile_place(t, s, h, 1, first, rows);
                mha_tile_load(t);
                placed = h;
            }
            mha_tile_keys(t, key, t->keys.count);
            for (int m = 0; m < j->count; m++) add_head(t, j->shared, &j->maps[m], h);
        }
        for (int m = 0; m < j->count; m++) {
            if (!j->maps[m].averaged) continue;
            memcpy(t->scores.lanes, t->mean, (size_t)(MHA_BLOCK * MHA_KEYS) * sizeof *t->mean);
            write_block(t, &j->maps[m], 0, 0);
        }
    }
}

/* The places of a map that lie beyond the end of a ragged sequence, in rows [first, last). */
static void write_beyond(const map *m, const mha_sequence *s, int64_t head, int64_t heads, int64_t first, int64_t last)
{
    float nothing = after_softmax(m->stage) ? 0.0f : -INFINITY;
    for (int64_t h = head; h < head + heads && h < m->to.size[1]; h++)
        for (int64_t i = first; i < last && i < m->to.size[2]; i++)
            for (int64_t j = i < s->queries ? s->keys : 0; j < m->to.size[3]; j++)
                mha_store(mha_at(m->to, s->b, h, i, j), m->to.type, nothing);
}

static void maps_task(void *arg, int task)
{
    job *j = arg;
    const mha_problem *p = j->problem;
    mha_arena arena = {.base = p->ctx->scratch + (size_t)task * j->plan->task_bytes};
    mha_tile t;
    mha_tile_layout(&t, &arena, p, j->plan);
    if (j->plan->engine) j->plan->engine->open();
    for (int64_t piece; (piece = mha_queue_take(&j->queue)) >= 0;) {
        int64_t pieces = j->averaged ? j->stretches : p->H * j->stretches, head = piece % pieces / j->stretches;
        mha_sequence s = mha_sequence_get(p, piece / pieces);
        int64_t first = piece % j->stretches * j->rows, last = first + j->rows;
        int64_t end = last < s.queries ? last : s.queries;
        if (first < end) write_piece(&t, j, &s, head, first, end - first);
        for (int m = 0; m < j->count; m++)
            write_beyond(&j->maps[m], &s, head, j->averaged ? INT64_MAX - head : 1, first, last);
    }
    if (j->plan->engine) j->plan->engine->close();
}

static void add_map(job *j, mha_tensor to, mha_stage stage)
{
    if (!to.rank || !mha_element_count(to)) return;
    bool averaged = to.rank == 3;
    if (averaged)
        to = (mha_tensor){to.data,
                          to.type,
                          4,
                          {to.size[0], 1, to.size[1], to.size[2]},
                          {to.stride[0], 0, to.stride[1], to.stride[2]}};
    if (to.size[2] > j->longest) j->longest = to.size[2];
    if (averaged) j->averaged = true;
    j->maps[j->count++] = (map){to, stage, averaged};
}

void mha_maps_write(const mha_problem *p, const mha_plan *plan, const mha_shared *shared)
{
    job j = {.problem = p, .plan = plan, .shared = shared};
    add_map(&j, p->extras.weights, MHA_STAGE_DROPPED);
    add_map(&j, p->extras.scores, p->extras.scores_stage);
    j.heads = j.averaged ? p->H : 1;
    j.rows = j.averaged ? MHA_BLOCK : plan->rows;
    j.stretches = (j.longest + j.rows - 1) / j.rows;
    j.queue.count = p->B * j.stretches * (j.averaged ? 1 : p->H);
    if (j.queue.count) mha_parallel_run(p->ctx, plan->tasks, maps_task, &j);
}
