/* What is read from the rows of a transformer's last stack, forward and backward: pooling, the transform, the logits. */
#include "transformer.h"

#include <math.h>
#include <stdlib.h>

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

/* ---- Pooling ---------------------------------------------------------------------------------------------------- */

/* How much of row t of sequence b goes into what is pooled; of REF_POOL_BOTH, into its second half. */
static double pool_share(const ref_pass *p, int64_t b, int64_t t)
{
    int64_t length = ref_length(p->s, b);
    switch (p->t->pool) {
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
    case REF_POOL_PICKED:
        return t == p->t->picked[b];
    }
    return NAN;
}

/* Where row t of sequence b goes to in the pooled rows h (rows,pooled width). */
static double *pooled_row(const ref_pass *p, double *h, int64_t b, int64_t t)
{
    return h + (p->t->pool == REF_POOL_NONE ? b * p->s->T + t : b) * pooled_width(p->t);
}

/* h (rows,pooled width), what logits are computed from, of x (B*T,M). */
static void pool(const ref_pass *p, double *h, const double *x)
{
    int64_t M = p->s->width, T = p->s->T, last = pooled_width(p->t) - M;
    for (int64_t b = 0; b < p->t->B; b++)
        for (int64_t t = 0; t < ref_length(p->s, b); t++) {
            double *to = pooled_row(p, h, b, t);
            if (p->t->pool == REF_POOL_BOTH && t == 0) ref_add(to, 1, x + b * T * M, M);
            ref_add(to + last, pool_share(p, b, t), x + (b * T + t) * M, M);
        }
}

static void pool_back(const ref_pass *p, double *dx, double *dh)
{
    int64_t M = p->s->width, T = p->s->T, last = pooled_width(p->t) - M;
    for (int64_t b = 0; b < p->t->B; b++)
        for (int64_t t = 0; t < ref_length(p->s, b); t++) {
            const double *from = pooled_row(p, dh, b, t);
            if (p->t->pool == REF_POOL_BOTH && t == 0) ref_add(dx + b * T * M, 1, from, M);
            ref_add(dx + (b * T + t) * M, pool_share(p, b, t), from + last, M);
        }
}

/* Whether row n of the result belongs to a token. */
static bool is_real(const ref_transformer *t, int64_t n)
{
    const ref_stack *s = ref_last(t);
    return t->pool != REF_POOL_NONE || n % s->T < ref_length(s, n / s->T);
}

/* ---- From pooled rows to logits --------------------------------------------------------------------------------- */

/* What lies between the last rows x (B*T,M) and the result, (rows, ...) each: h, pooled; v = Wt h + bt; w = a(v);
 * u = norm(w); second (B,M), the second row of each sequence; and z (rows,columns), the logits before scale and cap. */
typedef struct stages {
    double *h, *v, *w, *u, *second, *z;
} stages;

static ref_norm transform_norm(const ref_transformer *t)
{
    return (ref_norm){t->transform_norm_at, t->transform_norm_bias_at, output_width(t)};
}

static int64_t logits_weight(const ref_transformer *t) { return t->tied ? ref_last(t)->at[REF_TOKENS] : t->output; }

/* z = Wh u + bh, or of REF_POOL_TWO the mean of that and of the product with the second rows. */
static void find_logits(const ref_pass *p, stages *s)
{
    const ref_transformer *t = p->t;
    int64_t W = output_width(t), C = t->classes, rows = ref_transformer_rows(t), M = p->s->width;
    ref_linear(s->z, s->u, ref_part(t, logits_weight(t), true), ref_part(t, t->bias_at, t->bias), rows, C, W);
    if (t->pool != REF_POOL_TWO) return;
    double *more = ref_zeros(rows * C);
    ref_linear(more, s->second, ref_part(t, t->second, true), ref_part(t, t->second_bias, t->bias), rows, C, M);
    for (int64_t n = 0; n < rows * C; n++) s->z[n] = (s->z[n] + more[n]) / 2;
    free(more);
}

static stages stages_make(const ref_pass *p, const double *x)
{
    const ref_transformer *t = p->t;
    int64_t P = pooled_width(t), W = output_width(t), rows = ref_transformer_rows(t), M = p->s->width, T = p->s->T;
    stages s = {.h = ref_zeros(rows * P), .v = ref_zeros(rows * W), .w = ref_zeros(rows * W)};
    s.u = ref_zeros(rows * W), s.second = ref_zeros(t->B * M), s.z = ref_zeros(rows * ref_transformer_columns(t));
    pool(p, s.h, x);
    if (t->transform)
        ref_linear(s.v, s.h, ref_part(t, t->transform_at, true), ref_part(t, t->transform_bias_at, t->transform_bias),
                   rows, W, P);
    for (int64_t n = 0; n < rows * W; n++)
        s.w[n] = t->transform ? ref_activate(t->transform_activation, s.v[n]) : s.h[n];
    if (t->transform_norm) ref_norm_rows(p, transform_norm(t), s.u, s.w, rows);
    else ref_add(s.u, 1, s.w, rows * W);
    for (int64_t b = 0; t->pool == REF_POOL_TWO && b < t->B; b++) ref_add(s.second + b * M, 1, x + (b * T + 1) * M, M);
    if (t->classes) find_logits(p, &s);
    else ref_add(s.z, 1, s.u, rows * W);
    return s;
}

static void stages_free(stages *s)
{
    double *all[] = {s->h, s->v, s->w, s->u, s->second, s->z};
    for (int n = 0; n < 6; n++) free(all[n]);
}

void ref_output(const ref_pass *p, double *out, const double *x)
{
    const ref_transformer *t = p->t;
    int64_t C = ref_transformer_columns(t), rows = ref_transformer_rows(t);
    stages s = stages_make(p, x);
    for (int64_t n = 0; n < rows * C; n++) {
        out[n] = t->classes ? t->scale * s.z[n] : s.z[n];
        if (t->classes && t->softcap > 0) out[n] = t->softcap * tanh(out[n] / t->softcap);
        if (!is_real(t, n / C)) out[n] = 0;
    }
    stages_free(&s);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* dz (rows,columns) from dout: out = softcap * tanh(scale z / softcap). */
static void logits_back(const ref_transformer *t, double *dz, const double *dout, const double *z)
{
    int64_t C = ref_transformer_columns(t);
    for (int64_t n = 0; n < ref_transformer_rows(t) * C; n++) {
        double capped = t->classes && t->softcap > 0 ? tanh(t->scale * z[n] / t->softcap) : 0;
        if (is_real(t, n / C)) dz[n] = dout[n] * (1 - capped * capped) * (t->classes ? t->scale : 1);
        if (t->pool == REF_POOL_TWO && t->classes) dz[n] /= 2; /* of both products */
    }
}

/* dx (B*T,M), the second rows, and du (rows,output width), from dz. */
static void products_back(const ref_pass *p, double *dx, double *du, const double *dz, const stages *s)
{
    const ref_transformer *t = p->t;
    int64_t W = output_width(t), C = t->classes, rows = ref_transformer_rows(t), M = p->s->width, T = p->s->T;
    if (!C) {
        ref_add(du, 1, dz, rows * W);
        return;
    }
    ref_linear_back(p, du, dz, s->u, logits_weight(t), t->bias ? t->bias_at : -1, rows, C, W);
    for (int64_t b = 0; t->pool == REF_POOL_TWO && b < t->B; b++)
        ref_linear_back(p, dx + (b * T + 1) * M, dz + b * C, s->second + b * M, t->second,
                        t->bias ? t->second_bias : -1, 1, C, M);
}

void ref_output_back(const ref_pass *p, double *dx, const double *dout, const double *x)
{
    const ref_transformer *t = p->t;
    int64_t P = pooled_width(t), W = output_width(t), rows = ref_transformer_rows(t);
    double *dz = ref_zeros(rows * ref_transformer_columns(t)), *du = ref_zeros(rows * W), *dw = ref_zeros(rows * W);
    double *dv = ref_zeros(rows * W), *dh = ref_zeros(rows * P);
    stages s = stages_make(p, x);
    logits_back(t, dz, dout, s.z);
    products_back(p, dx, du, dz, &s);
    if (t->transform_norm) ref_norm_back(p, transform_norm(t), dw, du, s.w, rows);
    else ref_add(dw, 1, du, rows * W);
    for (int64_t n = 0; t->transform && n < rows * W; n++) dv[n] = dw[n] * ref_slope(t->transform_activation, s.v[n]);
    if (t->transform)
        ref_linear_back(p, dh, dv, s.h, t->transform_at, t->transform_bias ? t->transform_bias_at : -1, rows, W, P);
    else ref_add(dh, 1, dw, rows * P);
    pool_back(p, dx, dh);
    stages_free(&s);
    double *all[] = {dz, du, dw, dv, dh};
    for (int n = 0; n < 5; n++) free(all[n]);
}
