/* Matrix engines: instructions that multiply small blocks of bfloat16 numbers and add up in float32.
 *
 * An engine stands beside a table of kernels and takes over the tile products of bfloat16 calls. How it wants its
 * factors to lie is its own affair: it packs them itself. Packed factors are filled up with zeros, so that products
 * run over whole blocks. An engine adds in its own order: its sums are not those of `product`, but they depend on
 * nothing else than the numbers that are multiplied. */
#ifndef MHA_CPU_ENGINE_H
#define MHA_CPU_ENGINE_H

#include "cpu/kernels.h"

enum {
    MHA_ENGINE_ROWS = 16, /* rows of a left factor and columns of a right one are filled up to a multiple of this */
    MHA_ENGINE_DEEP = 32  /* and what is summed over, to a multiple of this */
};

typedef struct mha_engine {
    const char *name;

    /* What a thread does before its first product and after its last: registers that are set up once, not every time. */
    void (*open)(void);
    void (*close)(void);

    /* a (m,k) from (m,k) if `along`, else from (k,m); and b (k,n) from (n,k) if `along`, else from (k,n). */
    void (*pack_left)(uint16_t *to, const uint16_t *from, int64_t ldf, bool along, int64_t m, int64_t k);
    void (*pack_right)(uint16_t *to, const uint16_t *from, int64_t ldf, bool along, int64_t n, int64_t k);

    /* The same from float32, rounded to nearest: a from (m,k), b from (k,n). */
    void (*round_left)(uint16_t *to, const float *from, int64_t ldf, int64_t m, int64_t k);
    void (*round_right)(uint16_t *to, const float *from, int64_t ldf, int64_t n, int64_t k);

    /* The kernels' `softmax` and `round_right` in one, where that is faster, else NULL: exponentials replace the scores
     * and become b (k,n), with zeros for keys from `count` to k. The maximum may stay below the largest score by a
     * little. */
    void (*softmax)(uint16_t *to, float *s, int64_t lds, int64_t count, int64_t k, int64_t n, float *max, float *sum,
                    float *fade);

    /* c (m,n) = fade (n) * c + scale * a b, or scale * a b alone if fade is NULL. n is a multiple of the table's
     * `lanes`; any m and k that the factors were packed with. */
    void (*product)(float *c, int64_t ldc, const float *fade, float scale, const uint16_t *a, const uint16_t *b,
                    int64_t m, int64_t n, int64_t k);

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

#endif
