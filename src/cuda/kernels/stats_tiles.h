/* Tiles of the kernels of statistics; the same for the host and the device. */
#ifndef MHA_CUDA_STATS_TILES_H
#define MHA_CUDA_STATS_TILES_H

enum {
    MHA_CUDA_STATS_OTHERS = 4,     /* heads that a block of the general kernel compares with one */
    MHA_CUDA_STATS_NUMBERS = 2048, /* that a block turns from fixed point into float32 */
    MHA_CUDA_STATS_WORDS = 4,      /* of a sum of the heatmap */
    MHA_CUDA_STATS_KEYS = 64,      /* of a tile on tensor cores; received_sums has whole tiles */
    MHA_CUDA_STATS_GROUPS = 3,     /* warpgroups of it, 128 rows each */
    MHA_CUDA_STATS_ROWS = 384,     /* of it, */
    MHA_CUDA_STATS_BOX = 192,      /* which are copied by so many */
    MHA_CUDA_STATS_STAGES = 4,     /* tiles of keys in shared memory */
    MHA_CUDA_STATS_SLOTS = 4,      /* of sums of their columns */
    MHA_CUDA_STATS_HEADS = 8       /* compared at a time there */
};

/* Keys of a tile where heads of D columns are compared. */
#define MHA_CUDA_STATS_PAIR_KEYS(D) ((D) > 64 ? 16 : 32)

#endif
