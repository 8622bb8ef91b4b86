/* LayerNorm and RMS norm of nn/ against float64.
 *
 * With k = width/16 + 8, the roundings that a sum in 16 lanes, its total and what is done with it may add up to:
 *   the mean is off by  u |mean| + k u mean|x - x[0]|,  which by the inverse root becomes an error `shift` of every h;
 *   h is off by         shift + k u |h|,                for the inverse root is itself a sum of squares;
 *   the rest is written down beside each check. All bounds are doubled, for what is of second order. */
#include "support/contexts.h"
#include "support/harness.h"
#include "support/numbers.h"
#include "ops/ops.h"

static const double u = 0x1p-24;

typedef struct problem {
    nn_norm norm;
    int64_t rows;
    float *x, *r, *gain, *bias, *dy;      /* in */
    float *y, *kept, *dx, *dgain, *dbias; /* out, each with one float more */
} problem;

static float *numbers(rng *r, int64_t count, double scale, double offset)
{
    float *x = array(count + 1, sizeof *x);
    for (int64_t i = 0; i <= count; i++) x[i] = (float)(offset + scale * (2 * rng_uniform(r) - 1));
    return x;
}

static problem make(nn_norm_kind kind, int64_t rows, int64_t width, double scale, double offset)
{
    rng r = rng_make((uint64_t)(rows * 10007 + width), 3);
    int64_t n = rows * width;
    problem p = {.rows = rows, .x = numbers(&r, n, scale, offset), .r = numbers(&r, n, scale, 0)};
    p.gain = numbers(&r, width, 1, 0.5);
    p.bias = numbers(&r, width, 1, 0);
    p.dy = numbers(&r, n, 1, 0);
    p.y = numbers(&r, n, 1, 0);
    p.kept = numbers(&r, 2 * rows, 1, 0);
    p.dx = numbers(&r, n, 1, 0);
    p.dgain = numbers(&r, width, 1, 0);
    p.dbias = numbers(&r, width, 1, 0);
    p.norm = (nn_norm){kind, width, 1e-5f, p.gain, kind == NN_LAYER_NORM ? p.bias : NULL};
    return p;
}

static void clear(problem *p)
{
    float *all[] = {p->x, p->r, p->gain, p->bias, p->dy, p->y, p->kept, p->dx, p->dgain, p->dbias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* ---- The oracle ------------------------------------------------------------------------------------------------- */

typedef struct row {
    double mean, by, shift;
} row;

static row row_of(const problem *p, const double *x)
{
    const int64_t n = p->norm.width;
    double k = (double)n / 16 + 8, mean = 0, spread = 0, squares = 0;
    for (int64_t i = 0; i < n && p->norm.kind == NN_LAYER_NORM; i++) {
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
    return (x[i] - r.mean) * r.by * (double)p->gain[i] + (p->norm.bias ? (double)p->bias[i] : 0);
}

static void widen(double *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = (double)from[i];
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

static void check_forward(const problem *p)
{
    const int64_t n = p->norm.width;
    double *x = array(n, sizeof *x), k = (double)n / 16 + 8;
    for (int64_t r = 0; r < p->rows; r++) {
        widen(x, p->x + r * n, n);
        row o = row_of(p, x);
        for (int64_t i = 0; i < n; i++) {
            double h = (x[i] - o.mean) * o.by, gain = (double)p->gain[i];
            double want = h * gain + (p->norm.bias ? (double)p->bias[i] : 0), got = (double)p->y[r * n + i];
            double bound = 2 * (fabs(gain) * (o.shift + (k + 3) * u * fabs(h)) + u * fabs(want));
            expect(fabs(got - want) <= bound, "y[%d,%d] of %d is %.9g, not %.9g: off by %g, not %g", (int)r, (int)i,
                   (int)n, got, want, got - want, bound);
        }
    }
    free(x);
}

static const int64_t row_counts[] = {0, 1, 63, 64, 65, 300}, widths[] = {1, 2, 7, 16, 17, 64, 65, 131, 1000};

/* Runs body-like `check` for every kind and size. */
static void each_size(void (*check)(mha_context *ctx, nn_norm_kind kind, int64_t rows, int64_t width))
{
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < 6; i++)
            for (int j = 0; j < 9; j++)
                if (row_counts[i] * widths[j] < 70000) check(ctx, (nn_norm_kind)kind, row_counts[i], widths[j]);
    mha_context_free(ctx);
}

static void forward_case(mha_context *ctx, nn_norm_kind kind, int64_t rows, int64_t width)
{
    problem p = make(kind, rows, width, 3, 1);
    float after = p.y[rows * width];
    nn_norm_forward(ctx, &p.norm, p.y, p.kept, p.x, rows);
    check_forward(&p);
    expect(p.y[rows * width] == after, "wrote beside y");

    /* The sum in the same sweep: the bits of a sum and then a norm. */
    float *y = array(rows * width + 1, sizeof *y), *x = array(rows * width + 1, sizeof *x);
    memcpy(x, p.x, (size_t)(rows * width) * sizeof *x);
    for (int64_t i = 0; i < rows * width; i++) p.x[i] += p.r[i];
    nn_norm_forward_add(ctx, &p.norm, y, p.kept, x, p.r, rows);
    nn_norm_forward(ctx, &p.norm, p.y, p.kept, p.x, rows);
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
                problem p = make((nn_norm_kind)kind, 9, widths[j], scales[s][0], scales[s][1]);
                nn_norm_forward(ctx, &p.norm, p.y, p.kept, p.x, p.rows);
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
            problem p = make(NN_LAYER_NORM, 1, widths[j], 1, 0);
            for (int64_t i = 0; i < widths[j]; i++) p.x[i] = s == 0 ? 0.0f : s == 1 ? 0.1f : -9876.543f;
            nn_norm_forward(ctx, &p.norm, p.y, p.kept, p.x, 1);
            expect(!memcmp(p.y, p.bias, (size_t)widths[j] * sizeof *p.y), "width %d", (int)widths[j]);
            clear(&p);
        }
    mha_context_free(ctx);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* dx = by (g - mean(g) - h mean(g h)): k + 3 roundings of each term, and the error of h in its two places. */
static void check_row(const problem *p, const float *before, int64_t at, double *sums, double *bounds)
{
    const int64_t n = p->norm.width;
    double *x = array(n, sizeof *x), k = (double)n / 16 + 8, g = 0, gs = 0, gh = 0, ghs = 0;
    widen(x, p->x + at, n);
    row o = row_of(p, x);
    for (int64_t i = 0; i < n; i++) {
        double part = (double)p->dy[at + i] * (double)p->gain[i] / (double)n, h = (x[i] - o.mean) * o.by;
        g += p->norm.kind == NN_LAYER_NORM ? part : 0;
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
    const int64_t n = p->norm.width;
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

static void backward_case(mha_context *ctx, nn_norm_kind kind, int64_t rows, int64_t width)
{
    nn_workspace workspace = NN_NO_WORKSPACE;
    for (int add = 0; add < 2; add++) {
        problem p = make(kind, rows, width, 3, 1), old = make(kind, rows, width, 3, 1);
        nn_norm_gradients gradients = {p.dx, add, p.dgain, p.dbias};
        nn_norm_forward(ctx, &p.norm, p.y, p.kept, p.x, rows);
        expect(!nn_norm_backward(ctx, &workspace, &p.norm, &gradients, p.dy, p.x, p.kept, rows), "no memory");
        check_backward(&p, add ? old.dx : NULL, old.dgain, old.dbias);
        expect(p.dx[rows * width] == old.dx[rows * width] && p.dgain[width] == old.dgain[width] &&
                   p.dbias[width] == old.dbias[width],
               "wrote beside the gradients");

        /* Without the sums the rest is the same. */
        gradients = (nn_norm_gradients){old.dx, add, NULL, NULL};
        expect(!nn_norm_backward(ctx, &workspace, &p.norm, &gradients, p.dy, p.x, p.kept, rows), "no memory");
        expect(!memcmp(p.dx, old.dx, (size_t)(rows * width) * sizeof *p.dx), "without dgain, dx differs");
        clear(&p);
        clear(&old);
    }
    nn_workspace_free(&workspace);
}

TEST(backward) { each_size(backward_case); }

/* The loss sum of dy * y, in float64, moved by one element of x at a time: its own error is below 1e-8. */
TEST(backward_by_central_differences)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    nn_workspace workspace = NN_NO_WORKSPACE;
    for (int kind = 0; kind < 2; kind++)
        for (int j = 0; j < 8; j++) {
            const int64_t n = widths[j];
            problem p = make((nn_norm_kind)kind, 2, n, 3, 1);
            nn_norm_gradients gradients = {p.dx, false, NULL, NULL};
            double *x = array(n, sizeof *x), step = 1e-5;
            nn_norm_forward(ctx, &p.norm, p.y, p.kept, p.x, 2);
            expect(!nn_norm_backward(ctx, &workspace, &p.norm, &gradients, p.dy, p.x, p.kept, 2), "no memory");
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
    nn_workspace_free(&workspace);
    mha_context_free(ctx);
}
