/* How far a correct float32 computation may be from the oracle.
 *
 * With u = 2^-24 and A = sum_d |scale * q_d * k_d|, each score has an error of at most about
 *
 *     u * (c A + 4 |s| + 2 |bias| + 4 |alibi|)        c = 4 + D/2
 *
 * (a running sum of D terms loses at most D/2 u of their absolute sum; the rest are single roundings; the exponent's
 * argument is rounded relative to |s| and to |s - lse|). A softcap passes on what it does not flatten. From the score
 * errors e_j follow the others without further guesses:
 *
 *     |lse' - lse|   <=  log sum_j P_j exp(e_j)                                      (convexity)
 *     |P'_j - P_j|   <=  P_j (exp(e_j + the above) - 1)                              while errors are small
 *     P'_j in 1 / (1 + sum_{n != j} exp(s_n - s_j -+ (e_n + e_j)))                   when they are not: huge scores
 *     |out' - out|   <=  sum_j |P'_j - P_j| |v_j| + r u sum_j P_j |v_j|              r = 8 + sqrt(Tk)/2
 *
 * Where the scores are of ordinary size (|s| <= 6 and A + |bias| + |alibi| <= 12), D <= 128 and Tk <= 4096, the
 * project's bar holds as well: 2e-6 of the largest |v| that the row sees. */
#include "support/problem.h"

#include <float.h>
#include <stdlib.h>

#define U 0x1p-24

/* One row's view of the arrays. */
typedef struct row {
    const problem *p;
    int64_t b, h, i, at; /* at: (b,h,i,0) of a (B,H,Tq,Tk) array */
    double lse, *error;  /* error (Tk): of the masked scores */
    float *sum;          /* (E), room for naive_error */
    double sink, sink_error, largest_error;
    bool ordinary;
} row;

/* ---- Scores ----------------------------------------------------------------------------------------------------- */

/* |k| (D,Tk) of k (Tk,D): sums over d then run side by side for all keys. */
static void absolute_columns(double *to, const double *k, int64_t Tk, int64_t D)
{
    for (int64_t j = 0; j < Tk; j++)
        for (int64_t d = 0; d < D; d++) to[d * Tk + j] = fabs(k[j * D + d]);
}

/* sums (B,H,Tq,Tk) of |scale q_d k_d|. A query below the normal range has fewer bits once it is scaled: that is an
 * error relative to FLT_MIN. Engines take bfloat16 numbers below the normal range for zero. */
static double *absolute_sums(const problem *p)
{
    const attention_case *c = &p->c;
    double *sums = array(c->B * c->H * c->Tq * c->Tk, sizeof *sums), *next = sums;
    double scale = isnan(p->ref.scale) ? 1 / sqrt((double)c->D) : fabs(p->ref.scale),
           tiny = scale * (double)FLT_MIN / U;
    bool halves = c->type_q == MHA_BFLOAT16 && c->type_k == MHA_BFLOAT16 && c->type_v == MHA_BFLOAT16;
    double *keys = array(c->Tk * c->D, sizeof *keys);
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t h = 0; h < c->H; h++) {
            absolute_columns(keys, p->ref.k + (b * c->G + h / (c->H / c->G)) * c->Tk * c->D, c->Tk, c->D);
            for (int64_t i = 0; i < c->Tq; i++, next += c->Tk) {
                const double *q = p->ref.q + ((b * c->H + h) * c->Tq + i) * c->D;
                for (int64_t d = 0; d < c->D; d++) {
                    double factor = scale * fabs(q[d]) + (double)FLT_MIN;
                    for (int64_t j = 0; j < c->Tk; j++) next[j] += factor * keys[d * c->Tk + j];
                }
                for (int64_t d = 0; halves && d < c->D; d++)
                    for (int64_t j = 0; j < c->Tk; j++) next[j] += tiny * (fabs(q[d]) + keys[d * c->Tk + j]);
            }
        }
    free(keys);
    return sums;
}

/* The cap is monotonic: its error is that of the ends of the interval, and one of its own. */
static double capped_error(double s, double error, double cap)
{
    if (!(cap > 0)) return error;
    double here = cap * tanh(s / cap), low = cap * tanh((s - error) / cap), high = cap * tanh((s + error) / cap);
    return fmax(here - low, high - here) + 4 * U * fabs(here);
}

static void bound_scores(row *r, const double *sums)
{
    const problem *p = r->p;
    const ref_attention *a = &p->ref;
    double position = (double)ref_position(a, r->b, r->i), slope = 0, c = 4 + (double)a->D / 2;
    if (a->alibi_slopes) slope = a->alibi_slopes[r->b * a->H + r->h];
    for (int64_t j = 0; j < a->Tk; j++) {
        int64_t n = r->at + j;
        double scaled = U * (c * sums[n] + 2 * fabs(p->want.stage[REF_SCALED][n])) + (double)FLT_MIN;
        double capped = capped_error(p->want.stage[REF_SCALED][n], scaled, a->softcap);
        double bias = a->bias ? fabs(a->bias[n]) : 0, alibi = fabs(slope * (position - (double)j));
        double masked = capped + U * (4 * fabs(p->want.stage[REF_MASKED][n]) + 2 * bias + 4 * alibi);
        p->allowed.scores[REF_SCALED][n] = scaled;
        p->allowed.scores[REF_CAPPED][n] = capped;
        p->allowed.scores[REF_MASKED][n] = masked;
        if (!ref_visible(a, r->b, r->h, r->i, j)) continue;
        r->error[j] = masked + 2 * U * fabs(p->want.stage[REF_MASKED][n] - r->lse);
        r->largest_error = fmax(r->largest_error, r->error[j]);
        if (fabs(p->want.stage[REF_MASKED][n]) > 6 || sums[n] + bias + alibi > 12) r->ordinary = false;
    }
}

/* ---- Softmax ---------------------------------------------------------------------------------------------------- */

/* How far lse may move: by the largest error, or, where that is large, log of the sum of exp(s + error) less lse. */
static double bound_lse(const row *r)
{
    if (r->largest_error < 1e-5) return r->largest_error;
    const double *s = r->p->want.stage[REF_MASKED] + r->at;
    double largest = r->sink + r->sink_error, sum = 0;
    for (int64_t j = 0; j < r->p->c.Tk; j++)
        if (s[j] > -INFINITY) largest = fmax(largest, s[j] + r->error[j]);
    for (int64_t j = 0; j < r->p->c.Tk; j++)
        if (s[j] > -INFINITY) sum += exp(s[j] + r->error[j] - largest);
    sum += exp(r->sink + r->sink_error - largest);
    return largest + log(sum) - r->lse;
}

/* The sum of exp(s - sign * error) over the sink and all keys but one (-1: none), as exp(top) * sum. */
typedef struct crowd {
    double top, sum;
} crowd;

static crowd gather(const row *r, int64_t but, double sign)
{
    const double *s = r->p->want.stage[REF_MASKED] + r->at;
    crowd all = {r->sink - sign * r->sink_error, 0};
    for (int64_t n = 0; n < r->p->c.Tk; n++)
        if (n != but && s[n] > -INFINITY) all.top = fmax(all.top, s[n] - sign * r->error[n]);
    for (int64_t n = 0; n < r->p->c.Tk; n++)
        if (n != but && s[n] > -INFINITY) all.sum += exp(s[n] - sign * r->error[n] - all.top);
    if (r->sink > -INFINITY) all.sum += exp(r->sink - sign * r->sink_error - all.top);
    return all;
}

/* P_j if every score moved for it (sign 1) or against it (sign -1). The others are the crowd without j; where j is most
 * of the crowd that difference would cancel, and they are gathered anew. */
static double extreme_weight(const row *r, crowd all, int64_t j, double sign)
{
    double s = r->p->want.stage[REF_MASKED][r->at + j], own = exp(s - sign * r->error[j] - all.top);
    crowd others = own > all.sum / 2 ? gather(r, j, sign) : (crowd){all.top, all.sum - own};
    if (others.sum == 0) return 1;
    return 1 / (1 + exp(others.top - s - sign * r->error[j]) * others.sum);
}

static bool dropped(const row *r, int64_t j)
{
    const ref_attention *a = &r->p->ref;
    return a->dropout > 0 && !ref_keeps(a->dropout, a->dropout_seed, a->dropout_stream + (uint64_t)r->b, r->h, r->i, j);
}

/* A weight below the smallest normal number may be flushed to zero; a dropped one is zero exactly. */
static void bound_weights(const row *r, double lse_error)
{
    const problem *p = r->p;
    double rounding = (8 + sqrt((double)p->c.Tk) / 2) * U;
    double kept = p->c.dropout < 1 ? 1 - (double)p->c.dropout : 1;
    bool small = r->largest_error < 1e-3;
    crowd high = small ? (crowd){0, 0} : gather(r, -1, 1), low = small ? (crowd){0, 0} : gather(r, -1, -1);
    for (int64_t j = 0; j < p->c.Tk; j++) {
        double weight = p->want.stage[REF_SOFTMAX][r->at + j], error = 0;
        bool visible = p->want.stage[REF_MASKED][r->at + j] > -INFINITY;
        if (visible && small) error = weight * 1.01 * (r->error[j] + lse_error + rounding);
        else if (visible)
            error = fmax(extreme_weight(r, high, j, 1) - weight, weight - extreme_weight(r, low, j, -1)) + rounding;
        double softmax = visible ? error + 2 * (double)FLT_MIN : 0;
        p->allowed.softmax[r->at + j] = softmax;
        p->allowed.weights[r->at + j] = dropped(r, j) ? 0 : softmax / kept;
    }
}

/* ---- Outputs ---------------------------------------------------------------------------------------------------- */

static void bound_out(const row *r)
{
    const problem *p = r->p;
    const attention_case *c = &p->c;
    const double *v = p->ref.v + (r->b * c->G + r->h / (c->H / c->G)) * c->Tk * c->E;
    const double *weight = p->want.stage[REF_DROPPED] + r->at, *s = p->want.stage[REF_MASKED] + r->at;
    double rounding = (8 + sqrt((double)c->Tk) / 2) * U, largest = 0;
    double kept = c->dropout < 1 ? 1 / (1 - (double)c->dropout) : 1; /* multiplies what products flush to zero, too */
    bool ordinary = r->ordinary && c->D <= 128 && c->Tk <= 4096, half = c->type_v == MHA_FLOAT16;
    double unit = half ? 0x1.02p-11 : 0x1.02p-8, coarse = half ? 0x1p-25 : 0; /* of weights that an engine rounds */
    for (int64_t j = 0; j < c->Tk; j++)
        for (int64_t e = 0; s[j] > -INFINITY && e < c->E; e++)
            if (fabs(v[j * c->E + e]) > largest) largest = fabs(v[j * c->E + e]);
    if (c->dropout > 0 && c->dropout < 1) largest /= 1 - (double)c->dropout;
    int64_t first = ((r->b * c->H + r->h) * c->Tq + r->i) * c->E;
    double *restrict error = p->allowed.out + first, *restrict rounded = p->allowed.rounded + first;
    for (int64_t e = 0; e < c->E; e++) error[e] = (double)FLT_MIN, rounded[e] = 0;
    for (int64_t j = 0; j < c->Tk; j++) {
        if (s[j] == -INFINITY) continue;
        double lost = p->allowed.weights[r->at + j], factor = lost + rounding * (weight[j] + lost);
        double step = unit * (weight[j] + lost) + coarse * kept, floor = (double)FLT_MIN * kept;
        for (int64_t e = 0; e < c->E; e++) {
            error[e] += factor * fabs(v[j * c->E + e]);
            rounded[e] += step * fabs(v[j * c->E + e]) + floor;
        }
    }
    for (int64_t e = 0; ordinary && e < c->E; e++) error[e] = fmin(error[e], 2e-6 * largest + (double)FLT_MIN);
}

/* The naive computation in a 16-bit type: weights rounded to it, products summed in float32, the sum rounded to it. */
static double naive_error(const row *r)
{
    const problem *p = r->p;
    const attention_case *c = &p->c;
    const double *v = p->ref.v + (r->b * c->G + r->h / (c->H / c->G)) * c->Tk * c->E;
    double worst = 0;
    for (int64_t e = 0; e < c->E; e++) r->sum[e] = 0;
    for (int64_t j = 0; j < c->Tk; j++) {
        double weight = p->want.stage[REF_DROPPED][r->at + j];
        float rounded = (float)round_to(c->type_out, weight);
        for (int64_t e = 0; weight > 0 && e < c->E; e++) r->sum[e] += rounded * (float)v[j * c->E + e];
    }
    for (int64_t e = 0; e < c->E; e++) {
        double want = p->want.out[((r->b * c->H + r->h) * c->Tq + r->i) * c->E + e];
        double error = fabs(round_to(c->type_out, (double)r->sum[e]) - want);
        worst = fmax(worst, isfinite(error) ? error : half_ulp(c->type_out, want)); /* the naive sum overflowed */
    }
    return worst;
}

/* ---- All rows --------------------------------------------------------------------------------------------------- */

/* `r` comes with the memory that all rows share. */
static void bound_row(problem *p, const double *sums, row r, int64_t b, int64_t h, int64_t i)
{
    int64_t index = (b * p->c.H + h) * p->c.Tq + i;
    r.p = p, r.b = b, r.h = h, r.i = i, r.at = index * p->c.Tk, r.lse = p->want.lse[index];
    r.sink = p->ref.sinks ? p->ref.sinks[h] : -INFINITY;
    r.sink_error = p->ref.sinks ? 4 * U * fabs(r.sink) : 0;
    r.largest_error = r.sink_error;
    r.ordinary = true;
    bound_scores(&r, sums);
    if (r.lse == -INFINITY) return; /* sees no key: zeros and -infinity, exactly */
    double lse_error = bound_lse(&r);
    bound_weights(&r, lse_error);
    bound_out(&r);
    p->allowed.lse[index] = lse_error + U * (8 + sqrt((double)p->c.Tk) / 2 + 4 * fabs(r.lse));
    double *naive = &p->allowed.naive[b * p->c.H + h];
    if (p->c.type_out != MHA_FLOAT32) *naive = fmax(*naive, naive_error(&r));
}

void bounds_make(problem *p)
{
    const attention_case *c = &p->c;
    int64_t rows = c->B * c->H * c->Tq;
    double *sums = absolute_sums(p);
    row shared = {.error = array(c->Tk, sizeof(double)), .sum = array(c->E, sizeof(float))};
    for (int s = 0; s < 3; s++) p->allowed.scores[s] = array(rows * c->Tk, sizeof(double));
    p->allowed.softmax = array(rows * c->Tk, sizeof(double));
    p->allowed.weights = array(rows * c->Tk, sizeof(double));
    p->allowed.lse = array(rows, sizeof(double));
    p->allowed.out = array(rows * c->E, sizeof(double));
    p->allowed.rounded = array(rows * c->E, sizeof(double));
    p->allowed.naive = array(c->B * c->H, sizeof(double));
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t h = 0; h < c->H; h++)
            for (int64_t i = 0; i < p->queries[b]; i++) bound_row(p, sums, shared, b, h, i);
    free(sums);
    free(shared.error);
    free(shared.sum);
}

void bounds_free(bounds *allowed)
{
    for (int s = 0; s < 3; s++) free(allowed->scores[s]);
    free(allowed->softmax);
    free(allowed->weights);
    free(allowed->lse);
    free(allowed->out);
    free(allowed->rounded);
    free(allowed->naive);
    *allowed = (bounds){0};
}
