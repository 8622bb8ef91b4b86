/* Matrix products of float16 on tensor cores. */
#include "product.cuh"

#define TILE(ROWS, COLUMNS, STAGES, PANELS, BLOCKS) \
    PRODUCTS(product_f16, __half, ROWS, COLUMNS, STAGES, PANELS, BLOCKS)
#define FEW(ROWS, COLUMNS, STAGES, PANELS, BLOCKS) \
    PRODUCT(rows_f16, __half, ROWS, COLUMNS, STAGES, PANELS, BLOCKS, nn, false, false)

MHA_CUDA_TILES(TILE)
MHA_CUDA_ROW_TILES(FEW)
