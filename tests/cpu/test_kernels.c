/* The operations of every table of kernels that this machine has that make attention, one by one, against float64. The
 * attention tests see only what they give together. Operations on rows: test_kernels_rows.c. */
#include "kernel_tables.h"
#include "core/half.h"

static void check_product(const mha_kernels *kernels, int64_t m, int64_t n, int64_t k, const float *fade)
{
    static float a[DEEP * HIGH], b[DEEP * WIDE];
    static tile c, before;
    fill(a, DEEP * HIGH, 1);
    fill(b, DEEP * WIDE, 1);
    fill(before, HIGH * LD, 1);
    memcpy(c, before, sizeof c);
    kernels->product(c, LD, fade, a, HIGH, b, WIDE, m, n, k);
    for (int64_t r = 0; r < HIGH; r++)
        for (int64_t j = 0; j < LD; j++) {
            float got = c[r * LD + j], old = before[r * LD + j];
            if (r >= m || j >= n) {
                expect(got == old, "%s: product wrote outside, at (%d,%d)", kernels->name, (int)r, (int)j);
                continue;
            }
            double want = fade ? (double)fade[j] * (double)old : 0, size = fabs(want);
            for (int64_t i = 0; i < k; i++) {
                double term = (double)a[i * HIGH + r] * (double)b[i * WIDE + j];
                want += term;
                size += fabs(term);
            }
            expect(fabs((double)got - want) <= 2 * UNIT * (double)(k + 1) * size,
                   "%s: (%d,%d,%d) at (%d,%d): %g not %g", kernels->name, (int)m, (int)n, (int)k, (int)r, (int)j,
                   (double)got, want);
        }
    int64_t lanes = kernels->lanes; /* a vector of lanes alone has the same bits */
    for (int64_t j = 0; j < n; j += lanes) {
        static float alone[HIGH * 16];
        for (int64_t r = 0; r < m; r++) memcpy(alone + r * lanes, before + r * LD + j, (size_t)lanes * sizeof(float));
        kernels->product(alone, lanes, fade ? fade + j : NULL, a, HIGH, b + j, WIDE, m, lanes, k);
        for (int64_t r = 0; r < m; r++)
            expect(memcmp(alone + r * lanes, c + r * LD + j, (size_t)lanes * sizeof(float)) == 0,
                   "%s: lanes at %d of %d move with their company", kernels->name, (int)j, (int)n);
    }
}

static void check_products(const mha_kernels *kernels)
{
    float fade[WIDE];
    fill(fade, WIDE, 1);
    for (int64_t m = 4; m <= HIGH; m += m < 28 ? 4 : 12)
        for (int64_t n = kernels->lanes; n <= WIDE; n += kernels->lanes > 4 ? kernels->lanes : 4)
            for (int64_t k = 0; k <= DEEP; k = 4 * k + 3) {
                if (!sampled()) continue;
                check_product(kernels, m, n, k, NULL);
                check_product(kernels, m, n, k, fade);
            }
}

TEST(product_is_the_product_and_lanes_are_independent) { each_table(check_products); }

/* A left factor that lies the other way gives the same bits, for any number of rows, and nothing outside is touched. */
static void check_along(const mha_kernels *kernels)
{
    static float a[DEEP * HIGH], along[HIGH * (DEEP + 1)], b[DEEP * WIDE], fade[WIDE];
    static tile c, before, whole;
    fill(a, DEEP * HIGH, 1);
    fill(b, DEEP * WIDE, 1);
    fill(fade, WIDE, 1);
    for (int64_t r = 0; r < HIGH; r++)
        for (int64_t i = 0; i < DEEP; i++) along[r * (DEEP + 1) + i] = a[i * HIGH + r];
    for (int64_t m = 1; m <= HIGH; m += m < 20 ? 1 : 11)
        for (int64_t n = kernels->lanes; n <= WIDE; n += kernels->lanes)
            for (int64_t k = 0; k <= DEEP; k += k < 6 ? 1 : 61) {
                if (!sampled()) continue;
                fill(c, HIGH * LD, 1);
                memcpy(before, c, sizeof c);
                memcpy(whole, c, sizeof c);
                kernels->product_along(c, LD, k % 2 ? fade : NULL, along, DEEP + 1, b, WIDE, m, n, k);
                kernels->product(whole, LD, k % 2 ? fade : NULL, a, HIGH, b, WIDE, (m + 3) / 4 * 4, n, k);
                for (int64_t r = 0; r < HIGH; r++)
                    for (int64_t j = 0; j < LD; j++) {
                        float wanted = r < m && j < n ? whole[r * LD + j] : before[r * LD + j];
                        expect(c[r * LD + j] == wanted, "%s: along, (%d,%d,%d) at (%d,%d)", kernels->name, (int)m,
                               (int)n, (int)k, (int)r, (int)j);
                    }
            }
}

TEST(product_along_has_the_same_bits) { each_table(check_along); }

/* Numbers in a type of two bytes, and what that type made of them. */
static void round_halves(mha_type type, uint16_t *half, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        half[i] = type == MHA_BFLOAT16 ? mha_f32_to_bf16(x[i]) : mha_f32_to_f16(x[i]);
        x[i] = type == MHA_BFLOAT16 ? mha_bf16_to_f32(half[i]) : mha_f16_to_f32(half[i]);
    }
}

static double number_of(mha_type type, const float *wide, const uint16_t *half, int64_t i)
{
    return type == MHA_FLOAT32    ? (double)wide[i]
           : type == MHA_BFLOAT16 ? (double)mha_bf16_to_f32(half[i])
                                  : (double)mha_f16_to_f32(half[i]);
}

static void check_dots_of(const mha_kernels *kernels, mha_type type, int64_t D, int64_t rows, int64_t count)
{
    static float q[MHA_NARROW * DEEP], k[HIGH * DEEP], s[(MHA_NARROW + 1) * LD];
    static uint16_t half[HIGH * DEEP];
    fill(q, MHA_NARROW * DEEP, 1);
    fill(k, HIGH * DEEP, 1);
    if (type != MHA_FLOAT32) round_halves(type, half, k, HIGH * DEEP);
    for (int64_t i = 0; i < (MHA_NARROW + 1) * LD; i++) s[i] = -9;
    kernels->dots(s, LD, q, DEEP, rows, type == MHA_FLOAT32 ? (const void *)k : half, type, DEEP, count, D);
    for (int64_t r = 0; r <= MHA_NARROW; r++)
        for (int64_t j = 0; j < LD; j++) {
            double want = -9, size = 0;
            if (r < rows && j < count) want = 0;
            for (int64_t d = 0; d < D && r < rows && j < count; d++) {
                double x = (double)q[r * DEEP + d] * number_of(type, k, half, j * DEEP + d);
                want += x;
                size += fabs(x);
            }
            expect(fabs((double)s[r * LD + j] - want) <= UNIT * (4 + (double)D / 2) * size,
                   "%s: %d rows, %d keys, D %d, type %d, at (%d,%d): %g, not %g", kernels->name, (int)rows, (int)count,
                   (int)D, (int)type, (int)r, (int)j, (double)s[r * LD + j], want);
        }
}

static void check_dots(const mha_kernels *kernels)
{
    for (int64_t D = 1; D <= DEEP; D += D < 20 ? 1 : 16)
        for (int64_t rows = 1; rows <= MHA_NARROW; rows += rows < 3 ? 1 : 5)
            for (int64_t count = 1; count <= LD; count += count < 34 ? 1 : 14)
                for (int type = MHA_FLOAT32; type <= MHA_FLOAT16; type++)
                    if ((type == MHA_FLOAT32 || D % 3 == 1) && sampled())
                        check_dots_of(kernels, (mha_type)type, D, rows, count);
}

TEST(dots_of_few_rows) { each_table(check_dots); }

static void check_blend_of(const mha_kernels *kernels, mha_type type, int64_t n, int64_t rows, int64_t count,
                           bool fading)
{
    static float v[HIGH * VALUES], w[MHA_NARROW * HIGH], sums[MHA_NARROW * VALUES], before[MHA_NARROW * VALUES];
    static uint16_t half[HIGH * VALUES];
    float fade[MHA_NARROW];
    fill(w, MHA_NARROW * HIGH, 1);
    fill(v, HIGH * VALUES, 1);
    fill(before, MHA_NARROW * VALUES, 1);
    fill(fade, MHA_NARROW, 1);
    if (type != MHA_FLOAT32) round_halves(type, half, v, HIGH * VALUES);
    memcpy(sums, before, sizeof sums);
    kernels->blend(sums, VALUES, fading ? fade : NULL, w, HIGH, rows, type == MHA_FLOAT32 ? (const void *)v : half,
                   type, VALUES, count, n);
    for (int64_t i = 0; i < MHA_NARROW * VALUES; i++) {
        int64_t r = i / VALUES, e = i % VALUES;
        double want = (double)before[i], size = 1;
        if (r < rows && e < n) want *= fading ? (double)fade[r] : 0;
        for (int64_t j = 0; j < count && r < rows && e < n; j++) {
            double x = (double)w[r * HIGH + j] * number_of(type, v, half, j * VALUES + e);
            want += x;
            size += fabs(x);
        }
        expect(fabs((double)sums[i] - want) <= (r < rows && e < n ? UNIT * (4 + (double)count / 2) * size : 0),
               "%s: %d rows, %d keys, n %d, type %d, at (%d,%d): %g, not %g", kernels->name, (int)rows, (int)count,
               (int)n, (int)type, (int)r, (int)e, (double)sums[i], want);
    }
}

static void check_blend(const mha_kernels *kernels)
{
    for (int64_t n = kernels->lanes; n <= VALUES; n += kernels->lanes)
        for (int64_t rows = 1; rows <= MHA_NARROW; rows++)
            for (int64_t count = 1; count <= HIGH; count += 21)
                for (int type = MHA_FLOAT32; type <= MHA_FLOAT16; type++)
                    if ((n % 3 == 1 || n % 16 == 0) && sampled())
                        check_blend_of(kernels, (mha_type)type, n, rows, count, (rows + count) % 2);
}

TEST(values_of_few_rows) { each_table(check_blend); }

/* Row by row what `softmax` does lane by lane, but for the order of the sum. */
static void check_softmax_rows(const mha_kernels *kernels)
{
    static tile lanes;
    static float rows[MHA_NARROW * HIGH];
    float max[2][WIDE] = {{0}}, sum[2][WIDE] = {{0}}, fade[2][WIDE] = {{0}};
    for (int64_t count = 1; count <= HIGH; count++) {
        for (int64_t r = 0; r < WIDE;
             r++) { /* row 1 has seen nothing yet, row 2 sees nothing at all, row 3 is given up */
            max[0][r] = r == 1 || r == 2 ? -INFINITY : r == 3 ? NAN : 3 * some();
            sum[0][r] = r == 1 || r == 2 ? 0.0f : 1 + some();
            for (int64_t j = 0; j < count; j++) lanes[j * LD + r] = r == 2 || some() > 0.8f ? -INFINITY : 5 * some();
        }
        memcpy(max[1], max[0], sizeof max[0]);
        memcpy(sum[1], sum[0], sizeof sum[0]);
        for (int64_t r = 0; r < MHA_NARROW; r++)
            for (int64_t j = 0; j < count; j++) rows[r * HIGH + j] = lanes[j * LD + r];
        kernels->softmax(lanes, LD, count, WIDE, max[0], sum[0], fade[0]);
        kernels->softmax_rows(rows, HIGH, MHA_NARROW, count, max[1], sum[1], fade[1]);
        for (int64_t r = 0; r < MHA_NARROW; r++) {
            if (r == 3) {
                expect(isnan(max[1][r]), "%s: a row that was given up came back", kernels->name);
                continue;
            }
            expect(max[0][r] == max[1][r] && fade[0][r] == fade[1][r], "%s: row %d of %d keys: maximum %g, fade %g",
                   kernels->name, (int)r, (int)count, (double)max[1][r], (double)fade[1][r]);
            expect(fabsf(sum[0][r] - sum[1][r]) <= 1e-6f * (1 + sum[0][r]), "%s: row %d of %d keys: sum %g, not %g",
                   kernels->name, (int)r, (int)count, (double)sum[1][r], (double)sum[0][r]);
            for (int64_t j = 0; j < count; j++)
                expect(rows[r * HIGH + j] == lanes[j * LD + r], "%s: weight (%d,%d) is %g", kernels->name, (int)r,
                       (int)j, (double)rows[r * HIGH + j]);
        }
    }
}

TEST(softmax_of_few_rows) { each_table(check_softmax_rows); }

/* Two stretches of keys folded into one, in lanes and in rows: right, and alike. Lane 1 is empty before, 2 after, 3
 * both; lane 4 was given up. */
static void check_fold(const mha_kernels *kernels)
{
    static tile all, more, before;
    float max[2][WIDE], total[2][WIDE], top[WIDE], sum[WIDE];
    fill(before, HIGH * LD, 1);
    fill(more, HIGH * LD, 1);
    for (int r = 0; r < WIDE; r++)
        for (int t = 0; t < 2; t++) {
            bool empty = r == 3 || r == 1 + t;
            max[t][r] = empty ? -INFINITY : r == 4 && t ? NAN : 30 * some();
            total[t][r] = empty ? 0.0f : r == 4 && t ? NAN : 2 + some();
            for (int e = 0; empty && e < 12; e++) (t ? more : before)[e * LD + r] = 0;
        }
    memcpy(all, before, sizeof all);
    memcpy(top, max[0], sizeof top);
    memcpy(sum, total[0], sizeof sum);
    kernels->fold(all, top, sum, more, max[1], total[1], LD, 12, WIDE);
    for (int r = 0; r < WIDE; r++) {
        float row[16] = {0}, next[16] = {0}, row_max = max[0][r], row_total = total[0][r];
        for (int e = 0; e < 12; e++) row[e] = before[e * LD + r], next[e] = more[e * LD + r];
        kernels->fold_row(row, &row_max, &row_total, next, max[1][r], total[1][r], 16);
        if (r == 4) {
            expect(!isfinite(sum[r]) && !isfinite(row_total), "%s: a row that was given up came back", kernels->name);
            continue;
        }
        double M = fmax((double)max[0][r], (double)max[1][r]);
        double x = r == 3 ? 0 : exp((double)max[0][r] - M), y = r == 3 ? 0 : exp((double)max[1][r] - M);
        double want = x * (double)total[0][r] + y * (double)total[1][r];
        expect((double)top[r] == M && fabs((double)sum[r] - want) <= 1e-5 * want, "%s: lane %d folds to %g",
               kernels->name, r, (double)sum[r]);
        expect(row_max == top[r] && row_total == sum[r], "%s: lane %d is not the row", kernels->name, r);
        for (int e = 0; e < 12; e++) {
            want = x * (double)before[e * LD + r] + y * (double)more[e * LD + r];
            expect(fabs((double)all[e * LD + r] - want) <= 1e-5, "%s: (%d,%d) folds to %g, not %g", kernels->name, e, r,
                   (double)all[e * LD + r], want);
            expect(row[e] == all[e * LD + r], "%s: lane %d is not the row at %d", kernels->name, r, e);
        }
        if (r == 1) expect(sum[r] == total[1][r] && all[r] == more[r], "%s: nothing and one is not one", kernels->name);
    }
}

TEST(stretches_fold) { each_table(check_fold); }

/* The distance between a float and the true value, in units in the last place of the latter. */
static double ulps(float got, double want)
{
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

/* exp(x) of sixteen numbers, through the operation that comes nearest to it. */
static void exp_of(const mha_kernels *kernels, float x[16])
{
    float max[16] = {0}, factor[16];
    for (int i = 0; i < 16; i++) factor[i] = 1;
    kernels->weights(x, 16, 1, 16, max, factor);
}

static void check_exp(const mha_kernels *kernels)
{
    double worst = 0, at = 0;
    uint32_t last = mha_bits(-87.3f);
    for (uint32_t bits = 0x80000000u; bits < last; bits += 16 * 97) {
        float x[16], y[16];
        for (uint32_t i = 0; i < 16; i++) x[i] = y[i] = mha_from_bits(bits + i * 97);
        exp_of(kernels, y);
        for (int i = 0; i < 16; i++) {
            double error = x[i] >= -87.3f ? ulps(y[i], exp((double)x[i])) : 0;
            if (error > worst) worst = error, at = (double)x[i];
        }
    }
    expect(worst <= 1, "%s: exp is off by %.2f units in the last place at %g", kernels->name, worst, at);
    float ends[16] = {0.0f, -0.0f, -INFINITY, -1e30f, -89.0f, NAN, -88.5f};
    exp_of(kernels, ends);
    expect(ends[0] == 1.0f && ends[1] == 1.0f, "%s: exp(0) is %g", kernels->name, (double)ends[0]);
    expect(ends[2] == 0.0f && ends[3] == 0.0f && ends[4] == 0.0f && ends[6] == 0.0f, "%s: exp(-inf) is %g",
           kernels->name, (double)ends[2]);
    expect(isnan(ends[5]), "%s: exp(NaN) is %g", kernels->name, (double)ends[5]);
}

TEST(exp_is_within_one_unit_in_the_last_place) { each_table(check_exp); }

/* Two tiles of a streaming softmax. Lane 1 sees nothing in the first, lane 2 nothing at all, lane 3 a NaN, and the
 * maximum of lane 4 is NaN from the start. */
static void check_softmax(const mha_kernels *kernels)
{
    static tile s[2], raw[2];
    float max[WIDE], sum[WIDE], fade[WIDE];
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < HIGH * LD; i++) {
            int64_t lane = i % LD;
            raw[t][i] = lane == 2 || (lane == 1 && t == 0) ? -INFINITY : 20 * some() + (t ? 10.0f : 0.0f);
        }
    raw[1][5 * LD + 3] = NAN;
    for (int r = 0; r < WIDE; r++) max[r] = r == 4 ? NAN : -INFINITY, sum[r] = 0;
    memcpy(s, raw, sizeof s);
    for (int t = 0; t < 2; t++) kernels->softmax(s[t], LD, KEYS, WIDE, max, sum, fade);
    for (int r = 0; r < WIDE; r++) {
        if (r >= 2 && r <= 4) continue;
        double top = -INFINITY, total = 0;
        for (int i = 0; i < 2 * KEYS; i++) top = fmax(top, (double)raw[i / KEYS][i % KEYS * LD + r]);
        for (int i = 0; i < 2 * KEYS; i++) total += exp((double)raw[i / KEYS][i % KEYS * LD + r] - top);
        expect((double)max[r] == top, "%s: maximum %g, not %g", kernels->name, (double)max[r], top);
        expect(fabs((double)sum[r] - total) < 1e-5 * total, "%s: sum %g, not %g", kernels->name, (double)sum[r], total);
        for (int j = 0; j < KEYS; j++) {
            double want = exp((double)raw[1][j * LD + r] - top), got = (double)s[1][j * LD + r];
            expect(fabs(got - want) <= (3e-7 + 2 * UNIT * 50) * want + 1e-38, "%s: P is %g, not %g", kernels->name, got,
                   want);
        }
    }
    expect(max[2] == -INFINITY && sum[2] == 0 && s[1][2] == 0, "%s: an unseeing row is not empty", kernels->name);
    expect(isnan(sum[3]), "%s: a NaN score was lost", kernels->name);
    expect(isnan(max[4]) && isnan(sum[4]), "%s: a row that was given up came back", kernels->name);
    expect(memcmp(s[1] + KEYS * LD, raw[1] + KEYS * LD, 10 * sizeof(float)) == 0, "%s: wrote past the keys",
           kernels->name);
}

TEST(softmax_streams) { each_table(check_softmax); }

static void check_scores(const mha_kernels *kernels)
{
    static tile s, before, bias;
    float low[WIDE], high[WIDE], slope[WIDE], distance[WIDE];
    fill(before, HIGH * LD, 30);
    fill(bias, HIGH * LD, 1);
    for (int i = 0; i < HIGH * LD; i += 7) bias[i] = -INFINITY, before[i] = NAN; /* hidden by its bias */
    for (int r = 0; r < WIDE; r++) {
        low[r] = (float)(r % 5 - 1);
        high[r] = (float)(KEYS - r);
        slope[r] = some();
        distance[r] = (float)(r - 7);
    }
    memcpy(s, before, sizeof s);
    kernels->add_bias(s, LD, KEYS, WIDE, bias, LD);
    for (int i = 0; i < HIGH * LD; i++) {
        bool inside = i / LD < KEYS && i % LD < WIDE;
        float want = !inside ? before[i] : i % 7 == 0 ? -INFINITY : before[i] + bias[i];
        expect(s[i] == want || (isnan(want) && isnan(s[i])), "%s: bias at %d: %g", kernels->name, i, (double)s[i]);
    }
    for (int n = 1; n <= WIDE; n += n < 18 ? 1 : 7) {
        static float rows[WIDE * HIGH];
        for (int r = 0; r < WIDE; r++)
            for (int j = 0; j < HIGH; j++) rows[r * HIGH + j] = r < n && j < KEYS ? bias[j * LD + r] : NAN;
        memcpy(s, before, sizeof s);
        kernels->add_bias_rows(s, LD, KEYS, n, rows, HIGH);
        for (int i = 0; i < HIGH * LD; i++) {
            bool inside = i / LD < KEYS && i % LD < n;
            float want = !inside ? before[i] : i % 7 == 0 ? -INFINITY : before[i] + bias[i];
            expect(s[i] == want || (isnan(want) && isnan(s[i])), "%s: bias of %d rows at %d: %g", kernels->name, n, i,
                   (double)s[i]);
        }
    }
    static uint8_t seen[KEYS * LD];
    for (int i = 0; i < KEYS * LD; i++) seen[i] = (uint8_t)(i % 7 == 0 || i % 3 == 0 ? 0 : 1 + i % 255);
    memcpy(s, before, sizeof s);
    kernels->hide(s, LD, KEYS, WIDE, seen, LD);
    for (int i = 0; i < HIGH * LD; i++) {
        float want = i / LD < KEYS && i % LD < WIDE && !seen[i] ? -INFINITY : before[i];
        expect(s[i] == want || (isnan(want) && isnan(s[i])), "%s: mask at %d: %g", kernels->name, i, (double)s[i]);
    }
    memcpy(s, before, sizeof s);
    kernels->limit(s, LD, KEYS, WIDE, low, high);
    for (int i = 0; i < KEYS * LD; i++) {
        float j = (float)(i / LD);
        bool inside = i % LD >= WIDE || (j >= low[i % LD] && j < high[i % LD]);
        expect(inside ? s[i] == before[i] || isnan(before[i]) : s[i] == -INFINITY, "%s: limit at %d", kernels->name, i);
    }
    fill(before, HIGH * LD, 1);
    memcpy(s, before, sizeof s);
    kernels->add_slopes(s, LD, KEYS, WIDE, slope, distance);
    for (int j = 0; j < KEYS; j++)
        for (int r = 0; r < WIDE; r++) {
            double want = (double)before[j * LD + r] - (double)slope[r] * fabs((double)distance[r] - j);
            expect(fabs((double)s[j * LD + r] - want) < 1e-5, "%s: slope at (%d,%d)", kernels->name, j, r);
        }
}

TEST(bias_limit_and_slopes) { each_table(check_scores); }

static void check_softcap(const mha_kernels *kernels)
{
    for (int round = 0; round < 2000; round++) {
        float s[16], before[16], cap = round % 2 ? 30.0f : 0.5f;
        for (int i = 0; i < 16; i++) s[i] = before[i] = some() * ldexpf(cap, round % 12 - 6);
        kernels->softcap(s, 16, 1, 16, cap);
        for (int i = 0; i < 16; i++) {
            double want = (double)cap * tanh((double)before[i] / (double)cap);
            expect(fabs((double)s[i] - want) <= 8 * UNIT * fabs(want), "%s: softcap(%g) is %g, not %g", kernels->name,
                   (double)before[i], (double)s[i], want);
        }
    }
    float ends[16] = {INFINITY, -INFINITY, NAN};
    kernels->softcap(ends, 16, 1, 16, 2.0f);
    expect(ends[0] == 2 && ends[1] == -2 && isnan(ends[2]), "%s: softcap of infinities", kernels->name);
}

TEST(softcap_is_tanh) { each_table(check_softcap); }
