#include "cuda/kernels.h"
#include "cuda/product.h"

const char *mha_cuda_kernel_name(mha_cuda_kernel kernel)
{
    static const char *const names[] = {
#define ROW(module, name) #name,
        MHA_CUDA_KERNELS(ROW)
#undef ROW
    };
    return names[kernel];
}

mha_cuda_module mha_cuda_kernel_module(mha_cuda_kernel kernel)
{
    static const mha_cuda_module modules[] = {
#define ROW(module, name) MHA_CUDA_M_##module,
        MHA_CUDA_KERNELS(ROW)
#undef ROW
    };
    return modules[kernel];
}

/* Stages of both factors, room for results, and barriers: shared_memory of product.cuh. */
#define SHARED(rows, columns, stages, panels)                                         \
    ((size_t)(stages) * (((rows) + (columns)) * MHA_CUDA_PRODUCT_DEPTH * 2 + 2 * 8) + \
     (size_t)(rows) / 16 * ((panels) ? (panels)*MHA_CUDA_PRODUCT_PANEL : MHA_CUDA_PRODUCT_ROOM))

mha_cuda_tile mha_cuda_tile_at(int n)
{
    static const mha_cuda_tile tiles[] = {
#define ROW(rows, columns, stages, panels, blocks) \
    {rows, columns, 2 * (rows) + 32, blocks, (SHARED(rows, columns, stages, panels) + 1023) / 1024 * 1024},
        MHA_CUDA_TILES(ROW) MHA_CUDA_ROW_TILES(ROW)
#undef ROW
    };
    return tiles[n];
}

mha_cuda_tile mha_cuda_kernel_tile(mha_cuda_kernel kernel)
{
    enum { BARRIERS = 16, EACH = 4 };
    const mha_cuda_tile none = {0, 0, 0, 0, 0},
                        few = {MHA_CUDA_FEW_ROWS, MHA_CUDA_FEW_COLUMNS, MHA_CUDA_FEW_THREADS, 1,
                               (size_t)MHA_CUDA_FEW_STAGES *
                                   ((MHA_CUDA_FEW_ROWS + MHA_CUDA_FEW_COLUMNS) * MHA_CUDA_FEW_DEPTH * EACH + BARRIERS)};
    int n = (int)kernel - MHA_CUDA_K_product_bf16_64_nn;
    if (kernel == MHA_CUDA_K_few_1 || kernel == MHA_CUDA_K_few_4) return few;
    if (n < 0 || n >= 2 * MHA_CUDA_TILE_KERNELS) return none;
    n %= MHA_CUDA_TILE_KERNELS;
    return mha_cuda_tile_at(n < 4 * MHA_CUDA_TILES_ALL ? n / 4 : n - 3 * MHA_CUDA_TILES_ALL);
}
