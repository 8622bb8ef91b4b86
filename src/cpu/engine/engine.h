/* Matrix engines: instructions that multiply small blocks of bfloat16 numbers and add up in float32.
 *
 * An engine stands beside a table of kernels and takes over the tile products of bfloat16 calls. How it wants its
 * factors to lie is its own affair: it packs them itself. Packed factors are filled up with zeros, so that products
 * run over whole blocks. An engine adds in its own order: its sums are not those of `product`, but they depend on
 * nothing else than the numbers that are multiplied. */
#ifndef MHA_CPU_ENGINE_H
#define MHA_CPU_ENGINE_H

#include "cpu/isa/kernels.h"

enum {
    MHA_ENGINE_ROWS = 16, /* rows of a left factor and columns of a right one are filled up to a multiple of this */
    MHA_ENGINE_DEEP = 32  /* and what is summed over, to a multiple of this */
};

/* c (m,n) = fade (n) * c + scale * a b, or scale * a b alone if fade is NULL. n is a multiple of the table's `lanes`;
 * any m and k that the factors were packed with. */
typedef struct mha_product {
    float *c;
    int64_t ldc;
    const float *fade;
    float scale;
    const uint16_t *a, *b;
    int64_t m, n, k;
} mha_product;

/* A tile of scores (count,n) on its way to being weights: scale * s becomes exponentials, with the running maximum and
 * sum of each lane and the last rescaling beside them, as in the kernels' `softmax`; and these become the right factor
 * `to` (k,n), with zeros for keys from `count` on. The maximum may stay below the largest score by a little. */
typedef struct mha_weighing {
    uint16_t *to;
    int64_t k;
    float *s;
    int64_t lds, count, n;
    float scale; /* more than 0 */
    bool kept;   /* exponentials replace the scores, too */
    float *max, *sum, *fade;
} mha_weighing;

enum { MHA_MEANWHILE = 2 };

typedef struct mha_engine {
    const char *name;
    int64_t depth; /* what a product of matrices sums over at a time: at most this, the same for all */

    /* What a thread does before its first product and after its last: registers are set up once, not every time. */
    void (*open)(void);
    void (*close)(void);

    /* a (m,k) from (m,k) if `along`, else from (k,m); and b (k,n) from (n,k) if `along`, else from (k,n). */
    void (*pack_left)(uint16_t *to, const uint16_t *from, int64_t ldf, bool along, int64_t m, int64_t k);
    void (*pack_right)(uint16_t *to, const uint16_t *from, int64_t ldf, bool along, int64_t n, int64_t k);

    /* The same from float32, rounded to nearest: a from (m,k), b from (k,n). */
    void (*round_left)(uint16_t *to, const float *from, int64_t ldf, int64_t m, int64_t k);
    void (*round_right)(uint16_t *to, const float *from, int64_t ldf, int64_t n, int64_t k);

    void (*product)(const mha_product *p);

    /* Weighs a tile and does up to MHA_MEANWHILE products, in any order or, so that neither vectors nor the engine wait
     * for the other, at once. NULL where the kernels' `softmax` and `round_right` are faster. */
    void (*weigh)(const mha_weighing *w, const mha_product *meanwhile, int products);

    /* Few rows, at most MHA_NARROW, against keys that lie as the caller has them: s (rows,count) = the sum over d of
     * q (rows,D) k (count,D). NULL where widening keeps up with the memory. */
    void (*dots)(float *s, int64_t lds, const uint16_t *q, int64_t ldq, int64_t rows, const uint16_t *k, int64_t ldk,
                 int64_t count, int64_t D);

    /* As in the table of kernels: the measure of what `product` could reach. */
    double (*spin)(int64_t rounds, float *sink);
} mha_engine;

extern const mha_engine mha_engine_bfmmla;
extern const mha_engine mha_engine_avx512_bf16;
extern const mha_engine mha_engine_amx;

/* Numbers of a packed factor with so many rows (or columns), summed over k. */
static inline int64_t mha_engine_size(int64_t rows, int64_t k)
{
    return ((rows + MHA_ENGINE_ROWS - 1) & ~(int64_t)(MHA_ENGINE_ROWS - 1)) *
           ((k + MHA_ENGINE_DEEP - 1) & ~(int64_t)(MHA_ENGINE_DEEP - 1));
}

/* Asks for `count` lines of memory from number `line` on, of rows of k numbers that lie `ldf` apart: in the order in which
 * they lie, which is how memory is fastest. */
static inline void mha_engine_ask(const uint16_t *from, int64_t ldf, int64_t k, int64_t line, int64_t count)
{
    int64_t lines = (k + MHA_ENGINE_DEEP - 1) / MHA_ENGINE_DEEP, row = line / lines, at = line % lines;
    for (int64_t n = 0; n < count; n++) {
        __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)((row * ldf + at * MHA_ENGINE_DEEP) * 2)), 0, 2);
        if (++at == lines) at = 0, row++;
    }
}

#endif
