/* What the oracle computes for a problem of layers.h. */
#include "layer/layers.h"
#include <stdlib.h>

static double *widen(const store *s, const int64_t *starts, int64_t B, int64_t T, const int64_t *rows)
{
    int64_t W = s->view.size[2];
    double *x = array(B * T * W + 1, sizeof *x);
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < rows[b]; t++)
            for (int64_t m = 0; m < W; m++) x[(b * T + t) * W + m] = layer_row_at(s, starts, b, t, m);
    return x;
}

/* All numbers of a store of one or two axes; NULL if it is none. */
static double *numbers_of(const store *s)
{
    mha_tensor t = s->view;
    int64_t columns = t.rank == 2 ? t.size[1] : 1, count = store_count(s);
    if (!t.rank) return NULL;
    double *x = array(count + 1, sizeof *x);
    for (int64_t n = 0; n < count; n++) x[n] = store_get(s, n / columns, n % columns, 0, 0);
    return x;
}

static int64_t *copy_positions(const store *s, int64_t B, int64_t T)
{
    int64_t *x = array(B * T + 1, sizeof *x);
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            x[b * T + t] = (int64_t)(s->view.rank == 1 ? store_get(s, t, 0, 0, 0) : store_get(s, b, t, 0, 0));
    return x;
}

/* Where a part lies in a block of doubles. */
static double *in_block(const layer_problem *p, double *block, mha_tensor part)
{
    return part.rank ? block + ((float *)part.data - p->parameters) : NULL;
}

static void solve_attention(layer_problem *p)
{
    const layer_case *c = &p->c;
    const mha_layer_options *o = &c->options;
    ref_attention *a = &p->ref.attention;
    int64_t H = o->heads, maps = c->B * H * c->Tq * c->Tk;
    *a = (ref_attention){.queries = c->ragged || c->padding ? p->queries : NULL,
                         .keys = c->ragged ? p->keys : NULL,
                         .key_lengths = c->lengths ? p->key_lengths : NULL,
                         .scale = (double)o->scale,
                         .softcap = (double)o->softcap,
                         .causal = o->causal,
                         .align = (ref_align)c->align,
                         .offsets = p->offsets,
                         .window_left = o->window_left,
                         .window_right = o->window_right,
                         .dropout = (double)c->dropout,
                         .dropout_seed = c->seed,
                         .dropout_stream = (uint64_t)1 << 33 | 7};
    bool *mask = array(maps + 1, sizeof *mask);
    double *bias = array(maps + 1, sizeof *bias), *slopes = array(c->B * H + 1, sizeof *slopes);
    for (int64_t n = 0; n < maps; n++) {
        int64_t j = n % c->Tk, i = n / c->Tk % c->Tq, h = n / c->Tk / c->Tq % H;
        mask[n] = !c->mask || store_get(&p->mask, 0, h, i, j) != 0;
        bias[n] = c->bias ? store_get(&p->bias, 0, h, i, j) : 0;
    }
    for (int64_t n = 0; n < c->B * H; n++) slopes[n] = c->slopes ? store_get(&p->slopes, n / H, n % H, 0, 0) : 0;
    a->mask = mask;
    a->bias = bias;
    a->alibi_slopes = slopes;
}

static void solve_parameters(layer_problem *p, const mha_layer_parts *parts)
{
    ref_layer *l = &p->ref;
    p->numbers = array(p->count + 1, sizeof *p->numbers);
    for (int64_t n = 0; n < p->count; n++) p->numbers[n] = (double)p->parameters[n];
    l->q_weight = in_block(p, p->numbers, parts->q_weight);
    l->k_weight = in_block(p, p->numbers, parts->k_weight);
    l->v_weight = in_block(p, p->numbers, parts->v_weight);
    l->q_bias = in_block(p, p->numbers, parts->q_bias);
    l->k_bias = in_block(p, p->numbers, parts->k_bias);
    l->v_bias = in_block(p, p->numbers, parts->v_bias);
    l->out_weight = in_block(p, p->numbers, parts->out_weight);
    l->out_bias = in_block(p, p->numbers, parts->out_bias);
    l->bias_k = in_block(p, p->numbers, parts->bias_k);
    l->bias_v = in_block(p, p->numbers, parts->bias_v);
    l->q_norm = in_block(p, p->numbers, parts->q_norm);
    l->k_norm = in_block(p, p->numbers, parts->k_norm);
    l->q_norm_bias = in_block(p, p->numbers, parts->q_norm_bias);
    l->k_norm_bias = in_block(p, p->numbers, parts->k_norm_bias);
    l->gates = in_block(p, p->numbers, parts->gates);
    l->attention.sinks = in_block(p, p->numbers, parts->sinks);
}

static void want_gradients(layer_problem *p, const mha_layer_parts *parts)
{
    const ref_layer *l = &p->ref;
    double *block = p->want_parameters = array(p->count + 1, sizeof *block);
    p->want = (ref_layer_gradients){.query = array(l->B * l->Tq * l->M + 1, sizeof(double)),
                                    .key = array(l->B * l->Tk * l->Mk + 1, sizeof(double)),
                                    .value = array(l->B * l->Tk * l->Mv + 1, sizeof(double)),
                                    .q_weight = in_block(p, block, parts->q_weight),
                                    .k_weight = in_block(p, block, parts->k_weight),
                                    .v_weight = in_block(p, block, parts->v_weight),
                                    .q_bias = in_block(p, block, parts->q_bias),
                                    .k_bias = in_block(p, block, parts->k_bias),
                                    .v_bias = in_block(p, block, parts->v_bias),
                                    .out_weight = in_block(p, block, parts->out_weight),
                                    .out_bias = in_block(p, block, parts->out_bias),
                                    .bias_k = in_block(p, block, parts->bias_k),
                                    .bias_v = in_block(p, block, parts->bias_v),
                                    .q_norm = in_block(p, block, parts->q_norm),
                                    .k_norm = in_block(p, block, parts->k_norm),
                                    .q_norm_bias = in_block(p, block, parts->q_norm_bias),
                                    .k_norm_bias = in_block(p, block, parts->k_norm_bias),
                                    .gates = in_block(p, block, parts->gates),
                                    .sinks = in_block(p, block, parts->sinks),
                                    .bias = array(l->B * l->H * l->Tq * l->Tk + 1, sizeof(double)),
                                    .alibi_slopes = array(l->B * l->H + 1, sizeof(double))};
}

static void want_between(layer_problem *p)
{
    const ref_layer *l = &p->ref;
    double **want = p->want_between;
    if (!p->c.between) return;
    want[BETWEEN_Q] = array(l->B * l->H * l->Tq * l->D + 1, sizeof(double));
    want[BETWEEN_K] = array(l->B * l->G * l->Tk * l->D + 1, sizeof(double));
    want[BETWEEN_V] = array(l->B * l->G * l->Tk * l->E + 1, sizeof(double));
    want[BETWEEN_HEADS] = array(l->B * l->H * l->Tq * l->E + 1, sizeof(double));
    ref_layer_intermediates(l, want[BETWEEN_Q], want[BETWEEN_K], want[BETWEEN_V], want[BETWEEN_HEADS]);
}

void layer_problem_solve(layer_problem *p, bool gradients)
{
    const layer_case *c = &p->c;
    const mha_layer_options *o = &c->options;
    const int64_t *qs = c->ragged ? p->query_starts : NULL, *ks = c->ragged ? p->key_starts : NULL;
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_layer *layer;
    if (mha_layer_create(ctx, &layer, o, p->parameters)) exit(2);
    mha_layer_parts parts = mha_layer_view(layer, NULL);
    const store *key = p->key.view.rank ? &p->key : &p->query, *value = p->value.view.rank ? &p->value : key;
    p->ref = (ref_layer){.B = c->B,
                         .Tq = c->Tq,
                         .Tk = c->Tk,
                         .M = o->width,
                         .Mk = o->key_width,
                         .Mv = o->value_width,
                         .H = o->heads,
                         .G = o->kv_heads,
                         .D = o->head_width,
                         .E = o->value_head_width,
                         .zero_kv = o->zero_kv,
                         .N = o->out_width,
                         .norm_epsilon = (double)o->norm_epsilon,
                         .norm_centred = o->norm == MHA_NORM_LAYER,
                         .norm_span = (int)o->norm_span,
                         .rotary_multiplier = (double)o->rotary_multiplier,
                         .rotary_frequencies = numbers_of(&p->frequencies),
                         .rotary_cos = numbers_of(&p->cosines),
                         .rotary_sin = numbers_of(&p->sines),
                         .rotary_base = o->rotary_base,
                         .rotary_width = o->rotary_width,
                         .rotary_interleaved = o->rotary_interleaved};
    ref_layer *l = &p->ref;
    l->query = widen(&p->query, qs, c->B, c->Tq, p->queries);
    l->key = widen(key, ks, c->B, c->Tk, p->keys);
    l->value = widen(value, ks, c->B, c->Tk, p->keys);
    if (c->positions) {
        l->query_positions = copy_positions(&p->query_positions, c->B, c->Tq);
        l->key_positions = copy_positions(c->inputs == SELF ? &p->query_positions : &p->key_positions, c->B, c->Tk);
    }
    solve_attention(p);
    solve_parameters(p, &parts);
    if (!gradients) l->attention.dropout = 0;
    int64_t N = p->out.view.size[2], columns = c->Tk + ref_layer_extra(l);
    p->want_out = array(c->B * c->Tq * N + 1, sizeof(double));
    p->want_weights = array(c->B * o->heads * c->Tq * columns + 1, sizeof(double));
    p->want_mean = array(c->B * c->Tq * columns + 1, sizeof(double));
    ref_layer_forward(l, p->want_out, p->want_weights, p->want_mean);
    p->want_lse = array(c->B * o->heads * c->Tq + 1, sizeof(double));
    ref_layer_lse(l, p->want_lse);
    want_between(p);
    if (gradients) {
        double *dout = widen(&p->dout, qs, c->B, c->Tq, p->queries);
        want_gradients(p, &parts);
        ref_layer_backward(l, dout, &p->want);
        free(dout);
    }
    mha_layer_free(layer);
    mha_context_free(ctx);
}
