/* Names of the kernels that operations other than attention use, and those of small heads. */
#ifndef MHA_CUDA_KERNELS_H
#define MHA_CUDA_KERNELS_H

#include <stddef.h>

/* K(module, name). The order counts where a family is indexed: norm_*_wide follows its narrow version; products are sorted
 * by type, columns and sides, plain ones by size and sides; attention of float32 by width; statistics on tensor cores and attention
 * of small heads by type and width, and these for sequences that are not alike behind the others. */
/* clang-format off */
#define MHA_CUDA_SIDES(K, MODULE, NAME) K(MODULE, NAME##_nn) K(MODULE, NAME##_nt) K(MODULE, NAME##_tn) K(MODULE, NAME##_tt)
#define MHA_CUDA_KERNELS(K)                                                                                            \
    K(rows, copy) K(rows, fill) K(rows, upload) K(rows, clear)                                    \
    K(rows, places) K(rows, append) K(rows, gate) K(rows, gate_sums) K(rows, clean) K(rows, average_heads)             \
    K(rows, column_sums) K(rows, add_sums) K(spans, forward_spans)                                                     \
    K(forward_f32, forward_f32_64) K(forward_f32, forward_f32_128)                                                     \
    K(backward_f32, backward_f32_rows_64) K(backward_f32, backward_f32_rows_128)                                       \
    K(backward_f32, backward_f32_keys_64) K(backward_f32, backward_f32_keys_128)                                       \
    K(small_forward, small_forward_bf16_16) K(small_forward, small_forward_bf16_32)                                    \
    K(small_forward, small_forward_f16_16) K(small_forward, small_forward_f16_32)                                      \
    K(small_forward, small_forward_bf16_16_sequences) K(small_forward, small_forward_bf16_32_sequences)                \
    K(small_forward, small_forward_f16_16_sequences) K(small_forward, small_forward_f16_32_sequences)                  \
    K(small_backward, small_backward_bf16_16) K(small_backward, small_backward_bf16_32)                                \
    K(small_backward, small_backward_f16_16) K(small_backward, small_backward_f16_32)                                  \
    K(small_backward, small_backward_bf16_16_sequences) K(small_backward, small_backward_bf16_32_sequences)            \
    K(small_backward, small_backward_f16_16_sequences) K(small_backward, small_backward_f16_32_sequences)              \
    K(norm, norm_forward) K(norm, norm_forward_wide) K(norm, norm_about) K(norm, norm_about_wide)                      \
    K(norm, norm_columns) K(norm, norm_back)                                                                           \
    K(rotary, rotary) K(rotary, rotary_tables)                                                                         \
    K(extra_keys, extra_keys) K(extra_keys, extra_keys_rows) K(extra_keys, extra_keys_columns)                         \
    K(ops, activate) K(ops, activate_result) K(ops, activate_back) K(ops, activate_gated) K(ops, activate_gated_back)  \
    K(ops, dropout) K(ops, embed) K(ops, embed_back) K(ops, loss_labels) K(ops, loss_rows) K(ops, loss_sums)           \
    MHA_CUDA_SIDES(K, product, product_bf16_64) MHA_CUDA_SIDES(K, product, product_bf16_128)                           \
    MHA_CUDA_SIDES(K, product, product_bf16_192) MHA_CUDA_SIDES(K, product, product_bf16_256)                          \
    K(product, rows_bf16_32_nn) K(product, rows_bf16_64_nn) K(product, rows_bf16_96_nn)                                \
    MHA_CUDA_SIDES(K, product_half, product_f16_64) MHA_CUDA_SIDES(K, product_half, product_f16_128)                   \
    MHA_CUDA_SIDES(K, product_half, product_f16_192) MHA_CUDA_SIDES(K, product_half, product_f16_256)                  \
    K(product_half, rows_f16_32_nn) K(product_half, rows_f16_64_nn) K(product_half, rows_f16_96_nn)                    \
    MHA_CUDA_SIDES(K, product_plain, plain_128) K(product_plain, plain_128_xx)                                         \
    MHA_CUDA_SIDES(K, product_plain, plain_64) K(product_plain, plain_64_xx)                                           \
    MHA_CUDA_SIDES(K, product_plain, plain_32) K(product_plain, plain_32_xx)                                           \
    K(product_plain, few_1) K(product_plain, few_4)                                                                    \
    K(stats, stats_prepare) K(stats, stats_rows) K(stats, stats_mass) K(stats, stats_pairs) K(stats, stats_sums)       \
    K(stats, stats_heads)                                                                                              \
    K(stats_hopper, stats_bf16_64) K(stats_hopper, stats_bf16_128)                                                     \
    K(stats_hopper, stats_f16_64) K(stats_hopper, stats_f16_128)                                                       \
    K(stats_pairs, stats_pairs_bf16_64) K(stats_pairs, stats_pairs_bf16_128)                                           \
    K(stats_pairs, stats_pairs_f16_64) K(stats_pairs, stats_pairs_f16_128)
/* clang-format on */

/* The compiled files of src/cuda/kernels. */
/* clang-format off */
#define MHA_CUDA_MODULES(M)                                                                                            \
    M(forward) M(forward_wide) M(forward_f32) M(backward_f32) M(spans) M(backward) M(backward_brief) M(backward_wide) M(backward_maps) M(backward_sequences) M(rows)                    \
    M(general_forward) M(general_backward) M(decode) M(decode_many) M(decode_many_half) M(small_forward) M(small_backward) M(norm) M(rotary) M(extra_keys) M(ops) M(product) M(product_half) \
    M(product_plain) M(stats) M(stats_hopper) M(stats_pairs)
/* clang-format on */

typedef enum mha_cuda_module {
#define MHA_CUDA_ROW(name) MHA_CUDA_M_##name,
    MHA_CUDA_MODULES(MHA_CUDA_ROW)
#undef MHA_CUDA_ROW
        MHA_CUDA_MODULE_COUNT
} mha_cuda_module;

typedef enum mha_cuda_kernel {
#define MHA_CUDA_ROW(module, name) MHA_CUDA_K_##name,
    MHA_CUDA_KERNELS(MHA_CUDA_ROW)
#undef MHA_CUDA_ROW
        MHA_CUDA_KERNEL_COUNT
} mha_cuda_kernel;

const char *mha_cuda_kernel_name(mha_cuda_kernel kernel);
mha_cuda_module mha_cuda_kernel_module(mha_cuda_kernel kernel);

/* Products on tensor cores: tiles (product.h), those for few rows behind the others. The kernels of a type follow each
 * other, four sides of each tile and one of each tile for few rows. */
enum {
    MHA_CUDA_TILES_ALL = 4,
    MHA_CUDA_TILES_FEW = 3,
    MHA_CUDA_TILE_KERNELS = 4 * MHA_CUDA_TILES_ALL + MHA_CUDA_TILES_FEW
};

typedef struct mha_cuda_tile {
    int rows, columns, threads;
    int blocks;    /* of a multiprocessor */
    size_t shared; /* bytes */
} mha_cuda_tile;

mha_cuda_tile mha_cuda_tile_at(int n);

/* That of a kernel of products, of statistics for the copy engine or of float32, or zeros. */
mha_cuda_tile mha_cuda_kernel_tile(mha_cuda_kernel kernel);

#endif
