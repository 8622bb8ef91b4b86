/* The backward pass of a transformer in float64, the steps of transformer.c in reverse. Of the forward pass only the
 * rows between blocks are kept; what a step needs beside them it computes again. Gradients by rows and by parameters
 * are added to what is there: a table of tokens may be used twice. */
#include "transformer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double *ref_gradient(const ref_pass *p, int64_t at, bool wanted)
{
    return ref_part(p->t, at, wanted) ? p->gradients + at : NULL;
}

/* ---- Operations ------------------------------------------------------------------------------------------------- */

void ref_linear_back(const ref_pass *p, double *dx, const double *dy, const double *x, int64_t w, int64_t b,
                     int64_t rows, int64_t N, int64_t K)
{
    const double *weight = ref_part(p->t, w, true);
    double *dw = ref_gradient(p, w, true), *db = ref_gradient(p, b, b >= 0);
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
void ref_norm_back(const ref_pass *p, ref_norm norm, double *dx, const double *dy, const double *x, int64_t rows)
{
    int64_t M = norm.width;
    const double *gain = ref_part(p->t, norm.gain, true);
    double *dgain = ref_gradient(p, norm.gain, true),
           *dbias = ref_gradient(p, norm.bias, p->s->norm_bias && !p->s->rms);
    for (int64_t i = 0; i < rows; i++, x += M, dx += M, dy += M) {
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

double ref_slope(ref_activation a, double z)
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
    double *bias = ref_zeros(l.attention.bias ? l.B * l.H * l.Tq * l.Tk : 0);
    ref_layer_gradients g = {.query = query, .key = key, .value = value, .bias = l.attention.bias ? bias : NULL};
    g.q_weight = ref_gradient(p, at[REF_Q], true), g.q_bias = ref_gradient(p, at[REF_Q_BIAS], l.q_bias);
    g.k_weight = ref_gradient(p, at[REF_K], true), g.k_bias = ref_gradient(p, at[REF_K_BIAS], l.k_bias);
    g.v_weight = ref_gradient(p, at[REF_V], true), g.v_bias = ref_gradient(p, at[REF_V_BIAS], l.v_bias);
    g.out_weight = ref_gradient(p, at[REF_PROJECTION], true);
    g.out_bias = ref_gradient(p, at[REF_PROJECTION_BIAS], l.out_bias);
    g.q_norm = ref_gradient(p, at[REF_Q_NORM], l.q_norm), g.k_norm = ref_gradient(p, at[REF_K_NORM], l.k_norm);
    g.q_norm_bias = ref_gradient(p, at[REF_Q_NORM_BIAS], l.q_norm_bias);
    g.k_norm_bias = ref_gradient(p, at[REF_K_NORM_BIAS], l.k_norm_bias);
    g.sinks = ref_gradient(p, at[REF_SINKS], l.attention.sinks);
    ref_layer_backward(&l, dy, &g); /* writes; no part of an attention is used twice */
    if (l.attention.bias) ref_relative_back(p, bias, l.H);
    double *dsource = branch == REF_CROSS ? p->dmemory : dx;
    ref_add(dx, 1, query, queries);
    ref_add(dsource, 1, key, keys);
    ref_add(dsource, 1, value, keys);
    free(query);
    free(key);
    free(value);
    free(bias);
    ref_extras_free(&extras);
}

/* h = a(z)           dz = dh * a'(z)
 * h = a(g) * z       dz = dh * a(g)      dg = dh * z * a'(g)
 *
 * With a clamp, min(g, clamp) and max(min(z, clamp), -clamp) + 1 stand for g and z, and dg and dz are 0 outside. */
void ref_mlp_back(const ref_pass *p, int64_t expert, int64_t rows, double *dx, const double *dy, const double *x)
{
    const ref_stack *s = p->s;
    const int64_t *at = p->block->at[REF_MLP];
    int64_t M = s->width, N = s->mlp;
    int64_t w1 = at[REF_FC1] + expert * N * M, b1 = s->mlp_bias ? at[REF_FC1_BIAS] + expert * N : -1;
    int64_t w2 = at[REF_FC2] + expert * M * N, b2 = s->mlp_bias ? at[REF_FC2_BIAS] + expert * M : -1;
    int64_t wg = at[REF_GATE] + expert * N * M, bg = s->mlp_bias ? at[REF_GATE_BIAS] + expert * N : -1;
    double *g = ref_zeros(rows * N), *z = ref_zeros(rows * N), *h = ref_zeros(rows * N);
    double *dh = ref_zeros(rows * N), *dz = ref_zeros(rows * N), *dg = ref_zeros(rows * N);
    ref_hidden(p, expert, rows, g, z, h, x);
    ref_linear_back(p, dh, dy, h, w2, b2, rows, M, N);
    for (int64_t n = 0; n < rows * N; n++) {
        double gate = g[n], times = z[n];
        if (s->clamp > 0) ref_clamp(s->clamp, &gate, &times);
        dz[n] = dh[n] * (s->gated ? ref_activate(s->activation, gate) : ref_slope(s->activation, z[n]));
        dg[n] = dh[n] * times * ref_slope(s->activation, gate);
        if (s->clamp > 0 && g[n] > s->clamp) dg[n] = 0;
        if (s->clamp > 0 && fabs(z[n]) > s->clamp) dz[n] = 0;
    }
    ref_linear_back(p, dx, dz, x, w1, b1, rows, N, M);
    if (s->gated) ref_linear_back(p, dx, dg, x, wg, bg, rows, N, M);
    double *all[] = {g, z, h, dh, dz, dg};
    for (int n = 0; n < 6; n++) free(all[n]);
}

/* dx += the gradient by x of a branch, from dy. */
static void apply_back(const ref_pass *p, ref_branch branch, double *dx, const double *dy, const double *x)
{
    if (branch != REF_MLP) attention_back(p, branch, dx, dy, x);
    else if (p->s->experts) ref_experts_back(p, dx, dy, x);
    else ref_mlp_back(p, 0, ref_rows(p), dx, dy, x);
}

/* ---- Blocks ----------------------------------------------------------------------------------------------------- */

/* d (B*T,M), in place: from the gradient by scale * drop * c to that by c. */
static void scale_back(const ref_pass *p, ref_branch branch, double *d, const double *c)
{
    int64_t at = p->block->at[branch][REF_SCALE], M = p->s->width;
    const double *scale = ref_part(p->t, at, p->s->branch_scale);
    const double *drop = p->block->drop[branch];
    double *dscale = ref_gradient(p, at, p->s->branch_scale);
    for (int64_t n = 0; scale && n < ref_rows(p) * M; n++) {
        dscale[n % M] += d[n] * c[n] * (drop ? drop[n] : 1);
        d[n] *= scale[n % M];
    }
    for (int64_t n = 0; drop && n < ref_rows(p) * M; n++) d[n] *= drop[n];
}

/* In place: d, the gradient by what ref_step gave, becomes that by x, what it read.
 *
 *     a = n(x) or x,  b = f(a),  c = n'(b) or b,  s = x + r scale c,  to = n(s) or s
 *
 * With `from_norm`, s = a + r scale c. */
static void step_back(const ref_pass *p, ref_branch branch, double *d, const double *x)
{
    const ref_stack *s = p->s;
    int64_t rows = ref_rows(p), count = rows * s->width;
    size_t size = (size_t)count * sizeof *d;
    ref_norm norm = ref_norm_first_of(p, branch), after = ref_norm_after_of(p, branch);
    double *a = ref_zeros(count), *b = ref_zeros(count), *c = ref_zeros(count), *sum = ref_zeros(count);
    double *da = ref_zeros(count), *db = ref_zeros(count), *dc = ref_zeros(count), *ds = ref_zeros(count);
    memcpy(a, x, size);
    if (ref_norm_before(p, branch)) ref_norm_rows(p, norm, a, x, rows);
    ref_apply(p, branch, b, a);
    memcpy(c, b, size);
    if (ref_norm_after(s)) ref_norm_rows(p, after, c, b, rows);
    if (ref_norm_behind(s)) {
        ref_step_sum(p, branch, sum, x, a, c);
        ref_norm_back(p, norm, ds, d, sum, rows);
    } else {
        memcpy(ds, d, size);
    }
    ref_add(dc, s->residual, ds, count);
    scale_back(p, branch, dc, c);
    if (ref_norm_after(s)) ref_norm_back(p, after, db, dc, b, rows);
    else memcpy(db, dc, size);
    apply_back(p, branch, da, db, a);
    for (int64_t n = 0; n < count; n++) {
        d[n] = s->from_norm ? 0 : ds[n];
        da[n] += s->from_norm ? ds[n] : 0;
    }
    if (ref_norm_before(p, branch)) ref_norm_back(p, norm, d, da, x, rows);
    else ref_add(d, 1, da, count);
    double *all[] = {a, b, c, sum, da, db, dc, ds};
    for (int n = 0; n < 8; n++) free(all[n]);
}

/* In place: d by x + r scale f(n1(x)) + r scale' g(n2(x)) becomes d by x. */
static void parallel_back(const ref_pass *p, double *d, const double *x)
{
    int64_t rows = ref_rows(p), count = rows * p->s->width;
    ref_norm norms[] = {ref_norm_first_of(p, REF_SELF), ref_norm_of_mlp(p)};
    double *dsum = ref_zeros(count);
    ref_add(dsum, p->s->residual, d, count);
    for (int n = 0; n < 2; n++) {
        double *a = ref_zeros(count), *b = ref_zeros(count), *da = ref_zeros(count), *db = ref_zeros(count);
        ref_branch branch = n ? REF_MLP : REF_SELF;
        ref_add(a, 1, x, count);
        if (ref_norm_before(p, branch)) ref_norm_rows(p, norms[n], a, x, rows);
        ref_apply(p, branch, b, a);
        ref_add(db, 1, dsum, count);
        scale_back(p, branch, db, b);
        apply_back(p, branch, da, db, a);
        if (ref_norm_before(p, branch)) ref_norm_back(p, norms[n], d, da, x, rows);
        else ref_add(d, 1, da, count);
        double *all[] = {a, b, da, db};
        for (int k = 0; k < 4; k++) free(all[k]);
    }
    free(dsum);
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

/* Positions of sequence b, which were added to rows (B*T,W), from the gradient d by them. */
static void positions_back(const ref_pass *p, const double *d, int64_t W, int64_t b)
{
    const ref_stack *s = p->s;
    double *to = ref_gradient(p, s->at[REF_POSITIONS], s->positions == REF_LEARNED);
    for (int64_t t = 0; to && t < ref_length(s, b); t++)
        ref_add(to + ref_token_position(s, b, t) * W, 1, d + (b * s->T + t) * W, W);
}

static void token_back(const ref_pass *p, const double *d, int64_t b, int64_t t)
{
    const ref_stack *s = p->s;
    int64_t W = ref_table_width(s), row = b * s->T + t;
    ref_add(ref_gradient(p, s->at[REF_TOKENS], true) + s->tokens[row] * W, s->scale, d, W);
    if (s->types) ref_add(ref_gradient(p, s->at[REF_TYPES], true) + (s->type ? s->type[row] : 0) * W, 1, d, W);
}

static void patch_back(const ref_pass *p, const double *d, int64_t b, int64_t t)
{
    const ref_stack *s = p->s;
    int64_t W = ref_table_width(s), P = ref_pixels(s), first = s->class_token + s->second_token;
    if (t < first) {
        int at = t || !s->class_token ? REF_SECOND_TOKEN : REF_CLASS_TOKEN;
        ref_add(ref_gradient(p, s->at[at], true), 1, d, W);
        return;
    }
    double *pixels = ref_zeros(P);
    ref_patch(p, pixels, b, t - first);
    ref_linear_back(p, NULL, d, pixels, s->at[REF_PATCH], s->at[REF_PATCH_BIAS], 1, W, P);
    free(pixels);
}

/* What sequence b was made from, from de (B*T,W). */
static void embed_back(const ref_pass *p, const double *de, int64_t b)
{
    const ref_stack *s = p->s;
    int64_t W = ref_table_width(s);
    if (!s->width_first) positions_back(p, de, W, b);
    if (s->bins) ref_frames_back(p, de + b * s->T * W, b);
    for (int64_t t = 0; !s->bins && t < ref_length(s, b); t++)
        (s->patches ? patch_back : token_back)(p, de + (b * s->T + t) * W, b, t);
}

/* From d (B*T,M), which changes: back through dropout, the projection, the norm and the tables. */
static void input_back(const ref_pass *p, double *d)
{
    const ref_stack *s = p->s;
    for (int64_t n = 0; s->drop && n < ref_rows(p) * s->width; n++) d[n] *= s->drop[n];
    int64_t W = ref_table_width(s), rows = ref_rows(p), count = rows * W;
    double *e = ref_zeros(count), *n = ref_zeros(count), *dn = ref_zeros(count), *de = ref_zeros(count);
    for (int64_t b = 0; s->width_first && b < p->t->B; b++) positions_back(p, d, s->width, b);
    ref_embed(p, e);
    ref_add(n, 1, e, count);
    if (s->input_norm) ref_norm_rows(p, ref_input_norm(s), n, e, rows);
    if (s->table_width)
        ref_linear_back(p, dn, d, n, s->at[REF_INPUT_PROJECTION], s->table_bias ? s->at[REF_INPUT_PROJECTION_BIAS] : -1,
                        rows, s->width, W);
    else ref_add(dn, 1, d, count);
    if (s->input_norm) ref_norm_back(p, ref_input_norm(s), de, dn, e, rows);
    else ref_add(de, 1, dn, count);
    for (int64_t b = 0; b < p->t->B; b++) embed_back(p, de, b);
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
    if (s->final_norm) ref_norm_back(p, ref_final_norm(s), dx, d, hidden + s->depth * count, ref_rows(p));
    else ref_add(dx, 1, d, count);
    for (int64_t l = s->depth - 1; l >= 0; l--) {
        block.block = &s->blocks[l];
        block_back(&block, dx, hidden + l * count);
    }
    input_back(p, dx);
    free(dx);
}

void ref_transformer_backward(const ref_transformer *t, const double *dout, double *gradients)
{
    const ref_stack *encoder = &t->encoder, *decoder = &t->decoder, *last = ref_last(t);
    int64_t each[2] = {t->B * encoder->T * encoder->width, t->B * decoder->T * decoder->width};
    double *hidden[2] = {ref_zeros((encoder->depth + 2) * each[0]), ref_zeros((decoder->depth + 2) * each[1])};
    double *out = ref_zeros(ref_transformer_rows(t) * ref_transformer_columns(t));
    double *d = ref_zeros(each[last == decoder]), *dmemory = ref_zeros(each[0]);
    const double *memory = hidden[0] + (encoder->depth + 1) * each[0];
    ref_pass p = {.t = t, .s = last, .gradients = gradients};

    memset(gradients, 0, (size_t)t->count * sizeof *gradients);
    ref_transformer_forward(t, out, encoder->depth ? hidden[0] : NULL, decoder->depth ? hidden[1] : NULL);
    ref_output_back(&p, d, dout, last == encoder ? memory : hidden[1] + (decoder->depth + 1) * each[1]);
    if (decoder->depth) {
        if (encoder->depth) p.memory = memory, p.dmemory = dmemory;
        stack_back(&p, hidden[1], d);
    }
    if (encoder->depth) {
        ref_pass e = {.t = t, .s = encoder, .gradients = gradients};
        stack_back(&e, hidden[0], decoder->depth ? dmemory : d);
    }
    double *all[] = {hidden[0], hidden[1], out, d, dmemory};
    for (int n = 0; n < 5; n++) free(all[n]);
}
