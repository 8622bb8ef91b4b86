/* The meeting of a few query rows with a tile of keys: the step that forward, weights and all later passes share. */
#ifndef MHA_ATTENTION_TILE_H
#define MHA_ATTENTION_TILE_H

#include "attention/plan.h"

/* One task's scratch and what it holds now. Rows are padded: queries to Dp, values and sums to Ep, scores to keys. */
typedef struct mha_tile {
    const mha_problem *problem;
    const mha_plan *plan;

    /* The rows: row r is query (first + r) / heads of head first_head + (first + r) % heads. */
    mha_sequence sequence;
    int64_t first_head, heads, first, rows;
    mha_range seen;            /* what any of the rows may see */
    mha_range *ranges;         /* (rows) what each may see by position */
    float *queries;            /* (rows,Dp) times scale */
    float largest;             /* |queries| at most; NaN if there is one */
    bool steep;                /* ALiBi may take a score out of float32 */
    float *sums;               /* (rows,Ep) weighted values so far */
    float *max, *total, *fade; /* (rows) running maximum and sum, and the last rescaling */

    /* The keys. */
    int64_t key, count; /* keys [key, key + count) are loaded */
    float *keys;        /* (Dp,keys) transposed */
    float *values;      /* (keys,Ep) */
    float *clean;       /* (keys,Ep) values without the rows that one query does not see */
    float *staged;      /* (keys,Dp) keys on their way to the transposition */

    /* Their meeting. */
    bool suspect;      /* a score may have left the range of float32 on the way: see `broken` */
    uint8_t *broken;   /* (block,keys) a score that was not finite before bias and mask; set if `suspect` */
    float *scores;     /* (block,keys) */
    float *bias_row;   /* (keys) */
    uint8_t *mask_row; /* (keys) */
    float *mean;       /* (block,keys) weights summed over heads */
    double *wide;      /* (E) one row's sums in float64 */
} mha_tile;

/* Places a tile's arrays at `memory` and returns how many bytes they take; with NULLs it only counts. */
size_t mha_tile_layout(mha_tile *tile, char *memory, const mha_problem *problem, const mha_plan *plan);

static inline int64_t mha_tile_query(const mha_tile *t, int64_t r) { return (t->first + r) / t->heads; }
static inline int64_t mha_tile_head(const mha_tile *t, int64_t r) { return t->first_head + (t->first + r) % t->heads; }

/* Loads rows [first, first + rows) of the heads [first_head, first_head + heads), which share a key/value head. */
void mha_tile_rows(mha_tile *tile, const mha_sequence *sequence, int64_t first_head, int64_t heads, int64_t first,
                   int64_t rows);

/* Loads keys [key, key + count), and the values that go with them. */
void mha_tile_keys(mha_tile *tile, int64_t key, int64_t count);
void mha_tile_values(mha_tile *tile);

/* scores (rows, padded count) of rows [r, r + rows) against the first `count` of the loaded keys, up to `stage`, which
 * is at most MHA_STAGE_MASKED. There, whatever is not visible, padding included, is -inf. */
void mha_tile_scores(mha_tile *tile, int64_t r, int64_t rows, int64_t count, mha_stage stage);

#endif
