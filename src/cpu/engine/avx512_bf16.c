/* VDPBF16PS: every lane adds the product of two pairs to its sum. Blocks of 8 rows x 2 vectors of c, as in
 * `product`: the pair of a is broadcast, those of b come as vectors. */
#include "cpu/engine/pairs_softmax.h"

enum { ROWS = 8 };

static inline void finish(float *c, const float *fade, float scale, __m512 sum)
{
    sum = _mm512_mul_ps(sum, _mm512_set1_ps(scale));
    _mm512_storeu_ps(c, fade ? _mm512_fmadd_ps(_mm512_loadu_ps(c), _mm512_loadu_ps(fade), sum) : sum);
}

/* Eight rows of one panel of a against `vectors` panels of b, `pitch` numbers apart. */
static inline __attribute__((always_inline)) void block(const int vectors, float *c, int64_t ldc, const float *fade,
                                                        float scale, const uint16_t *a, const uint16_t *b,
                                                        int64_t pitch, int64_t rows, int64_t k)
{
    __m512 sum[ROWS][2];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) sum[r][v] = _mm512_setzero_ps();
    for (int64_t tile = 0; tile < tiles(k); tile++, a += TILE, b += TILE)
        for (int64_t p = 0; p < SIDE; p++) {
            __m512bh right[2];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) right[v] = (__m512bh)_mm512_loadu_si512(b + v * pitch + p * DEEP);
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; r++) {
                int pair;
                __builtin_memcpy(&pair, a + r * DEEP + 2 * p, sizeof pair);
#pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)_mm512_set1_epi32(pair), right[v]);
            }
        }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            if (r < rows) finish(c + r * ldc + v * SIDE, fade ? fade + v * SIDE : fade, scale, sum[r][v]);
}

static void product(const mha_product *p)
{
    int64_t pitch = tiles(p->k) * TILE;
    for (int64_t j = 0; j < p->n; j += 2 * SIDE)
        for (int64_t i = 0; i < p->m; i += ROWS) {
            const uint16_t *a = p->a + i / SIDE * pitch + i % SIDE * DEEP, *b = p->b + j / SIDE * pitch;
            const float *fade = p->fade ? p->fade + j : NULL;
            float *c = p->c + i * p->ldc + j;
            if (p->n - j > SIDE) block(2, c, p->ldc, fade, p->scale, a, b, pitch, p->m - i, p->k);
            else block(1, c, p->ldc, fade, p->scale, a, b, pitch, p->m - i, p->k);
        }
}

static void nothing(void) {}
static void no_step(void *state) { (void)state; }

static void weigh(const mha_weighing *w, const mha_product *meanwhile, int products)
{
    for (int i = 0; i < products; i++) product(&meanwhile[i]);
    weigh_tile(w, no_step, NULL);
}

static double spin(int64_t rounds, float *sink)
{
    __m512 sum[16], total = _mm512_set1_ps(*sink);
    __m512bh x[] = {(__m512bh)round_two(total, total), (__m512bh)round_two(_mm512_set1_ps(0.999f), total)};
    REPEAT (i, 16) sum[i] = _mm512_set1_ps(*sink + (float)i);
    for (int64_t r = 0; r < rounds; r++)
        REPEAT (i, 16) sum[i] = _mm512_dpbf16_ps(sum[i], x[i % 2], x[1]);
    REPEAT (i, 16) total = _mm512_add_ps(total, sum[i]);
    *sink = _mm512_cvtss_f32(total);
    return 2.0 * 2 * 16 * 16 * (double)rounds;
}

const mha_engine mha_engine_avx512_bf16 = {
    .name = "avx512_bf16",
    .depth = 256,
    .open = nothing,
    .close = nothing,
    .pack_left = pack_left,
    .pack_right = pack_right,
    .round_left = round_left,
    .round_right = round_right,
    .product = product,
    .weigh = weigh,
    .spin = spin,
};
