/* Dropout and stochastic depth of mha_ops.h: against their definition, number by number, and by what they promise of chance.
 * A share of n draws of probability p is off by sqrt(p (1 - p) / n); five times that is exceeded once in two million,
 * and the seeds here are fixed. */
#include "support/contexts.h"
#include "support/harness.h"
#include "support/numbers.h"
#include <mha_ops.h>

enum { T = 50, WIDTH = 64, SEQUENCES = 128, SIZE = T * WIDTH, ALL = SEQUENCES * SIZE };

static float *numbers(uint64_t seed, int64_t count)
{
    rng r = rng_make(seed, 8);
    float *x = array(count + 1, sizeof *x);
    for (int64_t i = 0; i <= count; i++) x[i] = (float)(4 * rng_uniform(&r) - 2);
    return x;
}

static float *ones(int64_t count)
{
    float *x = array(count + 1, sizeof *x);
    for (int64_t i = 0; i <= count; i++) x[i] = 1;
    return x;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

/* The options, and how many tokens a sequence has. */
typedef struct dropping {
    float drop, path;
    int64_t tokens;
    uint64_t seed, stream;
} dropping;

static void drop_out(mha_context *ctx, const dropping *d, float *to, const float *from, int64_t rows, int64_t width)
{
    mha_dropout_options o = {sizeof o, d->drop, d->path, d->seed, d->stream};
    expect(!mha_dropout(ctx, mha_tensor_3d(to, MHA_FLOAT32, rows / d->tokens, d->tokens, width),
                        mha_tensor_3d(from, MHA_FLOAT32, rows / d->tokens, d->tokens, width), &o),
           "%s", mha_context_error(ctx));
}

/* The block of random numbers for a use of a stream. */
static void draw(uint32_t block[4], const dropping *d, uint64_t stream, uint32_t number, uint32_t use)
{
    const uint32_t counter[4] = {(uint32_t)stream, (uint32_t)(stream >> 32), number, use << 24};
    mha_random_block(block, d->seed, counter);
}

/* ---- The definition --------------------------------------------------------------------------------------------- */

/* The 16 bits of number i of a sequence. */
static uint32_t bits_of(const dropping *d, uint64_t stream, int64_t i)
{
    int64_t half = i % 256 / 32;
    uint32_t block[4];
    draw(block, d, stream, (uint32_t)(i / 256 * 32 + i % 32), 6);
    return block[half / 2] >> (half % 2 * 16) & 0xffff;
}

/* What number i of the sequence is multiplied by. */
static float factor_of(const dropping *d, uint64_t stream, int64_t i)
{
    uint32_t block[4];
    draw(block, d, stream, 0, 7);
    bool sequence = block[0] * 0x1p-32 >= (double)d->path;
    bool number = bits_of(d, stream, i) >= round((double)d->drop * 65536);
    return sequence && number ? (float)(1 / ((1 - (double)d->drop) * (1 - (double)d->path))) : 0.0f;
}

static void check(mha_context *ctx, const dropping *d, int64_t sequences, int64_t width)
{
    int64_t size = d->tokens * width, n = sequences * size;
    float *from = numbers((uint64_t)n, n), *to = numbers(1, n), *in_place = array(n + 1, sizeof *to), after = to[n];
    memcpy(in_place, from, (size_t)(n + 1) * sizeof *from);
    drop_out(ctx, d, to, from, sequences * d->tokens, width);
    drop_out(ctx, d, in_place, in_place, sequences * d->tokens, width);
    for (int64_t i = 0; i < n; i++) {
        float want = from[i] * factor_of(d, d->stream + (uint64_t)(i / size), i % size);
        expect(to[i] == want, "(%d,%d,%d), drop %g, path %g: number %d is %g, not %g", (int)sequences, (int)d->tokens,
               (int)width, (double)d->drop, (double)d->path, (int)i, (double)to[i], (double)want);
    }
    expect(!memcmp(to, in_place, (size_t)n * sizeof *to), "in place, (%d,%d) differs", (int)sequences, (int)size);
    expect(to[n] == after && in_place[n] == from[n], "wrote beside (%d,%d)", (int)sequences, (int)size);
    free(from), free(to), free(in_place);
}

TEST(every_number_is_as_defined)
{
    const int64_t sizes[][3] = {{0, 1, 1},   {1, 1, 1},   {3, 1, 7},   {2, 5, 51},   {2, 1, 256},
                                {2, 1, 257}, {3, 50, 64}, {2, 64, 64}, {2, 17, 241}, {1, 13, 1000}};
    const float rates[][2] = {{0, 0}, {0.1f, 0}, {0, 0.5f}, {0.3f, 0.4f}, {0.999f, 0}};
    for_each_isa (isa)
        for (int n = 0; n < 50; n++) {
            if (!sampled()) continue;
            int i = n / 5, k = n % 5;
            mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
            dropping d = {rates[k][0], rates[k][1], sizes[i][1], UINT64_C(0x123456789abcdef0), 77};
            check(ctx, &d, sizes[i][0], sizes[i][2]);
            d.stream = UINT64_C(0xfffffffffffffffe) << (i % 2 * 31); /* beyond 32 bits, and around the end */
            check(ctx, &d, sizes[i][0], sizes[i][2]);
            mha_context_free(ctx);
        }
}

/* 0.6 of 2^16 counts as one of them: those whose 16 bits are all 0 are dropped, and 0.4 as none. */
TEST(a_rate_is_rounded)
{
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (int k = 0; k < 2; k++) {
        dropping d = {(k ? 0.4f : 0.6f) * 0x1p-16f, 0, T, 6, 8};
        float *x = ones(ALL);
        int64_t want = 0, got = 0;
        drop_out(ctx, &d, x, x, SEQUENCES * T, WIDTH);
        for (int i = 0; i < ALL; i++) {
            want += k == 0 && bits_of(&d, d.stream + (uint64_t)(i / SIZE), i % SIZE) == 0;
            got += x[i] == 0;
        }
        expect(got == want && (k || want), "%d of %d are dropped, not %d", (int)got, ALL, (int)want);
        free(x);
    }
    mha_context_free(ctx);
}

/* ---- Chance ----------------------------------------------------------------------------------------------------- */

static void near_share(const char *what, double got, double p, double n)
{
    double sigma = sqrt(p * (1 - p) / n);
    expect(fabs(got - p) <= 5 * sigma, "%s: %.6f of %g are dropped, not %.6f: off by %.1f sigma", what, got, n, p,
           (got - p) / sigma);
}

/* The share of numbers that are 0, and of sequences that are 0 all through. */
static void check_rates(mha_context *ctx, float drop, float path)
{
    dropping d = {drop, path, T, 5, 1000};
    float *x = ones(ALL);
    double zeros = 0, alive = 0, gone = 0, sum = 0, p = (double)drop, q = (double)path;
    drop_out(ctx, &d, x, x, SEQUENCES * T, WIDTH);
    for (int b = 0; b < SEQUENCES; b++) {
        double none = 0;
        for (int i = 0; i < SIZE; i++) none += x[b * SIZE + i] == 0;
        for (int i = 0; i < SIZE; i++) sum += (double)x[b * SIZE + i] / ALL;
        gone += none == SIZE;
        if (none < SIZE) zeros += none, alive += SIZE;
    }
    near_share("sequences", gone / SEQUENCES, q, SEQUENCES);
    near_share("numbers", zeros / alive, p, alive);
    /* The mean of what was 1, by the variances of the two: 2^-17 / (1 - drop) is the bias that is allowed. */
    double sigma = sqrt(p / (1 - p) / ALL + q / (1 - q) / SEQUENCES), bias = 0x1p-17 / (1 - p);
    expect(fabs(sum - 1) <= 5 * sigma + bias, "drop %g, path %g: the mean is %g, not 1", p, q, sum);
    free(x);
}

TEST(rates_and_means)
{
    const float drops[] = {0, 0.01f, 0.1f, 0.5f, 0.9f}, paths[] = {0, 0.1f, 0.5f};
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 3; j++) check_rates(ctx, drops[i], paths[j]);
    mha_context_free(ctx);
}

/* The correlation of two masks of n numbers, of which a share p is 0: with independent ones, its deviation is
 * 1 / sqrt(n). */
static void unrelated(const char *what, const float *a, const float *b, int64_t n, double p)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += ((a[i] == 0) - p) * ((b[i] == 0) - p);
    double r = sum / (double)n / (p * (1 - p));
    expect(fabs(r) <= 5 / sqrt((double)n), "%s: a correlation of %g in %d numbers", what, r, (int)n);
}

/* Neighbours of every kind: streams, seeds, rows, columns, blocks side by side, halves of a word. */
TEST(neighbours_have_nothing_in_common)
{
    dropping d = {0.5f, 0, T, 9, 4000}, other = d, path = {0, 0.5f, 1, 9, 4000};
    float *x = ones(ALL), *y = ones(ALL), *sequences = ones(ALL);
    const int lags[] = {1, 7, 8, 16, 32, 64, 128, 256, 512, SIZE, 2 * SIZE};
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    drop_out(ctx, &d, x, x, SEQUENCES * T, WIDTH);
    for (size_t k = 0; k < sizeof lags / sizeof *lags; k++) {
        char what[40];
        snprintf(what, sizeof what, "numbers %d apart", lags[k]);
        unrelated(what, x, x + lags[k], ALL - lags[k], 0.5);
    }
    other.seed++;
    drop_out(ctx, &other, y, y, SEQUENCES * T, WIDTH);
    unrelated("neighbouring seeds", x, y, ALL, 0.5);
    drop_out(ctx, &path, sequences, sequences, ALL, 1);
    unrelated("neighbouring sequences", sequences, sequences + 1, ALL - 1, 0.5);
    unrelated("numbers and sequences", x, sequences, ALL, 0.5);
    free(x), free(y), free(sequences);
    mha_context_free(ctx);
}

/* ---- Bits ------------------------------------------------------------------------------------------------------- */

static void apply(const dropping *d, float *x, int threads, mha_parallel way)
{
    mha_context *ctx = context_make(NULL, threads, way, NULL);
    drop_out(ctx, d, x, x, SEQUENCES * T, WIDTH);
    mha_context_free(ctx);
}

TEST(same_bits_for_threads_and_batches)
{
    const mha_parallel ways[] = {{NULL, NULL}, parallel_pthreads(), parallel_reversed()};
    dropping d = {0.1f, 0.2f, T, 3, 1 << 20};
    float *want = numbers(2, ALL), *got = numbers(2, ALL);
    apply(&d, want, 1, ways[0]);
    for (int threads = 1; threads <= 7; threads += threads == 1 ? 1 : 5)
        for (int way = 0; way < 3; way++) {
            float *x = numbers(2, ALL);
            apply(&d, x, threads, ways[way]);
            expect(!memcmp(x, want, ALL * sizeof *x), "%d threads, way %d", threads, way);
            free(x);
        }
    /* One sequence, 60 and the rest. */
    mha_context *ctx = context_make(NULL, 2, ways[0], NULL);
    const int ends[] = {1, 61, SEQUENCES};
    for (int k = 0, b = 0; k < 3; b = ends[k++]) {
        dropping part = d;
        part.stream += (uint64_t)b;
        drop_out(ctx, &part, got + b * SIZE, got + b * SIZE, (int64_t)(ends[k] - b) * T, WIDTH);
    }
    expect(!memcmp(got, want, ALL * sizeof *got), "a batch in three parts differs");
    mha_context_free(ctx);
    free(want), free(got);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* The loss sum of dy * y, in float64, moved by one number at a time. The function is linear and 1/2 an exact step, so
 * differences are exact but for the rounding of two products, each below 4u of the numbers of size 2 that they have. */
TEST(backward_is_the_same_product)
{
    enum { ROWS = 12, COLUMNS = 23, N = ROWS * COLUMNS };
    dropping d = {0.25f, 0.25f, 3, 11, 5};
    float *dy = numbers(3, N), *dx = numbers(4, N), *x = numbers(5, N), y[N];
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    int kept = 0;
    drop_out(ctx, &d, dx, dy, ROWS, COLUMNS);
    for (int i = 0; i < N; i++) {
        double loss[2] = {0, 0}, old = (double)x[i];
        for (int side = 0; side < 2; side++) {
            x[i] = (float)old + (side ? 0.5f : -0.5f);
            drop_out(ctx, &d, y, x, ROWS, COLUMNS);
            for (int j = 0; j < N; j++) loss[side] += (double)dy[j] * (double)y[j];
        }
        x[i] = (float)old;
        kept += dx[i] != 0;
        expect(fabs(loss[1] - loss[0] - (double)dx[i]) < 4e-6, "dx[%d] is %.9g, not %.9g", i, (double)dx[i],
               loss[1] - loss[0]);
    }
    expect(kept > N / 4 && kept < 3 * N / 4, "%d of %d are kept", kept, N);
    free(dy), free(dx), free(x);
    mha_context_free(ctx);
}

/* ---- The edges -------------------------------------------------------------------------------------------------- */

TEST(without_rates_every_bit_stays)
{
    const float odd[4] = {-0.0f, NAN, INFINITY, 1e-42f};
    float to[4] = {7, 7, 7, 7}, same[4];
    dropping none = {0, 0, 2, 1, 1};
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    memcpy(same, odd, sizeof odd);
    drop_out(ctx, &none, to, odd, 4, 1);
    drop_out(ctx, &none, same, same, 4, 1);
    expect(!memcmp(to, odd, sizeof odd) && !memcmp(same, odd, sizeof odd), "something has changed");
    mha_context_free(ctx);
}

TEST(nan_hides_nowhere)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    for (int k = 0; k < 2; k++) {
        dropping d = {k ? 0.0f : 0.9f, k ? 0.9f : 0.0f, 1, 1, 1};
        float *x = ones(100);
        for (int i = 0; i < 100; i++) x[i] = NAN;
        drop_out(ctx, &d, x, x, 100, 1);
        for (int i = 0; i < 100; i++) expect(isnan(x[i]), "number %d is %g", i, (double)x[i]);
        free(x);
    }
    mha_context_free(ctx);
}

/* The choices of a seed never change: models are trained again from it. */
TEST(the_choices_are_pinned)
{
    static float x[3 * 1000];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    dropping d = {0.3f, 0.4f, 10, 7, UINT64_C(1) << 40};
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (int i = 0; i < 3000; i++) x[i] = 1;
    drop_out(ctx, &d, x, x, 30, 100);
    for (int i = 0; i < 3000; i++) hash = (hash ^ (x[i] != 0)) * UINT64_C(0x100000001b3);
    expect(hash == UINT64_C(0xc2f36a96898003fd), "hash %#llx", (unsigned long long)hash);
    mha_context_free(ctx);
}
