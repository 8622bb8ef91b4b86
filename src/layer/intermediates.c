/* What a layer has between its products, for callers that ask for it: q, k, v and the result of each head.
 *
 * These are copies. Views would show memory that the next call writes over, and that has the layer's compute type. They
 * are made once everything else is final, so that asking for them changes nothing else. */
#include "layer/pass.h"

typedef long long ll;

static mha_status check_one(const mha_pass *p, mha_tensor *t, const char *name, const char *shape, const int64_t *want)
{
    if (!mha_is_given(*t)) return MHA_OK;
    TRY(mha_check_float(p->ctx, t, name, 4, shape, MHA_OUTPUT));
    for (int axis = 0; axis < 4; axis++)
        if (t->size[axis] != want[axis])
            return mha_fail(p->ctx, MHA_BAD_SHAPE, "%s: axis %d is %lld, must be %lld of %s", name, axis,
                            (ll)t->size[axis], (ll)want[axis], shape);
    return MHA_OK;
}

mha_status mha_pass_check_intermediates(mha_pass *p)
{
    const mha_layer_options *s = &p->layer->shape;
    mha_attention_extras *x = &p->extras;
    int64_t H = s->heads, G = s->kv_heads, D = s->head_width, E = s->value_head_width;
    int64_t keys = p->lengths ? mha_pass_sequences(p) : p->inputs.key.size[0];
    TRY(check_one(p, &x->q, "extras.q", "(B,H,Tq,D)", (int64_t[]){p->B, H, p->Tq, D}));
    TRY(check_one(p, &x->k, "extras.k", "(B,G,Tk,D)", (int64_t[]){keys, G, p->Tk, D}));
    TRY(check_one(p, &x->v, "extras.v", "(B,G,Tk,E)", (int64_t[]){keys, G, p->Tk, E}));
    return check_one(p, &x->heads, "extras.heads", "(B,H,Tq,E)", (int64_t[]){p->B, H, p->Tq, E});
}

void mha_pass_cut_intermediates(mha_pass *p)
{
    mha_attention_extras *x = &p->extras;
    x->q = mha_cut(x->q, 2, p->query_rows);
    x->heads = mha_cut(x->heads, 2, p->query_rows);
    if (p->lengths) return; /* a cache: every key belongs to a sequence, and Tk is not the number of input rows */
    x->k = mha_cut(x->k, 2, p->key_rows);
    x->v = mha_cut(x->v, 2, p->key_rows);
}

void mha_pass_clear_padding(const mha_pass *p, mha_tensor x, int axis)
{
    const mha_attention_options *o = &p->options;
    if (o->query_lengths.rank || mha_pass_has_unowned_rows(p))
        p->ctx->backend->clear(p->ctx, x, axis, o->query_lengths, o->query_starts);
}

static void leave(const mha_pass *p, mha_tensor to, mha_tensor from, bool of_keys)
{
    const mha_attention_options *o = &p->options;
    if (!to.rank) return;
    p->ctx->backend->copy(p->ctx, to, from, false);
    if (of_keys && (o->key_lengths.rank || (o->key_starts.rank && p->ctx->backend->remote)))
        p->ctx->backend->clear(p->ctx, to, 2, o->key_lengths, o->key_starts);
    if (!of_keys) mha_pass_clear_padding(p, to, 2);
}

void mha_pass_leave_intermediates(const mha_pass *p)
{
    const mha_attention_extras *x = &p->extras;
    leave(p, x->q, p->q, false);
    leave(p, x->k, p->k, true);
    leave(p, x->v, p->v, true);
    leave(p, x->heads, p->gated, false);
}
