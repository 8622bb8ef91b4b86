#include "cuda/mirror.h"
#include "attention/gradient.h"
#include "attention/stats.h"
#include "cuda/gpu.h"
#include "cuda/mirror_ops.h"
#include "cuda/spans.h"
#include "support/naive/naive.h"

#include <stdlib.h>
#include <string.h>

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

mha_context *mirror_inner(const mha_context *ctx) { return ctx->device; }

mha_status mirror_answer(mha_context *ctx, mha_status status)
{
    return status ? mha_fail(ctx, status, "%s", mha_context_error(mirror_inner(ctx))) : MHA_OK;
}

static void add_options(spans *m, mha_attention_options *o)
{
    mha_tensor *const all[] = {&o->mask,          &o->bias,        &o->alibi_slopes, &o->sinks,     &o->offsets,
                               &o->query_lengths, &o->key_lengths, &o->query_starts, &o->key_starts};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) spans_add(m, all[n]);
}

/* Slopes and sinks as a caller gives them: those of a problem have four axes. */
static mha_attention_options given(const mha_attention_options *regular)
{
    mha_attention_options o = *regular;
    mha_tensor slopes = o.alibi_slopes, sinks = o.sinks;
    if (slopes.rank && slopes.size[0] != 1)
        o.alibi_slopes = (mha_tensor){
            slopes.data, slopes.type, 2, {slopes.size[0], slopes.size[1]}, {slopes.stride[0], slopes.stride[1]}};
    else if (slopes.rank)
        o.alibi_slopes = (mha_tensor){slopes.data, slopes.type, 1, {slopes.size[1]}, {slopes.stride[1]}};
    if (sinks.rank) o.sinks = (mha_tensor){sinks.data, sinks.type, 1, {sinks.size[1]}, {sinks.stride[1]}};
    return o;
}

mha_status mirror_attention_forward(const mha_problem *p)
{
    spans m = {.count = 0};
    mha_problem d = *p;
    mha_attention_options o = given(&p->options);
    mha_tensor *const all[] = {&d.out,          &d.q, &d.k, &d.v, &d.extras.lse, &d.extras.softmax, &d.extras.weights,
                               &d.extras.scores};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) spans_add(&m, all[n]);
    add_options(&m, &o);
    spans_to_device(&m);
    mha_status status = mha_attention_forward(mirror_inner(p->ctx), d.out, &d.extras, d.q, d.k, d.v, &o);
    spans_to_host(&m);
    return mirror_answer(p->ctx, status);
}

/* Gradients of options have the rank of the options. */
static void match(mha_tensor *gradient, mha_tensor option)
{
    if (gradient->rank != 2 || option.rank != 1) return;
    *gradient = (mha_tensor){gradient->data, gradient->type, 1, {gradient->size[1]}, {gradient->stride[1]}};
}

mha_status mirror_attention_backward(const mha_gradient_call *call)
{
    spans m = {.count = 0};
    mha_gradient_call d = *call;
    mha_attention_options o = given(&d.problem.options);
    mha_attention_gradients *g = &d.gradients;
    if (g->bias.rank) g->bias = call->dbias;
    match(&g->alibi_slopes, o.alibi_slopes);
    mha_tensor *const all[] = {&d.problem.out, &d.problem.q,     &d.problem.k, &d.problem.v,  &d.problem.extras.softmax,
                               &d.dout,        &d.dlse,          &g->q,        &g->k,         &g->v,
                               &g->bias,       &g->alibi_slopes, &g->sinks,    &g->importance};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) spans_add(&m, all[n]);
    add_options(&m, &o);
    spans_to_device(&m);
    const mha_attention_saved saved = {d.problem.q, d.problem.k, d.problem.v, d.problem.out, d.problem.extras.softmax};
    mha_status status = mha_attention_backward(mirror_inner(call->problem.ctx), g, &saved, d.dout, d.dlse, &o);
    spans_to_host(&m);
    return mirror_answer(call->problem.ctx, status);
}

/* The blocks of a GPU are not threads of the host, and its scratch is its own. */
mha_status mirror_attention_explain(const mha_problem *p, mha_attention_plan *plan)
{
    mha_attention_options o = given(&p->options);
    mha_status status = mha_attention_explain(mirror_inner(p->ctx), plan, p->out, &p->extras, p->q, p->k, p->v, &o);
    plan->threads = 1;
    return mirror_answer(p->ctx, status);
}

mha_status mirror_attention_explain_backward(const mha_gradient_call *call, mha_attention_plan *plan)
{
    const mha_problem *p = &call->problem;
    mha_attention_options o = given(&p->options);
    mha_attention_gradients g = call->gradients;
    const mha_attention_saved saved = {p->q, p->k, p->v, p->out, p->extras.softmax};
    if (g.bias.rank) g.bias = call->dbias;
    match(&g.alibi_slopes, o.alibi_slopes);
    mha_status status =
        mha_attention_explain_backward(mirror_inner(p->ctx), plan, &g, &saved, call->dout, call->dlse, &o);
    plan->threads = 1;
    return mirror_answer(p->ctx, status);
}

static void add_stats(spans *m, mha_stats *w, mha_stats_options *o)
{
    mha_tensor *const all[] = {&w->entropy,  &w->effective, &w->largest, &w->distance,   &w->mass,   &w->top_weights,
                               &w->top_keys, &w->received,  &w->heatmap, &w->divergence, &w->cosine, &o->sets};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) spans_add(m, all[n]);
}

mha_status mirror_attention_stats(const mha_stats_call *call)
{
    spans m = {.count = 0};
    mha_stats_call d = *call;
    mha_problem *p = &d.problem;
    mha_attention_options o = given(&p->options);
    mha_tensor *const all[] = {&p->q, &p->k, &p->extras.softmax};
    if (p->ctx->rehearsing) return MHA_OK;
    if (!d.want.heatmap.rank) d.want.heatmap = (mha_tensor)MHA_NO_TENSOR;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) spans_add(&m, all[n]);
    add_stats(&m, &d.want, &d.options);
    add_options(&m, &o);
    spans_to_device(&m);
    mha_status status =
        mha_attention_stats(mirror_inner(p->ctx), &d.want, p->q, p->k, p->extras.softmax, &o, &d.options);
    spans_to_host(&m);
    return mirror_answer(p->ctx, status);
}

mha_status mirror_attention_explain_stats(const mha_stats_call *call, mha_attention_plan *plan)
{
    const mha_problem *p = &call->problem;
    mha_attention_options o = given(&p->options);
    mha_stats want = call->want;
    if (!want.heatmap.rank) want.heatmap = (mha_tensor)MHA_NO_TENSOR;
    mha_status status = mha_attention_explain_stats(mirror_inner(p->ctx), plan, &want, p->q, p->k, p->extras.softmax,
                                                    &o, &call->options);
    plan->threads = 1;
    return mirror_answer(p->ctx, status);
}

/* ---- The device ------------------------------------------------------------------------------------------------- */

static const mha_backend mirror_backend = {.device = "mirror",
#define OP(name) .name = mirror_##name,
                                           MHA_COMMON_OPS(OP) MHA_PACKING_OPS(OP)
#undef OP
};

static mha_context *gpu;

static void free_gpu(void) { mha_context_free(gpu); }

/* All contexts of a program share the GPU's, because loading kernels takes longer than a test. */
mha_status mirror_context(mha_context **ctx, const mha_context_options *options)
{
    mha_context_options own = MHA_CONTEXT_DEFAULTS;
    if (!gpu_open(options->error, options->error_size)) return MHA_DEVICE_ERROR;
    own.device = "cuda";
    own.error = options->error;
    own.error_size = options->error_size;
    if (!gpu) {
        TRY(mha_context_create(&gpu, &own));
        atexit(free_gpu);
    }
    TRY(mha_context_make(ctx, options, (mha_choice){.backend = &mirror_backend, .isa = "sm_90a"}));
    (*ctx)->device = gpu;
    return MHA_OK;
}
