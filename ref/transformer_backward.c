/* The backward pass of a transformer in float64, the steps of transformer.c in reverse. Of the forward pass only the
 * rows between blocks are kept; what a step needs beside them it computes again. Gradients by rows and by parameters
 * are added to what is there: a table of tokens may be used twice. */
#include "transformer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where the gradient of a part goes, or NULL if the model does not have it. */
static double *gradient(const ref_pass *p, int64_t at, bool wanted)
{
    return ref_part(p->t, at, wanted) ? p->gradients + at : NULL;
}

/* ---- Operations ------------------------------------------------------------------------------------------------- */

/* Of y = x w^T + b, with w at `w` and b at `b`, -1 for none. dx (rows,K), unless NULL, from dy (rows,N). */
static void linear_back(const ref_pass *p, double *dx, const double *dy, const double *x, int64_t w, int64_t b,
                        int64_t rows, int64_t N, int64_t K)
{
    const double *weight = ref_part(p->t, w, true);
    double *dw = gradient(p, w, true), *db = gradient(p, b, b >= 0);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = 0; n < N; n++) {
            double d = dy[i * N + n];
            if (db) db[n] += d;
            for (int64_t k = 0; k < K; k++) {
                dw[n * K + k] += d * x[i * K + k];
                if (dx) dx[i * K + k] += d * weight[n * K + k];
            }
        }
}

/* Of y = u * gain + bias, u = (x - mean) * inverse:
 *
 *     du = dy * gain      dx = inverse * (du - mean(du) - u * mean(du * u))      mean(du) not in an RMS norm */
static void norm_back(const ref_pass *p, ref_norm norm, double *dx, const double *dy, const double *x)
{
    int64_t M = norm.width;
    const double *gain = ref_part(p->t, norm.gain, true);
    double *dgain = gradient(p, norm.gain, true), *dbias = gradient(p, norm.bias, p->s->norm_bias && !p->s->rms);
    for (int64_t i = 0; i < ref_rows(p); i++, x += M, dx += M, dy += M) {
        double mean, inverse, sum = 0, along = 0;
        ref_norm_numbers(p->s, x, M, &mean, &inverse);
        for (int64_t m = 0; m < M; m++) {
            double u = (x[m] - mean) * inverse, du = dy[m] * gain[m];
            dgain[m] += dy[m] * u;
            if (dbias) dbias[m] += dy[m];
            sum += p->s->rms ? 0 : du;
            along += du * u;
        }
        for (int64_t m = 0; m < M; m++) {
            double u = (x[m] - mean) * inverse, du = dy[m] * gain[m];
            dx[m] += inverse * (du - sum / (double)M - u * along / (double)M);
        }
    }
}

/* a'(z). */
static double slope(ref_activation a, double z)
{
    const double pi = acos(-1), c = 0.044715;
    double t, s;
    switch (a) {
    case REF_LINEAR:
        return 1;
    case REF_RELU:
        return z > 0;
    case REF_GELU:
        return (1 + erf(z / sqrt(2))) / 2 + z * exp(-z * z / 2) / sqrt(2 * pi);
    case REF_GELU_TANH:
        t = tanh(sqrt(2 / pi) * (z + c * z * z * z));
        return (1 + t) / 2 + z / 2 * (1 - t * t) * sqrt(2 / pi) * (1 + 3 * c * z * z);
    case REF_SILU:
        s = 1 / (1 + exp(-z));
        return s + z * s * (1 - s);
    case REF_TANH:
        return 1 - tanh(z) * tanh(z);
    case REF_QUICK_GELU:
        s = 1 / (1 + exp(-1.702 * z));
        return s + 1.702 * z * s * (1 - s);
    case REF_RELU_SQUARED:
        return z > 0 ? 2 * z : 0;
    }
    return NAN;
}

/* ---- Attention and MLP ------------------------------------------------------------------------------------------ */

/* dx += the gradient by x of attention over x, from dy. */
static void attention_back(const ref_pass *p, ref_branch branch, double *dx, const double *dy, const double *x)
{
    const int64_t *at = p->block->at[branch];
    ref_extras extras;
    ref_layer l = ref_attention_of(p, branch, x, &extras);
    int64_t queries = l.B * l.Tq * l.M, keys = l.B * l.Tk * l.Mk;
    double *query = ref_zeros(queries), *key = ref_zeros(keys), *value = ref_zeros(keys);
    ref_layer_gradients g = {.query = query, .key = key, .value = value};
    g.q_weight = gradient(p, at[REF_Q], true), g.q_bias = gradient(p, at[REF_Q_BIAS], l.q_bias);
    g.k_weight = gradient(p, at[REF_K], true), g.k_bias = gradient(p, at[REF_K_BIAS], l.k_bias);
    g.v_weight = gradient(p, at[REF_V], true), g.v_bias = gradient(p, at[REF_V_BIAS], l.v_bias);
    g.out_weight = gradient(p, at[REF_PROJECTION], true);
    g.out_bias = gradient(p, at[REF_PROJECTION_BIAS], l.out_bias);
    g.q_norm = gradient(p, at[REF_Q_NORM], l.q_norm), g.k_norm = gradient(p, at[REF_K_NORM], l.k_norm);
    g.q_norm_bias = gradient(p, at[REF_Q_NORM_BIAS], l.q_norm_bias);
    g.k_norm_bias = gradient(p, at[REF_K_NORM_BIAS], l.k_norm_bias);
    g.sinks = gradient(p, at[REF_SINKS], l.attention.sinks);
    ref_layer_backward(&l, dy, &g); /* writes; no part of an attention is used twice */
    double *dsource = branch == REF_CROSS ? p->dmemory : dx;
    ref_add(dx, 1, query, queries);
    ref_add(dsource, 1, key, keys);
    ref_add(dsource, 1, value, keys);
    free(query);
    free(key);
    free(value);
    ref_extras_free(&extras);
}

/* dx += the gradient by x of the MLP, from dy:
 *
 *     h = a(z)           dz = dh * a'(z)
 *     h = a(g) * z       dz = dh * a(g)      dg = dh * z * a'(g) */
static void mlp_back(const ref_pass *p, double *dx, const double *dy, const double *x)
{
    const ref_stack *s = p->s;
    const int64_t *at = p->block->at[REF_MLP];
    int64_t rows = ref_rows(p), M = s->width, N = s->mlp;
    double *g = ref_zeros(rows * N), *z = ref_zeros(rows * N), *h = ref_zeros(rows * N);
    double *dh = ref_zeros(rows * N), *dz = ref_zeros(rows * N), *dg = ref_zeros(rows * N);
    ref_hidden(p, g, z, h, x);
    linear_back(p, dh, dy, h, at[REF_FC2], s->mlp_bias ? at[REF_FC2_BIAS] : -1, rows, M, N);
    for (int64_t n = 0; n < rows * N; n++) {
        dz[n] = dh[n] * (s->gated ? ref_activate(s->activation, g[n]) : slope(s->activation, z[n]));
        dg[n] = dh[n] * z[n] * slope(s->activation, g[n]);
    }
    linear_back(p, dx, dz, x, at[REF_FC1], s->mlp_bias ? at[REF_FC1_BIAS] : -1, rows, N, M);
    if (s->gated) linear_back(p, dx, dg, x, at[REF_GATE], s->mlp_bias ? at[REF_GATE_BIAS] : -1, rows, N, M);
    free(g);
    free(z);
    free(h);
    free(dh);
    free(dz);
    free(dg);
}

static void apply_back(const ref_pass *p, ref_branch branch, double *dx, const double *dy, const double *x)
{
    if (branch == REF_MLP) mlp_back(p, dx, dy, x);
    else attention_back(p, branch, dx, dy, x);
}

/* ---- Blocks ----------------------------------------------------------------------------------------------------- */

/* In place: d, the gradient by what ref_step gave, becomes that by x, what it read.
 *
 *     a = n(x) or x,  b = f(a),  c = n'(b) or b,  s = x + r c,  to = n(s) or s */
static void step_back(const ref_pass *p, ref_branch branch, double *d, const double *x)
{
    const ref_stack *s = p->s;
    int64_t count = ref_rows(p) * s->width;
    size_t size = (size_t)count * sizeof *d;
    ref_norm norm = ref_norm_first_of(p, branch);
    double *a = ref_zeros(count), *b = ref_zeros(count), *sum = ref_zeros(count);
    double *da = ref_zeros(count), *db = ref_zeros(count), *dc = ref_zeros(count), *ds = ref_zeros(count);
    memcpy(a, x, size);
    if (ref_norm_before(p, branch)) ref_norm_rows(p, norm, a, x);
    ref_apply(p, branch, b, a);
    if (ref_norm_behind(s)) { /* without a norm after f: c is b */
        memcpy(sum, x, size);
        ref_add(sum, s->residual, b, count);
        norm_back(p, norm, ds, d, sum);
    } else {
        memcpy(ds, d, size);
    }
    ref_add(dc, s->residual, ds, count);
    if (ref_norm_after(s)) norm_back(p, ref_norm_after_of(p, branch), db, dc, b);
    else memcpy(db, dc, size);
    apply_back(p, branch, da, db, a);
    memcpy(d, ds, size);
    if (ref_norm_before(p, branch)) norm_back(p, norm, d, da, x);
    else ref_add(d, 1, da, count);
    double *all[] = {a, b, sum, da, db, dc, ds};
    for (int n = 0; n < 7; n++) free(all[n]);
}

/* In place: d by x + r f(n1(x)) + r g(n2(x)) becomes d by x. */
static void parallel_back(const ref_pass *p, double *d, const double *x)
{
    int64_t count = ref_rows(p) * p->s->width;
    ref_norm norms[] = {ref_norm_first_of(p, REF_SELF), ref_norm_of_mlp(p)};
    double *db = ref_zeros(count);
    ref_add(db, p->s->residual, d, count);
    for (int n = 0; n < 2; n++) {
        double *a = ref_zeros(count), *da = ref_zeros(count);
        ref_branch branch = n ? REF_MLP : REF_SELF;
        ref_add(a, 1, x, count);
        if (ref_norm_before(p, branch)) ref_norm_rows(p, norms[n], a, x);
        apply_back(p, branch, da, db, a);
        if (ref_norm_before(p, branch)) norm_back(p, norms[n], d, da, x);
        else ref_add(d, 1, da, count);
        free(a);
        free(da);
    }
    free(db);
}

static void block_back(const ref_pass *p, double *d, const double *from)
{
    if (p->s->parallel) {
        parallel_back(p, d, from);
        return;
    }
    int64_t count = ref_rows(p) * p->s->width;
    double *x = ref_zeros(count), *y = ref_zeros(count);
    ref_step(p, REF_SELF, x, from);
    if (p->memory) ref_step(p, REF_CROSS, y, x);
    step_back(p, REF_MLP, d, p->memory ? y : x);
    if (p->memory) step_back(p, REF_CROSS, d, x);
    step_back(p, REF_SELF, d, from);
    free(x);
    free(y);
}

/* ---- Input ------------------------------------------------------------------------------------------------------ */

/* The gradients of what row t of sequence b was made from, from d (W). */
static void embed_row_back(const ref_pass *p, const double *d, int64_t b, int64_t t)
{
    const ref_stack *s = p->s;
    int64_t W = ref_table_width(s), P = ref_pixels(s), row = b * s->T + t;
    if (s->positions == REF_LEARNED)
        ref_add(gradient(p, s->at[REF_POSITIONS], true) + (s->first_position + t) * W, 1, d, W);
    if (s->patches && s->class_token && t == 0) {
        ref_add(gradient(p, s->at[REF_CLASS_TOKEN], true), 1, d, W);
    } else if (s->patches) {
        double *pixels = ref_zeros(P);
        ref_patch(p, pixels, b, t - s->class_token);
        linear_back(p, NULL, d, pixels, s->at[REF_PATCH], s->at[REF_PATCH_BIAS], 1, W, P);
        free(pixels);
    } else {
        ref_add(gradient(p, s->at[REF_TOKENS], true) + s->tokens[row] * W, s->scale, d, W);
        if (s->types) ref_add(gradient(p, s->at[REF_TYPES], true) + (s->type ? s->type[row] : 0) * W, 1, d, W);
    }
}

/* From d (B*T,M): back through the projection, the norm and the tables. */
static void input_back(const ref_pass *p, const double *d)
{
    const ref_stack *s = p->s;
    int64_t W = ref_table_width(s), count = ref_rows(p) * W;
    double *e = ref_zeros(count), *n = ref_zeros(count), *dn = ref_zeros(count), *de = ref_zeros(count);
    ref_embed(p, e);
    ref_add(n, 1, e, count);
    if (s->input_norm) ref_norm_rows(p, ref_input_norm(s), n, e);
    if (s->table_width)
        linear_back(p, dn, d, n, s->at[REF_INPUT_PROJECTION], s->table_bias ? s->at[REF_INPUT_PROJECTION_BIAS] : -1,
                    ref_rows(p), s->width, W);
    else ref_add(dn, 1, d, count);
    if (s->input_norm) norm_back(p, ref_input_norm(s), de, dn, e);
    else ref_add(de, 1, dn, count);
    for (int64_t b = 0; b < p->t->B; b++)
        for (int64_t t = 0; t < ref_length(s, b); t++) embed_row_back(p, de + (b * s->T + t) * W, b, t);
    double *all[] = {e, n, dn, de};
    for (int k = 0; k < 4; k++) free(all[k]);
}

/* ---- Stacks and output ------------------------------------------------------------------------------------------ */

/* From d (B*T,M), the gradient by the last rows of hidden (depth+2,B*T,M). */
static void stack_back(const ref_pass *p, const double *hidden, const double *d)
{
    const ref_stack *s = p->s;
    int64_t count = ref_rows(p) * s->width;
    double *dx = ref_zeros(count);
    ref_pass block = *p;
    if (s->final_norm) norm_back(p, ref_final_norm(s), dx, d, hidden + s->depth * count);
    else ref_add(dx, 1, d, count);
    for (int64_t l = s->depth - 1; l >= 0; l--) {
        block.block = &s->blocks[l];
        block_back(&block, dx, hidden + l * count);
    }
    input_back(p, dx);
    free(dx);
}

/* dh (rows,M) from dout, with h (rows,M): z = scale * (Wh h + bh), out = softcap * tanh(z / softcap). */
static void output_back(const ref_pass *p, double *dh, const double *dout, const double *h)
{
    const ref_transformer *t = p->t;
    int64_t M = p->s->width, C = ref_transformer_columns(t), rows = ref_transformer_rows(t);
    if (!t->classes) {
        ref_add(dh, 1, dout, rows * M);
        return;
    }
    int64_t w = t->tied ? p->s->at[REF_TOKENS] : t->output;
    double *z = ref_zeros(rows * C);
    ref_linear(z, h, ref_part(t, w, true), ref_part(t, t->bias_at, t->bias), rows, C, M);
    for (int64_t n = 0; n < rows * C; n++) {
        double capped = t->softcap > 0 ? tanh(t->scale * z[n] / t->softcap) : 0;
        z[n] = dout[n] * (1 - capped * capped) * t->scale;
    }
    linear_back(p, dh, z, h, w, t->bias ? t->bias_at : -1, rows, C, M);
    free(z);
}

/* d (B*T,M), the gradient by the final rows, from dh (rows,M): what ref_pool_rows gave, spread again. */
static void pool_back(const ref_pass *p, double *d, const double *dh)
{
    int64_t M = p->s->width, T = p->s->T;
    for (int64_t b = 0; b < p->t->B; b++) {
        int64_t length = ref_length(p->s, b);
        switch (p->t->pool) {
        case REF_POOL_NONE:
            ref_add(d + b * T * M, 1, dh + b * T * M, length * M);
            break;
        case REF_POOL_FIRST:
            ref_add(d + b * T * M, 1, dh + b * M, M);
            break;
        case REF_POOL_LAST:
            ref_add(d + (b * T + length - 1) * M, 1, dh + b * M, M);
            break;
        case REF_POOL_MEAN:
            for (int64_t t = 0; t < length; t++) ref_add(d + (b * T + t) * M, 1 / (double)length, dh + b * M, M);
            break;
        default:
            abort(); /* forward only */
        }
    }
}

/* dout (rows,columns) with zeros in rows of padding. */
static double *without_padding(const ref_transformer *t, const double *dout)
{
    const ref_stack *s = ref_last(t);
    int64_t C = ref_transformer_columns(t), rows = ref_transformer_rows(t);
    double *d = ref_zeros(rows * C);
    for (int64_t n = 0; n < rows; n++)
        if (t->pool != REF_POOL_NONE || n % s->T < ref_length(s, n / s->T)) ref_add(d + n * C, 1, dout + n * C, C);
    return d;
}

void ref_transformer_backward(const ref_transformer *t, const double *dout, double *gradients)
{
    const ref_stack *encoder = &t->encoder, *decoder = &t->decoder, *last = ref_last(t);
    int64_t each[2] = {t->B * encoder->T * encoder->width, t->B * decoder->T * decoder->width};
    int64_t count = last == encoder ? each[0] : each[1];
    double *hidden[2] = {ref_zeros((encoder->depth + 2) * each[0]), ref_zeros((decoder->depth + 2) * each[1])};
    double *out = ref_zeros(ref_transformer_rows(t) * ref_transformer_columns(t)), *given = without_padding(t, dout);
    double *h = ref_zeros(ref_transformer_rows(t) * last->width),
           *dh = ref_zeros(ref_transformer_rows(t) * last->width);
    double *d = ref_zeros(count), *dmemory = ref_zeros(each[0]);
    const double *memory = hidden[0] + (encoder->depth + 1) * each[0];
    ref_pass p = {.t = t, .s = last, .gradients = gradients};

    memset(gradients, 0, (size_t)t->count * sizeof *gradients);
    ref_transformer_forward(t, out, encoder->depth ? hidden[0] : NULL, decoder->depth ? hidden[1] : NULL);
    ref_pool_rows(&p, h, last == encoder ? memory : hidden[1] + (decoder->depth + 1) * each[1]);
    output_back(&p, dh, given, h);
    pool_back(&p, d, dh);
    if (decoder->depth) {
        if (encoder->depth) p.memory = memory, p.dmemory = dmemory;
        stack_back(&p, hidden[1], d);
    }
    if (encoder->depth) {
        ref_pass e = {.t = t, .s = encoder, .gradients = gradients};
        stack_back(&e, hidden[0], decoder->depth ? dmemory : d);
    }
    double *all[] = {hidden[0], hidden[1], out, given, h, dh, d, dmemory};
    for (int n = 0; n < 8; n++) free(all[n]);
}
