/* Normalisation on the naive table: a position's numbers as one array, cut into what is normalised together. */
#include "support/naive/naive.h"

#include <stdlib.h>

/* One position (b,t) of heads (B,H,T,D): its numbers (H,D), and what belongs to each of them. */
typedef struct position {
    int64_t H, D, span; /* span: numbers that are normalised together */
    double *x, *y, *gain, *bias;
} position;

static position make(mha_tensor x, const mha_norm_about *norm)
{
    int64_t H = x.size[1], D = x.size[3];
    double *memory = array(4 * H * D + 1, sizeof *memory);
    position p = {H, D, norm->all_heads ? H * D : D, memory, memory + H * D, memory + 2 * H * D, memory + 3 * H * D};
    for (int64_t n = 0; n < H * D; n++) {
        int64_t at = norm->gain.size[0] == D ? n % D : n;
        p.gain[n] = naive_get(norm->gain, at, 0, 0, 0);
        p.bias[n] = norm->bias.rank ? naive_get(norm->bias, at, 0, 0, 0) : 0;
    }
    return p;
}

static void load(double *to, const position *p, mha_tensor from, int64_t b, int64_t t)
{
    for (int64_t n = 0; n < p->H * p->D; n++) to[n] = naive_get(from, b, n / p->D, t, n % p->D);
}

/* The mean of a span and the inverse root of its variance; or 0 and that of its mean square. */
static void measure(double *mean, double *r, const double *x, int64_t span, const mha_norm_about *norm)
{
    double sum = 0, squares = 0;
    for (int64_t n = 0; n < span; n++)
        sum += (x[n] - x[0]) / (double)span; /* exact for numbers that are all the same */
    *mean = norm->centred ? x[0] + sum : 0;
    for (int64_t n = 0; n < span; n++) squares += (x[n] - *mean) * (x[n] - *mean) / (double)span;
    *r = 1 / sqrt(squares + (double)norm->epsilon);
}

/* x of a position, with the residual if there is one, which goes back to `from`. */
static void load_sum(position *p, mha_tensor from, mha_tensor residual, int64_t b, int64_t t)
{
    load(p->x, p, from, b, t);
    for (int64_t n = 0; residual.rank && n < p->H * p->D; n++) {
        naive_set(from, b, n / p->D, t, n % p->D, p->x[n] + naive_get(residual, b, n / p->D, t, n % p->D));
        p->x[n] = naive_get(from, b, n / p->D, t, n % p->D);
    }
}

void naive_normalize(mha_context *ctx, mha_tensor to, mha_tensor kept, mha_tensor from, mha_tensor residual,
                     const mha_norm_about *norm)
{
    position p = make(from, norm);
    for (int64_t row = 0; !ctx->rehearsing && row < from.size[0] * from.size[2]; row++) {
        int64_t b = row / from.size[2], t = row % from.size[2];
        double mean = 0, r = 0;
        load_sum(&p, from, residual, b, t);
        for (int64_t n = 0; n < p.H * p.D; n++) {
            int64_t unit = (row * p.H * p.D + n) / p.span;
            if (n % p.span == 0) measure(&mean, &r, p.x + n, p.span, norm);
            if (n % p.span == 0 && kept.rank) {
                naive_set(kept, unit, 0, 0, 0, mean);
                naive_set(kept, unit, 1, 0, 0, r);
            }
            naive_set(to, b, n / p.D, t, n % p.D, (p.x[n] - mean) * r * p.gain[n] + p.bias[n]);
        }
    }
    free(p.x);
}

/* dy of a span becomes dx; gains and biases start at number `first` of the position. A span whose dy is zero may have NaN
 * for x. */
static void span_back(const position *p, int64_t first, const mha_norm_about *norm, double *dgain, double *dbias)
{
    double *x = p->x + first, *dy = p->y + first, mean, r, dot = 0, sum = 0, N = (double)p->span;
    bool zero = true;
    for (int64_t n = 0; n < p->span; n++) zero = zero && dy[n] == 0;
    if (zero) return;
    measure(&mean, &r, x, p->span, norm);
    for (int64_t n = 0; n < p->span; n++) {
        int64_t at = norm->gain.size[0] == p->D ? (first + n) % p->D : first + n;
        double hat = (x[n] - mean) * r, d = p->gain[first + n] * dy[n];
        dgain[at] += dy[n] * hat;
        dbias[at] += dy[n];
        dot += d * hat / N;
        sum += norm->centred ? d / N : 0;
    }
    for (int64_t n = 0; n < p->span; n++) dy[n] = r * (p->gain[first + n] * dy[n] - (x[n] - mean) * r * dot - sum);
}

void naive_normalize_back(mha_context *ctx, const mha_norm_back *to, mha_tensor dy, mha_tensor x, mha_tensor kept,
                          const mha_norm_about *norm, float *partials)
{
    position p = make(x, norm);
    int64_t count = norm->gain.size[0];
    double *sums = array(2 * count + 1, sizeof *sums);
    (void)partials;
    (void)kept; /* it is measured again */
    for (int64_t row = 0; !ctx->rehearsing && row < x.size[0] * x.size[2]; row++) {
        int64_t b = row / x.size[2], t = row % x.size[2];
        load(p.x, &p, x, b, t);
        load(p.y, &p, dy, b, t);
        for (int64_t n = 0; n < p.H * p.D; n += p.span) span_back(&p, n, norm, sums, sums + count);
        for (int64_t n = 0; n < p.H * p.D; n++) {
            double before = to->add ? naive_get(to->dx, b, n / p.D, t, n % p.D) : 0;
            naive_set(to->dx, b, n / p.D, t, n % p.D, before + p.y[n]);
        }
    }
    for (int64_t n = 0; !ctx->rehearsing && n < count; n++) {
        if (to->dgain.rank) naive_set(to->dgain, n, 0, 0, 0, naive_get(to->dgain, n, 0, 0, 0) + sums[n]);
        if (to->dbias.rank) naive_set(to->dbias, n, 0, 0, 0, naive_get(to->dbias, n, 0, 0, 0) + sums[count + n]);
    }
    free(p.x);
    free(sums);
}
