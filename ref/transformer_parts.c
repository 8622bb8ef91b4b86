/* Parts of a transformer that few models have, in float64, forward and backward. */
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

/* Where the number of element n of bias (B,H,T,T) stands in the table. */
static int64_t relative_place(const ref_pass *p, int64_t n, int64_t H)
{
    int64_t T = p->s->T, j = n % T, i = n / T % T, h = n / (T * T) % H;
    return range_of(p->s, p->block->self.causal, j - i) * H + h;
}

void ref_relative_bias(const ref_pass *p, double *bias, int64_t H)
{
    const double *table = ref_part(p->t, p->s->at[REF_RELATIVE], true);
    for (int64_t n = 0; n < p->t->B * H * p->s->T * p->s->T; n++) bias[n] = table[relative_place(p, n, H)];
}

void ref_relative_back(const ref_pass *p, const double *dbias, int64_t H)
{
    double *dtable = ref_gradient(p, p->s->at[REF_RELATIVE], true);
    for (int64_t n = 0; n < p->t->B * H * p->s->T * p->s->T; n++) dtable[relative_place(p, n, H)] += dbias[n];
}

/* ---- Audio frames ----------------------------------------------------------------------------------------------- */

/* A convolution over three frames, in steps of `step`: row t of z (count / step,M) is
 *
 *     W (x[at-1], x[at], x[at+1]) + b      at = step * t, x (count,width), zero outside */
typedef struct convolution {
    int weight; /* its part; the bias is the next */
    int64_t count, width, step;
} convolution;

/* Whether frame k of three, for row t, is there; *place: which it is. */
static bool frame_of(const convolution *c, int64_t t, int64_t k, int64_t *place)
{
    *place = t * c->step + k - 1;
    return *place >= 0 && *place < c->count;
}

static void convolve(const ref_pass *p, const convolution *c, double *z, const double *x)
{
    int64_t M = p->s->width, at;
    const double *weight = ref_part(p->t, p->s->at[c->weight], true),
                 *bias = ref_part(p->t, p->s->at[c->weight + 1], true);
    for (int64_t n = 0; n < c->count / c->step * M; n++) {
        z[n] = bias[n % M];
        for (int64_t i = 0; i < c->width * 3; i++)
            if (frame_of(c, n / M, i % 3, &at)) z[n] += weight[n % M * c->width * 3 + i] * x[at * c->width + i / 3];
    }
}

static void convolve_back(const ref_pass *p, const convolution *c, double *dx, const double *dz, const double *x)
{
    int64_t M = p->s->width, at;
    const double *weight = ref_part(p->t, p->s->at[c->weight], true);
    double *dweight = ref_gradient(p, p->s->at[c->weight], true),
           *dbias = ref_gradient(p, p->s->at[c->weight + 1], true);
    for (int64_t n = 0; n < c->count / c->step * M; n++) {
        dbias[n % M] += dz[n];
        for (int64_t i = 0; i < c->width * 3; i++) {
            int64_t w = n % M * c->width * 3 + i;
            if (!frame_of(c, n / M, i % 3, &at)) continue;
            dweight[w] += dz[n] * x[at * c->width + i / 3];
            if (dx) dx[at * c->width + i / 3] += dz[n] * weight[w];
        }
    }
}

/* On the way to the rows of sequence b: its features x (2T,bins), z (2T,M) and z2 (T,M), each before its GELU, and
 * u (2T,M) after it. */
typedef struct frames {
    convolution first, second;
    double *x, *z, *u, *z2;
} frames;

static frames frames_make(const ref_pass *p, int64_t b)
{
    int64_t T = p->s->T, M = p->s->width, bins = p->s->bins;
    frames f = {{REF_CONV1, 2 * T, bins, 1}, {REF_CONV2, 2 * T, M, 2}, NULL, NULL, NULL, NULL};
    f.x = ref_zeros(2 * T * bins), f.z = ref_zeros(2 * T * M), f.u = ref_zeros(2 * T * M), f.z2 = ref_zeros(T * M);
    for (int64_t n = 0; n < 2 * T * bins; n++) f.x[n] = p->s->features[(b * bins + n % bins) * 2 * T + n / bins];
    convolve(p, &f.first, f.z, f.x);
    for (int64_t n = 0; n < 2 * T * M; n++) f.u[n] = ref_activate(REF_GELU, f.z[n]);
    convolve(p, &f.second, f.z2, f.u);
    return f;
}

static void frames_free(frames *f)
{
    free(f->x);
    free(f->z);
    free(f->u);
    free(f->z2);
}

void ref_frames(const ref_pass *p, double *e, int64_t b)
{
    frames f = frames_make(p, b);
    for (int64_t n = 0; n < p->s->T * p->s->width; n++) e[n] = ref_activate(REF_GELU, f.z2[n]);
    frames_free(&f);
}

void ref_frames_back(const ref_pass *p, const double *de, int64_t b)
{
    int64_t rows = p->s->T * p->s->width;
    frames f = frames_make(p, b);
    double *dz2 = ref_zeros(rows), *d = ref_zeros(2 * rows);
    for (int64_t n = 0; n < rows; n++) dz2[n] = de[n] * ref_slope(REF_GELU, f.z2[n]);
    convolve_back(p, &f.second, d, dz2, f.u);
    for (int64_t n = 0; n < 2 * rows; n++) d[n] *= ref_slope(REF_GELU, f.z[n]);
    convolve_back(p, &f.first, NULL, d, f.x);
    frames_free(&f);
    free(dz2);
    free(d);
}

/* ---- Experts ---------------------------------------------------------------------------------------------------- */

/* Lowers the margin by a row with these scores and shares. */
static void find_margin(const ref_stack *s, const double *score, const double *share)
{
    for (int64_t n = 0; n < s->experts; n++)
        for (int64_t k = 0; k < s->experts; k++)
            if (share[n] > 0 && share[k] == 0) *s->expert_margin = fmin(*s->expert_margin, score[n] - score[k]);
}

/* share (E): the softmax of the scores of the experts that x (M) chooses, 0 for the others; of equal scores the first.
 * `counts`: the row is of a token. */
static void choose(const ref_pass *p, double *share, const double *x, bool counts)
{
    const ref_stack *s = p->s;
    const int64_t *at = p->block->at[REF_MLP];
    int64_t E = s->experts;
    double sum = 0, *score = ref_zeros(E);
    ref_linear(score, x, ref_part(p->t, at[REF_ROUTER], true), ref_part(p->t, at[REF_ROUTER_BIAS], s->expert_bias), 1,
               E, s->width);
    for (int64_t n = 0; n < E; n++) {
        int64_t better = 0;
        for (int64_t k = 0; k < E; k++) better += score[k] > score[n] || (score[k] == score[n] && k < n);
        share[n] = better < s->experts_used ? exp(score[n]) : 0;
        sum += share[n];
    }
    for (int64_t n = 0; n < E; n++) share[n] /= sum;
    if (counts && s->expert_margin) find_margin(s, score, share);
    free(score);
}

void ref_experts(const ref_pass *p, double *y, const double *x)
{
    int64_t M = p->s->width, E = p->s->experts;
    double *share = ref_zeros(E), *out = ref_zeros(M);
    for (int64_t i = 0; i < ref_rows(p); i++, x += M, y += M) {
        choose(p, share, x, i % p->s->T < ref_length(p->s, i / p->s->T));
        for (int64_t m = 0; m < M; m++) y[m] = 0;
        for (int64_t n = 0; n < E; n++) {
            if (share[n] == 0) continue;
            ref_mlp(p, n, 1, out, x);
            ref_add(y, share[n], out, M);
        }
    }
    free(share);
    free(out);
}

/* y = sum_n p_n y_n, with p the softmax of the scores s:  dy_n = p_n dy,  dp_n = dy . y_n,
 *
 *     ds_n = p_n (dp_n - sum_k p_k dp_k) */
void ref_experts_back(const ref_pass *p, double *dx, const double *dy, const double *x)
{
    const ref_stack *s = p->s;
    const int64_t *at = p->block->at[REF_MLP];
    int64_t M = s->width, E = s->experts;
    double *share = ref_zeros(E), *ds = ref_zeros(E), *out = ref_zeros(M), *dout = ref_zeros(M);
    for (int64_t i = 0; i < ref_rows(p); i++, x += M, dx += M, dy += M) {
        double mean = 0;
        choose(p, share, x, false);
        for (int64_t n = 0; n < E; n++) {
            ds[n] = 0;
            if (share[n] == 0) continue;
            ref_mlp(p, n, 1, out, x);
            for (int64_t m = 0; m < M; m++) ds[n] += dy[m] * out[m], dout[m] = share[n] * dy[m];
            ref_mlp_back(p, n, 1, dx, dout, x);
            mean += share[n] * ds[n];
        }
        for (int64_t n = 0; n < E; n++) ds[n] = share[n] * (ds[n] - mean);
        ref_linear_back(p, dx, ds, x, at[REF_ROUTER], s->expert_bias ? at[REF_ROUTER_BIAS] : -1, 1, E, M);
    }
    double *all[] = {share, ds, out, dout};
    for (int n = 0; n < 4; n++) free(all[n]);
}
