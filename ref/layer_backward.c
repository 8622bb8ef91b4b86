/* The gradients of the multi-head layer in float64, one sequence at a time, from the result back to the inputs:
 *
 *     dbo = sum_i dout_i      dWo = sum_i dout_i O_i^T      dO_i = Wo^T dout_i
 *     dgate_h = sum_i dO_hi . o_hi      do_hi = gate_h dO_hi                o: a head before its gate
 *     dQ, dK, dV, ds, dsinks: ref_attention_backward, over the ordinary keys and the extra ones
 *     dbias = ds      dslope = -sum_ij ds |p - j|                            ordinary keys only
 *     dbias_k, dbias_v: the rows of dK and dV behind the ordinary keys
 *
 * and for each group of numbers x = W in + b of a position that are normalised together, y = rotary(z r gain + shift)
 * with z = x, or x - mean of x, and r = 1 / sqrt(mean of z^2 + epsilon):
 *
 *     dy is turned back      dgain_d = sum dy_d z_d r      dshift_d = sum dy_d
 *     dz_d = r gain_d dy_d - r^3 z_d (mean over c of gain_c dy_c z_c)
 *     dx = dz, or dz - mean of dz
 *     db = sum dx            dW = sum dx in^T            din = W^T dx */
#include "layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *zeros(int64_t count)
{
    double *memory = calloc((size_t)count + 1, sizeof *memory);
    if (!memory) abort();
    return memory;
}

/* ---- One row of one head ---------------------------------------------------------------------------------------- */

/* The gradients by what made Q, K or V; NULL: not wanted. */
typedef struct target {
    double *x, *weight, *bias, *norm, *norm_bias;
} target;

/* dy (heads,width): from the gradient of the normalised position to that of x, in place. */
static void norm_back(double *dy, const target *to, const double *x, const ref_layer *l, const ref_projection *p)
{
    int64_t count = ref_norm_group(l, p);
    for (int64_t first = 0; first < p->heads * p->width; first += count) {
        ref_moments m = ref_norm_moments(l, x + first, count);
        double r = m.factor, dot = 0, sum = 0;
        for (int64_t n = first; n < first + count; n++) {
            int64_t at = ref_norm_place(l, p, n);
            if (to->norm) to->norm[at] += dy[n] * (x[n] - m.mean) * r;
            if (to->norm_bias) to->norm_bias[at] += dy[n];
            dot += p->norm[at] * dy[n] * (x[n] - m.mean) / (double)count;
        }
        for (int64_t n = first; n < first + count; n++) {
            dy[n] = r * p->norm[ref_norm_place(l, p, n)] * dy[n] - r * r * r * (x[n] - m.mean) * dot;
            sum += dy[n] / (double)count;
        }
        for (int64_t n = first; l->norm_centred && n < first + count; n++) dy[n] -= sum;
    }
}

static void linear_back(const target *to, const double *dx, const ref_projection *p, int64_t head, int64_t row)
{
    for (int64_t d = 0; d < p->width; d++) {
        int64_t r = head * p->width + d;
        if (to->bias) to->bias[r] += dx[d];
        for (int64_t m = 0; m < p->in; m++) {
            if (to->weight) to->weight[r * p->in + m] += dx[d] * p->x[row * p->in + m];
            if (to->x) to->x[row * p->in + m] += dx[d] * p->weight[r * p->in + m];
        }
    }
}

/* dheads (p->heads,all,width), of which the first rows of each head are ordinary. */
static void project_back(const target *to, const double *dheads, const ref_layer *l, const ref_projection *p,
                         int64_t all)
{
    int64_t D = p->width;
    double *x = zeros(p->heads * D), *dy = zeros(p->heads * D);
    for (int64_t row = 0; row < p->rows; row++) {
        for (int64_t head = 0; head < p->heads; head++) {
            memcpy(dy + head * D, dheads + (head * all + row) * D, (size_t)D * sizeof *dy);
            ref_turn(dy + head * D, l, p, row, true);
            ref_project(x + head * D, p, head, row);
        }
        if (p->norm) norm_back(dy, to, x, l, p);
        for (int64_t head = 0; head < p->heads; head++) linear_back(to, dy + head * D, p, head, row);
    }
    free(x);
    free(dy);
}

/* ---- The output's projection and the gates ---------------------------------------------------------------------- */

/* dheads (H,rows,E), from dout (rows,N) or (rows,H*E) and the heads before their gates (H,rows,E). */
static void heads_back(double *dheads, const ref_layer_gradients *g, const double *dout, const double *heads,
                       const ref_layer *l, int64_t rows)
{
    int64_t C = l->H * l->E, N = ref_layer_width(l);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t m = 0; g->out_bias && m < N; m++) g->out_bias[m] += dout[i * N + m];
        for (int64_t c = 0; c < C; c++) {
            int64_t h = c / l->E, n = (h * rows + i) * l->E + c % l->E;
            double dO = l->out_weight ? 0 : dout[i * C + c];
            for (int64_t m = 0; l->out_weight && m < N; m++) {
                dO += dout[i * N + m] * l->out_weight[m * C + c];
                if (g->out_weight) g->out_weight[m * C + c] += dout[i * N + m] * ref_gated(l, h, heads[n]);
            }
            if (g->gates) g->gates[h] += dO * heads[n];
            dheads[n] = ref_gated(l, h, dO);
        }
    }
}

/* ---- Scores and extra keys -------------------------------------------------------------------------------------- */

static void scores_back(const ref_layer_gradients *g, const double *ds, const ref_layer *l, const ref_sequence *s)
{
    ref_attention whole = ref_layer_attention(l);
    for (int64_t h = 0; h < l->H; h++)
        for (int64_t i = 0; i < s->rows; i++)
            for (int64_t j = 0; j < s->keys; j++) {
                double here = ds[(h * s->rows + i) * s->all + j],
                       distance = fabs((double)(ref_position(&whole, s->b, i) - j));
                if (g->bias) g->bias[((s->b * l->H + h) * l->Tq + i) * l->Tk + j] = here;
                if (g->alibi_slopes) g->alibi_slopes[s->b * l->H + h] -= here * distance;
            }
}

/* to (G*width) += row `keys` of each head of dheads (G,all,width): the key or value of bias_kv. */
static void bias_kv_back(double *to, const double *dheads, const ref_layer *l, const ref_sequence *s, int64_t width)
{
    for (int64_t head = 0; to && head < l->G; head++)
        for (int64_t d = 0; d < width; d++) to[head * width + d] += dheads[(head * s->all + s->keys) * width + d];
}

/* ---- One sequence ----------------------------------------------------------------------------------------------- */

static double *of_sequence(double *array, int64_t b, int64_t size) { return array ? array + b * size : NULL; }

static void inputs_back(const ref_layer_gradients *g, const ref_gradients *d, const ref_layer *l, const ref_sequence *s)
{
    target q = {of_sequence(g->query, s->b, l->Tq * l->M), g->q_weight, g->q_bias, g->q_norm, g->q_norm_bias};
    target k = {of_sequence(g->key, s->b, l->Tk * l->Mk), g->k_weight, g->k_bias, g->k_norm, g->k_norm_bias};
    target v = {of_sequence(g->value, s->b, l->Tk * l->Mv), g->v_weight, g->v_bias, NULL, NULL};
    project_back(&q, d->dq, l, &s->q, s->rows);
    project_back(&k, d->dk, l, &s->k, s->all);
    project_back(&v, d->dv, l, &s->v, s->all);
    bias_kv_back(g->bias_k, d->dk, l, s, l->D);
    bias_kv_back(g->bias_v, d->dv, l, s, l->E);
}

/* dout (rows,N) or (rows,H*E) of this sequence; gradients are added to. */
static void sequence_back(const ref_layer_gradients *g, const double *dout, const ref_layer *l, const ref_sequence *s)
{
    int64_t cells = l->H * s->rows * l->E;
    double *heads = zeros(cells), *dheads = zeros(cells);
    ref_attention_forward(&s->attention, &(ref_result){.out = heads});
    heads_back(dheads, g, dout, heads, l, s->rows);

    ref_gradients d = {.dout = dheads,
                       .dq = zeros(l->H * s->rows * l->D),
                       .dk = zeros(l->G * s->all * l->D),
                       .dv = zeros(l->G * s->all * l->E),
                       .dbias = zeros(l->H * s->rows * s->all),
                       .dsinks = g->sinks ? zeros(l->H) : NULL};
    ref_attention_backward(&s->attention, &d);
    for (int64_t h = 0; g->sinks && h < l->H; h++) g->sinks[h] += d.dsinks[h];
    scores_back(g, d.dbias, l, s);
    inputs_back(g, &d, l, s);

    double *all[] = {heads, dheads, d.dq, d.dk, d.dv, d.dbias, d.dsinks};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
}

/* ---- All sequences ---------------------------------------------------------------------------------------------- */

static void clear(double *array, int64_t count)
{
    for (int64_t n = 0; array && n < count; n++) array[n] = 0;
}

static void start(const ref_layer *l, const ref_layer_gradients *g)
{
    clear(g->query, l->B * l->Tq * l->M);
    clear(g->key, l->B * l->Tk * l->Mk);
    clear(g->value, l->B * l->Tk * l->Mv);
    clear(g->q_weight, l->H * l->D * l->M);
    clear(g->k_weight, l->G * l->D * l->Mk);
    clear(g->v_weight, l->G * l->E * l->Mv);
    clear(g->q_bias, l->H * l->D);
    clear(g->k_bias, l->G * l->D);
    clear(g->v_bias, l->G * l->E);
    int64_t N = l->N ? l->N : l->M, q_gains = l->norm_span ? l->H * l->D : l->D,
            k_gains = l->norm_span ? l->G * l->D : l->D;
    clear(g->out_weight, N * l->H * l->E);
    clear(g->out_bias, N);
    clear(g->bias_k, l->G * l->D);
    clear(g->bias_v, l->G * l->E);
    clear(g->q_norm, q_gains);
    clear(g->k_norm, k_gains);
    clear(g->q_norm_bias, q_gains);
    clear(g->k_norm_bias, k_gains);
    clear(g->gates, l->H);
    clear(g->sinks, l->H);
    clear(g->bias, l->B * l->H * l->Tq * l->Tk);
    clear(g->alibi_slopes, l->B * l->H);
}

/* Without the parts that the layer does not have: their zeros are written already. */
static ref_layer_gradients present(const ref_layer *l, const ref_layer_gradients *gradients)
{
    ref_layer_gradients g = *gradients;
    if (!l->q_bias) g.q_bias = NULL;
    if (!l->k_bias) g.k_bias = NULL;
    if (!l->v_bias) g.v_bias = NULL;
    if (!l->out_weight) g.out_weight = NULL;
    if (!l->out_bias) g.out_bias = NULL;
    if (!l->bias_k) g.bias_k = g.bias_v = NULL;
    if (!l->q_norm) g.q_norm = NULL;
    if (!l->k_norm) g.k_norm = NULL;
    if (!l->q_norm || !l->q_norm_bias) g.q_norm_bias = NULL;
    if (!l->k_norm || !l->k_norm_bias) g.k_norm_bias = NULL;
    if (!l->gates) g.gates = NULL;
    if (!l->attention.sinks) g.sinks = NULL;
    return g;
}

void ref_layer_backward(const ref_layer *l, const double *dout, const ref_layer_gradients *gradients)
{
    ref_layer_gradients g = present(l, gradients);
    int64_t width = ref_layer_width(l);
    start(l, gradients);
    for (int64_t b = 0; b < l->B; b++) {
        ref_sequence s;
        ref_sequence_make(&s, l, b);
        sequence_back(&g, dout + b * l->Tq * width, l, &s);
        ref_sequence_free(&s);
    }
}
