#include "cuda/fake/backward.h"
#include "support/naive/naive.h"

#include <string.h>

mha_tensor fake_tensor(const mha_cuda_view *v)
{
    mha_tensor t = {v->data, (mha_type)v->type, v->data ? 4 : 0, {0, 0, 0, 0}, {0, 0, 0, 0}};
    for (int axis = 0; axis < 4; axis++) t.size[axis] = v->size[axis], t.stride[axis] = v->stride[axis];
    return t;
}

mha_tensor fake_integers(const mha_cuda_view *v)
{
    mha_tensor t = fake_tensor(v);
    t.rank = v->data ? 1 : 0;
    return t;
}

mha_problem fake_problem(const mha_cuda_general *c, mha_context *ctx)
{
    mha_attention_options o = MHA_ATTENTION_DEFAULTS;
    o.scale = c->scale, o.softcap = c->softcap, o.align = (mha_align)c->align, o.causal = c->causal;
    o.window_left = c->window_left, o.window_right = c->window_right;
    o.dropout = (float)((double)c->dropped / 4294967296.0), o.dropout_seed = c->seed, o.dropout_stream = c->stream;
    o.mask = fake_tensor(&c->mask), o.bias = fake_tensor(&c->bias);
    o.alibi_slopes = fake_tensor(&c->slopes), o.sinks = fake_tensor(&c->sinks);
    o.offsets = fake_integers(&c->offsets);
    o.query_lengths = fake_integers(&c->query_lengths), o.key_lengths = fake_integers(&c->key_lengths);
    o.query_starts = fake_integers(&c->query_starts), o.key_starts = fake_integers(&c->key_starts);
    mha_problem p = {.ctx = ctx,
                     .B = c->B,
                     .H = c->H,
                     .G = c->G,
                     .Tq = c->Tq,
                     .Tk = c->Tk,
                     .D = c->D,
                     .E = c->E,
                     .share = c->share,
                     .out = fake_tensor(&c->out),
                     .q = fake_tensor(&c->q),
                     .k = fake_tensor(&c->k),
                     .v = fake_tensor(&c->v),
                     .options = o,
                     .kept = c->kept};
    p.extras.softmax = fake_tensor(&c->softmax);
    return p;
}

/* (H) or (B,H), of which the kernels know four axes. */
static mha_tensor per_head(const mha_cuda_view *v)
{
    mha_tensor t = fake_tensor(v);
    if (t.rank && t.size[0] == 1) return (mha_tensor){t.data, t.type, 1, {t.size[1], 0, 0, 0}, {t.stride[1], 0, 0, 0}};
    t.rank = t.rank ? 2 : 0;
    return t;
}

void fake_general_backward(const char *name, const mha_cuda_general *c)
{
    static mha_context idle;
    mha_gradient_call call = {
        .problem = fake_problem(c, &idle), .dout = fake_tensor(&c->dout), .dlse = fake_tensor(&c->dlse)};
    call.dlse.rank = call.dlse.rank ? 3 : 0;
    if (strstr(name, "rows")) call.gradients.q = fake_tensor(&c->dq);
    if (strstr(name, "keys")) call.gradients.k = fake_tensor(&c->dk), call.gradients.v = fake_tensor(&c->dv);
    if (strstr(name, "bias")) call.dbias = fake_tensor(&c->dbias);
    if (strstr(name, "heads")) {
        call.gradients.alibi_slopes = per_head(&c->dslopes), call.gradients.sinks = per_head(&c->dsinks);
        call.gradients.importance = fake_tensor(&c->importance);
        call.gradients.importance.rank = call.gradients.importance.rank ? 2 : 0;
    }
    if (!strstr(name, "prepare")) naive_backward(&call);
}
