/* What the kernels of matrix products are told; the same for the host and the device. */
#ifndef MHA_CUDA_PRODUCT_H
#define MHA_CUDA_PRODUCT_H

#include "view.h"
#include <cuda.h>

/* Tiles of the kernels for tensor cores, T(rows, columns, stages, panels, blocks): stages of the ring of steps, panels of
 * results that a warp has under way, blocks of a multiprocessor. Few rows have tiles of their own. */
#define MHA_CUDA_TILES(T) \
    T(128, 64, 4, 1, 2)   \
    T(128, 128, 3, 1, 2)  \
    T(128, 192, 4, 2, 1)  \
    T(128, 256, 4, 2, 1)
#define MHA_CUDA_ROW_TILES(T) \
    T(64, 32, 16, 0, 1)       \
    T(64, 64, 12, 0, 1)       \
    T(64, 96, 10, 0, 1)

enum {
    MHA_CUDA_PRODUCT_DEPTH = 64,        /* summed numbers of a step */
    MHA_CUDA_PRODUCT_PANEL = 16 * 128,  /* bytes of results that leave together: 16 rows */
    MHA_CUDA_PRODUCT_ROOM = 16 * 20 * 4 /* bytes of a warp for results that leave one by one */
};

/* Few rows of float32: columns of a block, summed numbers of a step, steps of the ring, most rows, threads. */
enum {
    MHA_CUDA_FEW_COLUMNS = 32,
    MHA_CUDA_FEW_DEPTH = 64,
    MHA_CUDA_FEW_STAGES = 12,
    MHA_CUDA_FEW_ROWS = 16,
    MHA_CUDA_FEW_THREADS = 160
};

typedef struct mha_cuda_product {
    CUtensorMap a_map, b_map; /* of the kernels for tensor cores and for few rows */
    CUtensorMap c_map;        /* of `quick` */
    mha_cuda_view a, b;       /* (M,K), (K,N), of the others */
    mha_cuda_view c;          /* (M,N) = alpha a b + old + bias */
    mha_cuda_view old, bias;  /* (M,N), (N); or none */
    float alpha;
    int32_t M, N, K;
    int32_t row_tiles, column_tiles;
    int32_t lines; /* rows of a that a step copies: those of a tile, or fewer if a has fewer */
    int32_t
        quick; /* results leave through the copy engine: bias and old are dense float32 or none, c is float32 or of the
                      type of the factors */
} mha_cuda_product;

#endif
