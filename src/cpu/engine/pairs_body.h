/* Packing for the engines of x86, which multiply pairs of bfloat16 numbers.
 *
 * Both factors lie in tiles of 1 KiB, 16 rows of 64 bytes, and a panel is the tiles of sixteen rows (or columns) one
 * after the other along k. A tile of a holds 16 rows and 32 numbers of each, as they lie. A tile of b holds 16 pairs of
 * k and, for each, the pair of every one of its 16 columns. */
#include "cpu/engine/engine.h"
#include "cpu/isa/vec_avx512.h"

enum { SIDE = 16, DEEP = 32, TILE = SIDE * DEEP };

static inline int64_t tiles(int64_t k) { return (k + DEEP - 1) / DEEP; }

/* The first n of sixteen, or of thirty-two; none if n is negative. */
static inline __mmask16 first16(int64_t n) { return (__mmask16)(n >= 16 ? 0xffff : n > 0 ? (1u << n) - 1 : 0); }
static inline __mmask32 first32(int64_t n)
{
    return n >= 32 ? 0xffffffff : n > 0 ? (__mmask32)((UINT64_C(1) << n) - 1) : 0;
}

/* Sixteen pairs, the first of each from `low` and the second from `high`. */
static inline __m512i weave(__m256i low, __m256i high)
{
    return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

static inline __m512i load_pairs(const uint16_t *from, int64_t ldf, int64_t rows, int64_t cols)
{
    __m256i low = _mm256_maskz_loadu_epi16(rows > 0 ? first16(cols) : 0, from);
    return weave(low, _mm256_maskz_loadu_epi16(rows > 1 ? first16(cols) : 0, from + ldf));
}

static inline void transpose_pairs(__m512i x[SIDE])
{
    vf lanes[SIDE];
    for (int i = 0; i < SIDE; i++) lanes[i] = _mm512_castsi512_ps(x[i]);
    vf_transpose(lanes);
    for (int i = 0; i < SIDE; i++) x[i] = _mm512_castps_si512(lanes[i]);
}

static void store_tile(uint16_t *to, const __m512i x[SIDE])
{
    for (int i = 0; i < SIDE; i++) _mm512_storeu_si512(to + i * DEEP, x[i]);
}

/* Sixteen rows and 32 numbers of each from (rows,k). */
static inline void load_rows(__m512i x[SIDE], const uint16_t *from, int64_t ldf, int64_t rows, int64_t k)
{
    for (int i = 0; i < SIDE; i++) x[i] = _mm512_maskz_loadu_epi16(i < rows ? first32(k) : 0, from + i * ldf);
}

/* Sixteen pairs of k and 16 columns from (k,cols). */
static inline void load_columns(__m512i x[SIDE], const uint16_t *from, int64_t ldf, int64_t cols, int64_t k)
{
    for (int i = 0; i < SIDE; i++) x[i] = load_pairs(from + 2 * i * ldf, ldf, k - 2 * i, cols);
}

static void pack_left(uint16_t *to, const uint16_t *from, int64_t ldf, bool along, int64_t m, int64_t k)
{
    __m512i x[SIDE];
    for (int64_t r = 0; r < m; r += SIDE)
        for (int64_t d = 0; d < k; d += DEEP, to += TILE) {
            if (along) load_rows(x, from + r * ldf + d, ldf, m - r, k - d);
            else load_columns(x, from + d * ldf + r, ldf, m - r, k - d), transpose_pairs(x);
            store_tile(to, x);
        }
}

/* From (n,k), whose sixteen rows at a time are too many streams for the processor to foresee. */
static void pack_along(uint16_t *to, const uint16_t *from, int64_t ldf, int64_t n, int64_t k)
{
    __m512i x[SIDE];
    for (int64_t c = 0; c < n; c += SIDE)
        for (int64_t d = 0; d < k; d += DEEP, to += TILE) {
            mha_engine_ask(from + (c + SIDE) * ldf, ldf, k, d / DEEP * SIDE, SIDE);
            load_rows(x, from + c * ldf + d, ldf, n - c, k - d);
            transpose_pairs(x);
            store_tile(to, x);
        }
}

/* From (k,n), the whole width of 32 rows after another, so that no line is read twice. */
static void pack_across(uint16_t *to, const uint16_t *from, int64_t ldf, int64_t n, int64_t k)
{
    __m512i x[SIDE];
    for (int64_t d = 0; d < k; d += DEEP)
        for (int64_t c = 0; c < n; c += SIDE) {
            if (c % DEEP == 0) mha_engine_ask(from + (d + DEEP) * ldf + c, ldf, DEEP, 0, DEEP);
            load_columns(x, from + d * ldf + c, ldf, n - c, k - d);
            store_tile(to + (c / SIDE * tiles(k) + d / DEEP) * TILE, x);
        }
}

static void pack_right(uint16_t *to, const uint16_t *from, int64_t ldf, bool along, int64_t n, int64_t k)
{
    if (along) pack_along(to, from, ldf, n, k);
    else pack_across(to, from, ldf, n, k);
}

static inline __m512i round_two(__m512 low, __m512 high) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

static void round_left(uint16_t *to, const float *from, int64_t ldf, int64_t m, int64_t k)
{
    for (int64_t r = 0; r < m; r += SIDE)
        for (int64_t d = 0; d < k; d += DEEP, to += TILE)
            for (int64_t i = 0; i < SIDE; i++) {
                const float *row = from + (r + i) * ldf + d;
                int64_t left = r + i < m ? k - d : 0;
                __m512 low = _mm512_maskz_loadu_ps(first16(left), row);
                __m512 high = _mm512_maskz_loadu_ps(first16(left - 16), row + 16);
                _mm512_storeu_si512(to + i * DEEP, round_two(low, high));
            }
}

/* Sixteen pairs of rounded numbers, the first of each from `low` and the second from `high`. */
static inline __m512i round_pairs(__m512 low, __m512 high)
{
    const __m512i halves =
        _mm512_cvtepu16_epi32(_mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m512i pairs =
        _mm512_or_si512(halves, _mm512_slli_epi32(_mm512_add_epi32(halves, _mm512_set1_epi32(16)), 16));
    return _mm512_permutexvar_epi16(pairs, round_two(low, high));
}

static void round_right(uint16_t *to, const float *from, int64_t ldf, int64_t n, int64_t k)
{
    for (int64_t c = 0; c < n; c += SIDE)
        for (int64_t d = 0; d < k; d += DEEP, to += TILE)
            for (int64_t i = 0; i < SIDE; i++) {
                const float *row = from + (d + 2 * i) * ldf + c;
                int64_t left = k - d - 2 * i;
                __m512 low = _mm512_maskz_loadu_ps(left > 0 ? first16(n - c) : 0, row);
                __m512 high = _mm512_maskz_loadu_ps(left > 1 ? first16(n - c) : 0, row + ldf);
                _mm512_storeu_si512(to + i * DEEP, round_pairs(low, high));
            }
}
