/* Attention in float64, one row at a time:
 *
 *     s_j = scale * q . k_j                      scaled
 *     s_j = softcap * tanh(s_j / softcap)        capped
 *     s_j = s_j + bias_j - slope * |p - j|       masked: -infinity where key j is not visible
 *     w_j = exp(s_j - lse)                       softmax, lse = log(sum over the visible j of exp(s_j) + exp(sink))
 *     w_j = kept ? w_j / (1 - dropout) : 0       dropped
 *     out = sum over the visible j of w_j * v_j */
#include "ref.h"

#include <math.h>
#include <stdlib.h>

/* ---- Who sees whom ---------------------------------------------------------------------------------------------- */

static int64_t queries_of(const ref_attention *a, int64_t b) { return a->queries ? a->queries[b] : a->Tq; }

static int64_t keys_of(const ref_attention *a, int64_t b) { return a->keys ? a->keys[b] : a->Tk; }

static int64_t length_of(const ref_attention *a, int64_t b)
{
    return a->key_lengths ? a->key_lengths[b] : keys_of(a, b);
}

static int64_t at(const ref_attention *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return ((b * a->H + h) * a->Tq + i) * a->Tk + j;
}

int64_t ref_position(const ref_attention *a, int64_t b, int64_t i)
{
    if (a->align == REF_BOTTOM_RIGHT) return i + length_of(a, b) - queries_of(a, b);
    if (a->align == REF_OFFSET) return i + a->offsets[b];
    return i;
}

bool ref_visible(const ref_attention *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t p = ref_position(a, b, i);
    if (i >= queries_of(a, b) || j >= length_of(a, b)) return false;
    if (a->causal && j > p) return false;
    if (a->window_left >= 0 && p - j > a->window_left) return false;
    if (a->window_right >= 0 && j - p > a->window_right) return false;
    if (a->mask && !a->mask[at(a, b, h, i, j)]) return false;
    if (a->bias && a->bias[at(a, b, h, i, j)] == -INFINITY) return false;
    return true;
}

/* ---- One row ---------------------------------------------------------------------------------------------------- */

/* The five stages of one row, Tk numbers each, and which keys it sees. */
typedef struct row {
    double *s[REF_STAGES];
    bool *visible;
    double lse;
} row;

/* to[j] = q . k_j. Every sum is in the order of d; those of four keys are made side by side, since an addition takes longer than the
 * beginning of the next one. */
static void dots(double *to, const double *q, const double *k, int64_t keys, int64_t D)
{
    int64_t j = 0;
    for (; j + 4 <= keys; j += 4, k += 4 * D) {
        double sum[4] = {0};
        for (int64_t d = 0; d < D; d++)
            for (int n = 0; n < 4; n++) sum[n] += q[d] * k[n * D + d];
        for (int n = 0; n < 4; n++) to[j + n] = sum[n];
    }
    for (; j < keys; j++, k += D) {
        to[j] = 0;
        for (int64_t d = 0; d < D; d++) to[j] += q[d] * k[d];
    }
}

static void score(const ref_attention *a, row *r, int64_t b, int64_t h, int64_t i)
{
    const double *q = a->q + ((b * a->H + h) * a->Tq + i) * a->D;
    int64_t g = h / (a->H / a->G);
    double scale = isnan(a->scale) ? 1 / sqrt((double)a->D) : a->scale;
    dots(r->s[REF_SCALED], q, a->k + (b * a->G + g) * a->Tk * a->D, a->Tk, a->D);
    for (int64_t j = 0; j < a->Tk; j++) {
        double s = scale * r->s[REF_SCALED][j];
        r->visible[j] = ref_visible(a, b, h, i, j);
        bool exists = i < queries_of(a, b) && j < keys_of(a, b);
        bool shown = exists && (r->visible[j] || isfinite(s));
        r->s[REF_SCALED][j] = shown ? s : -INFINITY;

        if (a->softcap > 0) s = a->softcap * tanh(s / a->softcap);
        r->s[REF_CAPPED][j] = shown ? s : -INFINITY;

        if (a->bias) s += a->bias[at(a, b, h, i, j)];
        if (a->alibi_slopes) s -= a->alibi_slopes[b * a->H + h] * fabs((double)(ref_position(a, b, i) - j));
        r->s[REF_MASKED][j] = r->visible[j] ? s : -INFINITY;
    }
}

/* The largest score is taken out of the sum, so that exp never overflows. A sink counts only where a key is seen. */
static double log_sum_exp(const ref_attention *a, const row *r, int64_t h)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a->Tk; j++)
        if (r->visible[j]) largest = fmax(largest, r->s[REF_MASKED][j]);
    if (largest == -INFINITY) return -INFINITY;
    if (a->sinks) largest = fmax(largest, a->sinks[h]);
    for (int64_t j = 0; j < a->Tk; j++)
        if (r->visible[j]) sum += exp(r->s[REF_MASKED][j] - largest);
    if (a->sinks) sum += exp(a->sinks[h] - largest);
    return largest + log(sum);
}

static void weigh(const ref_attention *a, row *r, int64_t b, int64_t h, int64_t i)
{
    r->lse = log_sum_exp(a, r, h);
    for (int64_t j = 0; j < a->Tk; j++) {
        double weight = r->visible[j] ? exp(r->s[REF_MASKED][j] - r->lse) : 0;
        r->s[REF_SOFTMAX][j] = weight;
        if (a->dropout > 0) {
            bool kept = ref_keeps(a->dropout, a->dropout_seed, a->dropout_stream + (uint64_t)b, h, i, j);
            weight = kept ? weight / (1 - a->dropout) : 0;
        }
        r->s[REF_DROPPED][j] = weight;
    }
}

static void mix(const ref_attention *a, const row *r, double *out, int64_t b, int64_t h)
{
    int64_t g = h / (a->H / a->G);
    for (int64_t e = 0; e < a->E; e++) out[e] = 0;
    for (int64_t j = 0; j < a->Tk; j++) {
        const double *v = a->v + ((b * a->G + g) * a->Tk + j) * a->E;
        for (int64_t e = 0; r->visible[j] && e < a->E; e++) out[e] += r->s[REF_DROPPED][j] * v[e];
    }
}

/* ---- All rows --------------------------------------------------------------------------------------------------- */

static void keep_row(const ref_attention *a, const ref_result *result, const row *r, int64_t b, int64_t h, int64_t i)
{
    int64_t index = (b * a->H + h) * a->Tq + i;
    if (result->lse) result->lse[index] = r->lse;
    if (result->out) mix(a, r, result->out + index * a->E, b, h);
    for (int64_t j = 0; j < a->Tk; j++) {
        for (int s = 0; s < REF_STAGES; s++)
            if (result->stage[s]) result->stage[s][at(a, b, h, i, j)] = r->s[s][j];
        if (result->mean) result->mean[(b * a->Tq + i) * a->Tk + j] += r->s[REF_DROPPED][j] / (double)a->H;
    }
}

void ref_attention_forward(const ref_attention *a, const ref_result *result)
{
    row r;
    double *memory = calloc((size_t)(REF_STAGES * a->Tk + 1), sizeof *memory);
    r.visible = calloc((size_t)(a->Tk + 1), sizeof *r.visible);
    if (!memory || !r.visible) abort();
    for (int s = 0; s < REF_STAGES; s++) r.s[s] = memory + s * a->Tk;

    if (result->mean)
        for (int64_t n = 0; n < a->B * a->Tq * a->Tk; n++) result->mean[n] = 0;
    for (int64_t b = 0; b < a->B; b++)
        for (int64_t h = 0; h < a->H; h++)
            for (int64_t i = 0; i < a->Tq; i++) {
                score(a, &r, b, h, i);
                weigh(a, &r, b, h, i);
                keep_row(a, result, &r, b, h, i);
            }
    free(memory);
    free(r.visible);
}
