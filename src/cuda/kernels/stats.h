/* What the kernels of statistics are told; the same for the host and the device. */
#ifndef MHA_CUDA_STATS_H
#define MHA_CUDA_STATS_H

#include "general.h"
#include "stats_tiles.h"
#include <cuda.h>

/* What is kept of every row beside its softmax: places of `rows` that gradients use otherwise. */
enum {
    MHA_CUDA_ROW_TOTAL = MHA_CUDA_ROW_DELTA,  /* the sum of p */
    MHA_CUDA_ROW_LOGS = MHA_CUDA_ROW_WORTH,   /* of p log p */
    MHA_CUDA_ROW_SQUARES = MHA_CUDA_ROW_SINK, /* of p p */
    MHA_CUDA_ROW_EXACT =
        MHA_CUDA_ROW_SLOPE /* 1: its softmax is that of scores in float64, which float32 may not have */
};

/* An lse beyond it has an error of more than 1e-4 in float32, and so have weights that are taken from it: these rows are
 * computed in float64. */
#define MHA_CUDA_STATS_MOST 4096.0f

typedef struct mha_cuda_stats {
    mha_cuda_general g; /* q, k, softmax, options, and scratch of rows */
    CUtensorMap q, k;   /* for tensor cores */

    /* Results, as in mha_stats; none: not wanted, or from another kernel. */
    mha_cuda_view entropy, effective, largest, distance, mass, received, heatmap, divergence, cosine;
    mha_cuda_view top_weights, top_keys; /* both or none */
    mha_cuda_view sets;
    int32_t sums_of_rows; /* whether those of each row are kept for pairs of heads */
    int32_t pair_tiles;   /* tiles of rows whose pair_sums are kept */
    int64_t grid_columns, grid_first;

    /* Sums over rows are taken in fixed point: whole numbers add up to the same sum in any order. A sign says that one of
     * them was no sum of weights. */
    int64_t *received_sums; /* (B,H,received_pitch) */
    int64_t received_pitch;
    int64_t *heat_sums;  /* as heatmap, dense; WORDS for each, word n counts in units of 2^-(30 + 32 n): any float32 */
    int32_t *lost_pairs; /* (B,pair_tiles): tiles of rows that tensor cores could not compare; NULL: all are compared */
    double *pair_sums;   /* (B,pair_tiles,H,H,2): of u log u with u = p_a + p_b, and of p_a p_b; a < b */
} mha_cuda_stats;

#endif
