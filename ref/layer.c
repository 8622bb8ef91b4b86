/* The forward pass of the multi-head layer in float64, one sequence at a time.
 *
 * Each sequence becomes an attention problem of its own, with exactly the keys that exist and the extra ones behind
 * them. Whatever hides or biases ordinary keys (causal, windows, lengths, mask, bias, ALiBi) is written out as one mask
 * and one bias, which leave the extra keys visible and unbiased. A head's row is made by itself:
 *
 *     y = W x + b,     y_d = y_d gain_d / sqrt(mean of y^2 + epsilon),     y = rotary(y) */
#include "layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *zeros(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + 1, size);
    if (!memory) abort();
    return memory;
}

/* ---- One row of one head ---------------------------------------------------------------------------------------- */

void ref_project(double *y, const ref_projection *p, int64_t head, int64_t row)
{
    const double *x = p->x + row * p->in;
    for (int64_t d = 0; d < p->width; d++) {
        int64_t r = head * p->width + d;
        double sum = p->bias ? p->bias[r] : 0;
        for (int64_t m = 0; m < p->in; m++) sum += p->weight[r * p->in + m] * x[m];
        y[d] = sum;
    }
}

int64_t ref_norm_group(const ref_layer *l, const ref_projection *p)
{
    return l->norm_span == 2 ? p->heads * p->width : p->width;
}

int64_t ref_norm_place(const ref_layer *l, const ref_projection *p, int64_t n)
{
    return l->norm_span == 0 ? n % p->width : n;
}

ref_moments ref_norm_moments(const ref_layer *l, const double *x, int64_t count)
{
    ref_moments m = {0, 0};
    double squares = 0;
    for (int64_t n = 0; l->norm_centred && n < count; n++) m.mean += x[n] / (double)count;
    for (int64_t n = 0; n < count; n++) squares += (x[n] - m.mean) * (x[n] - m.mean);
    m.factor = 1 / sqrt(squares / (double)count + l->norm_epsilon);
    return m;
}

/* y (heads,width), in place. */
static void normalize(double *y, const ref_layer *l, const ref_projection *p)
{
    int64_t count = ref_norm_group(l, p);
    for (int64_t first = 0; first < p->heads * p->width; first += count) {
        ref_moments m = ref_norm_moments(l, y + first, count);
        for (int64_t n = first; n < first + count; n++) {
            int64_t at = ref_norm_place(l, p, n);
            y[n] = (y[n] - m.mean) * m.factor * p->norm[at] + (p->norm_bias ? p->norm_bias[at] : 0);
        }
    }
}

/* The cosine and sine by which pair i turns at a position. */
static void turn_of(double *cosine, double *sine, const ref_layer *l, int64_t position, int64_t i, int64_t w)
{
    double times = l->rotary_multiplier == 0 ? 1 : l->rotary_multiplier;
    double angle = l->rotary_frequencies ? (double)position * l->rotary_frequencies[i]
                                         : ref_rotary_angle(position, i, w, l->rotary_base);
    *cosine = l->rotary_cos ? l->rotary_cos[position * (w / 2) + i] : times * cos(angle);
    *sine = l->rotary_sin ? l->rotary_sin[position * (w / 2) + i] : times * sin(angle);
}

void ref_turn(double *y, const ref_layer *l, const ref_projection *p, int64_t row, bool inverse)
{
    if (!p->turns || (l->rotary_base == 0 && !l->rotary_frequencies && !l->rotary_cos)) return;
    int64_t w = l->rotary_width ? l->rotary_width : p->width;
    int64_t position = p->positions ? p->positions[row] : row;
    double *x = zeros(p->width, sizeof *x), *cosines = zeros(w / 2, sizeof *x), *sines = zeros(w / 2, sizeof *x);
    for (int64_t i = 0; i < w / 2; i++) turn_of(&cosines[i], &sines[i], l, position, i, w);
    memcpy(x, y, (size_t)p->width * sizeof *x);
    ref_rotary(y, x, cosines, sines, 1, p->width, w, l->rotary_interleaved, inverse);
    free(x);
    free(cosines);
    free(sines);
}

double ref_gated(const ref_layer *l, int64_t h, double x)
{
    if (!l->gates) return x;
    return l->gates[h] == 0 ? 0 : l->gates[h] * x;
}

/* heads (p->heads,all,width): the first rows of each head; what is behind them stays 0. */
static void make_heads(double *heads, const ref_layer *l, const ref_projection *p, int64_t all)
{
    double *y = zeros(p->heads * p->width, sizeof *y);
    for (int64_t row = 0; row < p->rows; row++) {
        for (int64_t head = 0; head < p->heads; head++) ref_project(y + head * p->width, p, head, row);
        if (p->norm) normalize(y, l, p);
        for (int64_t head = 0; head < p->heads; head++) {
            ref_turn(y + head * p->width, l, p, row, false);
            memcpy(heads + (head * all + row) * p->width, y + head * p->width, (size_t)p->width * sizeof *y);
        }
    }
    free(y);
}

/* ---- One sequence ----------------------------------------------------------------------------------------------- */

int64_t ref_layer_extra(const ref_layer *l) { return (l->bias_k ? 1 : 0) + (l->zero_kv ? 1 : 0); }

ref_attention ref_layer_attention(const ref_layer *l)
{
    ref_attention a = l->attention;
    a.B = l->B, a.H = l->H, a.G = l->G;
    a.Tq = l->Tq, a.Tk = l->Tk;
    a.D = l->D, a.E = l->E;
    a.q = a.k = a.v = NULL;
    return a;
}

static int64_t queries_of(const ref_layer *l, int64_t b)
{
    return l->attention.queries ? l->attention.queries[b] : l->Tq;
}

static int64_t keys_of(const ref_layer *l, int64_t b)
{
    if (l->attention.key_lengths) return l->attention.key_lengths[b];
    return l->attention.keys ? l->attention.keys[b] : l->Tk;
}

static void make_projections(ref_sequence *s, const ref_layer *l)
{
    int64_t b = s->b;
    s->q = (ref_projection){.heads = l->H, .width = l->D, .rows = s->rows, .in = l->M, .turns = true};
    s->q.x = l->query + b * l->Tq * l->M;
    s->q.weight = l->q_weight, s->q.bias = l->q_bias, s->q.norm = l->q_norm;
    s->q.norm_bias = l->q_norm_bias;
    s->q.positions = l->query_positions ? l->query_positions + b * l->Tq : NULL;

    s->k = (ref_projection){.heads = l->G, .width = l->D, .rows = s->keys, .in = l->Mk, .turns = true};
    s->k.x = l->key + b * l->Tk * l->Mk;
    s->k.weight = l->k_weight, s->k.bias = l->k_bias, s->k.norm = l->k_norm;
    s->k.norm_bias = l->k_norm_bias;
    s->k.positions = l->key_positions ? l->key_positions + b * l->Tk : NULL;

    s->v = (ref_projection){.heads = l->G, .width = l->E, .rows = s->keys, .in = l->Mv};
    s->v.x = l->value + b * l->Tk * l->Mv;
    s->v.weight = l->v_weight, s->v.bias = l->v_bias;
}

/* The key of bias_kv goes behind the ordinary ones; that of zero_kv, last of all, is zeros already. */
static void add_bias_kv(ref_sequence *s, const ref_layer *l)
{
    for (int64_t g = 0; l->bias_k && g < l->G; g++) {
        for (int64_t d = 0; d < l->D; d++) s->heads_k[(g * s->all + s->keys) * l->D + d] = l->bias_k[g * l->D + d];
        for (int64_t e = 0; e < l->E; e++) s->heads_v[(g * s->all + s->keys) * l->E + e] = l->bias_v[g * l->E + e];
    }
}

/* Bias and ALiBi of an ordinary key that is visible. */
static double bias_of(const ref_attention *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    double bias = a->bias ? a->bias[((b * a->H + h) * a->Tq + i) * a->Tk + j] : 0;
    double slope = a->alibi_slopes ? a->alibi_slopes[b * a->H + h] : 0;
    return bias - slope * fabs((double)(ref_position(a, b, i) - j));
}

static void make_sight(ref_sequence *s, const ref_layer *l)
{
    ref_attention whole = ref_layer_attention(l);
    for (int64_t h = 0; h < l->H; h++)
        for (int64_t i = 0; i < s->rows; i++)
            for (int64_t j = 0; j < s->all; j++) {
                int64_t n = (h * s->rows + i) * s->all + j;
                bool ordinary = j < s->keys;
                s->mask[n] = !ordinary || ref_visible(&whole, s->b, h, i, j);
                s->bias[n] = ordinary && s->mask[n] ? bias_of(&whole, s->b, h, i, j) : 0;
            }
}

void ref_sequence_make(ref_sequence *s, const ref_layer *l, int64_t b)
{
    *s = (ref_sequence){.b = b, .rows = queries_of(l, b), .keys = keys_of(l, b)};
    s->all = s->keys + ref_layer_extra(l);
    make_projections(s, l);
    s->heads_q = zeros(l->H * s->rows * l->D, sizeof(double));
    s->heads_k = zeros(l->G * s->all * l->D, sizeof(double));
    s->heads_v = zeros(l->G * s->all * l->E, sizeof(double));
    make_heads(s->heads_q, l, &s->q, s->rows);
    make_heads(s->heads_k, l, &s->k, s->all);
    make_heads(s->heads_v, l, &s->v, s->all);
    add_bias_kv(s, l);

    s->mask = zeros(l->H * s->rows * s->all, sizeof(bool));
    s->bias = zeros(l->H * s->rows * s->all, sizeof(double));
    make_sight(s, l);
    s->attention = (ref_attention){.B = 1, .H = l->H, .G = l->G, .Tq = s->rows, .Tk = s->all, .D = l->D, .E = l->E};
    s->attention.q = s->heads_q, s->attention.k = s->heads_k, s->attention.v = s->heads_v;
    s->attention.scale = l->attention.scale, s->attention.softcap = l->attention.softcap;
    s->attention.window_left = s->attention.window_right = -1;
    s->attention.mask = s->mask, s->attention.bias = s->bias;
    s->attention.sinks = l->attention.sinks;
    s->attention.dropout = l->attention.dropout;
    s->attention.dropout_seed = l->attention.dropout_seed;
    s->attention.dropout_stream = l->attention.dropout_stream + (uint64_t)b;
}

void ref_sequence_free(ref_sequence *s)
{
    free(s->heads_q);
    free(s->heads_k);
    free(s->heads_v);
    free(s->mask);
    free(s->bias);
}

/* ---- All sequences ---------------------------------------------------------------------------------------------- */

int64_t ref_layer_width(const ref_layer *l) { return !l->out_weight ? l->H * l->E : l->N ? l->N : l->M; }

/* out (rows,N) or (rows,H*E), from the heads (H,rows,E), whose row i side by side is `line` (H*E). */
static void leave_heads(double *out, const double *heads, const ref_layer *l, int64_t rows)
{
    int64_t C = l->H * l->E, N = ref_layer_width(l);
    double *line = zeros(C, sizeof *line);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t h = 0; h < l->H; h++)
            for (int64_t e = 0; e < l->E; e++) line[h * l->E + e] = ref_gated(l, h, heads[(h * rows + i) * l->E + e]);
        for (int64_t c = 0; !l->out_weight && c < C; c++) out[i * C + c] = line[c];
        for (int64_t m = 0; l->out_weight && m < N; m++) {
            double sum = l->out_bias ? l->out_bias[m] : 0;
            for (int64_t c = 0; c < C; c++) sum += l->out_weight[m * C + c] * line[c];
            out[i * N + m] = sum;
        }
    }
    free(line);
}

/* From the weights (H,rows,all) of one sequence to those of the whole, whose extra columns start at Tk. */
static void keep_weights(double *weights, double *mean, const double *own, const ref_layer *l, const ref_sequence *s)
{
    int64_t columns = l->Tk + ref_layer_extra(l);
    for (int64_t h = 0; h < l->H; h++)
        for (int64_t i = 0; i < s->rows; i++)
            for (int64_t j = 0; j < s->all; j++) {
                int64_t column = j < s->keys ? j : l->Tk + j - s->keys;
                double w = own[(h * s->rows + i) * s->all + j];
                if (weights) weights[((s->b * l->H + h) * l->Tq + i) * columns + column] = w;
                if (mean) mean[(s->b * l->Tq + i) * columns + column] += w / (double)l->H;
            }
}

static void clear(double *array, int64_t count)
{
    for (int64_t n = 0; array && n < count; n++) array[n] = 0;
}

void ref_layer_forward(const ref_layer *l, double *out, double *weights, double *mean)
{
    int64_t width = ref_layer_width(l), columns = l->Tk + ref_layer_extra(l);
    clear(out, l->B * l->Tq * width);
    clear(weights, l->B * l->H * l->Tq * columns);
    clear(mean, l->B * l->Tq * columns);
    for (int64_t b = 0; b < l->B; b++) {
        ref_sequence s;
        ref_sequence_make(&s, l, b);
        double *heads = zeros(l->H * s.rows * l->E, sizeof *heads), *own = zeros(l->H * s.rows * s.all, sizeof *own);
        ref_attention_forward(&s.attention, &(ref_result){.out = heads, .stage = {[REF_DROPPED] = own}});
        leave_heads(out + b * l->Tq * width, heads, l, s.rows);
        keep_weights(weights, mean, own, l, &s);
        free(heads);
        free(own);
        ref_sequence_free(&s);
    }
}

void ref_layer_lse(const ref_layer *l, double *lse)
{
    for (int64_t n = 0; n < l->B * l->H * l->Tq; n++) lse[n] = -INFINITY;
    for (int64_t b = 0; b < l->B; b++) {
        ref_sequence s;
        ref_sequence_make(&s, l, b);
        double *heads = zeros(l->H * s.rows * l->E, sizeof *heads), *own = zeros(l->H * s.rows, sizeof *own);
        ref_attention_forward(&s.attention, &(ref_result){.out = heads, .lse = own});
        for (int64_t n = 0; n < l->H * s.rows; n++) {
            int64_t h = n / s.rows, i = n % s.rows;
            lse[(b * l->H + h) * l->Tq + i] = own[n];
        }
        free(heads);
        free(own);
        ref_sequence_free(&s);
    }
}

/* The first rows of own (heads,have,width) to sequence b of whole (B,heads,T,width). */
static void keep_rows(double *whole, const double *own, int64_t b, int64_t heads, int64_t T, int64_t have, int64_t rows,
                      int64_t width)
{
    for (int64_t h = 0; h < heads; h++)
        for (int64_t n = 0; n < rows * width; n++) whole[(b * heads + h) * T * width + n] = own[h * have * width + n];
}

void ref_layer_intermediates(const ref_layer *l, double *q, double *k, double *v, double *heads)
{
    clear(q, l->B * l->H * l->Tq * l->D);
    clear(k, l->B * l->G * l->Tk * l->D);
    clear(v, l->B * l->G * l->Tk * l->E);
    clear(heads, l->B * l->H * l->Tq * l->E);
    for (int64_t b = 0; b < l->B; b++) {
        ref_sequence s;
        ref_sequence_make(&s, l, b);
        int64_t count = s.rows * l->E;
        double *own = zeros(l->H * count, sizeof *own);
        ref_attention_forward(&s.attention, &(ref_result){.out = own});
        for (int64_t n = 0; n < l->H * count; n++) own[n] = ref_gated(l, n / count, own[n]);
        keep_rows(q, s.heads_q, b, l->H, l->Tq, s.rows, s.rows, l->D);
        keep_rows(k, s.heads_k, b, l->G, l->Tk, s.all, s.keys, l->D);
        keep_rows(v, s.heads_v, b, l->G, l->Tk, s.all, s.keys, l->E);
        keep_rows(heads, own, b, l->H, l->Tq, s.rows, s.rows, l->E);
        free(own);
        ref_sequence_free(&s);
    }
}
