/* A pass: views of rows and heads, and its arguments checked. */
#include "layer/pass.h"
#include "core/options.h"

typedef long long ll;

static const mha_tensor none = MHA_NO_TENSOR;
static const char *const input_names[] = {"query", "key", "value"};

/* ---- Views ------------------------------------------------------------------------------------------------------ */

/* One step along an axis of n0*n1 elements that is made of two; false if there is none. */
static bool join(int64_t *stride, int64_t n0, int64_t stride0, int64_t n1, int64_t stride1)
{
    *stride = n1 > 1 ? stride1 : stride0;
    return n0 < 2 || n1 < 2 || (stride1 <= INT64_MAX / n1 && stride1 >= -INT64_MAX / n1 && stride0 == n1 * stride1);
}

bool mha_as_rows(mha_tensor *rows, mha_tensor x, bool across)
{
    int outer = across ? 1 : 0, inner = 1 - outer;
    *rows = (mha_tensor){x.data, x.type, 2, {x.size[0] * x.size[1], x.size[2], 0, 0}, {0, x.stride[2], 0, 0}};
    return join(&rows->stride[0], x.size[outer], x.stride[outer], x.size[inner], x.stride[inner]);
}

mha_tensor mha_as_heads(mha_tensor y, bool across, int64_t B, int64_t T, int64_t first, int64_t heads, int64_t width)
{
    int64_t step = y.stride[0], size = (int64_t)mha_type_size(y.type);
    char *data = y.data ? (char *)y.data + first * size : NULL;
    return (mha_tensor){
        data, y.type, 4, {B, heads, T, width}, {across ? step : T * step, width, across ? B * step : step, 1}};
}

mha_tensor mha_as_input(mha_tensor rows, bool across, int64_t B, int64_t T)
{
    mha_tensor x = mha_as_heads(rows, across, B, T, 0, 1, rows.size[1]);
    return (mha_tensor){x.data, x.type, 3, {B, T, x.size[3], 0}, {x.stride[0], x.stride[2], 1, 0}};
}

mha_tensor mha_as_split(mha_tensor x, int64_t heads, int64_t width)
{
    return (mha_tensor){x.data,
                        x.type,
                        4,
                        {x.size[0], heads, x.size[1], width},
                        {x.stride[0], width * x.stride[2], x.stride[1], x.stride[2]}};
}

/* ---- Checks ----------------------------------------------------------------------------------------------------- */

mha_status mha_pass_check_input(mha_context *ctx, const mha_layer *layer, mha_tensor *x, int n)
{
    int64_t width = mha_layer_width(&layer->shape, n);
    TRY(mha_check_float(ctx, x, input_names[n], 3, n == MHA_Q ? "(B,Tq,M)" : "(B,Tk,*)", MHA_INPUT));
    if (x->size[2] != width)
        return mha_fail(ctx, MHA_BAD_SHAPE, "%s: has width %lld, the layer reads %lld", input_names[n], (ll)x->size[2],
                        (ll)width);
    return MHA_OK;
}

static mha_status check_inputs(mha_pass *p)
{
    mha_layer_inputs *in = &p->inputs;
    bool ragged = mha_options_are_ragged(&p->options);
    int64_t sequences = mha_pass_sequences(p);
    if (!mha_is_given(in->key)) in->key = in->query;
    if (!mha_is_given(in->value)) in->value = in->key;
    TRY(mha_pass_check_input(p->ctx, p->layer, &in->query, MHA_Q));
    TRY(mha_pass_check_input(p->ctx, p->layer, &in->key, MHA_K));
    TRY(mha_pass_check_input(p->ctx, p->layer, &in->value, MHA_V));
    p->B = in->query.size[0];
    p->Tq = in->query.size[1];
    p->Tk = in->key.size[1];
    if (in->value.size[0] != in->key.size[0] || in->value.size[1] != p->Tk)
        return mha_fail(p->ctx, MHA_BAD_SHAPE, "value: is (%lld,%lld,*), must be (%lld,%lld,*) as key",
                        (ll)in->value.size[0], (ll)in->value.size[1], (ll)in->key.size[0], (ll)p->Tk);
    if (!ragged && in->key.size[0] != p->B)
        return mha_fail(p->ctx, MHA_BAD_SHAPE, "key: has a batch of %lld, query has %lld", (ll)in->key.size[0],
                        (ll)p->B);
    if (ragged && !p->options.query_starts.rank && p->B != sequences)
        return mha_fail(p->ctx, MHA_BAD_SHAPE,
                        "query: has a batch of %lld, but there are %lld sequences, and no query_starts", (ll)p->B,
                        (ll)sequences);
    if (ragged && !p->options.key_starts.rank && in->key.size[0] != sequences)
        return mha_fail(p->ctx, MHA_BAD_SHAPE,
                        "key: has a batch of %lld, but there are %lld sequences, and no key_starts",
                        (ll)in->key.size[0], (ll)sequences);
    if (p->options.query_starts.rank && p->B != 1)
        return mha_fail(p->ctx, MHA_BAD_SHAPE, "query: is packed by query_starts, so its batch must be 1, not %lld",
                        (ll)p->B);
    if (p->options.key_starts.rank && in->key.size[0] != 1)
        return mha_fail(p->ctx, MHA_BAD_SHAPE, "key: is packed by key_starts, so its batch must be 1, not %lld",
                        (ll)in->key.size[0]);
    return MHA_OK;
}

/* Positions as (B,T), and the largest one that the layer's tables may have. */
static mha_status check_places(mha_pass *p, mha_tensor given, const char *name, int64_t B, int64_t T, mha_tensor *out)
{
    int64_t near = mha_layer_near(p->layer);
    *out = none;
    if (!mha_is_given(given)) {
        int64_t last = T < near ? T - 1 : near - 1;
        if (last > p->last_place) p->last_place = last;
        return MHA_OK;
    }
    if (!mha_layer_turns(&p->layer->shape))
        return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "%s: the layer has no rotary embedding that would use them", name);
    TRY(mha_check_tensor(p->ctx, &given, name, given.rank == 1 ? 1 : 2, "(B,T), or 1 (T)", MHA_INPUT));
    if (given.type != MHA_INT64)
        return mha_fail(p->ctx, MHA_BAD_TYPE, "%s: is %s, must be int64", name, mha_type_name(given.type));
    mha_tensor wide = mha_broadcast(given);
    if ((wide.size[2] != 1 && wide.size[2] != B) || given.size[given.rank - 1] != T)
        return mha_fail(p->ctx, MHA_BAD_SHAPE, "%s: must be (B,T), (1,T) or (T) of its input", name);
    *out = (mha_tensor){given.data, MHA_INT64, 2, {B, T, 0, 0}, {wide.stride[2], given.stride[given.rank - 1], 0, 0}};
    if (p->ctx->backend->remote) {
        p->last_place = near - 1;
        return MHA_OK;
    }
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++) {
            int64_t place = ((const int64_t *)given.data)[b * out->stride[0] + t * out->stride[1]];
            if (place < 0) return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "%s: (%lld,%lld) is negative", name, (ll)b, (ll)t);
            if (place > MHA_SIZE_LIMIT)
                return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "%s: (%lld,%lld) is %lld, must be at most 2^40", name, (ll)b,
                                (ll)t, (ll)place);
            if (place < near && place > p->last_place) p->last_place = place;
        }
    return MHA_OK;
}

/* A tensor of one to four axes whose sizes are checked elsewhere. */
static mha_status check_some(mha_context *ctx, mha_tensor *t, const char *name, mha_role role)
{
    if (!mha_is_given(*t)) return MHA_OK;
    if (t->rank < 1 || t->rank > 4)
        return mha_fail(ctx, MHA_BAD_SHAPE, "%s: has rank %d, must have 1 to 4", name, t->rank);
    return mha_check_tensor(ctx, t, name, t->rank, "", role);
}

/* Weights that have columns for the keys that the layer adds. */
static mha_status check_weights(const mha_pass *p, mha_tensor w)
{
    const mha_layer_options *s = &p->layer->shape;
    int64_t B = mha_pass_sequences(p), Tk = p->Tk + p->extra;
    if (w.rank != 3 && w.rank != 4)
        return mha_fail(p->ctx, MHA_BAD_SHAPE, "weights: has rank %d, must have 4 (B,H,Tq,Tk), or 3 (B,Tq,Tk)", w.rank);
    const int64_t *rows = &w.size[w.rank - 2], *keys = &w.size[w.rank - 1];
    if (w.size[0] != B || (w.rank == 4 && w.size[1] != s->heads) || (!p->options.query_starts.rank && *rows != p->Tq) ||
        (!p->options.key_starts.rank && *keys != Tk) || *keys < p->extra)
        return mha_fail(p->ctx, MHA_BAD_SHAPE,
                        "weights: must be (%lld,%lld,%lld,%lld), or that without heads: Tk is %lld and %lld more",
                        (ll)B, (ll)s->heads, (ll)p->Tq, (ll)Tk, (ll)p->Tk, (ll)p->extra);
    return mha_check_float(p->ctx, &w, "weights", w.rank, "", MHA_OUTPUT);
}

/* One number, or two, for each row of each head. */
static mha_status check_per_row(mha_pass *p, mha_tensor *t, const char *name, int rank, const char *shape)
{
    const int64_t want[4] = {p->B, p->layer->shape.heads, p->Tq, 2};
    if (!mha_is_given(*t)) return MHA_OK;
    TRY(mha_check_tensor(p->ctx, t, name, rank, shape, MHA_OUTPUT));
    if (t->type != MHA_FLOAT32)
        return mha_fail(p->ctx, MHA_BAD_TYPE, "%s: is %s, must be float32", name, mha_type_name(t->type));
    for (int axis = 0; axis < rank; axis++)
        if (t->size[axis] != want[axis])
            return mha_fail(p->ctx, MHA_BAD_SHAPE, "%s: axis %d is %lld, must be %lld of %s", name, axis,
                            (ll)t->size[axis], (ll)want[axis], shape);
    return MHA_OK;
}

static mha_status check_extras(mha_pass *p)
{
    mha_attention_extras *x = &p->extras;
    mha_attention_options *o = &p->options;
    TRY(check_some(p->ctx, &x->weights, "weights", MHA_OUTPUT));
    TRY(check_some(p->ctx, &x->scores, "scores", MHA_OUTPUT));
    TRY(check_some(p->ctx, &o->mask, "mask", MHA_INPUT));
    TRY(check_some(p->ctx, &o->bias, "bias", MHA_INPUT));
    TRY(check_some(p->ctx, &o->alibi_slopes, "alibi_slopes", MHA_INPUT));
    TRY(check_some(p->ctx, &o->sinks, "sinks", MHA_INPUT));
    TRY(mha_check_integers(p->ctx, &o->offsets, "offsets", mha_pass_sequences(p), "(B)"));
    TRY(mha_check_integers(p->ctx, &o->query_lengths, "query_lengths", mha_pass_sequences(p), "(B)"));
    TRY(mha_check_integers(p->ctx, &o->key_lengths, "key_lengths", mha_pass_sequences(p), "(B)"));
    TRY(check_per_row(p, &x->lse, "lse", 3, "(B,H,Tq)"));
    TRY(check_per_row(p, &x->softmax, "softmax", 4, "(B,H,Tq,2)"));
    TRY(mha_pass_check_intermediates(p));
    if (p->extra && mha_is_given(x->scores))
        return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "scores: a layer with bias_kv or zero_kv has none to show");
    return p->extra && mha_is_given(x->weights) ? check_weights(p, x->weights) : MHA_OK;
}

static mha_status check_overlap(const mha_pass *p)
{
    mha_attention_options o = p->options;
    if (p->lengths && p->ctx->backend->remote) o.query_starts = none; /* memory of the host */
    const mha_argument all[] = {MHA_PASS_OUTPUTS(p), MHA_PASS_INPUTS(p, &o)};
    return mha_layer_check_apart(p->ctx, p->layer, all, sizeof all / sizeof *all);
}

static mha_status check_out(mha_pass *p)
{
    const mha_layer_options *s = &p->layer->shape;
    TRY(mha_check_float(p->ctx, &p->out, "out", 3, s->out_projection ? "(B,Tq,N)" : "(B,Tq,H*E)", MHA_OUTPUT));
    if (p->out.size[0] != p->B || p->out.size[1] != p->Tq || p->out.size[2] != s->out_width)
        return mha_fail(p->ctx, MHA_BAD_SHAPE, "out: is (%lld,%lld,%lld), must be (%lld,%lld,%lld)", (ll)p->out.size[0],
                        (ll)p->out.size[1], (ll)p->out.size[2], (ll)p->B, (ll)p->Tq, (ll)s->out_width);
    return MHA_OK;
}

static mha_status check_options(mha_pass *p, const mha_attention_options *options)
{
    p->options = mha_layer_attention(p->layer);
    TRY(mha_options_take(p->ctx, &p->options, sizeof p->options, options, "mha_layer_attention"));
    mha_tensor *queries = &p->options.query_starts, *keys = &p->options.key_starts;
    TRY(mha_check_integers(p->ctx, queries, "query_starts", -1, "(B+1)"));
    TRY(mha_check_integers(p->ctx, keys, "key_starts", queries->rank ? queries->size[0] : -1, "(B+1)"));
    if (p->layer->shape.sinks) {
        if (mha_is_given(p->options.sinks)) return mha_fail(p->ctx, MHA_BAD_ARGUMENT, "sinks: the layer has its own");
        p->options.sinks = p->layer->parts.sinks;
    }
    if (!p->training && p->options.dropout >= 0 && p->options.dropout <= 1) p->options.dropout = 0;
    return MHA_OK;
}

mha_status mha_pass_check_starts(mha_context *ctx, mha_tensor starts, int64_t B, const char *name, mha_stretch *rows)
{
    int64_t before = 0;
    rows->first = 0;
    rows->count = rows->all;
    if (!starts.rank) return MHA_OK;
    for (int64_t b = 0; b <= B; b++) {
        int64_t next = mha_integer_at(starts, b);
        if (next < before || next > rows->all)
            return mha_fail(ctx, MHA_BAD_ARGUMENT, "%s: [%lld] is %lld, must not fall and be from 0 to %lld", name,
                            (ll)b, (ll)next, (ll)rows->all);
        before = next;
    }
    rows->first = mha_integer_at(starts, 0);
    rows->count = before - rows->first;
    return MHA_OK;
}

mha_tensor mha_cut(mha_tensor t, int axis, mha_stretch rows)
{
    if (!mha_is_given(t)) return t;
    if (rows.count) t.data = (char *)t.data + rows.first * t.stride[axis] * (int64_t)mha_type_size(t.type);
    t.size[axis] = rows.count;
    return t;
}

static mha_status check_ragged(mha_pass *p)
{
    p->query_rows.all = p->Tq;
    p->key_rows.all = p->inputs.key.size[1];
    int64_t B = mha_pass_sequences(p);
    if (!mha_pass_reads_starts(p)) {
        p->query_rows.count = p->query_rows.all;
        p->key_rows.count = p->key_rows.all;
        return MHA_OK;
    }
    TRY(mha_pass_check_starts(p->ctx, p->options.query_starts, B, "query_starts", &p->query_rows));
    if (p->lengths && p->options.query_starts.rank) {
        p->key_rows = p->query_rows; /* what goes in is packed alike; the keys of attention are rows of the cache */
        return MHA_OK;
    }
    return mha_pass_check_starts(p->ctx, p->options.key_starts, B, "key_starts", &p->key_rows);
}

/* Leaves the rows out that belong to no sequence. */
static void cut(mha_pass *p)
{
    p->inputs.query = mha_cut(p->inputs.query, 1, p->query_rows);
    p->query_places = mha_cut(p->query_places, 1, p->query_rows);
    p->out = mha_cut(p->out, 1, p->query_rows);
    p->extras.lse = mha_cut(p->extras.lse, 2, p->query_rows);
    p->extras.softmax = mha_cut(p->extras.softmax, 2, p->query_rows);
    mha_pass_cut_intermediates(p);
    p->inputs.key = mha_cut(p->inputs.key, 1, p->key_rows);
    p->inputs.value = mha_cut(p->inputs.value, 1, p->key_rows);
    p->key_places = mha_cut(p->key_places, 1, p->key_rows);
    p->Tq = p->query_rows.count;
    if (!p->lengths) p->Tk = p->key_rows.count;
    p->query_starts = p->options.query_starts;
    p->key_starts = p->options.key_starts;
}

static mha_pass start(mha_context *ctx, mha_layer *layer, mha_tensor out, const mha_attention_extras *extras,
                      const mha_layer_inputs *inputs)
{
    static const mha_attention_extras no_extras = MHA_ATTENTION_NO_EXTRAS;
    return (mha_pass){.ctx = ctx,
                      .layer = layer,
                      .inputs = *inputs,
                      .extras = extras ? *extras : no_extras,
                      .out = out,
                      .attends = true,
                      .appends = true,
                      .extra = (int64_t)layer->shape.bias_kv + (int64_t)layer->shape.zero_kv,
                      .last_place = -1};
}

mha_status mha_pass_make(mha_pass *p, mha_context *ctx, mha_layer *layer, mha_tensor out,
                         const mha_attention_extras *extras, const mha_layer_inputs *inputs,
                         const mha_attention_options *options, bool training)
{
    *p = start(ctx, layer, out, extras, inputs);
    TRY(mha_layer_check_device(ctx, layer));
    p->training = training;
    p->packs = layer->frozen && !training;
    TRY(check_options(p, options));
    TRY(check_inputs(p));
    bool same = !mha_is_given(inputs->key) && !mha_is_given(inputs->key_positions);
    TRY(check_places(p, inputs->query_positions, "query_positions", p->B, p->Tq, &p->query_places));
    TRY(check_places(p, same ? inputs->query_positions : inputs->key_positions, "key_positions", p->inputs.key.size[0],
                     p->Tk, &p->key_places));
    TRY(check_out(p));
    TRY(check_extras(p));
    TRY(check_ragged(p));
    TRY(check_overlap(p));
    cut(p);
    return MHA_OK;
}

mha_status mha_pass_make_cached(mha_pass *p, mha_context *ctx, mha_layer *layer, mha_tensor out,
                                const mha_attention_extras *extras, const mha_layer_inputs *inputs,
                                const mha_attention_options *options, bool appends, bool attends,
                                const int64_t *lengths, int64_t longest)
{
    *p = start(ctx, layer, out, extras, inputs);
    TRY(mha_layer_check_device(ctx, layer));
    p->packs = layer->frozen;
    p->attends = attends;
    p->appends = appends;
    p->lengths = lengths;
    p->B = inputs->query.size[0];
    p->Tq = inputs->query.size[1];
    p->Tk = longest;
    TRY(check_options(p, options));
    if (appends) {
        const mha_tensor *key = &p->inputs.key, *value = &p->inputs.value;
        TRY(mha_pass_check_input(ctx, layer, &p->inputs.key, MHA_K));
        TRY(mha_pass_check_input(ctx, layer, &p->inputs.value, MHA_V));
        TRY(mha_check_memory(ctx, *key, "key"));
        TRY(mha_check_memory(ctx, *value, "value"));
        if (value->size[0] != key->size[0] || value->size[1] != key->size[1])
            return mha_fail(p->ctx, MHA_BAD_SHAPE, "value: is (%lld,%lld,*), must be (%lld,%lld,*) as key",
                            (ll)value->size[0], (ll)value->size[1], (ll)key->size[0], (ll)key->size[1]);
    }
    TRY(check_ragged(p));
    if (attends) {
        TRY(check_out(p));
        TRY(check_extras(p));
        TRY(check_overlap(p));
    }
    cut(p);
    return MHA_OK;
}
