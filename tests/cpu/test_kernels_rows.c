/* Dropout, rows and conversions of every table of kernels that this machine has, against float64 and against the plain
 * conversions of core/half.h. */
#include "kernel_tables.h"
#include "core/half.h"
#include "core/philox.h"

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
    mha_drop drop = {.seed = UINT64_C(0x123456789abcdef0), .threshold = (uint64_t)(0.3 * 0x1p32), .stream = 11};
    int64_t first = INT64_C(4) << 31;
    static tile p;
    for (uint32_t r = 0; r < WIDE; r++) drop.query[r] = r / 3, drop.head[r] = r % 3;
    for (int64_t n = kernels->lanes; n <= WIDE; n += kernels->lanes) {
        for (int i = 0; i < HIGH * LD; i++) p[i] = 1;
        kernels->drop(p, LD, KEYS, n, first, &drop);
        for (int64_t i = 0; i < HIGH * LD; i++) {
            int64_t j = i / LD, r = i % LD;
            uint32_t c[4] = {(uint32_t)((first + j) / 4), (uint32_t)(r / 3), (uint32_t)(r % 3), drop.stream};
            mha_philox(c, drop.seed);
            bool dropped = j < KEYS && r < n && c[j % 4] < drop.threshold;
            expect(p[i] == (dropped ? 0.0f : 1.0f), "%s: dropout at (%d,%d)", kernels->name, (int)j, (int)r);
        }
    }
}

TEST(dropout_is_philox_by_position) { each_table(check_drop); }

static void check_rows(const mha_kernels *kernels)
{
    static tile x;
    static float from[HIGH * HIGH], to[HIGH * HIGH], by[HIGH];
    float sum[WIDE];
    fill(by, HIGH, 1);
    for (int kind = 0; kind < 4; kind++) {
        fill(x, HIGH * LD, 1);
        x[5 * LD + 9] = kind == 0 ? 7.5f : kind == 1 ? INFINITY : kind == 2 ? -INFINITY : NAN;
        kernels->unsound(sum, x, LD, 12, WIDE);
        for (int r = 0; r < WIDE; r++)
            expect(kind && r == 9 ? isnan(sum[r]) : sum[r] == 0, "%s: lane %d, kind %d", kernels->name, r, kind);
        float most = kernels->largest(x, LD, HIGH, LD);
        expect(kind == 0   ? most == 7.5f
               : kind == 3 ? isnan(most)
                           : isinf(most),
               "%s: the largest of them is %g", kernels->name, (double)most);
    }
    for (int64_t rows = 1; rows <= HIGH; rows += rows < 20 ? 1 : 11)
        for (int64_t cols = 1; cols <= HIGH; cols += cols < 20 ? 1 : 11) {
            fill(from, HIGH * HIGH, 1);
            for (int i = 0; i < HIGH * HIGH; i++) to[i] = -9;
            kernels->transpose(to, HIGH, from, HIGH, rows, cols, rows % 2 ? by : NULL);
            for (int64_t c = 0; c < HIGH; c++)
                for (int64_t r = 0; r < HIGH; r++) {
                    float want = c < cols && r < rows ? from[r * HIGH + c] * (rows % 2 ? by[c] : 1.0f) : -9.0f;
                    expect(to[c * HIGH + r] == want, "%s: transpose (%d,%d)", kernels->name, (int)rows, (int)cols);
                }
        }
}

/* As a transposition, scaled, with zeros up to the next whole vector; and the largest of them, or a NaN. */
static void check_columns(const mha_kernels *kernels)
{
    static float from[HIGH * HIGH], to[HIGH * HIGH];
    for (int64_t rows = 1; rows <= HIGH; rows += rows < 20 ? 1 : 11)
        for (int64_t cols = 1; cols <= HIGH; cols += cols < 20 ? 1 : 11) {
            int64_t filled = (rows + kernels->lanes - 1) / kernels->lanes * kernels->lanes;
            float size = 0;
            fill(from, HIGH * HIGH, 1);
            for (int i = 0; i < HIGH * HIGH; i++) to[i] = -9;
            float most = kernels->columns(to, HIGH, from, HIGH, rows, cols, 0.5f);
            for (int64_t c = 0; c < HIGH; c++)
                for (int64_t r = 0; r < HIGH; r++) {
                    bool there = c < cols && r < rows;
                    float want = there ? from[r * HIGH + c] * 0.5f : c < cols && r < filled ? 0.0f : -9.0f;
                    if (there && fabsf(want) > size) size = fabsf(want);
                    expect(to[c * HIGH + r] == want, "%s: columns (%d,%d)", kernels->name, (int)rows, (int)cols);
                }
            expect(most == size, "%s: the largest of (%d,%d) is %g, not %g", kernels->name, (int)rows, (int)cols,
                   (double)size, (double)most);
            from[(rows - 1) * HIGH + cols - 1] = NAN;
            expect(isnan(kernels->columns(to, HIGH, from, HIGH, rows, cols, 0.5f)), "%s: a NaN in (%d,%d) is lost",
                   kernels->name, (int)rows, (int)cols);
        }
}

static void check_bf16_rows(const mha_kernels *kernels)
{
    static uint16_t from[HIGH * HIGH], to[HIGH * HIGH];
    for (int64_t n = 1; n <= HIGH; n += n < 20 ? 1 : 11)
        for (int64_t rows = 1; rows <= HIGH; rows += 9)
            for (int64_t ld = n; ld <= HIGH; ld += HIGH - n ? HIGH - n : 1) {
                float size = 0;
                for (int i = 0; i < HIGH * HIGH; i++) from[i] = mha_f32_to_bf16(some()), to[i] = 1;
                for (int64_t i = 0; i < rows * n; i++)
                    size = fmaxf(size, fabsf(mha_bf16_to_f32(from[i / n * ld + i % n])));
                expect(kernels->largest_bf16(from, ld, rows, n) == size, "%s: largest of (%d,%d)", kernels->name,
                       (int)rows, (int)n);
                kernels->scale_bf16(to, from, ld, -0.125f, rows, n);
                for (int64_t i = 0; i < HIGH * HIGH; i++) {
                    float want = i < rows * n ? mha_bf16_to_f32(from[i / n * ld + i % n]) * -0.125f : 0;
                    expect(i < rows * n ? mha_bf16_to_f32(to[i]) == want : to[i] == 1, "%s: (%d,%d) scaled at %d",
                           kernels->name, (int)rows, (int)n, (int)i);
                }
                from[(rows - 1) * ld + n - 1] = 0xffc0;
                expect(isnan(kernels->largest_bf16(from, ld, rows, n)), "%s: a NaN in (%d,%d) is lost", kernels->name,
                       (int)rows, (int)n);
            }
}

TEST(bfloat16_rows) { each_table(check_bf16_rows); }

TEST(rows_become_columns) { each_table(check_columns); }

TEST(rows_are_judged_and_transposed) { each_table(check_rows); }

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
