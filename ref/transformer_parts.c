/* Parts of a transformer that few models have, in float64. */
#include "transformer.h"

#include <math.h>
#include <stdlib.h>

/* ---- Rotary embeddings ------------------------------------------------------------------------------------------ */

/* The share of f_i / factor in what pair i gets; the rest is f_i. Turns are counted over `trained` tokens. */
static double slow_share(const ref_heads *h, int64_t w, int64_t i)
{
    const double pi = acos(-1);
    const ref_scaled_rotary *r = &h->rotary;
    double turns = r->trained * pow(h->rotary_base, -2 * (double)i / (double)w) / (2 * pi);
    if (r->scaling == REF_LINEAR_SCALING) return 1;
    if (r->scaling == REF_LLAMA3)
        return turns >= r->fast ? 0 : turns <= r->slow ? 1 : (r->fast - turns) / (r->fast - r->slow);
    if (r->scaling != REF_YARN) return 0;
    /* turns = trained base^(-2i/w) / 2pi, solved for i, at both bounds */
    double first = (double)w / 2 * log(r->trained / (2 * pi * r->fast)) / log(h->rotary_base);
    double last = (double)w / 2 * log(r->trained / (2 * pi * r->slow)) / log(h->rotary_base);
    if (r->truncate) first = floor(first), last = ceil(last);
    if (first < 0) first = 0;
    if (last > (double)(w - 1)) last = (double)(w - 1);
    if (first == last) last += 0.001;
    double share = ((double)i - first) / (last - first);
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

void ref_rotary_frequencies(double *out, const ref_heads *h, int64_t w, int64_t tokens)
{
    const ref_scaled_rotary *r = &h->rotary;
    bool longer = (double)tokens > r->trained;
    double base = h->rotary_base;
    if (r->scaling == REF_DYNAMIC && longer)
        base *= pow(r->factor * (double)tokens / r->trained - (r->factor - 1), (double)w / (double)(w - 2));
    for (int64_t i = 0; i < w / 2; i++) {
        double f = pow(base, -2 * (double)i / (double)w), share = slow_share(h, w, i);
        if (r->scaling == REF_LONG) f /= (double)r->divisors[longer][i];
        out[i] = (1 - share) * f + share * f / r->factor;
    }
}

/* ---- Relative positions ----------------------------------------------------------------------------------------- */

/* The range of a key `ahead` places behind the query, in the order of the text. Without keys ahead, all ranges are for
 * keys that lie back; else the second half is for those ahead. Half of them are one distance each, the others cover
 * distances from there to the largest, in a geometric sequence. */
static int64_t range_of(const ref_stack *s, bool causal, int64_t ahead)
{
    int64_t ranges = causal ? s->relative_buckets : s->relative_buckets / 2, single = ranges / 2;
    int64_t far = causal ? (ahead < 0 ? -ahead : 0) : llabs(ahead), offset = !causal && ahead > 0 ? ranges : 0;
    if (far < single) return offset + far;
    double steps = log((double)far / (double)single) / log((double)s->relative_distance / (double)single);
    int64_t range = single + (int64_t)((double)(ranges - single) * steps + 1e-6);
    return offset + (range < ranges ? range : ranges - 1);
}

void ref_relative_bias(const ref_pass *p, double *bias, int64_t H)
{
    const ref_stack *s = p->s;
    const double *table = ref_part(p->t, s->at[REF_RELATIVE], true);
    int64_t T = s->T;
    for (int64_t n = 0; n < p->t->B * H * T * T; n++) {
        int64_t j = n % T, i = n / T % T, h = n / (T * T) % H;
        bias[n] = table[range_of(s, p->block->self.causal, j - i) * H + h];
    }
}

/* ---- Audio frames ----------------------------------------------------------------------------------------------- */

/* Row t of a convolution over three frames of x (count,width): gelu(W (x[at-1], x[at], x[at+1]) + b), at = step t. */
static void convolve(const ref_pass *p, double *y, int at_weight, const double *x, int64_t count, int64_t width,
                     int64_t at)
{
    int64_t M = p->s->width;
    const double *weight = ref_part(p->t, p->s->at[at_weight], true),
                 *bias = ref_part(p->t, p->s->at[at_weight + 1], true);
    for (int64_t m = 0; m < M; m++) {
        double sum = bias[m];
        for (int64_t c = 0; c < width; c++)
            for (int64_t k = 0; k < 3; k++)
                if (at + k - 1 >= 0 && at + k - 1 < count)
                    sum += weight[(m * width + c) * 3 + k] * x[(at + k - 1) * width + c];
        y[m] = ref_activate(REF_GELU, sum);
    }
}

void ref_frames(const ref_pass *p, double *e, int64_t b)
{
    const ref_stack *s = p->s;
    int64_t T = s->T, M = s->width, bins = s->bins;
    double *x = ref_zeros(2 * T * bins), *u = ref_zeros(2 * T * M);
    for (int64_t n = 0; n < 2 * T * bins; n++) x[n] = s->features[(b * bins + n % bins) * 2 * T + n / bins];
    for (int64_t t = 0; t < 2 * T; t++) convolve(p, u + t * M, REF_CONV1, x, 2 * T, bins, t);
    for (int64_t t = 0; t < T; t++) convolve(p, e + t * M, REF_CONV2, u, 2 * T, M, 2 * t);
    free(x);
    free(u);
}

/* ---- Experts ---------------------------------------------------------------------------------------------------- */

/* y (M) += share * the MLP of expert n for x (M). */
static void add_expert(const ref_pass *p, double *y, double share, int64_t n, const double *x)
{
    const ref_stack *s = p->s;
    const int64_t *at = p->block->at[REF_MLP];
    int64_t M = s->width, N = s->mlp;
    double *g = ref_zeros(N), *z = ref_zeros(N), *out = ref_zeros(M);
    ref_linear(z, x, ref_part(p->t, at[REF_FC1], true) + n * N * M,
               s->mlp_bias ? ref_part(p->t, at[REF_FC1_BIAS], true) + n * N : NULL, 1, N, M);
    if (s->gated)
        ref_linear(g, x, ref_part(p->t, at[REF_GATE], true) + n * N * M,
                   s->mlp_bias ? ref_part(p->t, at[REF_GATE_BIAS], true) + n * N : NULL, 1, N, M);
    for (int64_t i = 0; i < N; i++) {
        if (s->clamp > 0) g[i] = fmin(g[i], s->clamp), z[i] = fmax(fmin(z[i], s->clamp), -s->clamp) + 1;
        z[i] = s->gated ? ref_activate(s->activation, g[i]) * z[i] : ref_activate(s->activation, z[i]);
    }
    ref_linear(out, z, ref_part(p->t, at[REF_FC2], true) + n * M * N,
               s->mlp_bias ? ref_part(p->t, at[REF_FC2_BIAS], true) + n * M : NULL, 1, M, N);
    ref_add(y, share, out, M);
    free(g);
    free(z);
    free(out);
}

void ref_experts(const ref_pass *p, double *y, const double *x)
{
    const ref_stack *s = p->s;
    const int64_t *at = p->block->at[REF_MLP];
    int64_t M = s->width, E = s->experts;
    double *score = ref_zeros(E);
    bool *chosen = calloc((size_t)E, sizeof *chosen);
    if (!chosen) abort();
    for (int64_t i = 0; i < ref_rows(p); i++) {
        double sum = 0;
        ref_linear(score, x + i * M, ref_part(p->t, at[REF_ROUTER], true),
                   ref_part(p->t, at[REF_ROUTER_BIAS], s->expert_bias), 1, E, M);
        for (int64_t n = 0; n < E; n++) {
            int64_t better = 0;
            for (int64_t k = 0; k < E; k++) better += score[k] > score[n] || (score[k] == score[n] && k < n);
            chosen[n] = better < s->experts_used;
            if (chosen[n]) sum += exp(score[n]);
        }
        for (int64_t m = 0; m < M; m++) y[i * M + m] = 0;
        for (int64_t n = 0; n < E; n++)
            if (chosen[n]) add_expert(p, y + i * M, exp(score[n]) / sum, n, x + i * M);
    }
    free(score);
    free(chosen);
}
