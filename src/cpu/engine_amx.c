/* AMX: eight tile registers of 16 rows x 64 bytes. One instruction adds the product of a tile of a, 16 rows of 32 numbers,
 * and a tile of b, 16 pairs of 16 columns, to 16 x 16 sums.
 *
 * Four tiles hold 32 x 32 sums, two those of a and two those of b: four loads for four products. Sums leave through a
 * buffer in L1, where c is faded and scaled. The tiles are configured and let go in every call: their state is then no
 * burden to the system between calls, for the price of a few dozen cycles. */
#include "cpu/pairs_body.h"
#include <string.h>

/* The layout of LDTILECFG's operand. */
typedef struct configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} configuration;

static void configure(void)
{
    configuration all = {.palette = 1};
    for (int i = 0; i < 8; i++) all.row_bytes[i] = 64, all.rows[i] = SIDE;
    _tile_loadconfig(&all);
}

/* sums (32,32), of which `high` tiles down and `wide` tiles across are wanted, 1 or 2 each. */
static inline __attribute__((always_inline)) void block(const int high, const int wide, float *sums, const uint16_t *a,
                                                        const uint16_t *b, int64_t pitch, int64_t steps)
{
    _tile_zero(0);
    if (wide > 1) _tile_zero(1);
    if (high > 1) _tile_zero(2);
    if (high > 1 && wide > 1) _tile_zero(3);
    for (int64_t s = 0; s < steps; s++, a += TILE, b += TILE) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (wide > 1) _tile_loadd(7, b + pitch, 64);
        if (wide > 1) _tile_dpbf16ps(1, 4, 7);
        if (high > 1) _tile_loadd(5, a + pitch, 64);
        if (high > 1) _tile_dpbf16ps(2, 5, 6);
        if (high > 1 && wide > 1) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 128);
    if (wide > 1) _tile_stored(1, sums + SIDE, 128);
    if (high > 1) _tile_stored(2, sums + SIDE * 2 * SIDE, 128);
    if (high > 1 && wide > 1) _tile_stored(3, sums + SIDE * 2 * SIDE + SIDE, 128);
}

/* `rows` rows of `vectors` vectors on their way to c. */
static void finish(float *c, int64_t ldc, const float *fade, float scale, const float *sums, int64_t rows,
                   int64_t vectors)
{
    __m512 by = _mm512_set1_ps(scale);
    for (int64_t v = 0; v < vectors; v++) {
        __m512 left = fade ? _mm512_loadu_ps(fade + v * SIDE) : _mm512_setzero_ps();
        for (int64_t r = 0; r < rows; r++) {
            float *to = c + r * ldc + v * SIDE;
            __m512 x = _mm512_mul_ps(_mm512_load_ps(sums + r * 2 * SIDE + v * SIDE), by);
            _mm512_storeu_ps(to, fade ? _mm512_fmadd_ps(_mm512_loadu_ps(to), left, x) : x);
        }
    }
}

static void product(float *c, int64_t ldc, const float *fade, float scale, const uint16_t *a, const uint16_t *b,
                    int64_t m, int64_t n, int64_t k)
{
    _Alignas(64) float sums[4 * SIDE * SIDE];
    int64_t steps = tiles(k), pitch = steps * TILE;
    configure();
    for (int64_t j = 0; j < n; j += 2 * SIDE)
        for (int64_t i = 0; i < m; i += 2 * SIDE) {
            const uint16_t *left = a + i / SIDE * pitch, *right = b + j / SIDE * pitch;
            bool high = m - i > SIDE, wide = n - j > SIDE;
            if (high && wide) block(2, 2, sums, left, right, pitch, steps);
            else if (high) block(2, 1, sums, left, right, pitch, steps);
            else if (wide) block(1, 2, sums, left, right, pitch, steps);
            else block(1, 1, sums, left, right, pitch, steps);
            finish(c + i * ldc + j, ldc, fade ? fade + j : fade, scale, sums, m - i < 2 * SIDE ? m - i : 2 * SIDE,
                   wide ? 2 : 1);
        }
    _tile_release();
}

static double spin(int64_t rounds, float *sink)
{
    _Alignas(64) uint16_t some[TILE];
    _Alignas(64) float sums[SIDE * SIDE];
    for (int i = 0; i < TILE; i++) some[i] = (uint16_t)(0x3f00 + i % 100);
    configure();
    __asm__ volatile("" : : "r"(some) : "memory"); /* a tile load does not tell the compiler that it reads memory */
    _tile_loadd(4, some, 64);
    _tile_loadd(5, some, 64);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_stored(3, sums, 64);
    _tile_release();
    *sink += sums[0];
    return 2.0 * SIDE * SIDE * DEEP * 4 * (double)rounds;
}

const mha_engine mha_engine_amx = {"amx", pack_left, pack_right, round_left, round_right, product, spin};
