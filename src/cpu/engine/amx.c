/* AMX: eight tile registers of 16 rows x 64 bytes. One instruction adds the product of a tile of a, 16 rows of 32
 * numbers, and a tile of b, 16 pairs of 16 columns, to 16 x 16 sums.
 *
 * Four tiles hold 32 x 32 sums, two those of a and two those of b: four loads for four products. Sums start from
 * what c holds, faded before, or from zero, and go straight back; only scaled ones and those at an edge go through a
 * buffer. Configuring the tiles and letting them go takes as long as eight products, so it is done once a task. */
#include "cpu/engine/pairs_softmax.h"

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

/* A tile, and the next one of its panel is asked for: from the second-level cache a tile takes as long as its product. */
#define LOAD_NEXT(tile, from)        \
    do {                             \
        _tile_loadd(tile, from, 64); \
        ask_for((from) + TILE);      \
    } while (0)

static inline __attribute__((always_inline)) void ask_for(const uint16_t *tile)
{
    for (int i = 0; i < SIDE; i++) __builtin_prefetch(tile + i * DEEP);
}

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
        LOAD_NEXT(4, a);
        LOAD_NEXT(6, b);
        _tile_dpbf16ps(0, 4, 6);
        if (wide > 1) LOAD_NEXT(7, b + pitch);
        if (wide > 1) _tile_dpbf16ps(1, 4, 7);
        if (high > 1) LOAD_NEXT(5, a + pitch);
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

static void product(const mha_product *p)
{
    int64_t steps = tiles(p->k), pitch = steps * TILE;
    READS(p->a);
    if (p->fade) apply_fade(p->c, p->ldc, p->fade, p->m, p->n);
    for (int64_t j = 0; j < p->n; j += 2 * SIDE)
        for (int64_t i = 0; i < p->m; i += 2 * SIDE) {
            const uint16_t *a = p->a + i / SIDE * pitch, *b = p->b + j / SIDE * pitch;
            int64_t rows = p->m - i < 2 * SIDE ? p->m - i : 2 * SIDE, cols = p->n - j < 2 * SIDE ? p->n - j : 2 * SIDE;
            float *c = p->c + i * p->ldc + j;
            if (p->scale != 1.0f || rows % SIDE)
                edge_block(c, p->ldc, p->fade, p->scale, a, b, pitch, steps, rows, cols);
            else any_block(rows > SIDE, cols > SIDE, p->fade, c, p->ldc, a, b, pitch, steps);
        }
}

/* Products in small steps between which the vector units have other work: the loads and products of one step, or the
 * stores of a block. All of them are of whole blocks, two tiles wide, and what fades has faded. */
typedef struct stream {
    const mha_product *at, *end;
    int64_t row, step; /* of the block at work */
    int64_t rate;      /* steps to take at a time */
} stream;

static bool is_even(const mha_product *p)
{
    return p->scale == 1.0f && p->n == 2 * SIDE && p->m > 0 && p->m % (2 * SIDE) == 0 && p->k > 0;
}

static int64_t count_steps(const mha_product *p) { return p->m / (2 * SIDE) * (tiles(p->k) + 1); }

static inline __attribute__((always_inline)) void take_step(stream *s)
{
    const mha_product *p = s->at;
    int64_t steps = tiles(p->k), pitch = steps * TILE, bytes = p->ldc * 4;
    float *c = p->c + s->row * p->ldc, *lower = c + SIDE * p->ldc;
    if (s->step == steps) {
        _tile_stored(0, c, bytes);
        _tile_stored(1, c + SIDE, bytes);
        _tile_stored(2, lower, bytes);
        _tile_stored(3, lower + SIDE, bytes);
        s->step = 0;
        s->row += 2 * SIDE;
        if (s->row == p->m) s->row = 0, s->at++;
        return;
    }
    const uint16_t *a = p->a + s->row / SIDE * pitch + s->step * TILE, *b = p->b + s->step * TILE;
    if (s->step == 0 && p->fade) {
        _tile_loadd(0, c, bytes);
        _tile_loadd(1, c + SIDE, bytes);
        _tile_loadd(2, lower, bytes);
        _tile_loadd(3, lower + SIDE, bytes);
    } else if (s->step == 0) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + pitch, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + pitch, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    s->step++;
}

static inline __attribute__((always_inline)) void take_steps(void *state)
{
    stream *s = state;
    for (int64_t i = 0; i < s->rate && s->at < s->end; i++) take_step(s);
}

static void weigh(const mha_weighing *w, const mha_product *meanwhile, int products)
{
    mha_product even[MHA_MEANWHILE];
    int64_t evens = 0, steps = 0, groups = count_groups(w);
    for (int i = 0; i < products; i++) {
        const mha_product *p = &meanwhile[i];
        if (!is_even(p)) {
            product(p);
            continue;
        }
        if (p->fade) apply_fade(p->c, p->ldc, p->fade, p->m, p->n);
        steps += count_steps(p);
        even[evens++] = *p;
    }
    READS(even);
    stream s = {.at = even, .end = even + evens, .rate = (steps + groups - 1) / groups};
    weigh_tile(w, take_steps, &s);
    while (s.at < s.end) take_step(&s);
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

const mha_engine mha_engine_amx = {
    .name = "amx",
    .depth = 1024, /* sums stay in tiles: a block more is four loads and stores more, but no other bits */
    .open = open,
    .close = close,
    .pack_left = pack_left,
    .pack_right = pack_right,
    .round_left = round_left,
    .round_right = round_right,
    .product = product,
    .weigh = weigh,
    .spin = spin,
};
