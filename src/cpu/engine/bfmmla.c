/* BFMMLA, the matrix multiply-add of Armv8.6: two rows of four against two columns of four, a 2 x 2 block of sums; and
 * BFDOT, four sums of two products, for few rows.
 *
 * Both factors lie alike: in panels of eight rows (or columns) and, within a panel, four k at a time: four pairs of
 * rows, each pair one vector. A block of c is 8 x 8: sixteen sums of 2 x 2, for which every four k take eight loads. */
#include "cpu/engine/engine.h"
#include "cpu/isa/repeat.h"
#include <arm_neon.h>
#include <string.h>

enum { PANEL = 8, DEEP = 4 };

typedef uint16x8_t vh;

static int64_t ceiling(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

static vh lows(vh a, vh b)
{
    return vreinterpretq_u16_u64(vzip1q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}
static vh highs(vh a, vh b)
{
    return vreinterpretq_u16_u64(vzip2q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}

/* Eight rows and eight k, from (8,8) as the rows lie: two steps of a panel. */
static void store_along(uint16_t *to, const vh row[PANEL])
{
    for (int i = 0; i < PANEL; i += 2) {
        vst1q_u16(to + i * DEEP, lows(row[i], row[i + 1]));
        vst1q_u16(to + (PANEL + i) * DEEP, highs(row[i], row[i + 1]));
    }
}

/* Eight rows and four k, from (4,8): one step of a panel. */
static void store_across(uint16_t *to, vh k0, vh k1, vh k2, vh k3)
{
    uint32x4_t a = vreinterpretq_u32_u16(vtrn1q_u16(k0, k1)), b = vreinterpretq_u32_u16(vtrn2q_u16(k0, k1));
    uint32x4_t c = vreinterpretq_u32_u16(vtrn1q_u16(k2, k3)), d = vreinterpretq_u32_u16(vtrn2q_u16(k2, k3));
    vh even = vreinterpretq_u16_u32(vtrn1q_u32(a, c)), odd = vreinterpretq_u16_u32(vtrn1q_u32(b, d));
    vh even2 = vreinterpretq_u16_u32(vtrn2q_u32(a, c)), odd2 = vreinterpretq_u16_u32(vtrn2q_u32(b, d));
    vst1q_u16(to, lows(even, odd));
    vst1q_u16(to + 8, lows(even2, odd2));
    vst1q_u16(to + 16, highs(even, odd));
    vst1q_u16(to + 24, highs(even2, odd2));
}

/* Up to eight numbers, then zeros. */
static vh load_some(const uint16_t *from, int64_t n)
{
    uint16_t padded[8] = {0};
    if (n >= 8) return vld1q_u16(from);
    for (int64_t i = 0; i < n; i++) padded[i] = from[i];
    return vld1q_u16(padded);
}

static vh round_eight(const float *from)
{
    bfloat16x8_t low = vcvtq_low_bf16_f32(vld1q_f32(from));
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(low, vld1q_f32(from + 4)));
}

static vh round_some(const float *from, int64_t n)
{
    float padded[8] = {0};
    if (n >= 8) return round_eight(from);
    for (int64_t i = 0; i < n; i++) padded[i] = from[i];
    return round_eight(padded);
}

/* A factor of `rows` rows from (rows,k) as they lie. Steps come in pairs here; the last one may be half a pair. */
static void pack_along(uint16_t *to, const void *from, bool rounding, int64_t ldf, int64_t rows, int64_t k)
{
    int64_t steps = ceiling(k, DEEP);
    for (int64_t r = 0; r < rows; r += PANEL)
        for (int64_t step = 0; step < steps; step += 2) {
            if (!rounding && step % 8 == 0)
                mha_engine_ask((const uint16_t *)from + (r + PANEL) * ldf, ldf, k, step, PANEL);
            uint16_t both[2 * PANEL * DEEP], *place = to + (r / PANEL * steps + step) * PANEL * DEEP;
            vh row[PANEL];
            for (int i = 0; i < PANEL; i++) {
                int64_t at = (r + i) * ldf + step * DEEP, left = r + i < rows ? k - step * DEEP : 0;
                row[i] = rounding ? round_some((const float *)from + at, left)
                                  : load_some((const uint16_t *)from + at, left);
            }
            bool last = step + 1 == steps;
            store_along(last ? both : place, row);
            if (last) memcpy(place, both, PANEL * DEEP * sizeof *both);
        }
}

/* A factor of `rows` rows from (k,rows). */
static void pack_across(uint16_t *to, const void *from, bool rounding, int64_t ldf, int64_t rows, int64_t k)
{
    for (int64_t r = 0; r < rows; r += PANEL)
        for (int64_t j = 0; j < k; j += DEEP, to += PANEL * DEEP) {
            vh row[DEEP];
            for (int i = 0; i < DEEP; i++) {
                int64_t at = (j + i) * ldf + r, left = j + i < k ? rows - r : 0;
                row[i] = rounding ? round_some((const float *)from + at, left)
                                  : load_some((const uint16_t *)from + at, left);
            }
            store_across(to, row[0], row[1], row[2], row[3]);
        }
}

static void pack(uint16_t *to, const uint16_t *from, int64_t ldf, bool along, int64_t rows, int64_t k)
{
    if (along) pack_along(to, from, false, ldf, rows, k);
    else pack_across(to, from, false, ldf, rows, k);
}

static void round_left(uint16_t *to, const float *from, int64_t ldf, int64_t m, int64_t k)
{
    pack_along(to, from, true, ldf, m, k);
}

static void round_right(uint16_t *to, const float *from, int64_t ldf, int64_t n, int64_t k)
{
    pack_across(to, from, true, ldf, n, k);
}

/* Four numbers of a row of c. */
static inline void finish(float *c, const float *fade, float scale, float32x4_t sum)
{
    sum = vmulq_n_f32(sum, scale);
    vst1q_f32(c, fade ? vfmaq_f32(sum, vld1q_f32(c), vld1q_f32(fade)) : sum);
}

/* Rows [0, rows) and columns [0, cols) of an 8 x 8 block, cols 4 or 8. */
static void block(float *c, int64_t ldc, const float *fade, float scale, const uint16_t *a, const uint16_t *b,
                  int64_t rows, int64_t cols, int64_t steps)
{
    float32x4_t sum[4][4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) sum[i][j] = vdupq_n_f32(0.0f);
    for (int64_t s = 0; s < steps; s++, a += PANEL * DEEP, b += PANEL * DEEP) {
        bfloat16x8_t right[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) right[j] = vreinterpretq_bf16_u16(vld1q_u16(b + 8 * j));
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            bfloat16x8_t left = vreinterpretq_bf16_u16(vld1q_u16(a + 8 * i));
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) sum[i][j] = vbfmmlaq_f32(sum[i][j], left, right[j]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
        for (int j = 0; j < 4; j += 2) {
            float64x2_t x = vreinterpretq_f64_f32(sum[i][j]), y = vreinterpretq_f64_f32(sum[i][j + 1]);
            float *to = c + 2 * i * ldc + 2 * j;
            const float *by = fade ? fade + 2 * j : fade;
            if (2 * j < cols && 2 * i < rows) finish(to, by, scale, vreinterpretq_f32_f64(vzip1q_f64(x, y)));
            if (2 * j < cols && 2 * i + 1 < rows) finish(to + ldc, by, scale, vreinterpretq_f32_f64(vzip2q_f64(x, y)));
        }
}

static void product(const mha_product *p)
{
    int64_t steps = ceiling(p->k, DEEP), pitch = steps * PANEL * DEEP;
    for (int64_t j = 0; j < p->n; j += PANEL)
        for (int64_t i = 0; i < p->m; i += PANEL)
            block(p->c + i * p->ldc + j, p->ldc, p->fade ? p->fade + j : NULL, p->scale, p->a + i / PANEL * pitch,
                  p->b + j / PANEL * pitch, p->m - i, p->n - j, steps);
}

enum { AHEAD = 2 * MHA_KEYS }; /* keys that are asked for before it is their turn */

/* Eight numbers of each of `keys` keys times those of `rows` rows, onto the sums; the last eight with zeros. */
static inline __attribute__((always_inline)) void dots_step(const int rows, const int keys, float32x4_t *sum,
                                                            const uint16_t *q, int64_t ldq, const uint16_t *k,
                                                            int64_t ldk, int64_t left)
{
    bfloat16x8_t row[4];
    REPEAT (r, rows) row[r] = vreinterpretq_bf16_u16(load_some(q + r * ldq, left));
    REPEAT (i, keys) {
        bfloat16x8_t key = vreinterpretq_bf16_u16(load_some(k + i * ldk, left));
        REPEAT (r, rows) sum[r * keys + i] = vbfdotq_f32(sum[r * keys + i], row[r], key);
    }
}

/* s (rows,keys), keys 1 or a multiple of 4. */
static inline __attribute__((always_inline)) void dots_keys(const int rows, const int keys, float *s, int64_t lds,
                                                            const uint16_t *q, int64_t ldq, const uint16_t *k,
                                                            int64_t ldk, int64_t D)
{
    float32x4_t sum[16];
    int64_t d = 0;
    REPEAT (i, rows * keys) sum[i] = vdupq_n_f32(0.0f);
    for (; d + 8 <= D; d += 8) {
        if (d % 32 == 0)
            REPEAT (i, keys)
                __builtin_prefetch((const void *)((uintptr_t)(k + i * ldk + d) + (uintptr_t)(AHEAD * ldk * 2)), 0, 1);
        dots_step(rows, keys, sum, q + d, ldq, k + d, ldk, 8);
    }
    if (d < D) dots_step(rows, keys, sum, q + d, ldq, k + d, ldk, D - d);
    REPEAT (r, rows) {
        const float32x4_t *of = sum + r * keys;
        if (keys == 1) s[r * lds] = vaddvq_f32(of[0]);
        REPEAT (i, keys / 4)
            vst1q_f32(s + r * lds + 4 * i,
                      vpaddq_f32(vpaddq_f32(of[4 * i], of[4 * i + 1]), vpaddq_f32(of[4 * i + 2], of[4 * i + 3])));
    }
}

static inline __attribute__((always_inline)) void dots_rows(const int rows, float *s, int64_t lds, const uint16_t *q,
                                                            int64_t ldq, const uint16_t *k, int64_t ldk, int64_t count,
                                                            int64_t D)
{
    const int keys = rows <= 2 ? 8 : 4;
    int64_t j = 0;
    for (; j + keys <= count; j += keys) dots_keys(rows, keys, s + j, lds, q, ldq, k + j * ldk, ldk, D);
    for (; j < count; j++) dots_keys(rows, 1, s + j, lds, q, ldq, k + j * ldk, ldk, D);
}

/* Four rows or two at a time, and one that is left. Keys come in groups that L1 keeps for all rows. */
static void dots(float *s, int64_t lds, const uint16_t *q, int64_t ldq, int64_t rows, const uint16_t *k, int64_t ldk,
                 int64_t count, int64_t D)
{
    for (int64_t j = 0; j < count; j += 16)
        for (int64_t r = 0, step; r < rows; r += step) {
            int64_t left = count - j < 16 ? count - j : 16;
            step = rows - r >= 4 ? 4 : rows - r >= 2 ? 2 : 1;
            if (step == 4) dots_rows(4, s + r * lds + j, lds, q + r * ldq, ldq, k + j * ldk, ldk, left, D);
            if (step == 2) dots_rows(2, s + r * lds + j, lds, q + r * ldq, ldq, k + j * ldk, ldk, left, D);
            if (step == 1) dots_rows(1, s + r * lds + j, lds, q + r * ldq, ldq, k + j * ldk, ldk, left, D);
        }
}

static double spin(int64_t rounds, float *sink)
{
    float32x4_t sum[20];
    uint16_t some[16];
    for (int i = 0; i < 16; i++) some[i] = (uint16_t)(0x3f00 + i);
#pragma GCC unroll 20
    for (int i = 0; i < 20; i++) sum[i] = vdupq_n_f32(*sink + (float)i);
    for (int64_t r = 0; r < rounds; r++) {
        const uint16_t *fresh = some; /* factors are loaded in every round, as in a product */
        __asm__ volatile("" : "+r"(fresh) : : "memory");
        bfloat16x8_t x[] = {vreinterpretq_bf16_u16(vld1q_u16(fresh)), vreinterpretq_bf16_u16(vld1q_u16(fresh + 8))};
#pragma GCC unroll 20
        for (int i = 0; i < 20; i++) sum[i] = vbfmmlaq_f32(sum[i], x[i % 2], x[1]);
    }
#pragma GCC unroll 20
    for (int i = 1; i < 20; i++) sum[0] = vaddq_f32(sum[0], sum[i]);
    *sink = vgetq_lane_f32(sum[0], 0);
    return 2.0 * 16 * 20 * (double)rounds;
}

static void nothing(void) {}

const mha_engine mha_engine_bfmmla = {
    .name = "bfmmla",
    .depth = 256,
    .open = nothing,
    .close = nothing,
    .pack_left = pack,
    .pack_right = pack,
    .round_left = round_left,
    .round_right = round_right,
    .product = product,
    .dots = dots,
    .spin = spin,
};
