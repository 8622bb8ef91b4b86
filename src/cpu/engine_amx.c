/* AMX: eight tile registers of 16 rows x 64 bytes. One instruction adds the product of a tile of a, 16 rows of 32
 * numbers, and a tile of b, 16 pairs of 16 columns, to 16 x 16 sums.
 *
 * Four tiles hold 32 x 32 sums, two those of a and two those of b: four loads for four products. Sums start from
 * what c holds, faded before, or from zero, and go straight back; only scaled ones and those at an edge go through a
 * buffer. Configuring the tiles and letting them go takes as long as eight products, so it is done once a task. */
#include "cpu/pairs_softmax.h"

/* The layout of LDTILECFG's operand. */
typedef struct configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} configuration;

/* Tile loads do not tell the compiler that they read memory: what was stored there must be there. */
#define READS(memory) __asm__ volatile("" : : "r"(memory) : "memory")

static void open(void)
{
    configuration all = {.palette = 1};
    for (int i = 0; i < 8; i++) all.row_bytes[i] = 64, all.rows[i] = SIDE;
    READS(&all);
    _tile_loadconfig(&all);
}

static void close(void) { _tile_release(); }

/* c (32,32), of which `high` tiles down and `wide` tiles across are wanted, 1 or 2 each: a b, on top of c if `onto`. */
static inline __attribute__((always_inline)) void block(const int high, const int wide, const bool onto, float *c,
                                                        int64_t ldc, const uint16_t *a, const uint16_t *b,
                                                        int64_t pitch, int64_t steps)
{
    float *lower = c + SIDE * ldc;
    int64_t bytes = ldc * 4;
    if (onto) {
        READS(c);
        _tile_loadd(0, c, bytes);
        if (wide > 1) _tile_loadd(1, c + SIDE, bytes);
        if (high > 1) _tile_loadd(2, lower, bytes);
        if (high > 1 && wide > 1) _tile_loadd(3, lower + SIDE, bytes);
    } else {
        _tile_zero(0);
        if (wide > 1) _tile_zero(1);
        if (high > 1) _tile_zero(2);
        if (high > 1 && wide > 1) _tile_zero(3);
    }
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
    _tile_stored(0, c, bytes);
    if (wide > 1) _tile_stored(1, c + SIDE, bytes);
    if (high > 1) _tile_stored(2, lower, bytes);
    if (high > 1 && wide > 1) _tile_stored(3, lower + SIDE, bytes);
}

static void any_block(bool high, bool wide, bool onto, float *c, int64_t ldc, const uint16_t *a, const uint16_t *b,
                      int64_t pitch, int64_t steps)
{
    if (high && wide && onto) block(2, 2, true, c, ldc, a, b, pitch, steps);
    else if (high && wide) block(2, 2, false, c, ldc, a, b, pitch, steps);
    else if (high) block(2, 1, onto, c, ldc, a, b, pitch, steps);
    else if (wide) block(1, 2, onto, c, ldc, a, b, pitch, steps);
    else block(1, 1, onto, c, ldc, a, b, pitch, steps);
}

/* c (rows,n) = fade * c; as it is where nothing fades. */
static void apply_fade(float *c, int64_t ldc, const float *fade, int64_t rows, int64_t n)
{
    for (int64_t j = 0; j < n; j += SIDE) {
        __m512 by = _mm512_loadu_ps(fade + j);
        if (_mm512_cmp_ps_mask(by, _mm512_set1_ps(1.0f), _CMP_NEQ_UQ) == 0) continue;
        for (int64_t r = 0; r < rows; r++)
            _mm512_storeu_ps(c + r * ldc + j, _mm512_mul_ps(_mm512_loadu_ps(c + r * ldc + j), by));
    }
}

/* A block that is scaled or ends inside a tile: `rows` rows of c, from and to a buffer. */
static void edge_block(float *c, int64_t ldc, bool onto, float scale, const uint16_t *a, const uint16_t *b,
                       int64_t pitch, int64_t steps, int64_t rows, int64_t n)
{
    _Alignas(64) float sums[4 * SIDE * SIDE];
    bool start = onto && scale == 1.0f; /* from c itself: the order of additions is the one of whole blocks */
    for (int64_t r = 0; start && r < rows; r++)
        for (int64_t j = 0; j < n; j += SIDE)
            _mm512_store_ps(sums + r * 2 * SIDE + j, _mm512_loadu_ps(c + r * ldc + j));
    any_block(rows > SIDE, n > SIDE, start, sums, 2 * SIDE, a, b, pitch, steps);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < n; j += SIDE) {
            __m512 x = _mm512_mul_ps(_mm512_load_ps(sums + r * 2 * SIDE + j), _mm512_set1_ps(scale));
            if (onto && !start) x = _mm512_add_ps(_mm512_loadu_ps(c + r * ldc + j), x);
            _mm512_storeu_ps(c + r * ldc + j, x);
        }
}

static void product(float *c, int64_t ldc, const float *fade, float scale, const uint16_t *a, const uint16_t *b,
                    int64_t m, int64_t n, int64_t k)
{
    int64_t steps = tiles(k), pitch = steps * TILE;
    if (fade) apply_fade(c, ldc, fade, m, n);
    for (int64_t j = 0; j < n; j += 2 * SIDE)
        for (int64_t i = 0; i < m; i += 2 * SIDE) {
            const uint16_t *left = a + i / SIDE * pitch, *right = b + j / SIDE * pitch;
            int64_t rows = m - i < 2 * SIDE ? m - i : 2 * SIDE, cols = n - j < 2 * SIDE ? n - j : 2 * SIDE;
            float *to = c + i * ldc + j;
            if (scale != 1.0f || rows % SIDE) edge_block(to, ldc, fade, scale, left, right, pitch, steps, rows, cols);
            else any_block(rows > SIDE, cols > SIDE, fade, to, ldc, left, right, pitch, steps);
        }
}

static double spin(int64_t rounds, float *sink)
{
    _Alignas(64) uint16_t some[TILE];
    _Alignas(64) float sums[SIDE * SIDE];
    for (int i = 0; i < TILE; i++) some[i] = (uint16_t)(0x3f00 + i % 100);
    open();
    READS(some);
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
    close();
    *sink += sums[0];
    return 2.0 * SIDE * SIDE * DEEP * 4 * (double)rounds;
}

const mha_engine mha_engine_amx = {"amx",      open,        close,   pack_left, pack_right,
                                   round_left, round_right, softmax, product,   spin};
