/* Statistics of heads: one call, and what a task has of it. stats.c checks, cuts up the work and adds up what the pieces
 * left; stats_rows.c walks over tiles. */
#ifndef MHA_ATTENTION_STATS_H
#define MHA_ATTENTION_STATS_H

#include "attention/careful.h"

/* One row of one head, over the keys so far. */
typedef struct mha_row_stats {
    double total, log_sum, squares; /* of p, p log p, p^2 */
    double distance, placed;        /* of p d, and of p, over keys that have a place */
    float largest;
    bool careful; /* its weights come from float64 */
    mha_careful_row softmax;
} mha_row_stats;

/* Rows are taken in stripes, at most STRIPES of a sequence, whose number and size depend on its length alone. One task
 * takes a stripe from its first row to its last, so that sums over rows have one order; what stripes leave is added in
 * the order of stripes. A piece of work is a stripe of one head or, where heads are compared, of all of them. */
typedef struct mha_stats_call {
    mha_problem problem;
    mha_plan plan;
    mha_stats want;
    int64_t top;     /* N of top_weights and top_keys, 0 if neither is wanted */
    bool pairs;      /* heads are compared */
    int64_t heads;   /* of a piece */
    int64_t stripes; /* of the longest sequence */
    int tasks;
    size_t task_bytes;

    /* What pieces leave. */
    float *received; /* (B,H,stripes,Tk) sums over the rows of a stripe */
    float *edges;    /* (B,H,stripes,C) of the heatmap's row that a stripe begins in, if it shares that row with the one
                        before it */
    double *whole;   /* (B,stripes,H,3) total, log_sum and squares over the rows of a stripe */
    double *pair;    /* (B,stripes,H,H,2) sums of u log u with u = p_a + p_b, and of p_a p_b; a < b */
} mha_stats_call;

static inline int64_t mha_stripe_rows(const mha_sequence *s)
{
    enum { STRIPES = 16, LEAST = 64 };
    int64_t rows = ((s->queries + STRIPES - 1) / STRIPES + MHA_BLOCK - 1) / MHA_BLOCK * MHA_BLOCK;
    return rows < LEAST ? LEAST : rows;
}

/* A sequence without rows has one stripe, which clears what must be zero. */
static inline int64_t mha_stripe_count(const mha_sequence *s)
{
    int64_t rows = mha_stripe_rows(s);
    return s->queries ? (s->queries + rows - 1) / rows : 1;
}

/* The heatmap's row that query i belongs to, and its column that key j does. */
static inline int64_t mha_heat_row(const mha_stats_call *c, const mha_sequence *s, int64_t i)
{
    return i * c->want.heatmap.size[2] / s->queries;
}
static inline int64_t mha_heat_column(const mha_stats_call *c, const mha_sequence *s, int64_t j)
{
    return j * c->want.heatmap.size[3] / s->keys;
}

/* Where what (b,h,stripe) received lies, and its edge of the heatmap. */
static inline int64_t mha_stripe_index(const mha_stats_call *c, int64_t b, int64_t h, int64_t stripe)
{
    return (b * c->problem.H + h) * c->stripes + stripe;
}

/* One task's scratch. */
typedef struct mha_stats_task {
    const mha_stats_call *call;
    mha_tile tile;
    mha_row_stats *rows; /* (heads,rows) */
    float *top_weights;  /* (heads,rows,top) */
    int64_t *top_keys;
    float *weights; /* (heads,rows,MHA_KEYS) tiles of all heads, where they are compared */
} mha_stats_task;

/* Places a task's arrays at `memory` and returns how many bytes they take; with NULL for a memory it only counts. */
size_t mha_stats_layout(mha_stats_task *task, char *memory, const mha_stats_call *call);

/* One stripe of the heads from `head` on. */
void mha_stats_stripe(mha_stats_task *task, const mha_sequence *sequence, int64_t head, int64_t stripe);

#endif
