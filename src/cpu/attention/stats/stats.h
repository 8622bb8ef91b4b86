/* Statistics of heads: one call, and what a task has of it. stats.c cuts up the work and adds up what the pieces left;
 * rows.c walks over tiles. */
#ifndef MHA_CPU_ATTENTION_STATS_H
#define MHA_CPU_ATTENTION_STATS_H

#include "attention/stats.h"
#include "cpu/attention/softmax.h"
#include <stdatomic.h>

/* One row of one head, over the keys so far. */
typedef struct mha_row_stats {
    double total, log_sum, squares; /* of p, p (s - max) and p^2; at the end log_sum is that of p log p */
    double distance, placed;        /* of p d, and of p, over keys that have a place */
    float largest;
    bool careful;            /* its weights come from float64 */
    mha_softmax_row softmax; /* then in float64, too */
} mha_row_stats;

/* Rows are taken in stripes, whose number and size depend on the length of the sequence and on H alone. One task takes a
 * stripe from its first row to its last, so that sums over rows have one order; what stripes leave is added in the order
 * of stripes. A piece of work is a stripe of one head or, where heads are compared, of all of them.
 *
 * What keys receive would be Tk numbers a stripe. It is one for all instead, counted in fixed point: whole numbers add up
 * to the same sum in any order. Sums of no number set the sign, which nothing else does. */
typedef struct mha_stats_work {
    mha_problem problem;
    mha_plan plan;
    mha_stats want;
    mha_stats_options options;
    int64_t top;     /* N of top_weights and top_keys, 0 if neither is wanted */
    bool pairs;      /* heads are compared */
    int64_t heads;   /* of a piece */
    int64_t stripes; /* of the longest sequence */
    int tasks;
    size_t task_bytes;
    mha_softmax_rows softmax;

    /* What pieces leave. */
    atomic_llong *received; /* (B,H,Tk) in units of mha_received_unit */
    float *edges;           /* (B,H,stripes,C) of the heatmap's row that a stripe begins in, if it shares that row with
                               the one before it */
    double *whole;          /* (B,stripes,H,3) total, log_sum and squares over the rows of a stripe */
    double *pair;           /* (B,stripes,H,H,2) sums of u log u with u = p_a + p_b, and of p_a p_b; a < b */
} mha_stats_work;

/* Pairs of many heads are many numbers a stripe. */
static inline int64_t mha_stripe_rows(const mha_stats_work *c, const mha_sequence *s)
{
    enum { STRIPES = 128, FEWEST = 16, LEAST = 64 };
    int64_t most = c->problem.H > 16 ? 16 * STRIPES / c->problem.H : STRIPES;
    if (most < FEWEST) most = FEWEST;
    int64_t rows = ((s->queries + most - 1) / most + MHA_BLOCK - 1) / MHA_BLOCK * MHA_BLOCK;
    return rows < LEAST ? LEAST : rows;
}

/* A sequence without rows has one stripe, which clears what must be zero. */
static inline int64_t mha_stripe_count(const mha_stats_work *c, const mha_sequence *s)
{
    int64_t rows = mha_stripe_rows(c, s);
    return s->queries ? (s->queries + rows - 1) / rows : 1;
}

/* What a key receives is at most the number of queries, which leaves this for the bits behind the point. */
static inline double mha_received_unit(const mha_sequence *s)
{
    int bits = 0;
    while (s->queries >> bits) bits++;
    return ldexp(1, bits - 61);
}

/* The heatmap's row that query i belongs to, and its column that key j does. */
static inline int64_t mha_heat_row(const mha_stats_work *c, const mha_sequence *s, int64_t i)
{
    return i * c->want.heatmap.size[2] / s->queries;
}
static inline int64_t mha_heat_column(const mha_stats_work *c, const mha_sequence *s, int64_t j)
{
    return j * c->want.heatmap.size[3] / s->length;
}

/* Where the edge of the heatmap of (b,h,stripe) lies. */
static inline int64_t mha_stripe_index(const mha_stats_work *c, int64_t b, int64_t h, int64_t stripe)
{
    return (b * c->problem.H + h) * c->stripes + stripe;
}

/* One task's scratch. */
typedef struct mha_stats_task {
    const mha_stats_work *call;
    mha_tile tile;
    int64_t at;          /* the head of the piece that the tile is placed at; -1: none */
    mha_row_stats *rows; /* (heads,rows) */
    float *top_weights;  /* (heads,rows,top) */
    int64_t *top_keys;
    float *weights;             /* (heads,rows,MHA_KEYS) tiles of all heads, where they are compared */
    int64_t received[MHA_KEYS]; /* by the keys at work from the rows of a step */
} mha_stats_task;

/* Takes a task's arrays from an arena. */
void mha_stats_layout(mha_stats_task *task, mha_arena *arena, const mha_stats_work *call);

/* One stripe of the heads from `head` on. */
void mha_stats_stripe(mha_stats_task *task, const mha_sequence *sequence, int64_t head, int64_t stripe);

/* The operations of the backend. */
mha_op_attention_stats mha_cpu_attention_stats;
mha_op_attention_explain_stats mha_cpu_attention_explain_stats;

#endif
