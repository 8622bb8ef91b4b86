/* Attention weights and scores, for those who ask.
 *
 * The fused pass never has a finished weight: its maximum is known only at the end. So this is a second pass over Q and
 * K, with each row's maximum and factor known: weight = exp(score - max) * factor. A piece of work is a block of
 * queries of one sequence; it walks over the tiles of keys and, inside, over the heads in order, so that the mean over
 * heads is one sum in a fixed order. Tiles that nobody sees are walked too: their places must be written. */
#include "attention/careful.h"
#include "attention/forward.h"
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
    int count;      /* of maps */
    int64_t blocks; /* of queries in each sequence */
    mha_queue queue;
} job;

static bool after_softmax(mha_stage stage) { return stage >= MHA_STAGE_SOFTMAX; }

/* Scores that float32 could not hold, again in float64. A key that is not visible and whose score is not finite even so
 * shows -inf. */
static void mend_scores(mha_tile *t, mha_stage stage)
{
    for (int64_t n = 0; t->suspect && n < t->count * MHA_BLOCK; n++) {
        int64_t r = n % MHA_BLOCK, j = t->key + n / MHA_BLOCK;
        if (r >= t->rows || !t->broken[n]) continue;
        int64_t h = mha_tile_head(t, r), i = mha_tile_query(t, r);
        double score = mha_careful_score(t->problem, &t->sequence, h, i, j, stage);
        bool shown = isfinite(score) || mha_careful_sees(t->problem, &t->sequence, h, i, j);
        t->scores[n] = shown ? (float)score : -INFINITY;
    }
}

/* Weights of row r in float64: for rows that the first pass could not hold in float32. */
static void weigh_carefully(mha_tile *t, int64_t r, mha_stage stage)
{
    const mha_problem *p = t->problem;
    int64_t h = mha_tile_head(t, r), i = mha_tile_query(t, r);
    mha_careful_row row = mha_careful_softmax(p, &t->sequence, h, i);
    for (int64_t j = 0; j < t->count; j++) {
        double score = mha_careful_score(p, &t->sequence, h, i, t->key + j, MHA_STAGE_MASKED);
        bool dropped = stage == MHA_STAGE_DROPPED;
        t->scores[j * MHA_BLOCK + r] =
            (float)mha_careful_weight(p, &t->sequence, h, i, t->key + j, score, row, dropped);
    }
}

/* Masked scores to weights, in place. */
static void weigh(mha_tile *t, const mha_shared *shared, mha_stage stage)
{
    const mha_problem *p = t->problem;
    float max[MHA_BLOCK] = {0}, factor[MHA_BLOCK] = {0};
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t row = mha_row_index(p, &t->sequence, mha_tile_head(t, r), mha_tile_query(t, r));
        max[r] = shared->max[row];
        factor[r] = shared->factor[row] * (stage == MHA_STAGE_DROPPED ? p->kept : 1.0f);
    }
    p->kernels->weights(t->scores, MHA_BLOCK, t->count, mha_tile_lanes(t, 0), max, factor);
    if (stage == MHA_STAGE_DROPPED) mha_tile_drop(t, t->scores, 0, t->count);
    for (int64_t r = 0; r < t->rows; r++)
        if (isnan(max[r])) weigh_carefully(t, r, stage);
}

/* Numbers for one query of one head and the loaded keys. */
static void write_row(const mha_tile *t, const map *m, int64_t b, int64_t h, int64_t i, const float *from)
{
    void *to = mha_at(m->to, b, h, i, t->key);
    mha_row_store(t->problem->kernels, to, m->to.type, m->to.stride[3], from, t->count);
}

/* The loaded rows of head h against the loaded keys: into the map, or onto the mean. */
static void add_head(mha_tile *t, const mha_shared *shared, const map *m, int64_t h)
{
    float share = 1.0f / (float)t->problem->H;
    mha_tile_scores(t, 0, t->count, after_softmax(m->stage) ? MHA_STAGE_MASKED : m->stage);
    if (after_softmax(m->stage)) weigh(t, shared, m->stage);
    else mend_scores(t, m->stage);
    t->problem->kernels->transpose(t->staged, MHA_KEYS, t->scores, MHA_BLOCK, t->count, t->rows, NULL);
    for (int64_t r = 0; r < t->rows; r++) {
        float *row = t->staged + r * MHA_KEYS, *mean = t->mean + r * MHA_KEYS;
        if (!m->averaged) write_row(t, m, t->sequence.b, h, t->first + r, row);
        for (int64_t j = 0; m->averaged && j < t->count; j++) mean[j] += row[j] * share;
    }
}

/* Query rows [first, first + rows) of all heads against keys [key, key + count). */
static void write_tile(mha_tile *t, const job *j, const mha_sequence *sequence, int64_t first, int64_t rows,
                       int64_t key, int64_t count)
{
    const mha_problem *p = j->problem;
    memset(t->mean, 0, (size_t)(rows * MHA_KEYS) * sizeof *t->mean);
    t->key = key;
    t->count = count;
    for (int64_t h = 0; h < p->H; h++) {
        mha_tile_place(t, sequence, h, 1, first, rows);
        mha_tile_load(t);
        mha_tile_keys(t, key, count);
        for (int m = 0; m < j->count; m++) add_head(t, j->shared, &j->maps[m], h);
    }
    for (int m = 0; m < j->count; m++)
        for (int64_t r = 0; j->maps[m].averaged && r < rows; r++)
            write_row(t, &j->maps[m], sequence->b, 0, first + r, t->mean + r * MHA_KEYS);
}

/* The places of a map that lie beyond the end of a ragged sequence, in rows [first, last). */
static void write_beyond(const map *m, const mha_sequence *s, int64_t first, int64_t last)
{
    float nothing = after_softmax(m->stage) ? 0.0f : -INFINITY;
    for (int64_t h = 0; h < m->to.size[1]; h++)
        for (int64_t i = first; i < last && i < m->to.size[2]; i++)
            for (int64_t j = i < s->queries ? s->keys : 0; j < m->to.size[3]; j++)
                mha_store(mha_at(m->to, s->b, h, i, j), m->to.type, nothing);
}

static void maps_task(void *arg, int task)
{
    job *j = arg;
    const mha_problem *p = j->problem;
    mha_tile t;
    mha_tile_layout(&t, p->ctx->scratch + (size_t)task * j->plan->task_bytes, p, j->plan);
    if (p->engine) p->engine->open();
    for (int64_t piece; (piece = mha_queue_take(&j->queue)) >= 0;) {
        mha_sequence s = mha_sequence_get(p, piece / j->blocks);
        int64_t first = piece % j->blocks * MHA_BLOCK;
        int64_t rows = s.queries - first < MHA_BLOCK ? s.queries - first : MHA_BLOCK;
        for (int64_t key = 0; rows > 0 && key < s.keys; key += MHA_KEYS)
            write_tile(&t, j, &s, first, rows, key, s.keys - key < MHA_KEYS ? s.keys - key : MHA_KEYS);
        for (int m = 0; m < j->count; m++) write_beyond(&j->maps[m], &s, first, first + MHA_BLOCK);
    }
    if (p->engine) p->engine->close();
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
    int64_t blocks = (to.size[2] + MHA_BLOCK - 1) / MHA_BLOCK;
    if (blocks > j->blocks) j->blocks = blocks;
    j->maps[j->count++] = (map){to, stage, averaged};
}

void mha_maps_write(const mha_problem *p, const mha_plan *plan, const mha_shared *shared)
{
    job j = {.problem = p, .plan = plan, .shared = shared};
    add_map(&j, p->extras.weights, MHA_STAGE_DROPPED);
    add_map(&j, p->extras.scores, p->extras.scores_stage);
    j.queue.count = p->B * j.blocks;
    if (j.queue.count) mha_parallel_run(p->ctx, plan->tasks, maps_task, &j);
}
