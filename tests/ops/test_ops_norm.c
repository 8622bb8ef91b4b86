/* LayerNorm and RMS norm of mha_ops.h against float64, with every instruction set.
 *
 * With k = width/lanes + 8, the roundings that a sum in 16 lanes (4 without vectors), its total and what is done with it
 * may add up to:
 *   the mean is off by  u |mean| + k u mean|x - x[0]|,  which by the inverse root becomes an error `shift` of every h;
 *   h is off by         shift + k u |h|,                for the inverse root is itself a sum of squares;
 *   the rest is written down beside each check. All bounds are doubled, for what is of second order. */
#include "support/contexts.h"
#include "support/harness.h"
#include "support/numbers.h"
#include <mha_ops.h>

static const double u = 0x1p-24;
static double lanes = 16;

typedef struct problem {
    mha_norm_options norm;
    int64_t rows, width;
    float *x, *r, *gain, *bias, *dy;      /* in */
    float *y, *kept, *dx, *dgain, *dbias; /* out, each with one float more */
} problem;

static float *numbers(rng *r, int64_t count, double scale, double offset)
{
    float *x = array(count + 1, sizeof *x);
    for (int64_t i = 0; i <= count; i++) x[i] = (float)(offset + scale * (2 * rng_uniform(r) - 1));
    return x;
}

static problem make(mha_norm kind, int64_t rows, int64_t width, double scale, double offset)
{
    rng r = rng_make((uint64_t)(rows * 10007 + width), 3);
    int64_t n = rows * width;
    problem p = {.rows = rows, .width = width, .x = numbers(&r, n, scale, offset), .r = numbers(&r, n, scale, 0)};
    p.gain = numbers(&r, width, 1, 0.5);
    p.bias = numbers(&r, width, 1, 0);
    p.dy = numbers(&r, n, 1, 0);
    p.y = numbers(&r, n, 1, 0);
    p.kept = numbers(&r, 2 * rows, 1, 0);
    p.dx = numbers(&r, n, 1, 0);
    p.dgain = numbers(&r, width, 1, 0);
    p.dbias = numbers(&r, width, 1, 0);
    mha_norm_options norm = MHA_NORM_DEFAULTS;
    p.norm = norm;
    p.norm.kind = kind;
    p.norm.gain = mha_tensor_1d(p.gain, MHA_FLOAT32, width);
    if (kind == MHA_NORM_LAYER) p.norm.bias = mha_tensor_1d(p.bias, MHA_FLOAT32, width);
    return p;
}

static void clear(problem *p)
{
    float *all[] = {p->x, p->r, p->gain, p->bias, p->dy, p->y, p->kept, p->dx, p->dgain, p->dbias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static mha_tensor matrix(const problem *p, const float *x) { return mha_tensor_2d(x, MHA_FLOAT32, p->rows, p->width); }
static mha_tensor kept(const problem *p) { return mha_tensor_2d(p->kept, MHA_FLOAT32, p->rows, 2); }

static void forward(mha_context *ctx, const problem *p)
{
    expect(!mha_norm_forward(ctx, matrix(p, p->y), kept(p), matrix(p, p->x), &p->norm), "%s", mha_context_error(ctx));
}

/* dx, and the sums if `sums`. */
static void backward(mha_context *ctx, const problem *p, float *dx, bool add, bool sums)
{
    mha_norm_gradients g = {.x = matrix(p, dx), .accumulate = add};
    if (sums) g.gain = mha_tensor_1d(p->dgain, MHA_FLOAT32, p->width);
    if (sums) g.bias = mha_tensor_1d(p->dbias, MHA_FLOAT32, p->width);
    expect(!mha_norm_backward(ctx, &g, matrix(p, p->dy), matrix(p, p->x), kept(p), &p->norm), "%s",
           mha_context_error(ctx));
}

/* ---- The oracle ------------------------------------------------------------------------------------------------- */

typedef struct row {
    double mean, by, shift;
} row;

static row row_of(const problem *p, const double *x)
{
    const int64_t n = p->width;
    double k = (double)n / lanes + 8, mean = 0, spread = 0, squares = 0;
    for (int64_t i = 0; i < n && p->norm.kind == MHA_NORM_LAYER; i++) {
        mean += x[i] / (double)n;
        spread += fabs(x[i] - x[0]) / (double)n;
    }
    for (int64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean) / (double)n;
    double by = 1 / sqrt(squares + (double)p->norm.epsilon);
    return (row){mean, by, by * u * (fabs(mean) + k * spread)};
}

static double result(const problem *p, const double *x, int64_t i)
{
    row r = row_of(p, x);
    return (x[i] - r.mean) * r.by * (double)p->gain[i] + (p->norm.bias.rank ? (double)p->bias[i] : 0);
}

static void widen(double *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = (double)from[i];
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

static void check_forward(const problem *p)
{
    const int64_t n = p->width;
    double *x = array(n, sizeof *x), k = (double)n / lanes + 8;
    for (int64_t r = 0; r < p->rows; r++) {
        widen(x, p->x + r * n, n);
        row o = row_of(p, x);
        for (int64_t i = 0; i < n; i++) {
            double h = (x[i] - o.mean) * o.by, gain = (double)p->gain[i];
            double want = h * gain + (p->norm.bias.rank ? (double)p->bias[i] : 0), got = (double)p->y[r * n + i];
            double bound = 2 * (fabs(gain) * (o.shift + (k + 3) * u * fabs(h)) + u * fabs(want));
            expect(fabs(got - want) <= bound, "y[%d,%d] of %d is %.9g, not %.9g: off by %g, not %g", (int)r, (int)i,
                   (int)n, got, want, got - want, bound);
        }
    }
    free(x);
}

static const int64_t row_counts[] = {0, 1, 63, 64, 65, 300}, widths[] = {1, 2, 7, 16, 17, 64, 65, 131, 1000};

/* Runs body-like `check` for every kind and size. */
static void each_size(void (*check)(mha_context *ctx, mha_norm kind, int64_t rows, int64_t width))
{
    for_each_isa (isa) {
        mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
        lanes = strcmp(isa, "scalar") ? 16 : 4;
        for (int kind = 0; kind < 2; kind++)
            for (int i = 0; i < 6; i++)
                for (int j = 0; j < 9; j++)
                    if (row_counts[i] * widths[j] < 70000 && sampled())
                        check(ctx, (mha_norm)kind, row_counts[i], widths[j]);
        mha_context_free(ctx);
    }
    lanes = 16;
}

static void forward_case(mha_context *ctx, mha_norm kind, int64_t rows, int64_t width)
{
    problem p = make(kind, rows, width, 3, 1);
    float after = p.y[rows * width];
    forward(ctx, &p);
    check_forward(&p);
    expect(p.y[rows * width] == after, "wrote beside y");

    /* The sum in the same sweep: the bits of a sum and then a norm. */
    float *y = array(rows * width + 1, sizeof *y), *x = array(rows * width + 1, sizeof *x);
    memcpy(x, p.x, (size_t)(rows * width) * sizeof *x);
    for (int64_t i = 0; i < rows * width; i++) p.x[i] += p.r[i];
    expect(!mha_norm_forward_add(ctx, matrix(&p, y), kept(&p), matrix(&p, x), matrix(&p, p.r), &p.norm), "%s",
           mha_context_error(ctx));
    forward(ctx, &p);
    expect(!memcmp(x, p.x, (size_t)(rows * width) * sizeof *x), "x + r of (%d,%d)", (int)rows, (int)width);
    expect(!memcmp(y, p.y, (size_t)(rows * width) * sizeof *y), "norm(x + r) of (%d,%d)", (int)rows, (int)width);
    free(x);
    free(y);
    clear(&p);
}

TEST(forward) { each_size(forward_case); }

TEST(large_numbers)
{
    const double scales[][2] = {{1e4, 0}, {1e4, 1e4}, {1, 1e4}, {1e-3, -1e3}, {1e-4, 0}};
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    for (int kind = 0; kind < 2; kind++)
        for (int s = 0; s < 5; s++)
            for (int j = 0; j < 9; j++) {
                problem p = make((mha_norm)kind, 9, widths[j], scales[s][0], scales[s][1]);
                forward(ctx, &p);
                check_forward(&p);
                clear(&p);
            }
    mha_context_free(ctx);
}

TEST(a_constant_row_gives_its_bias)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    for (int j = 0; j < 9; j++)
        for (int s = 0; s < 3; s++) {
            problem p = make(MHA_NORM_LAYER, 1, widths[j], 1, 0);
            for (int64_t i = 0; i < widths[j]; i++) p.x[i] = s == 0 ? 0.0f : s == 1 ? 0.1f : -9876.543f;
            forward(ctx, &p);
            expect(!memcmp(p.y, p.bias, (size_t)widths[j] * sizeof *p.y), "width %d", (int)widths[j]);
            clear(&p);
        }
    mha_context_free(ctx);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* dx = by (g - mean(g) - h mean(g h)): k + 3 roundings of each term, and the error of h in its two places. */
static void check_row(const problem *p, const float *before, int64_t at, double *sums, double *bounds)
{
    const int64_t n = p->width;
    double *x = array(n, sizeof *x), k = (double)n / lanes + 8, g = 0, gs = 0, gh = 0, ghs = 0;
    widen(x, p->x + at, n);
    row o = row_of(p, x);
    for (int64_t i = 0; i < n; i++) {
        double part = (double)p->dy[at + i] * (double)p->gain[i] / (double)n, h = (x[i] - o.mean) * o.by;
        g += p->norm.kind == MHA_NORM_LAYER ? part : 0;
        gs += fabs(part);
        gh += part * h;
        ghs += fabs(part * h);
    }
    for (int64_t i = 0; i < n; i++) {
        double dy = (double)p->dy[at + i], own = dy * (double)p->gain[i], h = (x[i] - o.mean) * o.by;
        double want = o.by * (own - g - h * gh) + (before ? (double)before[at + i] : 0), got = (double)p->dx[at + i];
        double bound =
            2 * o.by * ((k + 3) * u * (fabs(own) + gs + 2 * fabs(h) * ghs) + o.shift * (fabs(gh) + fabs(h) * gs));
        bound += u * fabs(want);
        expect(fabs(got - want) <= bound, "dx[%d] of %d is %.9g, not %.9g: off by %g, not %g", (int)i, (int)n, got,
               want, got - want, bound);
        sums[i] += dy * h;
        sums[n + i] += dy;
        bounds[i] += fabs(dy) * (o.shift + (k + 3) * u * fabs(h));
        bounds[n + i] += fabs(dy);
    }
    free(x);
}

/* Sums over rows: 40 roundings in a chunk of 64, two rows at a time; one for the chunks, one for the sum with the old. */
static void check_backward(const problem *p, const float *before, const float *dgain, const float *dbias)
{
    const int64_t n = p->width;
    double *sums = array(2 * n, sizeof *sums), *bounds = array(2 * n, sizeof *bounds);
    for (int64_t r = 0; r < p->rows; r++) check_row(p, before, r * n, sums, bounds);
    for (int64_t i = 0; i < n; i++) {
        double gain = (double)dgain[i] + sums[i], bias = (double)dbias[i] + sums[n + i];
        expect(fabs((double)p->dgain[i] - gain) <= 2 * bounds[i] + 42 * u * (bounds[n + i] * 4 + fabs(gain)),
               "dgain[%d] is %.9g, not %.9g", (int)i, (double)p->dgain[i], gain);
        expect(fabs((double)p->dbias[i] - bias) <= 42 * u * bounds[n + i] + u * fabs(bias),
               "dbias[%d] is %.9g, not %.9g", (int)i, (double)p->dbias[i], bias);
    }
    free(sums);
    free(bounds);
}

static void backward_case(mha_context *ctx, mha_norm kind, int64_t rows, int64_t width)
{
    for (int add = 0; add < 2; add++) {
        problem p = make(kind, rows, width, 3, 1), old = make(kind, rows, width, 3, 1);
        forward(ctx, &p);
        backward(ctx, &p, p.dx, add, true);
        check_backward(&p, add ? old.dx : NULL, old.dgain, old.dbias);
        expect(p.dx[rows * width] == old.dx[rows * width] && p.dgain[width] == old.dgain[width] &&
                   p.dbias[width] == old.dbias[width],
               "wrote beside the gradients");

        /* Without the sums the rest is the same. */
        backward(ctx, &p, old.dx, add, false);
        expect(!memcmp(p.dx, old.dx, (size_t)(rows * width) * sizeof *p.dx), "without dgain, dx differs");
        clear(&p);
        clear(&old);
    }
}

TEST(backward) { each_size(backward_case); }

/* The loss sum of dy * y, in float64, moved by one element of x at a time: its own error is below 1e-8. */
TEST(backward_by_central_differences)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    for (int kind = 0; kind < 2; kind++)
        for (int j = 0; j < 8; j++) {
            const int64_t n = widths[j];
            problem p = make((mha_norm)kind, 2, n, 3, 1);
            double *x = array(n, sizeof *x), step = 1e-5;
            forward(ctx, &p);
            backward(ctx, &p, p.dx, false, false);
            widen(x, p.x + n, n);
            for (int64_t i = 0; i < n; i++) {
                double up = 0, down = 0, old = x[i];
                x[i] = old + step;
                for (int64_t c = 0; c < n; c++) up += (double)p.dy[n + c] * result(&p, x, c);
                x[i] = old - step;
                for (int64_t c = 0; c < n; c++) down += (double)p.dy[n + c] * result(&p, x, c);
                x[i] = old;
                double want = (up - down) / (2 * step), got = (double)p.dx[n + i];
                expect(fabs(got - want) <= 1e-5 * (1 + fabs(want)), "dx[%d] of %d is %.9g, not %.9g", (int)i, (int)n,
                       got, want);
            }
            free(x);
            clear(&p);
        }
    mha_context_free(ctx);
}

/* Padding that nobody looked at: rows whose dy is 0 get no gradient and give none, whatever x is there. The bits of the
 * others are those of an x that is finite. */
TEST(rows_without_a_gradient_may_be_nan)
{
    enum { ROWS = 67, LAST = 5 };
    for_each_isa (isa)
        for (int kind = 0; kind < 2; kind++) {
            mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
            problem p = make((mha_norm)kind, ROWS, 65, 3, 1), q = make((mha_norm)kind, ROWS, 65, 3, 1);
            for (int64_t i = 0; i < ROWS * p.width; i++) {
                if (i / p.width % LAST) continue;
                p.dy[i] = q.dy[i] = 0;
                q.x[i] = i % 3 ? NAN : INFINITY;
            }
            forward(ctx, &p), forward(ctx, &q);
            backward(ctx, &p, p.dx, false, true), backward(ctx, &q, q.dx, false, true);
            for (int64_t i = 0; i < ROWS * p.width; i++)
                expect(q.dx[i] == (i / p.width % LAST ? p.dx[i] : 0), "dx[%d] is %g", (int)i, (double)q.dx[i]);
            expect(!memcmp(p.dgain, q.dgain, 65 * sizeof *p.dgain), "dgain differs");
            expect(!memcmp(p.dbias, q.dbias, 65 * sizeof *p.dbias), "dbias differs");
            clear(&p), clear(&q);
            mha_context_free(ctx);
        }
}

/* y over x, and dx over dy: the bits of results that lie apart. */
TEST(in_place)
{
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (int kind = 0; kind < 2; kind++) {
        problem p = make((mha_norm)kind, 65, 131, 3, 1), q = make((mha_norm)kind, 65, 131, 3, 1);
        int64_t bytes = p.rows * p.width * (int64_t)sizeof(float);
        forward(ctx, &p);
        backward(ctx, &p, p.dx, false, true);
        expect(!mha_norm_forward(ctx, matrix(&q, q.y), kept(&q), matrix(&q, q.x), &q.norm), "%s",
               mha_context_error(ctx));
        backward(ctx, &q, q.dy, false, true);
        expect(!memcmp(q.dy, p.dx, (size_t)bytes) && !memcmp(q.dgain, p.dgain, 131 * sizeof(float)), "dx over dy");
        expect(!mha_norm_forward(ctx, matrix(&q, q.x), kept(&q), matrix(&q, q.x), &q.norm), "%s",
               mha_context_error(ctx));
        expect(!memcmp(q.x, p.y, (size_t)bytes), "y over x");
        clear(&p), clear(&q);
    }
    mha_context_free(ctx);
}
