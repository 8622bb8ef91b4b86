/* The table of kernels that one instruction set offers, and the list of those tables. */
#ifndef MHA_CPU_KERNELS_H
#define MHA_CPU_KERNELS_H

#include "core/context.h"

enum {
    MHA_PAD = 16,     /* floats: rows of scratch tiles are padded to this, the widest vector there is */
    MHA_ROWS_MAX = 16 /* no table's block of the product is higher */
};

/* Where a row of dropout stands: the Philox key and the parts of its counter that do not move with the key index. */
typedef struct mha_drop_row {
    uint64_t seed;
    uint32_t query, head, stream;
    uint64_t threshold; /* numbers below it are dropped: 2^32 times the probability */
} mha_drop_row;

typedef struct mha_kernels {
    const char *name;
    int block_rows; /* rows of one register block of the product: pieces of work prefer multiples of it */
#define OP(result, name, arguments) result(*name) arguments;
#include "cpu/ops.def"
#undef OP
} mha_kernels;

extern const mha_kernels mha_kernels_scalar;
extern const mha_kernels mha_kernels_neon;
extern const mha_kernels mha_kernels_avx2;
extern const mha_kernels mha_kernels_avx512;

static inline int64_t mha_padded(int64_t n) { return (n + MHA_PAD - 1) & ~(int64_t)(MHA_PAD - 1); }

/* n floats from or to a row of a float tensor: `stride` elements apart, converted where the type asks for it. */
void mha_row_load(const mha_kernels *kernels, float *to, const void *from, mha_type type, int64_t stride, int64_t n);
void mha_row_store(const mha_kernels *kernels, void *to, mha_type type, int64_t stride, const float *from, int64_t n);

#endif
