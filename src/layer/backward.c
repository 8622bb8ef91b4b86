/* The backward call of a layer: the steps of the pass in reverse, each product twice.
 *
 *     dout -> dWo = dout^T gated, dheads = dout Wo -> gates -> attention -> dq, dk, dv
 *          -> rotary back, norm back -> dW = dy^T x, dx = dy W
 *
 * dq, dk and dv are columns of the dy of their projections, as q, k and v are of y. Gradients are added to what the
 * caller's buffers hold: by the products themselves where rows lie in order, else by way of a copy. */
#include "attention/gradient.h"
#include "layer/tape.h"

typedef long long ll;

static const mha_tensor none = MHA_NO_TENSOR;

typedef struct back {
    mha_context *ctx;
    mha_pass *pass;
    mha_layer_gradients wanted;
    mha_layer_parts parts;     /* of wanted.parameters; all zero if not wanted */
    mha_tensor target[MHA_IN]; /* where the gradient of each projection's input goes; or none */
    mha_tensor dout;           /* (B,Tq,N) as given */
    mha_tensor dresult;        /* the same as rows, in the order of the heads' rows */
    bool dout_copied;
    mha_tensor dhead_rows, dheads; /* (B*Tq,H*E), and as (B,H,Tq,E) */
    mha_tensor dy[MHA_IN];         /* of each product */
    mha_tensor dq, dk, dv;
    mha_tensor dsinks, dbias, dslopes; /* what attention writes, to be added; or none */
    mha_tensor clean[MHA_IN];          /* of x, where it is not finite: without rows that no sequence owns; or none */
    bool broken[MHA_IN];
    mha_tensor dx; /* (rows,width) float32, where a target cannot take a product's rows; or none */
    float *partials;
    double *sums;
} back;

/* ---- Checks ----------------------------------------------------------------------------------------------------- */

/* The sizes that an input had before it was cut. */
static mha_tensor whole(mha_tensor input, mha_stretch rows)
{
    input.size[1] = rows.all;
    return input;
}

static mha_status check_like(back *c, mha_tensor *g, const char *name, mha_tensor like, const char *what)
{
    if (!mha_is_given(*g)) return MHA_OK;
    if (!mha_is_given(like)) return mha_fail(c->ctx, MHA_BAD_ARGUMENT, "%s: is given, but %s was none", name, what);
    TRY(mha_check_tensor(c->ctx, g, name, like.rank, what, MHA_OUTPUT));
    if (g->type != MHA_FLOAT32)
        return mha_fail(c->ctx, MHA_BAD_TYPE, "%s: is %s, must be float32", name, mha_type_name(g->type));
    for (int axis = 0; axis < like.rank; axis++)
        if (g->size[axis] != like.size[axis])
            return mha_fail(c->ctx, MHA_BAD_SHAPE, "%s: axis %d is %lld, must be %lld as %s", name, axis,
                            (ll)g->size[axis], (ll)like.size[axis], what);
    return MHA_OK;
}

static mha_status check_dout(back *c)
{
    const mha_layer_options *s = &c->pass->layer->shape;
    TRY(mha_check_tensor(c->ctx, &c->dout, "dout", 3, "(B,Tq,N)", MHA_INPUT));
    if (!mha_is_float(c->dout.type))
        return mha_fail(c->ctx, MHA_BAD_TYPE, "dout: is %s, must be float32, bfloat16 or float16",
                        mha_type_name(c->dout.type));
    if (c->dout.size[0] != c->pass->B || c->dout.size[1] != c->pass->query_rows.all || c->dout.size[2] != s->out_width)
        return mha_fail(c->ctx, MHA_BAD_SHAPE, "dout: is (%lld,%lld,%lld), must be (%lld,%lld,%lld)",
                        (ll)c->dout.size[0], (ll)c->dout.size[1], (ll)c->dout.size[2], (ll)c->pass->B,
                        (ll)c->pass->query_rows.all, (ll)s->out_width);
    return MHA_OK;
}

/* No gradient may share memory with another one, an input of the forward call or the parameters. */
static mha_status check_overlap(back *c)
{
    const mha_layer *layer = c->pass->layer;
    mha_attention_options o = mha_pass_options(c->pass);
    const mha_argument all[] = {
        {"gradients.query", c->wanted.query, MHA_OUTPUT},
        {"gradients.key", c->wanted.key, MHA_OUTPUT},
        {"gradients.value", c->wanted.value, MHA_OUTPUT},
        {"gradients.bias", c->wanted.bias, MHA_OUTPUT},
        {"gradients.alibi_slopes", c->wanted.alibi_slopes, MHA_OUTPUT},
        {"gradients.importance", c->wanted.importance, MHA_OUTPUT},
        {"gradients.parameters", mha_tensor_1d(c->wanted.parameters, MHA_FLOAT32, layer->count), MHA_OUTPUT},
        {"dout", c->dout, MHA_INPUT},
        MHA_PASS_INPUTS(c->pass, &o)};
    return mha_layer_check_apart(c->ctx, layer, all, sizeof all / sizeof *all);
}

static mha_status check(back *c, const mha_tape *tape)
{
    const mha_layer *layer = c->pass->layer;
    const mha_layer_inputs *in = &c->pass->inputs;
    mha_layer_gradients *w = &c->wanted;
    TRY(check_dout(c));
    if ((mha_is_given(w->key) && !tape->given[MHA_K]) || (mha_is_given(w->value) && !tape->given[MHA_V]))
        return mha_fail(c->ctx, MHA_BAD_ARGUMENT, "gradients.%s: is given, but the input was none",
                        mha_is_given(w->key) && !tape->given[MHA_K] ? "key" : "value");
    const mha_stretch *q = &c->pass->query_rows, *k = &c->pass->key_rows;
    TRY(check_like(c, &w->query, "gradients.query", whole(in->query, *q), "query"));
    TRY(check_like(c, &w->key, "gradients.key", whole(in->key, *k), "key"));
    TRY(check_like(c, &w->value, "gradients.value", whole(in->value, *k), "value"));
    TRY(check_like(c, &w->bias, "gradients.bias", c->pass->options.bias, "options.bias"));
    TRY(check_like(c, &w->alibi_slopes, "gradients.alibi_slopes", c->pass->options.alibi_slopes,
                   "options.alibi_slopes"));
    mha_tensor heads = mha_tensor_2d(c, MHA_FLOAT32, mha_pass_sequences(c->pass), layer->shape.heads);
    TRY(check_like(c, &w->importance, "gradients.importance", heads, "(B,H)"));
    TRY(check_overlap(c));
    if (w->parameters) c->parts = mha_layer_view(layer, w->parameters);
    c->dout = mha_cut(c->dout, 1, *q);
    c->target[MHA_Q] = mha_cut(w->query, 1, *q);
    c->target[MHA_K] = mha_cut(tape->given[MHA_K] ? w->key : w->query, 1, *k);
    c->target[MHA_V] = tape->given[MHA_V] ? mha_cut(w->value, 1, *k) : c->target[MHA_K];
    return MHA_OK;
}

/* ---- Where everything lies -------------------------------------------------------------------------------------- */

/* For the partial sums of a norm's gain and bias. */
static size_t norm_bytes(const back *c, mha_tensor heads, int gain)
{
    mha_part_size size = mha_part_size_of(&c->pass->layer->shape, gain);
    return c->ctx->backend->partial_bytes(heads.size[0] * heads.size[1] * heads.size[2], 2 * size.rows);
}

static void lay_sums(back *c, mha_arena *arena)
{
    const mha_layer_options *s = &c->pass->layer->shape;
    const mha_attention_options *o = &c->pass->options;
    size_t most = 0;
    for (int n = 0; n < c->pass->projections; n++) {
        size_t bytes = c->ctx->backend->partial_bytes(c->dy[n].size[0], c->dy[n].size[1]);
        most = bytes > most ? bytes : most;
    }
    size_t out = c->ctx->backend->partial_bytes(c->dout.size[0] * c->dout.size[1], c->dout.size[2]);
    size_t q = norm_bytes(c, c->dq, MHA_PART_Q_NORM), k = norm_bytes(c, c->dk, MHA_PART_K_NORM);
    most = out > most ? out : most;
    most = q > most ? q : most;
    most = k > most ? k : most;
    c->partials = mha_arena_take(arena, (int64_t)most, 1);
    MHA_TAKE(arena, c->sums, s->kv_heads * (s->head_width + s->value_head_width));
    c->dsinks = c->dbias = c->dslopes = none;
    if (c->parts.sinks.rank)
        c->dsinks = mha_tensor_1d(mha_arena_take(arena, s->heads, sizeof(float)), MHA_FLOAT32, s->heads);
    const struct {
        mha_tensor *to, like;
        bool wanted;
    } same[] = {{&c->dbias, o->bias, mha_is_given(c->wanted.bias)},
                {&c->dslopes, o->alibi_slopes, mha_is_given(c->wanted.alibi_slopes)}};
    for (int n = 0; n < 2; n++) {
        if (!same[n].wanted) continue;
        mha_tensor t = same[n].like;
        int64_t count = mha_element_count(t), stride = 1;
        t.type = MHA_FLOAT32;
        t.data = mha_arena_take(arena, count, sizeof(float));
        for (int axis = t.rank - 1; axis >= 0; axis--) t.stride[axis] = stride, stride *= t.size[axis];
        *same[n].to = t;
    }
}

static void lay_out(back *c, mha_arena *arena)
{
    const mha_pass *p = c->pass;
    const mha_layer_options *s = &p->layer->shape;
    mha_tensor *heads[] = {&c->dq, &c->dk, &c->dv}, like[] = {p->q, p->k, p->v}, rows;
    bool half = s->compute == MHA_BFLOAT16, wide = c->dout.type == MHA_FLOAT32; /* as in settle.c, fits() */
    bool type_fits = half ? c->dout.type == MHA_BFLOAT16 : wide || c->dout.type != p->out_weight.type;
    int64_t widest = 0;
    bool fits = type_fits && mha_as_rows(&c->dresult, c->dout, p->out_across);
    bool padding = p->options.query_lengths.rank || mha_pass_has_unowned_rows(p); /* which counts as zeros */
    c->dout_copied = s->out_projection && (!fits || padding);
    if (c->dout_copied) c->dresult = mha_arena_matrix(arena, s->compute, p->B * p->Tq, s->out_width);
    c->dhead_rows = mha_arena_matrix(arena, s->compute, p->B * p->Tq, s->heads * s->value_head_width);
    c->dheads = mha_as_heads(c->dhead_rows, p->out_across, p->B, p->Tq, 0, s->heads, s->value_head_width);
    for (int n = 0; n < p->projections; n++) {
        const mha_projection *j = &p->projection[n];
        int64_t first = 0;
        c->dy[n] = mha_arena_matrix(arena, s->compute, j->y.size[0], j->y.size[1]);
        c->clean[n] = c->broken[n] ? mha_arena_matrix(arena, j->x.type, j->x.size[0], j->x.size[1]) : none;
        for (int part = j->first; part <= j->last; part++) {
            *heads[part] = mha_as_heads(c->dy[n], j->across, j->input.size[0], j->input.size[1], first,
                                        like[part].size[1], like[part].size[3]);
            first += mha_layer_rows(s, part);
            if (c->target[part].rank && !mha_as_rows(&rows, c->target[part], j->across) && j->x.size[1] > widest)
                widest = j->x.size[1];
        }
    }
    int64_t most = p->B * p->Tq > p->inputs.key.size[0] * p->Tk ? p->B * p->Tq : p->inputs.key.size[0] * p->Tk;
    c->dx = widest ? mha_arena_matrix(arena, MHA_FLOAT32, most, widest) : none;
    lay_sums(c, arena);
}

static mha_status settle(back *c)
{
    mha_arena measure = {0}, arena = {0};
    for (int n = 0; c->wanted.parameters && n < c->pass->projections; n++)
        c->broken[n] = !c->ctx->backend->finite(c->ctx, c->pass->projection[n].x);
    lay_out(c, &measure);
    if (measure.too_large) return mha_fail(c->ctx, MHA_TOO_LARGE, "dout: what lies between has no place in memory");
    TRY(mha_memory_reserve(c->ctx, &c->ctx->room, measure.used + MHA_ALIGNMENT));
    arena.base = c->ctx->room.start;
    lay_out(c, &arena);
    return MHA_OK;
}

/* ---- The steps -------------------------------------------------------------------------------------------------- */

/* to += a^T b, if wanted. */
static mha_status add_product(back *c, mha_tensor to, mha_tensor a, mha_tensor b)
{
    mha_matmul_options options = MHA_MATMUL_DEFAULTS;
    options.accumulate = true;
    return to.rank ? mha_matmul(c->ctx, to, mha_tensor_swap(a, 0, 1), b, &options) : MHA_OK;
}

/* From dout to the gradient by what attention gave. */
static mha_status through_output(back *c)
{
    mha_pass *p = c->pass;
    const mha_layer_options *s = &p->layer->shape;
    if (s->out_projection) {
        if (c->dout_copied) {
            mha_tensor copy = mha_as_input(c->dresult, p->out_across, p->B, p->Tq);
            c->ctx->backend->copy(c->ctx, copy, c->dout, false);
            mha_pass_clear_padding(p, copy, 1);
        }
        if (c->parts.out_bias.rank) c->ctx->backend->sum_rows(c->ctx, c->parts.out_bias, c->dresult, c->partials);
        TRY(add_product(c, c->parts.out_weight, c->dresult, p->gated_rows));
        TRY(mha_matmul(c->ctx, c->dhead_rows, c->dresult, p->out_weight, NULL));
    } else {
        c->ctx->backend->copy(c->ctx, c->dheads, mha_as_split(c->dout, s->heads, s->value_head_width), false);
        mha_pass_clear_padding(p, mha_as_input(c->dhead_rows, p->out_across, p->B, p->Tq), 1);
    }
    if (s->gates) c->ctx->backend->gate_back(c->ctx, c->dheads, p->heads, p->parts.gates, c->parts.gates);
    return MHA_OK;
}

static void add_gradient(back *c, mha_tensor to, mha_tensor from)
{
    if (from.rank) c->ctx->backend->copy(c->ctx, to, from, true);
}

static mha_status through_attention(back *c)
{
    mha_pass *p = c->pass;
    mha_attention_gradients g = MHA_ATTENTION_NO_GRADIENTS;
    bool ragged = mha_options_are_ragged(&p->options) &&
                  c->ctx->backend->remote; /* gradients of rows without a sequence are left alone */
    for (int n = 0; ragged && n < p->projections; n++) c->ctx->backend->fill(c->ctx, c->dy[n], 0.0f);
    g.q = c->dq;
    g.k = c->dk;
    g.v = c->dv;
    g.sinks = c->dsinks;
    g.bias = c->dbias;
    g.alibi_slopes = c->dslopes;
    g.importance = c->wanted.importance;
    const mha_attention_saved saved = {p->q, p->k, p->v, p->heads, p->softmax};
    TRY(mha_gradient_run(c->ctx, &g, &saved, c->dheads, none, &p->options, p->extra > 0));
    add_gradient(c, c->parts.sinks, c->dsinks);
    add_gradient(c, c->wanted.bias, c->dbias);
    add_gradient(c, c->wanted.alibi_slopes, c->dslopes);
    if (p->extra) {
        mha_extra_keys_call extra;
        TRY(mha_pass_extra_keys(p, none, &extra));
        c->ctx->backend->extra_keys_back(&extra, c->dheads, c->dq, c->parts.bias_k, c->parts.bias_v, c->sums);
    }
    return MHA_OK;
}

static mha_status through_norm(back *c)
{
    mha_pass *p = c->pass;
    mha_norm_about q = mha_pass_norm(p, MHA_Q), k = mha_pass_norm(p, MHA_K);
    const mha_layer_parts *to = &c->parts;
    TRY(mha_pass_rotate(p, c->dq, p->query_places, true));
    TRY(mha_pass_rotate(p, c->dk, p->key_places, true));
    if (q.epsilon > 0) {
        mha_norm_back dq = {.dx = c->dq, .dgain = to->q_norm, .dbias = to->q_norm_bias}, dk = dq;
        dk.dx = c->dk, dk.dgain = to->k_norm, dk.dbias = to->k_norm_bias;
        c->ctx->backend->normalize_back(c->ctx, &dq, c->dq, p->raw_q, none, &q, c->partials);
        c->ctx->backend->normalize_back(c->ctx, &dk, c->dk, p->raw_k, none, &k, c->partials);
    }
    return MHA_OK;
}

/* dx += dy W for the columns of one part, or of several whose gradients go to the same place. */
static mha_status add_input(back *c, int n, int part, int last, int64_t column)
{
    const mha_projection *j = &c->pass->projection[n];
    mha_tensor dy = c->dy[n], target = c->target[part], rows;
    mha_matmul_options options = MHA_MATMUL_DEFAULTS;
    int64_t columns = 0;
    if (!target.rank) return MHA_OK;
    for (int k = part; k <= last; k++) columns += mha_layer_rows(&c->pass->layer->shape, k);
    int64_t size = (int64_t)mha_type_size(dy.type);
    mha_weight_walk walk = {.part = part};
    mha_weight_next(&walk, j->weight, last); /* in training they are one matrix */
    mha_tensor weight = walk.matrix;
    dy.data = (char *)dy.data + column * size;
    dy.size[1] = columns;
    options.accumulate = mha_as_rows(&rows, target, j->across);
    if (!options.accumulate) rows = mha_tensor_2d(c->dx.data, MHA_FLOAT32, dy.size[0], weight.size[1]);
    TRY(mha_matmul(c->ctx, rows, dy, weight, &options));
    if (!options.accumulate)
        c->ctx->backend->copy(c->ctx, target, mha_as_input(rows, j->across, target.size[0], target.size[1]), true);
    return MHA_OK;
}

static mha_status through_projection(back *c, int n)
{
    const mha_projection *j = &c->pass->projection[n];
    if (c->wanted.parameters) {
        mha_tensor x = c->clean[n].rank ? c->clean[n] : j->x;
        if (c->clean[n].rank) c->ctx->backend->clean(c->ctx, x, j->x, c->dy[n]); /* 0 * NaN is NaN */
        TRY(add_product(c, mha_layer_in_weight(&c->parts, j->first, j->last), c->dy[n], x));
        if (c->parts.q_bias.rank)
            c->ctx->backend->sum_rows(c->ctx, mha_layer_in_bias(&c->parts, j->first, j->last), c->dy[n], c->partials);
    }
    int64_t column = 0;
    for (int part = j->first; part <= j->last;) {
        int last = part;
        while (last < j->last && mha_same_view(c->target[last + 1], c->target[part])) last++;
        TRY(add_input(c, n, part, last, column));
        for (; part <= last; part++) column += mha_layer_rows(&c->pass->layer->shape, part);
    }
    return MHA_OK;
}

/* Zeros for gradients that are not to be added to what is there. */
static void clear(const back *c)
{
    const mha_layer_gradients *w = &c->wanted;
    const mha_tensor all[] = {
        c->target[MHA_Q], c->target[MHA_K],
        c->target[MHA_V], w->bias,
        w->alibi_slopes,  mha_tensor_1d(w->parameters, MHA_FLOAT32, w->parameters ? c->pass->layer->count : 0)};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (!w->accumulate && all[n].data) c->ctx->backend->fill(c->ctx, all[n], 0.0f);
}

static mha_status steps(void *arg)
{
    back *c = arg;
    clear(c);
    TRY(through_output(c));
    TRY(through_attention(c));
    TRY(through_norm(c));
    for (int n = 0; n < c->pass->projections; n++) TRY(through_projection(c, n));
    return MHA_OK;
}

mha_status mha_layer_backward(mha_context *ctx, mha_layer *layer, const mha_layer_gradients *gradients, mha_tensor dout,
                              const mha_tape *tape)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    MHA_NEED(ctx, layer);
    MHA_NEED(ctx, gradients);
    MHA_NEED(ctx, tape);
    TRY(mha_tape_check(ctx, layer, tape));
    mha_pass pass = tape->pass;
    back c = {.ctx = ctx, .pass = &pass, .wanted = *gradients, .dout = dout};
    pass.ctx = ctx;
    TRY(check(&c, tape));
    TRY(settle(&c));
    return mha_rehearsed(ctx, steps, &c);
}
