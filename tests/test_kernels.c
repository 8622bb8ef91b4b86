/* Every operation of every table of kernels that this machine has, one by one, against float64 and against the plain
 * conversions of core/half.h. The attention tests above them see only their sum. */
#include "harness.h"
#include "core/half.h"
#include "core/random.h"
#include "cpu/kernels.h"

#define UNIT 0x1p-24 /* half the distance from 1 to the next float */

static unsigned state = 1;

/* A number from -1 to 1, the same ones in every run. */
static float some(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) * 0x1p-23f - 1.0f;
}

/* Runs a check on each table that the machine has, and makes sure that it is the one it was meant to be. */
static void each_table(void (*check)(const mha_kernels *kernels))
{
    for (int i = 0; i < mha_isa_count(); i++) {
        mha_isa isa = mha_isa_get(i);
        if (!isa.available) continue;
        mha_context_options options = MHA_CONTEXT_DEFAULTS;
        options.isa = isa.name;
        mha_context *ctx = NULL;
        if (!expect(mha_context_create(&ctx, &options) == MHA_OK, "no context for %s", isa.name)) continue;
        expect(strcmp(ctx->kernels->name, isa.name) == 0, "asked for %s, got %s", isa.name, ctx->kernels->name);
        check(ctx->kernels);
        mha_context_free(ctx);
    }
}

enum { WIDE = 64, DEEP = 68, HIGH = 30 };

static void check_product(const mha_kernels *kernels, int64_t m, int64_t n, int64_t k, const float *keep)
{
    static float a[HIGH * DEEP], b[DEEP * WIDE], c[HIGH * (WIDE + 16)], before[HIGH * (WIDE + 16)];
    const int64_t ldc = WIDE + 16;
    for (int i = 0; i < HIGH * DEEP; i++) a[i] = some();
    for (int i = 0; i < DEEP * WIDE; i++) b[i] = some();
    for (int i = 0; i < HIGH * ldc; i++) before[i] = c[i] = some();
    kernels->product(c, ldc, keep, a, DEEP, b, WIDE, m, n, k);
    for (int64_t r = 0; r < HIGH; r++)
        for (int64_t j = 0; j < ldc; j++) {
            float got = c[r * ldc + j], old = before[r * ldc + j];
            if (r >= m || j >= n) {
                expect(got == old, "%s: product wrote outside, at (%d,%d)", kernels->name, (int)r, (int)j);
                continue;
            }
            double want = keep ? (double)keep[r] * (double)old : 0, size = fabs(want);
            for (int64_t i = 0; i < k; i++) {
                double term = (double)a[r * DEEP + i] * (double)b[i * WIDE + j];
                want += term;
                size += fabs(term);
            }
            expect(fabs((double)got - want) <= 2 * UNIT * (double)(k + 1) * size,
                   "%s: (%d,%d,%d) at (%d,%d): %g not %g", kernels->name, (int)m, (int)n, (int)k, (int)r, (int)j,
                   (double)got, want);
        }
    for (int64_t r = 0; r < m; r++) { /* a row alone has the same bits */
        float alone[WIDE];
        memcpy(alone, before + r * ldc, sizeof alone);
        kernels->product(alone, WIDE, keep ? keep + r : NULL, a + r * DEEP, DEEP, b, WIDE, 1, n, k);
        expect(memcmp(alone, c + r * ldc, (size_t)n * sizeof(float)) == 0, "%s: row %d of %d moves with its company",
               kernels->name, (int)r, (int)m);
    }
}

static void check_products(const mha_kernels *kernels)
{
    static const int64_t heights[] = {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 24, 29}, widths[] = {16, 32, 48, 64};
    float keep[HIGH];
    for (int i = 0; i < HIGH; i++) keep[i] = some();
    for (size_t h = 0; h < sizeof heights / sizeof *heights; h++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            for (int64_t k = 4; k <= DEEP; k += 32) {
                check_product(kernels, heights[h], widths[w], k, NULL);
                check_product(kernels, heights[h], widths[w], k, keep);
            }
}

TEST(product_is_the_product_and_rows_are_independent) { each_table(check_products); }

/* The distance between a float and the true value, in units in the last place of the latter. */
static double ulps(float got, double want)
{
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

static void check_exp(const mha_kernels *kernels)
{
    double worst = 0, at = 0;
    uint32_t last = mha_bits(-87.3f);
    for (uint32_t bits = 0x80000000u; bits < last; bits += 16 * 97) {
        float x[16], y[16];
        for (uint32_t i = 0; i < 16; i++) x[i] = y[i] = mha_from_bits(bits + i * 97);
        kernels->exponentials(y, 16, 0.0f, 1.0f);
        for (int i = 0; i < 16; i++) {
            double error = x[i] >= -87.3f ? ulps(y[i], exp((double)x[i])) : 0;
            if (error > worst) worst = error, at = (double)x[i];
        }
    }
    expect(worst <= 1, "%s: exp is off by %.2f units in the last place at %g", kernels->name, worst, at);
    float ends[16] = {0.0f, -0.0f, -INFINITY, -1e30f, -89.0f, NAN, -88.5f};
    kernels->exponentials(ends, 16, 0.0f, 1.0f);
    expect(ends[0] == 1.0f && ends[1] == 1.0f, "%s: exp(0) is %g", kernels->name, (double)ends[0]);
    expect(ends[2] == 0.0f && ends[3] == 0.0f && ends[4] == 0.0f && ends[6] == 0.0f, "%s: exp(-inf) is %g",
           kernels->name, (double)ends[2]);
    expect(isnan(ends[5]), "%s: exp(NaN) is %g", kernels->name, (double)ends[5]);
}

TEST(exp_is_within_one_unit_in_the_last_place) { each_table(check_exp); }

/* Two tiles of a streaming softmax: one row that sees all, one nothing in the first, one nothing at all, one a NaN. */
static void check_softmax(const mha_kernels *kernels)
{
    enum { ROWS = 4, COLS = 48 };
    float s[2][ROWS * WIDE], raw[2][ROWS * WIDE], max[16], sum[16], fade[16];
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < ROWS * WIDE; i++) {
            bool hidden = i / WIDE == 2 || (i / WIDE == 1 && t == 0);
            raw[t][i] = hidden ? -INFINITY : 20 * some() + (t ? 10.0f : 0.0f);
        }
    raw[1][3 * WIDE + 5] = NAN;
    for (int r = 0; r < ROWS; r++) max[r] = -INFINITY, sum[r] = 0;
    memcpy(s, raw, sizeof s);
    for (int t = 0; t < 2; t++) kernels->softmax(s[t], WIDE, ROWS, COLS, max, sum, fade);
    for (int r = 0; r < 2; r++) {
        double top = -INFINITY, total = 0;
        for (int i = 0; i < 2 * COLS; i++) top = fmax(top, (double)raw[i / COLS][r * WIDE + i % COLS]);
        for (int i = 0; i < 2 * COLS; i++) total += exp((double)raw[i / COLS][r * WIDE + i % COLS] - top);
        expect((double)max[r] == top, "%s: maximum %g, not %g", kernels->name, (double)max[r], top);
        expect(fabs((double)sum[r] - total) < 1e-5 * total, "%s: sum %g, not %g", kernels->name, (double)sum[r], total);
        for (int j = 0; j < COLS; j++) {
            double want = exp((double)raw[1][r * WIDE + j] - top);
            expect(fabs((double)s[1][r * WIDE + j] - want) <= (3e-7 + 2 * UNIT * 50) * want + 1e-38,
                   "%s: P is %g, not %g", kernels->name, (double)s[1][r * WIDE + j], want);
        }
    }
    expect(max[2] == -INFINITY && sum[2] == 0 && s[1][2 * WIDE] == 0, "%s: an unseeing row is not empty",
           kernels->name);
    expect(isnan(sum[3]), "%s: a NaN score was lost", kernels->name);
}

TEST(softmax_streams) { each_table(check_softmax); }

static void check_scores(const mha_kernels *kernels)
{
    float s[WIDE], before[WIDE], bias[WIDE];
    uint8_t mask[WIDE];
    for (int i = 0; i < WIDE; i++) {
        before[i] = 30 * some();
        bias[i] = i % 7 == 3 ? -INFINITY : some();
        mask[i] = (uint8_t)(i % 5 == 2 ? 0 : i % 3 == 0 ? 255 : 1);
    }
    before[3] = NAN; /* hidden by its bias */
    before[2] = NAN; /* hidden by its mask */
    memcpy(s, before, sizeof s);
    kernels->add_bias(s, bias, WIDE);
    for (int i = 0; i < WIDE; i++)
        expect(s[i] == (i % 7 == 3 ? -INFINITY : before[i] + bias[i]) || i == 2, "%s: bias at %d: %g", kernels->name, i,
               (double)s[i]);
    memcpy(s, before, sizeof s);
    kernels->hide(s, mask, WIDE);
    for (int i = 0; i < WIDE; i++)
        expect(mask[i] ? s[i] == before[i] || i == 3 : s[i] == -INFINITY, "%s: mask at %d", kernels->name, i);
    for (int i = 0; i < WIDE; i++) s[i] = before[i] = some();
    kernels->add_slope(s, WIDE, 0.25f, 20.0f);
    for (int i = 0; i < WIDE; i++)
        expect(fabs((double)s[i] - ((double)before[i] - 0.25 * abs(20 - i))) < 1e-6, "%s: slope at %d", kernels->name,
               i);
}

TEST(bias_mask_and_slope) { each_table(check_scores); }

static void check_softcap(const mha_kernels *kernels)
{
    for (int round = 0; round < 2000; round++) {
        float s[16], before[16], cap = round % 2 ? 30.0f : 0.5f;
        for (int i = 0; i < 16; i++) s[i] = before[i] = some() * ldexpf(cap, round % 12 - 6);
        kernels->softcap(s, 16, cap);
        for (int i = 0; i < 16; i++) {
            double want = (double)cap * tanh((double)before[i] / (double)cap);
            expect(fabs((double)s[i] - want) <= 8 * UNIT * fabs(want), "%s: softcap(%g) is %g, not %g", kernels->name,
                   (double)before[i], (double)s[i], want);
        }
    }
    float ends[16] = {INFINITY, -INFINITY, NAN};
    kernels->softcap(ends, 16, 2.0f);
    expect(ends[0] == 2 && ends[1] == -2 && isnan(ends[2]), "%s: softcap of infinities", kernels->name);
}

TEST(softcap_is_tanh) { each_table(check_softcap); }

TEST(philox_known_answers) /* the authors' own, for counter and key of zeros, of ones and of pi */
{
    uint32_t zeros[4] = {0, 0, 0, 0}, ones[4] = {~0u, ~0u, ~0u, ~0u};
    uint32_t pi[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    mha_philox(zeros, 0);
    mha_philox(ones, UINT64_MAX);
    mha_philox(pi, UINT64_C(0x299f31d0a4093822));
    expect(zeros[0] == 0x6627e8d5 && zeros[3] == 0x9b00dbd8, "zeros give %08x", zeros[0]);
    expect(ones[0] == 0x408f276d && ones[3] == 0x6d5451fd, "ones give %08x", ones[0]);
    expect(pi[0] == 0xd16cfe09 && pi[3] == 0x24126ea1, "pi gives %08x", pi[0]);
}

static void check_drop(const mha_kernels *kernels)
{
    mha_drop_row row = {UINT64_C(0x123456789abcdef0), 7, 3, 11, (uint64_t)(0.3 * 0x1p32)};
    int64_t first = INT64_C(4) << 31;
    float p[WIDE];
    for (int i = 0; i < WIDE; i++) p[i] = 1;
    kernels->drop(p, WIDE, first, &row);
    for (int64_t i = 0; i < WIDE; i++) {
        uint32_t c[4] = {(uint32_t)((first + i) / 4), row.query, row.head, row.stream};
        mha_philox(c, row.seed);
        expect(p[i] == (c[i % 4] < row.threshold ? 0.0f : 1.0f), "%s: dropout at %d", kernels->name, (int)i);
    }
}

TEST(dropout_is_philox_by_position) { each_table(check_drop); }

static void check_rows(const mha_kernels *kernels)
{
    float x[WIDE], y[WIDE], t[WIDE * 5], from[5 * WIDE];
    for (int i = 0; i < WIDE; i++) x[i] = y[i] = some();
    kernels->multiply(y, WIDE, 3.0f);
    for (int i = 0; i < WIDE; i++) expect(y[i] == x[i] * 3.0f, "%s: multiply at %d", kernels->name, i);
    kernels->add(y, x, WIDE, -3.0f);
    for (int i = 0; i < WIDE; i++) expect(fabsf(y[i]) < 4e-7f, "%s: add at %d: %g", kernels->name, i, (double)y[i]);
    expect(kernels->finite(x, WIDE), "%s: finite numbers", kernels->name);
    for (int i = 0; i < WIDE; i++)
        for (int k = 0; k < 3; k++) {
            memcpy(y, x, sizeof y);
            y[i] = k == 0 ? INFINITY : k == 1 ? -INFINITY : NAN;
            float most = kernels->largest(y, WIDE);
            expect(k < 2 ? isinf(most) : isnan(most), "%s: the largest of them is %g", kernels->name, (double)most);
            expect(!kernels->finite(y, WIDE), "%s: %g at %d passes for finite", kernels->name, (double)y[i], i);
        }
    memcpy(y, x, sizeof y);
    y[WIDE / 2 + 1] = -7.5f;
    expect(kernels->largest(y, WIDE) == 7.5f, "%s: the largest of them", kernels->name);
    for (int64_t rows = 1; rows <= WIDE; rows += 7) {
        for (int i = 0; i < 5 * WIDE; i++) from[i] = some(), t[i] = -9;
        kernels->transpose(t, WIDE, from, 5, rows, 5);
        for (int64_t r = 0; r < WIDE; r++)
            for (int64_t c = 0; c < 5; c++)
                expect(t[c * WIDE + r] == (r < rows ? from[r * 5 + c] : -9.0f), "%s: transpose", kernels->name);
    }
}

TEST(rows_multiply_add_judge_transpose) { each_table(check_rows); }

/* All 65,536 numbers of a 16-bit type, and for narrowing all floats at and around the middle between two of them. */
static void check_half(const mha_kernels *kernels, bool brain)
{
    static uint16_t half[65536], back[65536];
    static float wide[65536], off[65536];
    for (uint32_t i = 0; i < 65536; i++) half[i] = (uint16_t)i;
    (brain ? kernels->widen_bf16 : kernels->widen_f16)(wide, half, 65535);
    (brain ? kernels->narrow_bf16 : kernels->narrow_f16)(back, wide, 65535);
    for (int i = 0; i < 65535; i++) {
        float want = brain ? mha_bf16_to_f32(half[i]) : mha_f16_to_f32(half[i]);
        expect(isnan(want) ? isnan(wide[i]) : wide[i] == want, "%s: %04x widens to %g", kernels->name, i,
               (double)wide[i]);
        expect(isnan(want) || back[i] == half[i], "%s: %04x comes back as %04x", kernels->name, i, back[i]);
    }
    for (int nudge = -1; nudge <= 1; nudge++) {
        for (uint32_t i = 0; i < 65535; i++) {
            uint32_t middle = brain ? i << 16 | 0x8000 : mha_bits(0.5f * (wide[i] + wide[i + 1]));
            off[i] = mha_from_bits(middle + (uint32_t)nudge);
        }
        (brain ? kernels->narrow_bf16 : kernels->narrow_f16)(back, off, 65535);
        for (int i = 0; i < 65535; i++) {
            uint16_t want = brain ? mha_f32_to_bf16(off[i]) : mha_f32_to_f16(off[i]);
            float as_float = brain ? mha_bf16_to_f32(back[i]) : mha_f16_to_f32(back[i]);
            expect(isnan(off[i]) ? isnan(as_float) : back[i] == want, "%s: %a narrows to %04x, not %04x", kernels->name,
                   (double)off[i], back[i], want);
        }
    }
}

static void check_halves(const mha_kernels *kernels)
{
    check_half(kernels, true);
    check_half(kernels, false);
}

TEST(sixteen_bit_types_convert_alike_everywhere) { each_table(check_halves); }

/* The plain conversions themselves: to nearest, ties to even, judged by the two neighbours in float64. */
TEST(sixteen_bit_rounding_is_to_nearest_even)
{
    for (int i = 0; i < 200000; i++) {
        float x = ldexpf(some(), (int)(state >> 20) % 34 - 26);
        for (int brain = 0; brain < 2; brain++) {
            uint16_t h = brain ? mha_f32_to_bf16(x) : mha_f32_to_f16(x);
            double error = fabs((double)(brain ? mha_bf16_to_f32(h) : mha_f16_to_f32(h)) - (double)x);
            for (int side = -1; side <= 1; side += 2) {
                uint16_t n = (uint16_t)(h + side);
                double other = fabs((double)(brain ? mha_bf16_to_f32(n) : mha_f16_to_f32(n)) - (double)x);
                expect(error < other || (error == other && !(h & 1)) || ((h & 0x7fff) == 0), "%a became %04x",
                       (double)x, h);
            }
        }
    }
}
