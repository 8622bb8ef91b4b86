/* The matrix product of the CPU: the operations of the backend, and what its two files share. */
#ifndef MHA_CPU_MATMUL_H
#define MHA_CPU_MATMUL_H

#include "core/tensor.h"
#include "cpu/engine/engine.h"

mha_op_matmul mha_cpu_matmul;
mha_op_pack_size mha_cpu_pack_size;
mha_op_pack mha_cpu_pack;
mha_op_packed_about mha_cpu_packed_about;
mha_op_matmul_packed mha_cpu_matmul_packed;

enum {
    MHA_MATMUL_DEPTH =
        256, /* of a block of K without an engine. A constant, so that bits do not depend on how work is cut up */
    MHA_MATMUL_COLS = 768,   /* of a piece; a multiple of every panel_cols and of the unit */
    MHA_MATMUL_UNIT = 64,    /* columns of b in a factor of an engine */
    MHA_MATMUL_ROWS = 128,   /* of a in a factor of an engine */
    MHA_MATMUL_STAGE = 16384 /* floats through which lines go that are widened */
};

/* Of a block of K, and floats of a stage, which holds a factor of an engine where its numbers lie apart. */
static inline int64_t mha_matmul_depth(const mha_engine *engine) { return engine ? engine->depth : MHA_MATMUL_DEPTH; }
static inline int64_t mha_matmul_stage(const mha_engine *engine)
{
    return engine ? MHA_MATMUL_ROWS * engine->depth / 2 : MHA_MATMUL_STAGE;
}

/* What opens a packed matrix; the panels follow, block by block, from the next cache line on. */
typedef struct mha_packed_header {
    const mha_kernels *kernels;
    const mha_engine *engine; /* NULL if the kernels multiply */
    mha_type a, b;            /* for an a of this type, from a b of that type */
    int64_t K, N;
} mha_packed_header;

/* The type of the numbers in panels: that of b if it is of 16 bits and a is float32, so that weights take no more memory
 * than before. They are widened on the way into the kernel, which gives the same bits. Otherwise float32. */
static inline mha_type mha_panels_type(mha_type a, mha_type b) { return a == MHA_FLOAT32 ? b : MHA_FLOAT32; }

/* Columns of such panels that are widened at a time: whole panels that fit a cache. */
static inline int64_t mha_panels_group(const mha_kernels *kernels)
{
    return (MHA_MATMUL_UNIT + kernels->panel_cols - 1) / kernels->panel_cols * kernels->panel_cols;
}

/* The header of a packed matrix in memory of any alignment, and its panels. */
mha_packed_header *mha_packed_open(const void *packed, float **panels);

/* Who multiplies an a and a b of these types. */
const mha_engine *mha_matmul_engine(const mha_context *ctx, mha_type a, mha_type b, int64_t K);

/* The panels of n rows of t (*,K) from row `first` on, elements k to k + depth - 1 of each: rows of a if `left`, else
 * columns of b. */
void mha_panels_pack(const mha_kernels *kernels, float *to, bool left, mha_tensor t, int64_t first, int64_t n,
                     int64_t k, int64_t depth, float *stage);

/* The same for an engine: one factor of n rows of a or columns of b; or the factors of n columns, a unit each. */
void mha_factor_pack(const mha_engine *engine, uint16_t *to, bool left, mha_tensor t, int64_t first, int64_t n,
                     int64_t k, int64_t depth, float *stage);
void mha_units_pack(const mha_engine *engine, uint16_t *to, mha_tensor columns, int64_t first, int64_t n, int64_t k,
                    int64_t depth, float *stage);

/* Numbers of two bytes in the factors of N columns, for k up to `k`. */
int64_t mha_units_size(const mha_engine *engine, int64_t N, int64_t k);

/* All columns as factors of an engine, packed by all threads: bytes of the result, which is whole lines, and of
 * the stages that this takes. */
size_t mha_units_room(mha_context *ctx, const mha_engine *engine, mha_tensor columns, size_t *stages);
void mha_units_pack_all(mha_context *ctx, const mha_engine *engine, void *to, mha_tensor columns, void *stages);

static inline int64_t mha_smaller(int64_t x, int64_t y) { return x < y ? x : y; }
static inline int64_t mha_ceiling(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
static inline int64_t mha_round_up(int64_t n, int64_t unit) { return mha_ceiling(n, unit) * unit; }

/* Element (i,k) of a matrix. */
static inline void *mha_cell(mha_tensor t, int64_t i, int64_t k)
{
    return (char *)t.data + (i * t.stride[0] + k * t.stride[1]) * (int64_t)mha_type_size(t.type);
}

/* A product of few rows (thin.c): whether it is one, and the product, with b as columns (N,K). */
bool mha_matmul_is_thin(mha_tensor a, mha_tensor columns);
mha_status mha_matmul_thin(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor columns,
                           const mha_matmul_options *options);

#endif
