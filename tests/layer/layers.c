/* Cases at random, and the problem of each. */
#include "layer/layers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef long long ll;

/* ---- Cases ------------------------------------------------------------------------------------------------------ */

layer_case layer_case_plain(int64_t width, int64_t heads, int64_t B, int64_t T)
{
    layer_case c = {.options = MHA_LAYER_DEFAULTS, .B = B, .Tq = T, .Tk = T, .threads = 2, .seed = 1};
    c.options.width = width;
    c.options.heads = heads;
    return c;
}

static void draw_options(mha_layer_options *o, rng *r)
{
    o->kv_heads = rng_between(r, 1, 3);
    o->heads = o->kv_heads * rng_between(r, 1, 3);
    o->head_width = rng_between(r, 1, 9) * 2;
    if (rng_chance(r, 0.3)) o->value_head_width = rng_between(r, 1, 19);
    o->width = rng_between(r, 1, 40);
    o->in_bias = rng_chance(r, 0.7);
    o->out_projection = rng_chance(r, 0.8);
    o->out_bias = o->out_projection && rng_chance(r, 0.7);
    o->bias_kv = rng_chance(r, 0.25);
    o->zero_kv = rng_chance(r, 0.25);
    o->sinks = rng_chance(r, 0.2);
    o->gates = rng_chance(r, 0.3);
    if (rng_chance(r, 0.2)) o->out_width = rng_between(r, 1, 40);
    if (!o->out_projection) o->out_width = 0;
    if (rng_chance(r, 0.4)) {
        o->norm = rng_chance(r, 0.5) ? MHA_NORM_RMS : MHA_NORM_LAYER;
        o->norm_epsilon = o->norm ? 0.01f : 1e-5f; /* rows of two numbers may be alike: errors grow by 1/sqrt(this) */
        o->norm_span = (mha_norm_span)rng_between(r, 0, 2);
        o->norm_bias = rng_chance(r, 0.4);
    }
    if (rng_chance(r, 0.3)) {
        o->rotary_base = rng_chance(r, 0.5) ? 10000 : 100;
        o->rotary_width = rng_chance(r, 0.5) ? 0 : 2;
        o->rotary_interleaved = rng_chance(r, 0.5);
        if (rng_chance(r, 0.3)) o->rotary_multiplier = 1.25f;
    }
    if (rng_chance(r, 0.2)) o->scale = 0.3f;
    if (rng_chance(r, 0.2)) o->softcap = 5;
    o->causal = rng_chance(r, 0.3);
    if (rng_chance(r, 0.2)) o->window_left = rng_between(r, 0, 9);
    if (rng_chance(r, 0.2)) o->window_right = rng_between(r, 0, 9);
}

layer_case layer_case_random(rng *r)
{
    layer_case c = {.options = MHA_LAYER_DEFAULTS};
    draw_options(&c.options, r);
    c.rotary = (turning)rng_between(r, 0, TURNINGS - 1);
    c.inputs = (source)rng_between(r, 0, SOURCES - 1);
    c.B = rng_between(r, rng_chance(r, 0.05) ? 0 : 1, 3);
    c.Tq = rng_between(r, rng_chance(r, 0.05) ? 0 : 1, rng_chance(r, 0.1) ? 90 : 12);
    c.Tk = c.inputs == SELF || c.inputs == SAME ? c.Tq : rng_between(r, 0, rng_chance(r, 0.1) ? 150 : 14);
    if (c.inputs == CROSS || c.inputs == THREE) c.options.key_width = rng_between(r, 1, 30);
    if (c.inputs == CROSS) c.options.value_width = c.options.key_width;
    if (c.inputs == THREE) c.options.value_width = rng_between(r, 1, 30);
    c.ragged = rng_chance(r, 0.2);
    c.lengths = rng_chance(r, 0.25);
    c.mask = rng_chance(r, 0.25);
    c.bias = rng_chance(r, 0.25);
    c.slopes = rng_chance(r, 0.15);
    c.positions = !c.ragged && c.options.rotary_base > 0 && rng_chance(r, 0.5);
    c.averaged = (int)rng_between(r, 0, 2);
    for (int n = 0; n < 4; n++) c.layouts[n] = (layout)rng_between(r, LAYOUT_DENSE, LAYOUT_ANY);
    c.type = rng_chance(r, 0.8) ? MHA_FLOAT32 : rng_chance(r, 0.5) ? MHA_BFLOAT16 : MHA_FLOAT16;
    c.align = (mha_align)rng_between(r, 0, 2);
    c.dropout = rng_chance(r, 0.2) ? 0.4f : 0;
    if (rng_chance(r, 0.15)) c.options.compute = MHA_BFLOAT16;
    c.borrowed = rng_chance(r, 0.4);
    c.threads = (int)rng_between(r, 1, 3);
    c.seed = rng_bits(r);
    c.padding = rng_chance(r, 0.25);
    c.between = rng_chance(r, 0.5);
    return c;
}

void layer_case_print(const layer_case *c, char *text, size_t size)
{
    const mha_layer_options *o = &c->options;
    snprintf(text, size,
             "M %lld Mk %lld Mv %lld H %lld G %lld D %lld E %lld, B %lld Tq %lld Tk %lld, inputs %d,%s%s%s%s%s%s%s%s "
             "norm %g %d%d%s rotary %g %d cap %g%s window %lld %lld,%s%s%s%s%s%s%s weights %d layouts %d%d%d%d %s "
             "dropout %g %s%s%s",
             (ll)o->width, (ll)o->key_width, (ll)o->value_width, (ll)o->heads, (ll)o->kv_heads, (ll)o->head_width,
             (ll)o->value_head_width, (ll)c->B, (ll)c->Tq, (ll)c->Tk, (int)c->inputs, o->in_bias ? " in_bias" : "",
             o->out_projection ? " Wo" : "", o->out_bias ? " out_bias" : "", o->bias_kv ? " bias_kv" : "",
             o->zero_kv ? " zero_kv" : "", o->sinks ? " sinks" : "", o->gates ? " gates" : "",
             o->rotary_interleaved ? " interleaved" : "", (double)o->norm_epsilon, (int)o->norm, (int)o->norm_span,
             o->norm_bias ? " bias" : "", o->rotary_base, (int)c->rotary, (double)o->softcap,
             o->causal ? " causal" : "", (ll)o->window_left, (ll)o->window_right, c->ragged ? " ragged" : "",
             c->padding ? " query_lengths" : "", c->lengths ? " lengths" : "", c->mask ? " mask" : "",
             c->bias ? " bias" : "", c->slopes ? " slopes" : "", c->positions ? " positions" : "", c->averaged,
             (int)c->layouts[0], (int)c->layouts[1], (int)c->layouts[2], (int)c->layouts[3], mha_type_name(c->type),
             (double)c->dropout, o->compute == MHA_BFLOAT16 ? "compute bfloat16" : "", c->borrowed ? " borrowed" : "",
             c->between ? " between" : "");
}

/* ---- Making a problem ------------------------------------------------------------------------------------------- */

/* Sequence lengths at random, and where the sequences start in a packed tensor. */
static int64_t draw_starts(rng *r, int64_t *starts, int64_t *lengths, int64_t B, int64_t longest)
{
    int64_t at = rng_between(r, 0, 2); /* rows in front that belong to nobody */
    for (int64_t b = 0; b < B; b++) {
        lengths[b] = b == 0 ? longest : rng_between(r, 0, longest);
        starts[b] = at;
        at += lengths[b];
    }
    starts[B] = at;
    return at + rng_between(r, 0, 2); /* and at the end */
}

static void fill(store *s, rng *r)
{
    mha_tensor t = s->view;
    int64_t n[4] = {1, 1, 1, 1};
    for (int axis = 0; axis < t.rank; axis++) n[axis] = t.size[axis];
    for (int64_t i = 0; t.rank && i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++)
            for (int64_t k = 0; k < n[2]; k++)
                for (int64_t l = 0; l < n[3]; l++) store_set(s, i, j, k, l, rng_normal(r));
}

static store make(rng *r, bool wanted, mha_type type, int rank, const int64_t *size, layout how)
{
    store s = store_make(r, type, wanted ? rank : -1, size, how);
    if (wanted && type != MHA_BOOL && type != MHA_INT64) fill(&s, r);
    return s;
}

static void make_inputs(layer_problem *p, rng *r, int64_t rows_q, int64_t rows_k)
{
    const layer_case *c = &p->c;
    const mha_layer_options *o = &c->options;
    int64_t B = c->ragged ? 1 : c->B, Mk = o->key_width ? o->key_width : o->width,
            Mv = o->value_width ? o->value_width : o->width;
    int64_t E = o->value_head_width ? o->value_head_width : o->head_width ? o->head_width : o->width / o->heads;
    int64_t N = !o->out_projection ? o->heads * E
                : o->out_width     ? o->out_width
                                   : o->width,
            extra = (int64_t)o->bias_kv + (int64_t)o->zero_kv;
    int64_t query[3] = {B, rows_q, o->width}, key[3] = {B, rows_k, Mk}, value[3] = {B, rows_k, Mv};
    int64_t out[3] = {B, rows_q, N}, lse[3] = {B, o->heads, rows_q};
    int64_t maps[4] = {c->B, o->heads, c->Tq, c->Tk + extra}, mean[3] = {c->B, c->Tq, c->Tk + extra};
    bool cross = c->inputs == CROSS || c->inputs == THREE;
    p->query = make(r, true, c->type, 3, query, c->layouts[0]);
    p->key = make(r, cross, c->type, 3, key, c->layouts[1]);
    p->value = make(r, c->inputs == THREE, c->type, 3, value, c->layouts[2]);
    p->dquery = make(r, true, MHA_FLOAT32, 3, query, c->layouts[0]);
    p->dkey = make(r, c->inputs != SELF, MHA_FLOAT32, 3, c->inputs == SAME ? query : key, c->layouts[2]);
    p->dvalue = make(r, c->inputs == THREE, MHA_FLOAT32, 3, value, c->layouts[1]);
    p->out = make(r, true, c->type, 3, out, c->layouts[3]);
    p->dout = make(r, true, c->type, 3, out, c->layouts[0]);
    p->lse = make(r, c->averaged == 1, MHA_FLOAT32, 3, lse, LAYOUT_ANY);
    p->weights = c->averaged == 2 ? make(r, true, MHA_FLOAT32, 3, mean, c->layouts[1])
                                  : make(r, c->averaged == 1, MHA_FLOAT32, 4, maps, c->layouts[1]);
    p->inputs.query = p->query.view;
    if (cross) p->inputs.key = p->key.view;
    if (c->inputs == SAME) p->inputs.key = p->query.view;
    if (c->inputs == THREE) p->inputs.value = p->value.view;
    p->extras.weights = p->weights.view;
    p->extras.lse = p->lse.view;
}

/* Rows first to last - 1 of sequence b become NaN. */
static void poison(store *s, const int64_t *starts, int64_t b, int64_t first, int64_t last)
{
    for (int64_t t = first; t < last; t++)
        for (int64_t m = 0; m < s->view.size[2]; m++)
            store_set(s, starts ? 0 : b, starts ? starts[b] + t : t, m, 0, NAN);
}

static void make_options(layer_problem *p, rng *r)
{
    const layer_case *c = &p->c;
    int64_t map[4] = {1, c->options.heads, c->Tq, c->Tk}, heads[2] = {c->B, c->options.heads};
    p->mask = make(r, c->mask, MHA_BOOL, 4, map, LAYOUT_ANY);
    p->bias = make(r, c->bias, MHA_FLOAT32, 4, map, LAYOUT_ANY);
    p->dbias = make(r, c->bias, MHA_FLOAT32, 4, map, LAYOUT_DENSE);
    p->slopes = make(r, c->slopes, MHA_FLOAT32, 2, heads, LAYOUT_ANY);
    p->dslopes = make(r, c->slopes, MHA_FLOAT32, 2, heads, LAYOUT_ANY);
    for (int64_t h = 0; c->mask && h < map[1]; h++)
        for (int64_t i = 0; i < map[2]; i++)
            for (int64_t j = 0; j < map[3]; j++) store_set(&p->mask, 0, h, i, j, rng_chance(r, 0.8));
    for (int64_t n = 0; c->slopes && n < heads[0] * heads[1]; n++) /* small, or rounded scores would be all one sees */
        store_set(&p->slopes, n / heads[1], n % heads[1], 0, 0, 0.1 * rng_normal(r));
    mha_attention_options *o = &p->attend;
    o->mask = p->mask.view;
    o->bias = p->bias.view;
    o->alibi_slopes = p->slopes.view;
    o->align = c->align;
    o->dropout = c->dropout;
    o->dropout_seed = c->seed;
    o->dropout_stream = (uint64_t)1 << 33 | 7;
    for (int64_t b = 0; b < c->B; b++) p->offsets[b] = rng_between(r, -2, 5);
    if (c->align == MHA_ALIGN_OFFSET) o->offsets = integers(p->offsets, c->B);
    for (int64_t b = 0; b < c->B; b++) p->key_lengths[b] = rng_between(r, 0, p->keys[b]);
    if (c->lengths) o->key_lengths = integers(p->key_lengths, c->B);
    for (int64_t b = 0; c->lengths && b < c->B; b++) { /* what is not there must not matter */
        if (p->key.view.rank) poison(&p->key, c->ragged ? p->key_starts : NULL, b, p->key_lengths[b], p->keys[b]);
        if (p->value.view.rank) poison(&p->value, c->ragged ? p->key_starts : NULL, b, p->key_lengths[b], p->keys[b]);
    }
    if (c->padding) o->query_lengths = integers(p->queries, c->B);
    for (int64_t b = 0; c->padding && b < c->B; b++) { /* a query of self-attention is a key, too */
        const int64_t *starts = c->ragged ? p->query_starts : NULL;
        poison(&p->dout, starts, b, p->queries[b], p->padded[b]);
        if (c->inputs == CROSS || c->inputs == THREE) poison(&p->query, starts, b, p->queries[b], p->padded[b]);
    }
    if (c->ragged) {
        o->query_starts = integers(p->query_starts, c->B + 1);
        o->key_starts = integers(p->key_starts, c->B + 1);
    }
}

static void make_positions(layer_problem *p, rng *r)
{
    const layer_case *c = &p->c;
    int64_t q[2] = {c->B, c->Tq}, k[1] = {c->Tk};
    bool self = c->inputs == SELF;
    p->query_positions = make(r, c->positions, MHA_INT64, 2, q, LAYOUT_ANY);
    p->key_positions = make(r, c->positions && !self, MHA_INT64, 1, k, LAYOUT_ANY);
    for (int64_t b = 0; c->positions && b < c->B; b++)
        for (int64_t t = 0; t < c->Tq; t++) store_set(&p->query_positions, b, t, 0, 0, (double)rng_between(r, 0, 50));
    for (int64_t t = 0; c->positions && !self && t < c->Tk; t++)
        store_set(&p->key_positions, t, 0, 0, 0, (double)rng_between(r, 0, 50));
    p->inputs.query_positions = p->query_positions.view;
    p->inputs.key_positions = p->key_positions.view;
}

static void make_parameters(layer_problem *p, rng *r)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_layer *layer;
    if (mha_layer_parameter_count(ctx, &p->count, &p->c.options) ||
        mha_layer_create(ctx, &layer, &p->c.options, NULL)) {
        fprintf(stderr, "%s\n", mha_context_error(ctx));
        exit(2);
    }
    p->parameters = array(p->count, sizeof *p->parameters);
    p->gradients = array(p->count, sizeof *p->gradients);
    for (int64_t n = 0; n < p->count; n++) p->parameters[n] = (float)(0.5 * rng_normal(r));
    mha_layer_parts parts = mha_layer_view(layer, p->parameters);
    const mha_tensor weights[] = {parts.q_weight, parts.k_weight, parts.v_weight, parts.out_weight};
    for (int w = 0; w < 4; w++)
        for (int64_t n = 0; weights[w].rank && n < weights[w].size[0] * weights[w].size[1]; n++)
            ((float *)weights[w].data)[n] *= (float)(2 / sqrt((double)weights[w].size[1]));
    if (parts.gates.rank && parts.gates.size[0] > 1) ((float *)parts.gates.data)[1] = 0;
    mha_layer_free(layer);
    mha_context_free(ctx);
}

/* Frequencies or tables in place of a base. Positions are at most 160. */
static void make_rotary(layer_problem *p, rng *r)
{
    mha_layer_options *o = &p->c.options;
    int64_t width = o->rotary_width ? o->rotary_width : o->head_width, pairs = width / 2;
    int64_t table[2] = {160, pairs}, row[1] = {pairs};
    bool turns = o->rotary_base > 0;
    p->frequencies = make(r, turns && p->c.rotary == FROM_FREQUENCIES, MHA_FLOAT32, 1, row, LAYOUT_ANY);
    p->cosines = make(r, turns && p->c.rotary == FROM_TABLES, p->c.type, 2, table, LAYOUT_ANY);
    p->sines = make(r, turns && p->c.rotary == FROM_TABLES, MHA_FLOAT32, 2, table, LAYOUT_ANY);
    if (!turns || p->c.rotary == FROM_BASE) return;
    o->rotary_base = 0;
    if (p->c.rotary == FROM_TABLES) o->rotary_multiplier = 1;
    o->rotary_frequencies = p->frequencies.view;
    o->rotary_cos = p->cosines.view;
    o->rotary_sin = p->sines.view;
}

/* Outputs for q, k, v and heads, of any type and layout. */
static void make_between(layer_problem *p, rng *r)
{
    static const mha_type types[] = {MHA_FLOAT32, MHA_BFLOAT16, MHA_FLOAT16};
    const mha_layer_options *o = &p->c.options;
    mha_tensor *to[BETWEEN] = {&p->extras.q, &p->extras.k, &p->extras.v, &p->extras.heads};
    mha_tensor key = p->key.view.rank ? p->key.view : p->query.view;
    for (int n = 0; n < BETWEEN; n++) {
        mha_tensor rows = layer_between_keys(n) ? key : p->query.view;
        int64_t size[4] = {rows.size[0], layer_between_keys(n) ? o->kv_heads : o->heads, rows.size[1],
                           n == BETWEEN_V || n == BETWEEN_HEADS ? o->value_head_width : o->head_width};
        p->between[n] = make(r, p->c.between && rng_chance(r, 0.8), types[rng_between(r, 0, 2)], 4, size,
                             (layout)rng_between(r, LAYOUT_DENSE, LAYOUT_ANY));
        *to[n] = p->between[n].view;
    }
}

layer_problem *layer_problem_make(const layer_case *c)
{
    layer_problem *p = array(1, sizeof *p);
    rng r = rng_make(c->seed, 5);
    p->c = *c;
    p->extras = (mha_attention_extras)MHA_ATTENTION_NO_EXTRAS;
    p->query_starts = array(c->B + 1, sizeof(int64_t));
    p->key_starts = array(c->B + 1, sizeof(int64_t));
    p->key_lengths = array(c->B + 1, sizeof(int64_t));
    p->queries = array(c->B + 1, sizeof(int64_t));
    p->padded = array(c->B + 1, sizeof(int64_t));
    p->keys = array(c->B + 1, sizeof(int64_t));
    p->offsets = array(c->B + 1, sizeof(int64_t));
    int64_t rows_q = c->Tq, rows_k = c->Tk;
    for (int64_t b = 0; b < c->B; b++) p->queries[b] = c->Tq, p->keys[b] = c->Tk;
    if (c->ragged) {
        bool self = c->inputs == SELF || c->inputs == SAME;
        rows_q = draw_starts(&r, p->query_starts, p->queries, c->B, c->Tq);
        rows_k = draw_starts(&r, p->key_starts, p->keys, c->B, c->Tk);
        if (self) {
            memcpy(p->key_starts, p->query_starts, (size_t)(c->B + 1) * sizeof(int64_t));
            memcpy(p->keys, p->queries, (size_t)c->B * sizeof(int64_t));
            rows_k = rows_q;
        }
    }
    memcpy(p->padded, p->queries, (size_t)c->B * sizeof(int64_t));
    for (int64_t b = 0; c->padding && b < c->B; b++) p->queries[b] = rng_between(&r, 0, p->padded[b]);
    make_inputs(p, &r, rows_q, rows_k);
    make_rotary(p, &r);
    make_parameters(p, &r);
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_layer *layer;
    if (mha_layer_create(ctx, &layer, &p->c.options, p->parameters)) exit(2);
    p->attend = mha_layer_attention(layer);
    p->c.options = *mha_layer_shape(layer);
    p->c.options.rotary_frequencies = p->frequencies.view; /* the layer's own go with it */
    if (c->borrowed) p->borrowed = layer_weights_make(&r, &p->c.options, p->parameters);
    mha_layer_free(layer);
    mha_context_free(ctx);
    make_options(p, &r);
    make_positions(p, &r);
    make_between(p, &r);
    return p;
}

void layer_problem_free(layer_problem *p)
{
    store *stores[] = {&p->query,         &p->key,         &p->value,   &p->out,
                       &p->weights,       &p->lse,         &p->dout,    &p->dquery,
                       &p->dkey,          &p->dvalue,      &p->mask,    &p->bias,
                       &p->slopes,        &p->dbias,       &p->dslopes, &p->query_positions,
                       &p->key_positions, &p->frequencies, &p->cosines, &p->sines};
    for (size_t n = 0; n < sizeof stores / sizeof *stores; n++) store_free(stores[n]);
    for (int n = 0; n < BETWEEN; n++) store_free(&p->between[n]), free(p->want_between[n]);
    layer_weights_free(p->borrowed);
    const ref_layer *l = &p->ref;
    void *memory[] = {p->parameters,
                      p->gradients,
                      p->query_starts,
                      p->key_starts,
                      p->key_lengths,
                      p->queries,
                      p->padded,
                      p->keys,
                      p->offsets,
                      p->numbers,
                      p->want_out,
                      p->want_weights,
                      p->want_mean,
                      p->want_lse,
                      (void *)(uintptr_t)l->rotary_frequencies,
                      (void *)(uintptr_t)l->rotary_cos,
                      (void *)(uintptr_t)l->rotary_sin,
                      p->want_parameters,
                      (void *)(uintptr_t)l->query,
                      (void *)(uintptr_t)l->key,
                      (void *)(uintptr_t)l->value,
                      (void *)(uintptr_t)l->query_positions,
                      (void *)(uintptr_t)l->key_positions,
                      (void *)(uintptr_t)l->attention.mask,
                      (void *)(uintptr_t)l->attention.bias,
                      (void *)(uintptr_t)l->attention.alibi_slopes,
                      p->want.query,
                      p->want.key,
                      p->want.value,
                      p->want.bias,
                      p->want.alibi_slopes};
    for (size_t n = 0; n < sizeof memory / sizeof *memory; n++) free(memory[n]);
    free(p);
}
