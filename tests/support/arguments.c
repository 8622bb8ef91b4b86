#include "support/arguments.h"
#include "support/contexts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned char call_memory[SLOTS * SLOT] __attribute__((aligned(64)));

const char *const call_names[CALL_KINDS] = {"forward",        "forward, ragged",
                                            "backward",       "backward, ragged",
                                            "stats",          "stats, ragged",
                                            "rotary",         "tables",
                                            "copy",           "matmul",
                                            "layer",          "layer, ragged",
                                            "layer backward", "layer backward, ragged",
                                            "layer stats",    "layer stats, ragged",
                                            "cache attend",   "cache step"};

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

char *argument_at(const argument *it)
{
    union {
        const void *in;
        char *out;
    } at = {it->tensor ? it->tensor->data : *it->block};
    return at.out;
}

void argument_move(const argument *it, char *to)
{
    if (it->tensor) it->tensor->data = to;
    else *it->block = (float *)to;
}

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* A slot for an argument; numbers in it as floats that repeat with period 251. */
static void *place(public_call *c, argument it)
{
    if (c->count == MOST_ARGUMENTS || c->used == SLOTS || it.bytes > SLOT / 2) fail("a call with too many arguments");
    char *at = (char *)call_memory + c->used++ * SLOT + SLOT / 2;
    memset(at - SLOT / 2, 0, SLOT / 2);
    for (int64_t n = 0; n < SLOT / 8; n++) ((float *)at)[n] = (float)((n + 17 * c->used) % 251) / 64 - 2;
    c->all[c->count++] = it;
    argument_move(&it, at);
    return at;
}

static void put(public_call *c, const char *name, mha_tensor *t, mha_tensor shape, bool output)
{
    int64_t count = 1;
    for (int axis = 0; axis < shape.rank; axis++) count *= shape.size[axis];
    int width = (int)mha_type_size(shape.type);
    *t = shape;
    void *at =
        place(c, (argument){.name = name, .tensor = t, .bytes = count * width, .width = width, .output = output});
    if (shape.type == MHA_BOOL) memset(at, 1, (size_t)count);
    if (shape.type == MHA_INT64)
        for (int64_t n = 0; n < count; n++) ((int64_t *)at)[n] = n;
}

static void in(public_call *c, const char *name, mha_tensor *t, mha_tensor shape) { put(c, name, t, shape, false); }
static void out(public_call *c, const char *name, mha_tensor *t, mha_tensor shape) { put(c, name, t, shape, true); }

/* from, from + step, ...: starts, lengths and offsets */
static void array(public_call *c, const char *name, mha_tensor *to, int64_t count, int64_t from, int64_t step)
{
    *to = mha_tensor_1d(NULL, MHA_INT64, count);
    int64_t *at = place(c, (argument){.name = name, .tensor = to, .bytes = 8 * count, .width = 8});
    for (int64_t n = 0; n < count; n++) at[n] = from + n * step;
}

/* ---- Attention -------------------------------------------------------------------------------------------------- */

static mha_tensor f4(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return mha_tensor_4d(NULL, MHA_FLOAT32, a, b, c, d);
}
static mha_tensor f3(int64_t a, int64_t b, int64_t c) { return mha_tensor_3d(NULL, MHA_FLOAT32, a, b, c); }
static mha_tensor f2(int64_t a, int64_t b) { return mha_tensor_2d(NULL, MHA_FLOAT32, a, b); }
static mha_tensor f1(int64_t a) { return mha_tensor_1d(NULL, MHA_FLOAT32, a); }

static bool is_ragged(const public_call *c)
{
    return c->kind == CALL_FORWARD_RAGGED || c->kind == CALL_BACKWARD_RAGGED || c->kind == CALL_STATS_RAGGED ||
           c->kind == CALL_LAYER_RAGGED || c->kind == CALL_LAYER_BACKWARD_RAGGED || c->kind == CALL_LAYER_STATS_RAGGED;
}

/* Batch and rows of q and of k: all sequences one after another if they are ragged. */
static int64_t batch(const public_call *c) { return is_ragged(c) ? 1 : c->n.B; }
static int64_t queries(const public_call *c) { return is_ragged(c) ? c->n.B * c->n.Tq : c->n.Tq; }
static int64_t keys(const public_call *c) { return is_ragged(c) ? c->n.B * c->n.Tk : c->n.Tk; }

static void make_options(public_call *c)
{
    const call_sizes *n = &c->n;
    mha_attention_options *o = &c->options;
    o->causal = true;
    in(c, "mask", &o->mask, mha_tensor_4d(NULL, MHA_BOOL, n->B, n->H, n->Tq, n->Tk));
    in(c, "bias", &o->bias, f4(n->B, n->H, n->Tq, n->Tk));
    in(c, "alibi_slopes", &o->alibi_slopes, f2(n->B, n->H));
    if (c->kind == CALL_ATTEND || c->kind == CALL_STEP) return;
    o->align = MHA_ALIGN_OFFSET;
    array(c, "offsets", &o->offsets, n->B, 1, 1);
    array(c, "query_lengths", &o->query_lengths, n->B, n->Tq, 0);
    array(c, "key_lengths", &o->key_lengths, n->B, n->Tk, 0);
    if (!is_ragged(c)) return;
    array(c, "query_starts", &o->query_starts, n->B + 1, 0, n->Tq);
    array(c, "key_starts", &o->key_starts, n->B + 1, 0, n->Tk);
}

static void make_extras(public_call *c)
{
    const call_sizes *n = &c->n;
    out(c, "lse", &c->extras.lse, f3(batch(c), n->H, queries(c)));
    out(c, "softmax", &c->extras.softmax, f4(batch(c), n->H, queries(c), 2));
    out(c, "weights", &c->extras.weights, f4(n->B, n->H, n->Tq, n->Tk));
    out(c, "scores", &c->extras.scores, f4(n->B, n->H, n->Tq, n->Tk));
}

static void make_inputs(public_call *c)
{
    const call_sizes *n = &c->n;
    in(c, "q", &c->q, f4(batch(c), n->H, queries(c), n->D));
    in(c, "k", &c->k, f4(batch(c), n->G, keys(c), n->D));
    in(c, "sinks", &c->options.sinks, f1(n->H));
    make_options(c);
}

static void make_forward(public_call *c)
{
    make_inputs(c);
    in(c, "v", &c->v, f4(batch(c), c->n.G, keys(c), c->n.E));
    out(c, "out", &c->out, f4(batch(c), c->n.H, queries(c), c->n.E));
    make_extras(c);
}

static void make_backward(public_call *c)
{
    const call_sizes *n = &c->n;
    make_inputs(c);
    in(c, "v", &c->v, f4(batch(c), n->G, keys(c), n->E));
    in(c, "out", &c->out, f4(batch(c), n->H, queries(c), n->E));
    in(c, "softmax", &c->softmax, f4(batch(c), n->H, queries(c), 2));
    in(c, "dout", &c->dout, c->out);
    in(c, "dlse", &c->dlse, f3(batch(c), n->H, queries(c)));
    out(c, "gradients.q", &c->gradients.q, c->q);
    out(c, "gradients.k", &c->gradients.k, c->k);
    out(c, "gradients.v", &c->gradients.v, c->v);
    out(c, "gradients.bias", &c->gradients.bias, c->options.bias);
    out(c, "gradients.alibi_slopes", &c->gradients.alibi_slopes, c->options.alibi_slopes);
    out(c, "gradients.sinks", &c->gradients.sinks, c->options.sinks);
    out(c, "gradients.importance", &c->gradients.importance, f2(n->B, n->H));
}

static void make_results(public_call *c)
{
    const call_sizes *n = &c->n;
    mha_stats *s = &c->stats;
    mha_tensor row = f3(batch(c), n->H, queries(c)), top = f4(batch(c), n->H, queries(c), 1), whole = top;
    whole.type = MHA_INT64;
    in(c, "sets", &c->stats_options.sets, mha_tensor_2d(NULL, MHA_BOOL, 1, n->Tk));
    out(c, "stats.entropy", &s->entropy, row);
    out(c, "stats.effective", &s->effective, row);
    out(c, "stats.largest", &s->largest, row);
    out(c, "stats.distance", &s->distance, row);
    out(c, "stats.mass", &s->mass, f4(batch(c), n->H, queries(c), 5));
    out(c, "stats.top_weights", &s->top_weights, top);
    out(c, "stats.top_keys", &s->top_keys, whole);
    out(c, "stats.received", &s->received, f3(batch(c), n->H, keys(c)));
    out(c, "stats.heatmap", &s->heatmap, f4(n->B, n->H, 1, 2));
    out(c, "stats.divergence", &s->divergence, f3(n->B, n->H, n->H));
    out(c, "stats.cosine", &s->cosine, f3(n->B, n->H, n->H));
}

static void make_stats(public_call *c)
{
    make_inputs(c);
    in(c, "softmax", &c->softmax, f4(batch(c), c->n.H, queries(c), 2));
    make_results(c);
}

/* ---- Rotary embedding, copies, products ------------------------------------------------------------------------- */

static void make_rotary(public_call *c)
{
    const call_sizes *n = &c->n;
    int64_t pairs = (n->D + 1) / 2;
    in(c, "x", &c->x, f4(n->B, n->H, n->Tq, 2 * pairs));
    out(c, "out", &c->out, c->x);
    in(c, "cos", &c->cosines, f2(n->B * n->Tq, pairs));
    in(c, "sin", &c->sines, c->cosines);
    in(c, "positions", &c->rotary.positions, mha_tensor_2d(NULL, MHA_INT64, n->B, n->Tq));
}

static void make_small(public_call *c)
{
    const call_sizes *n = &c->n;
    if (c->kind == CALL_TABLES) {
        out(c, "cos", &c->cosines, f2(n->Tq, n->D));
        out(c, "sin", &c->sines, f2(n->Tq, n->D));
    } else if (c->kind == CALL_COPY) {
        out(c, "to", &c->c, f4(n->B, n->H, n->Tq, n->D));
        in(c, "from", &c->a, f4(n->B, n->H, n->Tq, n->D));
    } else {
        out(c, "c", &c->c, f2(n->B, n->Tk));
        in(c, "a", &c->a, f2(n->B, n->Tq));
        in(c, "b", &c->b, f2(n->Tq, n->Tk));
        in(c, "bias", &c->matmul.bias, f1(n->Tk));
    }
}

/* ---- Layers ----------------------------------------------------------------------------------------------------- */

static void make_layer(public_call *c)
{
    const call_sizes *n = &c->n;
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = o.key_width = o.value_width = n->M;
    o.heads = n->H;
    o.kv_heads = n->G;
    o.head_width = n->D;
    o.value_head_width = n->E;
    o.rotary_base = n->D % 2 ? 0 : 10000;
    o.causal = true;
    float *block = NULL;
    int64_t count = 0;
    if (mha_layer_parameter_count(c->ctx, &count, &o)) fail(mha_context_error(c->ctx));
    if (count * 4 > SLOT / 2) fail("a layer with too many parameters");
    block = (float *)(call_memory + c->used++ * SLOT + SLOT / 2);
    if (mha_layer_create(c->ctx, &c->layer, &o, block) || mha_layer_initialize(c->ctx, c->layer, 5))
        fail(mha_context_error(c->ctx));
}

static void make_positions(public_call *c)
{
    if (c->n.D % 2) return;
    in(c, "query_positions", &c->inputs.query_positions, mha_tensor_2d(NULL, MHA_INT64, batch(c), queries(c)));
    in(c, "key_positions", &c->inputs.key_positions, mha_tensor_2d(NULL, MHA_INT64, batch(c), keys(c)));
}

static void make_layer_forward(public_call *c)
{
    const call_sizes *n = &c->n;
    make_layer(c);
    in(c, "query", &c->inputs.query, f3(batch(c), queries(c), n->M));
    in(c, "key", &c->inputs.key, f3(batch(c), keys(c), n->M));
    in(c, "value", &c->inputs.value, f3(batch(c), keys(c), n->M));
    make_positions(c);
    make_options(c);
    in(c, "sinks", &c->options.sinks, f1(n->H));
    out(c, "out", &c->out, f3(batch(c), queries(c), n->M));
    if (c->kind == CALL_LAYER || c->kind == CALL_LAYER_RAGGED) make_extras(c);
    c->all[c->count++] = (argument){.name = "parameters",
                                    .block = (float **)&c->b.data, /* not to be moved: the layer has it */
                                    .bytes = 8,
                                    .width = 4};
    c->b.data = mha_layer_view(c->layer, NULL).q_weight.data;
}

/* The results of the forward call are no arguments of what follows. */
static void make_tape(public_call *c)
{
    make_layer_forward(c);
    if (mha_tape_create(c->ctx, &c->tape) ||
        mha_layer_forward(c->ctx, c->layer, c->out, NULL, &c->inputs, &c->options, c->tape))
        fail(mha_context_error(c->ctx));
    for (int i = 0; i < c->count; i++)
        if (c->all[i].output) c->all[i--] = c->all[--c->count];
}

static void make_layer_backward(public_call *c)
{
    const call_sizes *n = &c->n;
    mha_layer_gradients *g = &c->layer_gradients;
    make_tape(c);
    in(c, "dout", &c->dout, f3(batch(c), queries(c), n->M));
    out(c, "gradients.query", &g->query, c->inputs.query);
    out(c, "gradients.key", &g->key, c->inputs.key);
    out(c, "gradients.value", &g->value, c->inputs.value);
    out(c, "gradients.bias", &g->bias, c->options.bias);
    out(c, "gradients.alibi_slopes", &g->alibi_slopes, c->options.alibi_slopes);
    out(c, "gradients.importance", &g->importance, f2(n->B, n->H));
    int64_t count;
    if (mha_layer_parameter_count(c->ctx, &count, mha_layer_shape(c->layer))) fail(mha_context_error(c->ctx));
    place(c,
          (argument){
              .name = "gradients.parameters", .block = &g->parameters, .bytes = 4 * count, .width = 4, .output = true});
}

static void make_cached(public_call *c)
{
    const call_sizes *n = &c->n;
    bool step = c->kind == CALL_STEP;
    make_layer(c);
    c->n.Tk = step ? n->Tq : n->Tk;
    if (mha_cache_create(c->ctx, &c->cache, c->layer, n->B, n->Tk + 1, MHA_FLOAT32)) fail(mha_context_error(c->ctx));
    in(c, "query", &c->inputs.query, f3(n->B, n->Tq, n->M));
    make_options(c);
    out(c, "out", &c->out, f3(n->B, n->Tq, n->M));
    make_extras(c);
    if (step) return;
    in(c, "key", &c->x, f3(n->B, n->Tk, n->M));
    c->count--;
    if (mha_cache_append(c->ctx, c->cache, c->layer, c->x, (mha_tensor)MHA_NO_TENSOR)) fail(mha_context_error(c->ctx));
}

/* ---- All of them ------------------------------------------------------------------------------------------------ */

void call_make(public_call *c, call_kind kind, call_sizes sizes)
{
    *c = (public_call){.kind = kind, .n = sizes};
    c->options = (mha_attention_options)MHA_ATTENTION_DEFAULTS;
    c->stats = (mha_stats)MHA_NO_STATS;
    c->stats_options = (mha_stats_options)MHA_STATS_DEFAULTS;
    c->rotary = (mha_rotary_options)MHA_ROTARY_DEFAULTS;
    c->matmul = (mha_matmul_options)MHA_MATMUL_DEFAULTS;
    c->ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    if (kind <= CALL_FORWARD_RAGGED) make_forward(c);
    else if (kind <= CALL_BACKWARD_RAGGED) make_backward(c);
    else if (kind <= CALL_STATS_RAGGED) make_stats(c);
    else if (kind == CALL_ROTARY) make_rotary(c);
    else if (kind <= CALL_MATMUL) make_small(c);
    else if (kind <= CALL_LAYER_RAGGED) make_layer_forward(c);
    else if (kind <= CALL_LAYER_BACKWARD_RAGGED) make_layer_backward(c);
    else if (kind <= CALL_LAYER_STATS_RAGGED) make_tape(c), make_results(c);
    else make_cached(c);
}

void call_free(public_call *c)
{
    mha_cache_free(c->cache);
    mha_tape_free(c->tape);
    mha_layer_free(c->layer);
    mha_context_free(c->ctx);
}

mha_status call_run(public_call *c)
{
    switch (c->kind) {
    case CALL_FORWARD:
    case CALL_FORWARD_RAGGED:
        return mha_attention_forward(c->ctx, c->out, &c->extras, c->q, c->k, c->v, &c->options);
    case CALL_BACKWARD:
    case CALL_BACKWARD_RAGGED:
        return mha_attention_backward(c->ctx, &c->gradients,
                                      &(mha_attention_saved){c->q, c->k, c->v, c->out, c->softmax}, c->dout, c->dlse,
                                      &c->options);
    case CALL_STATS:
    case CALL_STATS_RAGGED:
        return mha_attention_stats(c->ctx, &c->stats, c->q, c->k, c->softmax, &c->options, &c->stats_options);
    case CALL_ROTARY:
        return mha_rotary_apply(c->ctx, c->out, c->x, c->cosines, c->sines, &c->rotary);
    case CALL_TABLES:
        return mha_rotary_tables(c->ctx, c->cosines, c->sines, 10000);
    case CALL_COPY:
        return mha_tensor_copy(c->ctx, c->c, c->a);
    case CALL_MATMUL:
        return mha_matmul(c->ctx, c->c, c->a, c->b, &c->matmul);
    case CALL_LAYER:
    case CALL_LAYER_RAGGED:
        return mha_layer_forward(c->ctx, c->layer, c->out, &c->extras, &c->inputs, &c->options, NULL);
    case CALL_LAYER_BACKWARD:
    case CALL_LAYER_BACKWARD_RAGGED:
        return mha_layer_backward(c->ctx, c->layer, &c->layer_gradients, c->dout, c->tape);
    case CALL_LAYER_STATS:
    case CALL_LAYER_STATS_RAGGED:
        return mha_layer_stats(c->ctx, c->layer, &c->stats, c->tape, &c->stats_options);
    case CALL_ATTEND:
        return mha_cache_attend(c->ctx, c->cache, c->layer, c->out, &c->extras, c->inputs.query, &c->options);
    case CALL_STEP:
    default: {
        mha_status status =
            mha_cache_step(c->ctx, c->cache, c->layer, c->out, &c->extras, c->inputs.query, &c->options);
        return status ? status : mha_cache_truncate(c->ctx, c->cache, -1, 0);
    }
    }
}
