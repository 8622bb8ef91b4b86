/* Gradients are as exact as those of a computation that keeps all weights.
 *
 * A fused backward pass computes weights a second time. It may not lose anything by that: not where scores are so large
 * that a logsumexp in float32 has no bits left for the sum, and not where the terms of a gradient cancel. Two yardsticks:
 * float64 over the float32 scores that the library itself has (queries and keys are multiples of a power of two, so that
 * q . k is exact), and an unfused computation in float32 beside float64. */
#include "support/contexts.h"
#include "support/harness.h"
#include "support/numbers.h"

#include <float.h>

enum { MOST = 96, WIDTH = 32 };

typedef struct attention {
    int64_t Tq, Tk, D, E;
    bool plain; /* no bias is given; its gradient stays what it is */
    float q[MOST][WIDTH], k[MOST][WIDTH], v[MOST][WIDTH], dout[MOST][WIDTH], bias[MOST][MOST];
    float out[MOST][WIDTH], softmax[MOST][2];
    float dq[MOST][WIDTH], dk[MOST][WIDTH], dv[MOST][WIDTH], dbias[MOST][MOST];
} attention;

static mha_tensor matrix(float *x, int64_t rows, int64_t columns, int64_t stride)
{
    mha_tensor t = mha_tensor_4d(x, MHA_FLOAT32, 1, 1, rows, columns);
    t.stride[2] = stride;
    return t;
}

static mha_tensor width_of(float x[][WIDTH], int64_t rows, int64_t columns)
{
    return matrix(&x[0][0], rows, columns, WIDTH);
}

/* Forward and backward. With `anew` the backward pass is not told of the forward one's softmax. */
static void run(attention *a, const char *isa, float scale, bool causal, bool anew)
{
    mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
    mha_attention_options o = MHA_ATTENTION_DEFAULTS;
    mha_attention_extras x = MHA_ATTENTION_NO_EXTRAS;
    mha_attention_gradients g = MHA_ATTENTION_NO_GRADIENTS;
    mha_tensor none = MHA_NO_TENSOR, q = width_of(a->q, a->Tq, a->D), k = width_of(a->k, a->Tk, a->D);
    mha_tensor v = width_of(a->v, a->Tk, a->E), out = width_of(a->out, a->Tq, a->E);
    o.scale = scale;
    o.causal = causal;
    if (!a->plain) o.bias = matrix(&a->bias[0][0], a->Tq, a->Tk, MOST);
    x.softmax = mha_tensor_4d(a->softmax, MHA_FLOAT32, 1, 1, a->Tq, 2);
    g.q = width_of(a->dq, a->Tq, a->D);
    g.k = width_of(a->dk, a->Tk, a->D);
    g.v = width_of(a->dv, a->Tk, a->E);
    if (!a->plain) g.bias = matrix(&a->dbias[0][0], a->Tq, a->Tk, MOST);
    expect(!mha_attention_forward(ctx, out, &x, q, k, v, &o), "%s", mha_context_error(ctx));
    const mha_attention_saved saved = {q, k, v, out, anew ? none : x.softmax};
    expect(!mha_attention_backward(ctx, &g, &saved, width_of(a->dout, a->Tq, a->E), none, &o), "%s",
           mha_context_error(ctx));
    mha_context_free(ctx);
}

/* Gradients in float64 from given scores; -infinity where a key is not seen. */
typedef struct answer {
    double dq[MOST][WIDTH], dk[MOST][WIDTH], dv[MOST][WIDTH], dbias[MOST][MOST];
} answer;

/* One row of weights and what its gradients are made of. */
typedef struct row {
    double p[MOST], dp[MOST], delta; /* ds = p * (dp - delta) */
} row;

static row row_of(const attention *a, int64_t i, const double *s)
{
    row r = {0};
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a->Tk; j++) top = fmax(top, s[j]);
    for (int64_t j = 0; j < a->Tk; j++) sum += r.p[j] = exp(s[j] - top);
    for (int64_t j = 0; j < a->Tk; j++) {
        r.p[j] /= sum;
        for (int64_t e = 0; e < a->E; e++) r.dp[j] += (double)a->dout[i][e] * (double)a->v[j][e];
        r.delta += r.p[j] * r.dp[j];
    }
    return r;
}

static void solve(answer *r, const attention *a, double s[MOST][MOST], double scale)
{
    memset(r, 0, sizeof *r);
    for (int64_t i = 0; i < a->Tq; i++) {
        row w = row_of(a, i, s[i]);
        for (int64_t j = 0; j < a->Tk; j++) {
            double ds = r->dbias[i][j] = w.p[j] * (w.dp[j] - w.delta);
            for (int64_t e = 0; e < a->E; e++) r->dv[j][e] += w.p[j] * (double)a->dout[i][e];
            for (int64_t d = 0; d < a->D; d++) r->dq[i][d] += scale * ds * (double)a->k[j][d];
            for (int64_t d = 0; d < a->D; d++) r->dk[j][d] += scale * ds * (double)a->q[i][d];
        }
    }
}

static double difference(const float *x, const double *y, int64_t rows, int64_t columns, int64_t stride)
{
    double worst = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double here = fabs((double)x[i * stride + j] - y[i * stride + j]);
            if (!(here <= worst)) worst = here;
        }
    return worst;
}

/* The largest error of any gradient. */
static double error_of(const attention *a, const answer *r)
{
    double dq = difference(&a->dq[0][0], &r->dq[0][0], a->Tq, a->D, WIDTH);
    double dk = difference(&a->dk[0][0], &r->dk[0][0], a->Tk, a->D, WIDTH);
    double dv = difference(&a->dv[0][0], &r->dv[0][0], a->Tk, a->E, WIDTH);
    double dbias = difference(&a->dbias[0][0], &r->dbias[0][0], a->Tq, a->Tk, MOST);
    if (isnan(dq + dk + dv + dbias)) return NAN;
    return fmax(fmax(dq, dk), fmax(dv, dbias));
}

/* ---- Large biases ----------------------------------------------------------------------------------------------- */

static void fill_dyadic(float x[][WIDTH], rng *r, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) x[i][j] = (float)rng_between(r, -4, 4) / 8;
}

static void fill_random(float x[][WIDTH], rng *r, int64_t rows, int64_t columns, double size)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) x[i][j] = (float)(size * rng_normal(r));
}

/* Every third row has the bias on all of its keys, the next one on all but one, the last on none. */
static float bias_of(int64_t i, int64_t j, float size) { return i % 3 == 0 || (i % 3 == 1 && j) ? size : 0.0f; }

static void make_biased(attention *a, double s[MOST][MOST], float size, int64_t Tq, int64_t Tk)
{
    rng r = rng_make(20261116, (uint64_t)(Tq * 1000 + Tk));
    *a = (attention){.Tq = Tq, .Tk = Tk, .D = 16, .E = 16};
    fill_dyadic(a->q, &r, Tq, a->D);
    fill_dyadic(a->k, &r, Tk, a->D);
    fill_random(a->v, &r, Tk, a->E, 0.5);
    fill_random(a->dout, &r, Tq, a->E, 1 / sqrt((double)Tq));
    for (int64_t i = 0; i < Tq; i++)
        for (int64_t j = 0; j < Tk; j++) {
            float dot = 0;
            for (int64_t d = 0; d < a->D; d++) dot += a->q[i][d] * a->k[j][d]; /* exact */
            a->bias[i][j] = bias_of(i, j, size);
            float score = dot * 0.5f + a->bias[i][j]; /* rounded once, as the library does */
            s[i][j] = (double)score;
        }
}

TEST(biases_of_every_size)
{
    static attention a;
    static answer want;
    static double s[MOST][MOST];
    static const int64_t sizes[][2] = {{3, 1}, {3, 4}, {6, 64}, {40, 4}, {33, 65}, {70, 90}};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (int power = 0; power < 40; power++)
            for (int sign = -1; sign <= 1; sign += 2) {
                float size = (float)sign * (power < 39 ? (float)pow(10, power) : FLT_MAX);
                make_biased(&a, s, size, sizes[n][0], sizes[n][1]);
                solve(&want, &a, s, 0.5);
                for_each_isa (isa) {
                    for (int anew = 0; anew < 2; anew++) {
                        run(&a, isa, 0.5f, false, anew);
                        double error = error_of(&a, &want);
                        expect(error <= 2e-6, "%s, %d queries, %d keys, a bias of %g%s: off by %g", isa, (int)a.Tq,
                               (int)a.Tk, (double)size, anew ? ", anew" : "", error);
                    }
                }
            }
}

/* Queries times a power of two: scores up to 2^100, of which several keys share the largest. */
TEST(scores_of_every_size)
{
    static attention a;
    static answer want;
    static double s[MOST][MOST];
    for (int power = 0; power <= 100; power += 4) {
        float size = ldexpf(1, power);
        for (int few = 0; few < 2; few++) {
            make_biased(&a, s, 0, few ? 5 : 40, 64);
            for (int64_t j = 0; j < a.Tk; j++) memcpy(a.k[j], a.k[j % 8], sizeof a.k[j]);
            for (int64_t i = 0; i < a.Tq; i++) {
                for (int64_t d = 0; d < a.D; d++) a.q[i][d] *= size;
                for (int64_t j = a.Tk - 1; j >= 0; j--) s[i][j] = s[i][j % 8] * (double)size;
            }
            solve(&want, &a, s, 0.5);
            answer scaled = want;
            for (int64_t n = 0; n < a.Tk * WIDTH; n++) scaled.dk[n / WIDTH][n % WIDTH] /= (double)size;
            for_each_isa (isa)
                for (int plain = 0; plain < 2; plain++) {
                    a.plain = plain;
                    run(&a, isa, 0.5f, false, power % 8 == 4);
                    for (int64_t n = 0; n < a.Tk * WIDTH; n++) a.dk[n / WIDTH][n % WIDTH] /= size;
                    double error = error_of(&a, &scaled);
                    expect(error <= 2e-6, "%s, %d queries times 2^%d%s: off by %g", isa, (int)a.Tq, power,
                           plain ? ", no bias" : "", error);
                }
        }
    }
}

/* ---- Large scores, and terms that cancel ------------------------------------------------------------------------ */

/* What a framework does in float32: scores, weights and their gradients as whole matrices. */
static void unfused(attention *a, float scale, bool causal)
{
    memset(a->dk, 0, sizeof a->dk);
    memset(a->dv, 0, sizeof a->dv);
    memset(a->dq, 0, sizeof a->dq);
    for (int64_t i = 0; i < a->Tq; i++) {
        float p[MOST], dp[MOST], top = -INFINITY, sum = 0, delta = 0;
        int64_t seen = causal && i + 1 < a->Tk ? i + 1 : a->Tk;
        for (int64_t j = 0; j < seen; j++) {
            p[j] = dp[j] = 0;
            for (int64_t d = 0; d < a->D; d++) p[j] += a->q[i][d] * a->k[j][d];
            for (int64_t e = 0; e < a->E; e++) dp[j] += a->dout[i][e] * a->v[j][e];
            p[j] = p[j] * scale;
            top = fmaxf(top, p[j]);
        }
        for (int64_t j = 0; j < seen; j++) sum += p[j] = expf(p[j] - top);
        for (int64_t j = 0; j < seen; j++) delta += (p[j] /= sum) * dp[j];
        for (int64_t j = 0; j < a->Tk; j++) {
            float ds = a->dbias[i][j] = j < seen ? p[j] * (dp[j] - delta) : 0;
            for (int64_t e = 0; j < seen && e < a->E; e++) a->dv[j][e] += p[j] * a->dout[i][e];
            for (int64_t d = 0; d < a->D; d++) a->dq[i][d] += scale * ds * a->k[j][d];
            for (int64_t d = 0; d < a->D; d++) a->dk[j][d] += scale * ds * a->q[i][d];
        }
    }
}

static void score(double s[MOST][MOST], const attention *a, double scale, bool causal)
{
    for (int64_t i = 0; i < a->Tq; i++)
        for (int64_t j = 0; j < a->Tk; j++) {
            s[i][j] = 0;
            for (int64_t d = 0; d < a->D; d++) s[i][j] += (double)a->q[i][d] * (double)a->k[j][d];
            s[i][j] = causal && j > i ? -INFINITY : s[i][j] * scale;
        }
}

/* How far gradients may move when every score and every dp is rounded to float32 once, to first order. */
static void round_once(answer *r, const attention *a, double s[MOST][MOST], double scale)
{
    memset(r, 0, sizeof *r);
    for (int64_t i = 0; i < a->Tq; i++) {
        const double u = FLT_EPSILON / 2;
        double ds[MOST], p[MOST], average = 0, delta = 0; /* ds, p and delta: by how much each may be off */
        row w = row_of(a, i, s[i]);
        for (int64_t j = 0; j < a->Tk; j++) average += w.p[j] > 0 ? w.p[j] * u * fabs(s[i][j]) : 0;
        for (int64_t j = 0; j < a->Tk; j++) {
            p[j] = w.p[j] > 0 ? w.p[j] * (u * fabs(s[i][j]) + average) : 0;
            delta += w.p[j] * u * fabs(w.dp[j]) + p[j] * fabs(w.dp[j] - w.delta);
        }
        for (int64_t j = 0; j < a->Tk; j++) {
            ds[j] = r->dbias[i][j] = p[j] * fabs(w.dp[j] - w.delta) + w.p[j] * (u * fabs(w.dp[j]) + delta);
            for (int64_t e = 0; e < a->E; e++) r->dv[j][e] += p[j] * fabs((double)a->dout[i][e]);
            for (int64_t d = 0; d < a->D; d++) r->dq[i][d] += scale * ds[j] * fabs((double)a->k[j][d]);
            for (int64_t d = 0; d < a->D; d++) r->dk[j][d] += scale * ds[j] * fabs((double)a->q[i][d]);
        }
    }
}

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Where one key has almost all of the weight, the error of a case is that of a few scores, and the unfused computation may
 * by chance have rounded them without an error: quotients of single cases reach 300. So a case may have three times the
 * error of the unfused computation or of one rounding per score, whichever is larger; and the median of the quotients to the
 * unfused error alone, which is 1, may be at most 1.5. */
TEST(as_exact_as_unfused)
{
    enum { CASES = 64 };
    static attention a, none;
    static answer want, rounding;
    static double quotients[CASES * 16];
    size_t count = 0;
    static double s[MOST][MOST];
    static const double queries[] = {0.01, 1, 4, 16}, values[] = {1, 30};
    for (int n = 0; n < CASES; n++) {
        rng r = rng_make(815, (uint64_t)n);
        bool causal = n % 2, few = n / 2 % 2;
        double size = queries[n / 4 % 4];
        a = none = (attention){.Tq = few ? 5 : 64, .Tk = few && !causal ? 70 : 64, .D = 32, .E = n / 32 ? 32 : 20};
        fill_random(a.q, &r, a.Tq, a.D, size);
        fill_random(a.k, &r, a.Tk, a.D, size < 4 ? 1 : size);
        fill_random(a.v, &r, a.Tk, a.E, values[n / 16 % 2]);
        fill_random(a.dout, &r, a.Tq, a.E, 1);
        score(s, &a, 0.25, causal);
        solve(&want, &a, s, 0.25);
        unfused(&a, 0.25f, causal);
        double theirs = error_of(&a, &want);
        round_once(&rounding, &a, s, 0.25);
        double once = error_of(&none, &rounding);
        for_each_isa (isa)
            for (int plain = 0; plain < 2; plain++) {
                a.plain = plain;
                run(&a, isa, 0.25f, causal, n / 8 % 2);
                double ours = error_of(&a, &want);
                expect(ours <= 3 * fmax(theirs, once), "%s, case %d%s: off by %g, unfused by %g, one rounding by %g",
                       isa, n, plain ? ", no bias" : "", ours, theirs, once);
                if (count < sizeof quotients / sizeof *quotients) quotients[count++] = ours / theirs;
            }
    }
    qsort(quotients, count, sizeof *quotients, by_size);
    expect(quotients[count / 2] <= 1.5, "the median error is %g times that of unfused", quotients[count / 2]);
}

/* A weight of 1 has no gradient, whatever the value; neither have keys whose values are all the same number. */
TEST(nothing_is_left_of_what_cancels)
{
    static attention a;
    static const int64_t widths[] = {1, 4, 7, 16, 31, 32};
    for_each_isa (isa) {
        for (size_t n = 0; n < sizeof widths / sizeof *widths; n++) {
            rng r = rng_make(7, n);
            a = (attention){.Tq = 40, .Tk = 40, .D = widths[n], .E = widths[n]};
            fill_random(a.q, &r, a.Tq, a.D, 3);
            fill_random(a.k, &r, a.Tk, a.D, 3);
            fill_random(a.v, &r, a.Tk, a.E, 1000);
            fill_random(a.dout, &r, a.Tq, a.E, 1000);
            for (int64_t i = 0; i < a.Tq; i++) /* row i sees key i alone */
                for (int64_t j = 0; j < a.Tk; j++) a.bias[i][j] = i == j ? 0 : -INFINITY;
            run(&a, isa, 0.5f, false, n % 2);
            double dq = 0, dk = 0;
            for (int64_t i = 0; i < a.Tq; i++)
                for (int64_t d = 0; d < a.D; d++) {
                    dq = fmax(dq, (double)fabsf(a.dq[i][d]));
                    dk = fmax(dk, (double)fabsf(a.dk[i][d]));
                    expect(a.dv[i][d] == a.dout[i][d], "%s: dv is not dout where the weight is 1", isa);
                }
            expect(dq == 0 && dk == 0, "%s, width %d: one visible key has gradients of %g and %g", isa, (int)a.D, dq,
                   dk);
        }
    }
}

/* Dropout may take `out` beyond float32. What a head is worth is a number all the same. */
TEST(importance_of_an_infinite_out)
{
    for_each_isa (isa) {
        float q[4] = {0}, k[4] = {0}, v[4] = {3e38f, 3e38f, 3e38f, 3e38f}, out[4] = {0}, worth = NAN,
              dout[4] = {0, 0, 0, 1e-38f};
        mha_context *ctx = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
        mha_attention_options o = MHA_ATTENTION_DEFAULTS;
        mha_attention_gradients g = MHA_ATTENTION_NO_GRADIENTS;
        mha_tensor none = MHA_NO_TENSOR, tq = mha_tensor_4d(q, MHA_FLOAT32, 1, 1, 4, 1);
        mha_tensor tk = mha_tensor_4d(k, MHA_FLOAT32, 1, 1, 4, 1), tv = mha_tensor_4d(v, MHA_FLOAT32, 1, 1, 4, 1);
        mha_tensor to = mha_tensor_4d(out, MHA_FLOAT32, 1, 1, 4, 1), td = mha_tensor_4d(dout, MHA_FLOAT32, 1, 1, 4, 1);
        g.importance = mha_tensor_2d(&worth, MHA_FLOAT32, 1, 1);
        o.dropout = 0.4f;
        bool infinite = false;
        for (o.dropout_seed = 0; !infinite && o.dropout_seed < 20; o.dropout_seed++) {
            expect(!mha_attention_forward(ctx, to, NULL, tq, tk, tv, &o), "%s", mha_context_error(ctx));
            const mha_attention_saved saved = {tq, tk, tv, to, none};
            expect(!mha_attention_backward(ctx, &g, &saved, td, none, &o), "%s", mha_context_error(ctx));
            infinite = isinf(out[0]) && isinf(out[3]);
        }
        expect(infinite, "%s: no seed makes `out` infinite", isa);
        expect(worth > 3.4f && worth < 5.1f, "%s: importance is %g", isa, (double)worth);
        mha_context_free(ctx);
    }
}
