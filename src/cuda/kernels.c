#include "cuda/kernels.h"
#include "cuda/attention/statistics.h"
#include "cuda/general.h"
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

/* Q, stages of K, sums of rows and of columns: shared_memory of stats_hopper.cu. */
static mha_cuda_tile stats_tile(int width)
{
    enum { ROWS = MHA_CUDA_STATS_ROWS, KEYS = MHA_CUDA_STATS_KEYS, COMPUTE = 128 * MHA_CUDA_STATS_GROUPS, SUMS = 16 };
    size_t tiles = (size_t)(ROWS + MHA_CUDA_STATS_STAGES * KEYS) * (size_t)width * 2;
    size_t rows = (size_t)SUMS * COMPUTE * 8, columns = (size_t)MHA_CUDA_STATS_SLOTS * (COMPUTE / 32) * KEYS * 4;
    return (mha_cuda_tile){ROWS, KEYS, COMPUTE + 128, 1, tiles + rows + columns + 1024};
}

/* Q and K of eight heads, lse of their rows, and sums of pairs: shared_memory of stats_pairs.cu. */
static mha_cuda_tile pairs_tile(int width)
{
    enum { HEADS = MHA_CUDA_STATS_HEADS, PAIRS = HEADS * (HEADS - 1) / 2 };
    int groups = width > 64 ? 1 : 2, rows = 64 * groups, keys = MHA_CUDA_STATS_PAIR_KEYS(width);
    size_t tiles = (size_t)HEADS * (size_t)((rows + 2 * keys) * width) * 2, lse = (size_t)HEADS * (size_t)rows * 4;
    return (mha_cuda_tile){rows, keys, 128 * (groups + 1), 1,
                           tiles + lse + (size_t)(4 * groups * 2 * PAIRS) * 8 + 1024};
}

static mha_cuda_tile f32_tile(int width)
{
    return (mha_cuda_tile){MHA_CUDA_F32_TILE, MHA_CUDA_F32_TILE, 2 * MHA_CUDA_F32_TILE, MHA_CUDA_F32_BLOCKS(width),
                           (size_t)MHA_CUDA_F32_SHARED(width)};
}

/* Lines of the block, rows or keys, and the others. */
static mha_cuda_tile f32_tile_back(int width)
{
    const int lines = MHA_CUDA_F32_LINES(width);
    return (mha_cuda_tile){lines, MHA_CUDA_F32_TILE, 2 * lines, MHA_CUDA_F32_BLOCKS_BACK(width),
                           (size_t)MHA_CUDA_F32_SHARED_BACK(width)};
}

mha_cuda_tile mha_cuda_kernel_tile(mha_cuda_kernel kernel)
{
    enum { BARRIERS = 16, EACH = 4 };
    const mha_cuda_tile none = {0, 0, 0, 0, 0},
                        few = {MHA_CUDA_FEW_ROWS, MHA_CUDA_FEW_COLUMNS, MHA_CUDA_FEW_THREADS, 1,
                               (size_t)MHA_CUDA_FEW_STAGES *
                                   ((MHA_CUDA_FEW_ROWS + MHA_CUDA_FEW_COLUMNS) * MHA_CUDA_FEW_DEPTH * EACH + BARRIERS)};
    int n = (int)kernel - MHA_CUDA_K_forward_f32_64;
    if (n >= 0 && n < 2) return f32_tile(n % 2 ? 128 : 64);
    if (n >= 2 && n < 6) return f32_tile_back(n % 2 ? 128 : 64);
    n = (int)kernel - MHA_CUDA_K_stats_bf16_64;
    if (n >= 0 && n < 4) return stats_tile(n % 2 ? 128 : 64);
    if (n >= 4 && n < 8) return pairs_tile(n % 2 ? 128 : 64);
    n = (int)kernel - MHA_CUDA_K_product_bf16_64_nn;
    if (kernel == MHA_CUDA_K_few_1 || kernel == MHA_CUDA_K_few_4) return few;
    if (n < 0 || n >= 2 * MHA_CUDA_TILE_KERNELS) return none;
    n %= MHA_CUDA_TILE_KERNELS;
    return mha_cuda_tile_at(n < 4 * MHA_CUDA_TILES_ALL ? n / 4 : n - 3 * MHA_CUDA_TILES_ALL);
}
