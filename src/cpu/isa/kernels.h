/* The table of kernels that one instruction set offers, and the list of those tables. */
#ifndef MHA_CPU_KERNELS_H
#define MHA_CPU_KERNELS_H

#include "core/context.h"

enum {
    MHA_PAD = 16,   /* floats: the widest vector there is */
    MHA_NARROW = 8, /* rows, at most, that are few: they take keys and values as they lie */
    MHA_BLOCK = 32, /* rows that go through scores, softmax and values together: the width of a tile */
    MHA_KEYS = 64,  /* keys of a tile. A constant, so that the bits of a row do not depend on how work is cut up */
    MHA_ROWS = 16   /* rows, at most, that are normalised in one call of a kernel */
};

/* Where the lanes of a tile stand in the generator of dropout: its key, and the parts of its counter that do not move
 * with the key index. */
typedef struct mha_drop {
    uint64_t seed;
    uint64_t threshold; /* numbers below it are dropped: 2^32 times the probability */
    uint32_t stream;
    uint32_t query[MHA_BLOCK], head[MHA_BLOCK];
} mha_drop;

/* What belongs to each of up to MHA_ROWS rows that are normalised, h = (x - mean) * by; and, for their gradients, the means
 * of g = gain * dy and of g h. A row whose `by` is negative is not looked at: its h is 0. */
typedef struct mha_normal {
    float mean[MHA_ROWS], by[MHA_ROWS], less[MHA_ROWS], less_h[MHA_ROWS];
    bool centred; /* the mean of g counts: without it, `less` is 0 */
} mha_normal;

/* What happens to the sums of `gemm` on their way to c. */
typedef struct mha_finish {
    float alpha;
    bool add;          /* to what c holds */
    const float *bias; /* (n), readable up to the end of the last panel; or NULL */
    mha_activation activation;
} mha_finish;

typedef struct mha_kernels {
    const char *name;
    int lanes;                  /* floats of a vector */
    int panel_rows, panel_cols; /* of a and of b in a panel of `gemm` */
    bool along;                 /* `product_along` is as fast as `product`: nothing need be transposed for it */
#define OP(result, name, arguments) result(*name) arguments;
#include "cpu/isa/ops.def"
#undef OP
} mha_kernels;

extern const mha_kernels mha_kernels_scalar;
extern const mha_kernels mha_kernels_neon;
extern const mha_kernels mha_kernels_wasm;
extern const mha_kernels mha_kernels_avx2;
extern const mha_kernels mha_kernels_avx512;

/* n rounded up to whole vectors of a table. */
static inline int64_t mha_whole(const mha_kernels *kernels, int64_t n)
{
    return (n + kernels->lanes - 1) / kernels->lanes * kernels->lanes;
}

static inline int64_t mha_padded(int64_t n) { return (n + MHA_PAD - 1) & ~(int64_t)(MHA_PAD - 1); }

/* n floats from or to a row of a float tensor: `stride` elements apart, converted where the type asks for it. */
void mha_row_load(const mha_kernels *kernels, float *to, const void *from, mha_type type, int64_t stride, int64_t n);
void mha_row_store(const mha_kernels *kernels, void *to, mha_type type, int64_t stride, const float *from, int64_t n);

#endif
