/* What is read from the rows of a transformer's last stack: pooling, the transform and the logits. */
#include "transformer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t ref_transformer_rows(const ref_transformer *t)
{
    return t->pool == REF_POOL_NONE ? t->B * ref_last(t)->T : t->B;
}

/* Numbers of a row after pooling, and after the transform. */
static int64_t pooled_width(const ref_transformer *t)
{
    return ref_last(t)->width * (t->pool == REF_POOL_BOTH ? 2 : 1);
}
static int64_t output_width(const ref_transformer *t) { return t->transform ? t->transform : pooled_width(t); }

int64_t ref_transformer_columns(const ref_transformer *t) { return t->classes ? t->classes : output_width(t); }

/* How much of row t of a sequence goes into what is pooled. */
static double pool_share(ref_pool pool, int64_t t, int64_t length)
{
    switch (pool) {
    case REF_POOL_NONE:
        return 1;
    case REF_POOL_FIRST:
    case REF_POOL_TWO:
        return t == 0;
    case REF_POOL_LAST:
        return t == length - 1;
    case REF_POOL_MEAN:
        return 1 / (double)length;
    case REF_POOL_BOTH:
    case REF_POOL_REST:
        return t ? 1 / (double)(length - 1) : 0;
    }
    return NAN;
}

void ref_pool_rows(const ref_pass *p, double *h, const double *x)
{
    int64_t M = p->s->width, T = p->s->T, P = pooled_width(p->t);
    ref_pool pool = p->t->pool;
    for (int64_t b = 0; b < p->t->B; b++) {
        int64_t length = ref_length(p->s, b);
        for (int64_t t = 0; t < length; t++) {
            double *to = h + (pool == REF_POOL_NONE ? b * T + t : b) * P;
            const double *row = x + (b * T + t) * M;
            if (pool == REF_POOL_BOTH && t == 0) ref_add(to, 1, row, M);
            ref_add(to + P - M, pool_share(pool, t, length), row, M);
        }
    }
}

/* Whether row n of the result belongs to a token. */
static bool is_real(const ref_transformer *t, int64_t n)
{
    const ref_stack *s = ref_last(t);
    return t->pool != REF_POOL_NONE || n % s->T < ref_length(s, n / s->T);
}

/* u (rows,output width) from h (rows,pooled width). */
static void transform(const ref_transformer *t, double *u, const double *h)
{
    int64_t P = pooled_width(t), W = output_width(t), rows = ref_transformer_rows(t);
    const ref_stack *s = ref_last(t);
    memcpy(u, h, (size_t)(t->transform ? 0 : rows * P) * sizeof *u);
    if (t->transform) {
        ref_linear(u, h, ref_part(t, t->transform_at, true), ref_part(t, t->transform_bias_at, t->transform_bias), rows,
                   W, P);
        for (int64_t n = 0; n < rows * W; n++) u[n] = ref_activate(t->transform_activation, u[n]);
    }
    const double *gain = ref_part(t, t->transform_norm_at, t->transform_norm);
    const double *bias = ref_part(t, t->transform_norm_bias_at, t->transform_norm && s->norm_bias && !s->rms);
    for (int64_t i = 0; gain && i < rows; i++) {
        double mean, inverse, *row = u + i * W;
        ref_norm_numbers(s, row, W, &mean, &inverse);
        for (int64_t w = 0; w < W; w++) row[w] = (row[w] - mean) * inverse * gain[w] + (bias ? bias[w] : 0);
    }
}

/* The mean of out (B,classes) and of the logits of the second rows of x (B*T,M). */
static void add_second(const ref_transformer *t, double *out, const double *x)
{
    int64_t M = ref_last(t)->width, C = t->classes;
    double *more = ref_zeros(C);
    for (int64_t b = 0; b < t->B; b++) {
        ref_linear(more, x + (b * ref_last(t)->T + 1) * M, ref_part(t, t->second, true),
                   ref_part(t, t->second_bias, t->bias), 1, C, M);
        for (int64_t c = 0; c < C; c++) out[b * C + c] = (out[b * C + c] + more[c]) / 2;
    }
    free(more);
}

void ref_output(const ref_pass *p, double *out, const double *x)
{
    const ref_transformer *t = p->t;
    int64_t W = output_width(t), C = ref_transformer_columns(t), rows = ref_transformer_rows(t);
    double *h = ref_zeros(rows * pooled_width(t)), *u = ref_zeros(rows * W);
    ref_pool_rows(p, h, x);
    transform(t, u, h);
    if (t->classes)
        ref_linear(out, u, ref_part(t, t->tied ? ref_last(t)->at[REF_TOKENS] : t->output, true),
                   ref_part(t, t->bias_at, t->bias), rows, C, W);
    else memcpy(out, u, (size_t)(rows * W) * sizeof *out);
    if (t->classes && t->pool == REF_POOL_TWO) add_second(t, out, x);
    for (int64_t n = 0; n < rows * C; n++) {
        if (t->classes) out[n] *= t->scale;
        if (t->classes && t->softcap > 0) out[n] = t->softcap * tanh(out[n] / t->softcap);
        if (!is_real(t, n / C)) out[n] = 0;
    }
    free(h);
    free(u);
}
