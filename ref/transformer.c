/* The forward pass of a transformer in float64. Every array holds the rows of all sequences, those of padding too;
 * these start as zeros, and nothing flows from them to other rows. */
#include "transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double *ref_zeros(int64_t count)
{
    double *memory = calloc((size_t)count + 1, sizeof *memory);
    if (!memory) abort();
    return memory;
}

void ref_add(double *x, double factor, const double *y, int64_t count)
{
    for (int64_t n = 0; n < count; n++) x[n] += factor * y[n];
}

const double *ref_part(const ref_transformer *t, int64_t at, bool wanted)
{
    if (!wanted) return NULL;
    if (at < 0 || at >= t->count) {
        fprintf(stderr, "oracle: a part of the model starts at %lld of %lld parameters\n", (long long)at,
                (long long)t->count);
        abort();
    }
    return t->parameters + at;
}

int64_t ref_length(const ref_stack *s, int64_t b) { return s->lengths ? s->lengths[b] : s->T; }

const ref_stack *ref_last(const ref_transformer *t) { return t->decoder.depth ? &t->decoder : &t->encoder; }

/* ---- Operations ------------------------------------------------------------------------------------------------- */

void ref_linear(double *y, const double *x, const double *w, const double *b, int64_t rows, int64_t N, int64_t K)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = 0; n < N; n++) {
            double sum = b ? b[n] : 0;
            for (int64_t k = 0; k < K; k++) sum += x[i * K + k] * w[n * K + k];
            y[i * N + n] = sum;
        }
}

void ref_norm_numbers(const ref_stack *s, const double *x, int64_t width, double *mean, double *inverse)
{
    double sum = 0, squares = 0;
    for (int64_t m = 0; m < width; m++) sum += x[m];
    *mean = s->rms ? 0 : sum / (double)width;
    for (int64_t m = 0; m < width; m++) squares += (x[m] - *mean) * (x[m] - *mean);
    *inverse = 1 / sqrt(squares / (double)width + s->epsilon);
}

void ref_norm_rows(const ref_pass *p, ref_norm norm, double *y, const double *x, int64_t rows)
{
    int64_t M = norm.width;
    const double *gain = ref_part(p->t, norm.gain, true);
    const double *bias = ref_part(p->t, norm.bias, p->s->norm_bias && !p->s->rms);
    for (int64_t i = 0; i < rows; i++) {
        double mean, inverse;
        ref_norm_numbers(p->s, x + i * M, M, &mean, &inverse);
        for (int64_t m = 0; m < M; m++) y[i * M + m] = (x[i * M + m] - mean) * inverse * gain[m] + (bias ? bias[m] : 0);
    }
}

double ref_activate(ref_activation a, double z)
{
    switch (a) {
    case REF_LINEAR:
        return z;
    case REF_RELU:
        return z > 0 ? z : 0;
    case REF_GELU:
        return z / 2 * (1 + erf(z / sqrt(2)));
    case REF_GELU_TANH:
        return z / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z)));
    case REF_SILU:
        return z / (1 + exp(-z));
    case REF_TANH:
        return tanh(z);
    case REF_QUICK_GELU:
        return z / (1 + exp(-1.702 * z));
    case REF_RELU_SQUARED:
        return z > 0 ? z * z : 0;
    }
    return NAN;
}

/* ---- Input ------------------------------------------------------------------------------------------------------ */

void ref_patch(const ref_pass *p, double *pixels, int64_t b, int64_t n)
{
    const ref_stack *s = p->s;
    int64_t wide = s->columns / s->patch, top = n / wide * s->patch, left = n % wide * s->patch;
    for (int64_t c = 0; c < s->channels; c++)
        for (int64_t y = 0; y < s->patch; y++)
            for (int64_t x = 0; x < s->patch; x++)
                *pixels++ = s->images[((b * s->channels + c) * s->rows + top + y) * s->columns + left + x];
}

int64_t ref_table_width(const ref_stack *s) { return s->table_width ? s->table_width : s->width; }

/* Number w of the row that is added at position n. */
static double position(const ref_pass *p, int64_t n, int64_t w)
{
    int64_t W = p->s->width_first ? p->s->width : ref_table_width(p->s), half = W / 2;
    if (p->s->positions == REF_WAVES) {
        half = (W + 1) / 2;
        double wave = (double)n / pow(10000, 2 * (double)(w % half) / (double)W);
        return n == p->s->padding_place ? 0 : w < half ? sin(wave) : cos(wave);
    }
    if (p->s->positions == REF_LEARNED) return ref_part(p->t, p->s->at[REF_POSITIONS], true)[n * W + w];
    if (p->s->positions == REF_NO_POSITIONS) return 0;
    if (n == p->s->padding_place) return 0; /* that of padding */
    if (w >= 2 * half) return 0;            /* the last number, if W is odd */
    double angle = (double)n / pow(10000, half > 1 ? (double)(w % half) / (double)(half - 1) : 0);
    return w < half ? sin(angle) : cos(angle);
}

/* Row t of sequence b, e (W), before positions. */
static void embed_token(const ref_pass *p, double *e, int64_t b, int64_t t)
{
    const ref_stack *s = p->s;
    int64_t W = ref_table_width(s), row = b * s->T + t;
    const double *tokens = ref_part(p->t, s->at[REF_TOKENS], true), *types = ref_part(p->t, s->at[REF_TYPES], s->types);
    for (int64_t w = 0; w < W; w++) {
        e[w] = s->scale * tokens[s->tokens[row] * W + w];
        if (types) e[w] += types[(s->type ? s->type[row] : 0) * W + w];
    }
}

static void embed_patch(const ref_pass *p, double *e, int64_t b, int64_t t)
{
    const ref_stack *s = p->s;
    int64_t W = ref_table_width(s), P = ref_pixels(s);
    int64_t first = s->class_token + s->second_token;
    if (t < first) {
        int at = t || !s->class_token ? REF_SECOND_TOKEN : REF_CLASS_TOKEN;
        memcpy(e, ref_part(p->t, s->at[at], true), (size_t)W * sizeof *e);
        return;
    }
    double *pixels = ref_zeros(P);
    ref_patch(p, pixels, b, t - first);
    ref_linear(e, pixels, ref_part(p->t, s->at[REF_PATCH], true), ref_part(p->t, s->at[REF_PATCH_BIAS], true), 1, W, P);
    free(pixels);
}

int64_t ref_token_position(const ref_stack *s, int64_t b, int64_t t)
{
    int64_t padded = 0;
    if (s->padding < 0) return s->first_position + t;
    for (int64_t k = 0; k <= t; k++) padded += s->tokens[b * s->T + k] == s->padding;
    return s->tokens[b * s->T + t] == s->padding ? s->padding_place : s->first_position + t - padded;
}

/* Adds positions to rows (B*T,W) of sequence b. */
static void add_positions(const ref_pass *p, double *e, int64_t W, int64_t b)
{
    const ref_stack *s = p->s;
    for (int64_t t = 0; t < ref_length(s, b); t++)
        for (int64_t w = 0; w < W; w++) e[(b * s->T + t) * W + w] += position(p, ref_token_position(s, b, t), w);
}

void ref_embed(const ref_pass *p, double *e)
{
    const ref_stack *s = p->s;
    int64_t W = ref_table_width(s);
    memset(e, 0, (size_t)(ref_rows(p) * W) * sizeof *e);
    for (int64_t b = 0; b < p->t->B; b++) {
        if (s->bins) ref_frames(p, e + b * s->T * W, b);
        for (int64_t t = 0; !s->bins && t < ref_length(s, b); t++)
            (s->patches ? embed_patch : embed_token)(p, e + (b * s->T + t) * W, b, t);
        if (!s->width_first) add_positions(p, e, W, b);
    }
}

void ref_input(const ref_pass *p, double *x, const double *e)
{
    const ref_stack *s = p->s;
    int64_t W = ref_table_width(s), count = ref_rows(p) * W;
    double *n = ref_zeros(count);
    memcpy(n, e, (size_t)count * sizeof *n);
    if (s->input_norm) ref_norm_rows(p, ref_input_norm(s), n, e, ref_rows(p));
    if (s->table_width)
        ref_linear(x, n, ref_part(p->t, s->at[REF_INPUT_PROJECTION], true),
                   ref_part(p->t, s->at[REF_INPUT_PROJECTION_BIAS], s->table_bias), ref_rows(p), s->width, W);
    else memcpy(x, n, (size_t)count * sizeof *n);
    for (int64_t b = 0; s->width_first && b < p->t->B; b++) add_positions(p, x, s->width, b);
    for (int64_t i = 0; s->drop && i < ref_rows(p) * s->width; i++) x[i] *= s->drop[i];
    free(n);
}

/* ---- Attention and MLP ------------------------------------------------------------------------------------------ */

double ref_alibi_slope(int64_t h, int64_t H)
{
    int64_t n = 1;
    while (2 * n <= H) n *= 2;
    if (h < n) return pow(2, -8 * (double)(h + 1) / (double)n);
    return pow(2, -8 * (double)(2 * (h - n) + 1) / (double)(2 * n));
}

/* What depends on the place of a token: ALiBi, T5's bias, and scaled rotary embeddings. */
static void add_extras(const ref_pass *p, const ref_heads *h, bool cross, ref_layer *l, ref_extras *extras)
{
    int64_t w = h->rotary_width ? h->rotary_width : h->head_width, H = l->H, B = p->t->B;
    *extras = (ref_extras){.slopes = h->alibi ? ref_zeros(B * H) : NULL};
    double scale = !h->alibi_scaled ? 1 : isnan(h->scale) ? 1 / sqrt((double)h->head_width) : h->scale;
    for (int64_t n = 0; h->alibi && n < B * H; n++) extras->slopes[n] = scale * ref_alibi_slope(n % H, H);
    l->attention.alibi_slopes = extras->slopes;
    if (!cross && p->s->relative_buckets) {
        l->attention.bias = extras->bias = ref_zeros(B * H * l->Tq * l->Tk);
        ref_relative_bias(p, extras->bias, H);
    }
    if (cross || !(h->rotary_base > 0) || !h->rotary.scaling) return;
    l->rotary_base = 0;
    l->rotary_multiplier = h->rotary.multiplier;
    l->rotary_frequencies = extras->frequencies = ref_zeros(w / 2);
    ref_rotary_frequencies(extras->frequencies, h, w, p->s->longest);
}

void ref_extras_free(ref_extras *extras)
{
    free(extras->slopes);
    free(extras->frequencies);
    free(extras->bias);
}

ref_layer ref_attention_of(const ref_pass *p, ref_branch branch, const double *x, ref_extras *extras)
{
    const ref_transformer *t = p->t;
    const ref_heads *h = branch == REF_CROSS ? &p->block->cross : &p->block->self;
    const ref_stack *s = p->s, *from = branch == REF_CROSS ? &t->encoder : s;
    const int64_t *at = p->block->at[branch];
    ref_layer l = {.B = t->B, .Tq = s->T, .Tk = from->T, .M = s->width, .Mk = from->width, .Mv = from->width};
    l.H = h->heads, l.G = h->kv_heads, l.D = l.E = h->head_width;
    l.query = x;
    l.key = l.value = branch == REF_CROSS ? p->memory : x;
    l.q_weight = ref_part(t, at[REF_Q], true), l.q_bias = ref_part(t, at[REF_Q_BIAS], h->in_bias);
    l.k_weight = ref_part(t, at[REF_K], true), l.k_bias = ref_part(t, at[REF_K_BIAS], h->in_bias);
    l.v_weight = ref_part(t, at[REF_V], true), l.v_bias = ref_part(t, at[REF_V_BIAS], h->in_bias);
    l.out_weight = ref_part(t, at[REF_PROJECTION], true);
    l.out_bias = ref_part(t, at[REF_PROJECTION_BIAS], h->out_bias);
    l.q_norm = ref_part(t, at[REF_Q_NORM], h->qk_norm > 0), l.k_norm = ref_part(t, at[REF_K_NORM], h->qk_norm > 0);
    l.q_norm_bias = ref_part(t, at[REF_Q_NORM_BIAS], h->qk_norm > 0 && h->qk_norm_bias);
    l.k_norm_bias = ref_part(t, at[REF_K_NORM_BIAS], h->qk_norm > 0 && h->qk_norm_bias);
    l.norm_epsilon = h->qk_norm, l.norm_centred = h->qk_norm_centred, l.norm_span = h->qk_norm_span;
    l.rotary_base = h->rotary_base, l.rotary_width = h->rotary_width, l.rotary_interleaved = h->rotary_interleaved;
    l.attention = (ref_attention){.queries = s->lengths, .keys = from->lengths, .scale = h->scale};
    l.attention.softcap = h->softcap, l.attention.causal = h->causal;
    l.attention.dropout = h->dropout, l.attention.dropout_seed = h->dropout_seed;
    l.attention.dropout_stream = h->dropout_stream;
    l.attention.window_left = h->window_left, l.attention.window_right = h->window_right;
    l.attention.sinks = ref_part(t, at[REF_SINKS], h->sinks);
    add_extras(p, h, branch == REF_CROSS, &l, extras);
    return l;
}

void ref_clamp(double clamp, double *gate, double *times)
{
    *gate = fmin(*gate, clamp);
    *times = fmax(fmin(*times, clamp), -clamp) + 1;
}

void ref_hidden(const ref_pass *p, int64_t expert, int64_t rows, double *g, double *z, double *h, const double *x)
{
    const ref_stack *s = p->s;
    const int64_t *at = p->block->at[REF_MLP];
    int64_t M = s->width, N = s->mlp;
    ref_linear(z, x, ref_part(p->t, at[REF_FC1] + expert * N * M, true),
               ref_part(p->t, at[REF_FC1_BIAS] + expert * N, s->mlp_bias), rows, N, M);
    if (s->gated)
        ref_linear(g, x, ref_part(p->t, at[REF_GATE] + expert * N * M, true),
                   ref_part(p->t, at[REF_GATE_BIAS] + expert * N, s->mlp_bias), rows, N, M);
    for (int64_t n = 0; n < rows * N; n++) {
        double gate = g[n], times = z[n];
        if (s->clamp > 0) ref_clamp(s->clamp, &gate, &times);
        h[n] = s->gated ? ref_activate(s->activation, gate) * times : ref_activate(s->activation, z[n]);
    }
}

void ref_mlp(const ref_pass *p, int64_t expert, int64_t rows, double *y, const double *x)
{
    const ref_stack *s = p->s;
    const int64_t *at = p->block->at[REF_MLP];
    int64_t M = s->width, N = s->mlp;
    double *g = ref_zeros(rows * N), *z = ref_zeros(rows * N), *h = ref_zeros(rows * N);
    ref_hidden(p, expert, rows, g, z, h, x);
    ref_linear(y, h, ref_part(p->t, at[REF_FC2] + expert * M * N, true),
               ref_part(p->t, at[REF_FC2_BIAS] + expert * M, s->mlp_bias), rows, M, N);
    free(g);
    free(z);
    free(h);
}

void ref_apply(const ref_pass *p, ref_branch branch, double *y, const double *x)
{
    if (branch == REF_MLP) {
        if (p->s->experts) ref_experts(p, y, x);
        else ref_mlp(p, 0, ref_rows(p), y, x);
        return;
    }
    ref_extras extras;
    ref_layer l = ref_attention_of(p, branch, x, &extras);
    ref_layer_forward(&l, y, branch == REF_CROSS ? p->block->cross.maps : p->block->self.maps, NULL);
    ref_extras_free(&extras);
}

/* ---- Blocks ----------------------------------------------------------------------------------------------------- */

bool ref_norm_before(const ref_pass *p, ref_branch branch)
{
    if (p->s->bare_start && p->block == p->s->blocks && branch == REF_SELF) return false;
    return p->s->place == REF_BEFORE || p->s->place == REF_BOTH;
}
bool ref_norm_after(const ref_stack *s) { return s->place == REF_AFTER || s->place == REF_BOTH; }
bool ref_norm_behind(const ref_stack *s) { return s->place == REF_BEHIND; }

ref_norm ref_norm_first_of(const ref_pass *p, ref_branch branch)
{
    const int64_t *at = p->block->at[branch];
    return (ref_norm){at[REF_NORM], at[REF_NORM_BIAS], p->s->width};
}

ref_norm ref_norm_after_of(const ref_pass *p, ref_branch branch)
{
    const int64_t *at = p->block->at[branch];
    if (p->s->place != REF_BOTH) return ref_norm_first_of(p, branch);
    return (ref_norm){at[REF_NORM_OUT], at[REF_NORM_OUT_BIAS], p->s->width};
}

ref_norm ref_norm_of_mlp(const ref_pass *p) { return ref_norm_first_of(p, p->s->one_norm ? REF_SELF : REF_MLP); }

ref_norm ref_input_norm(const ref_stack *s)
{
    return (ref_norm){s->at[REF_INPUT_NORM], s->at[REF_INPUT_NORM_BIAS], ref_table_width(s)};
}

ref_norm ref_final_norm(const ref_stack *s)
{
    return (ref_norm){s->at[REF_FINAL_NORM], s->at[REF_FINAL_NORM_BIAS], s->width};
}

/* What a branch gives, after dropout, times its vector. */
static void scale_branch(const ref_pass *p, ref_branch branch, double *b)
{
    const double *scale = ref_part(p->t, p->block->at[branch][REF_SCALE], p->s->branch_scale);
    const double *drop = p->block->drop[branch];
    for (int64_t n = 0; drop && n < ref_rows(p) * p->s->width; n++) b[n] *= drop[n];
    for (int64_t n = 0; scale && n < ref_rows(p) * p->s->width; n++) b[n] *= scale[n % p->s->width];
}

void ref_step_sum(const ref_pass *p, ref_branch branch, double *sum, const double *x, const double *a, const double *c)
{
    int64_t count = ref_rows(p) * p->s->width;
    double *scaled = ref_zeros(count);
    memcpy(scaled, c, (size_t)count * sizeof *scaled);
    scale_branch(p, branch, scaled);
    memcpy(sum, p->s->from_norm ? a : x, (size_t)count * sizeof *sum);
    ref_add(sum, p->s->residual, scaled, count);
    free(scaled);
}

/* a = n(x) or x,  c = n'(f(a)) or f(a),  s = x + r scale c,  to = n(s) or s. */
void ref_step(const ref_pass *p, ref_branch branch, double *to, const double *from)
{
    const ref_stack *s = p->s;
    int64_t rows = ref_rows(p), count = rows * s->width;
    double *a = ref_zeros(count), *c = ref_zeros(count);
    ref_norm norm = ref_norm_first_of(p, branch);
    memcpy(a, from, (size_t)count * sizeof *a);
    if (ref_norm_before(p, branch)) ref_norm_rows(p, norm, a, from, rows);
    ref_apply(p, branch, c, a);
    if (ref_norm_after(s)) ref_norm_rows(p, ref_norm_after_of(p, branch), c, c, rows);
    ref_step_sum(p, branch, to, from, a, c);
    if (ref_norm_behind(s)) ref_norm_rows(p, norm, to, to, rows);
    free(a);
    free(c);
}

/* to = x + r f(n1(x)) + r g(n2(x)). */
static void parallel_block(const ref_pass *p, double *to, const double *from)
{
    int64_t count = ref_rows(p) * p->s->width;
    double *a = ref_zeros(count), *b = ref_zeros(count);
    memcpy(to, from, (size_t)count * sizeof *to);
    memcpy(a, from, (size_t)count * sizeof *a);
    if (ref_norm_before(p, REF_SELF)) ref_norm_rows(p, ref_norm_first_of(p, REF_SELF), a, from, ref_rows(p));
    ref_apply(p, REF_SELF, b, a);
    scale_branch(p, REF_SELF, b);
    ref_add(to, p->s->residual, b, count);
    ref_norm_rows(p, ref_norm_of_mlp(p), a, from, ref_rows(p));
    ref_apply(p, REF_MLP, b, a);
    scale_branch(p, REF_MLP, b);
    ref_add(to, p->s->residual, b, count);
    free(a);
    free(b);
}

static void block_forward(const ref_pass *p, double *to, const double *from)
{
    if (p->s->parallel) {
        parallel_block(p, to, from);
        return;
    }
    int64_t count = ref_rows(p) * p->s->width;
    double *x = ref_zeros(count), *y = ref_zeros(count);
    ref_step(p, REF_SELF, x, from);
    if (p->memory) ref_step(p, REF_CROSS, y, x);
    ref_step(p, REF_MLP, to, p->memory ? y : x);
    free(x);
    free(y);
}

void ref_stack_forward(const ref_pass *p, double *hidden)
{
    const ref_stack *s = p->s;
    int64_t count = ref_rows(p) * s->width;
    double *last = hidden + s->depth * count;
    ref_pass block = *p;
    double *e = ref_zeros(ref_rows(p) * ref_table_width(s));
    ref_embed(p, e);
    ref_input(p, hidden, e);
    free(e);
    for (int64_t l = 0; l < s->depth; l++) {
        block.block = &s->blocks[l];
        block_forward(&block, hidden + (l + 1) * count, hidden + l * count);
    }
    memcpy(last + count, last, (size_t)count * sizeof *last);
    if (s->final_norm) ref_norm_rows(p, ref_final_norm(s), last + count, last, ref_rows(p));
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

void ref_transformer_forward(const ref_transformer *t, double *out, double *encoder_hidden, double *decoder_hidden)
{
    const ref_stack *stacks[2] = {&t->encoder, &t->decoder};
    double *given[2] = {encoder_hidden, decoder_hidden}, *hidden[2] = {NULL, NULL};
    ref_pass p = {.t = t};
    const double *rows = NULL;
    for (int n = 0; n < 2; n++) {
        p.s = stacks[n];
        int64_t count = ref_rows(&p) * p.s->width;
        if (!p.s->depth) continue;
        hidden[n] = ref_zeros((p.s->depth + 2) * count);
        p.memory = rows;
        ref_stack_forward(&p, hidden[n]);
        rows = hidden[n] + (p.s->depth + 1) * count;
        if (given[n]) memcpy(given[n], hidden[n], (size_t)((p.s->depth + 2) * count) * sizeof *rows);
    }
    p.s = ref_last(t);
    ref_output(&p, out, rows);
    free(hidden[0]);
    free(hidden[1]);
}
