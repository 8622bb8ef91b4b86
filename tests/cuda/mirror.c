#include "cuda/mirror.h"
#include "attention/gradient.h"
#include "attention/stats.h"
#include "cuda/gpu.h"
#include "support/numbers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Memory on both sides --------------------------------------------------------------------------------------- */

/* Bytes [low, high) of the host, and where they are on the GPU. */
typedef struct span {
    char *low, *high, *device;
} span;

enum { TENSORS = 48, APART = 256 };

typedef struct mirror {
    mha_tensor *all[TENSORS]; /* of a call; their data moves to the GPU */
    int count;
    span spans[TENSORS];
    int span_count;
    char *memory; /* of the GPU */
} mirror;

static void add(mirror *m, mha_tensor *t)
{
    if (t->rank && t->data && mha_element_count(*t)) m->all[m->count++] = t;
}

static span span_of(mha_tensor t)
{
    char *low = t.data, *high = t.data;
    for (int axis = 0; axis < t.rank; axis++) {
        int64_t bytes = (t.size[axis] - 1) * t.stride[axis] * (int64_t)mha_type_size(t.type);
        if (bytes < 0) low += bytes;
        else high += bytes;
    }
    return (span){low, high + mha_type_size(t.type), NULL};
}

/* Spans that touch become one, so that tensors which share memory still do. */
static void collect(mirror *m)
{
    for (int n = 0; n < m->count; n++) {
        span s = span_of(*m->all[n]);
        for (int k = 0; k < m->span_count;) {
            span other = m->spans[k];
            if (s.low > other.high || other.low > s.high) {
                k++;
                continue;
            }
            if (other.low < s.low) s.low = other.low;
            if (other.high > s.high) s.high = other.high;
            m->spans[k] = m->spans[--m->span_count];
            k = 0;
        }
        m->spans[m->span_count++] = s;
    }
}

static void to_device(mirror *m)
{
    size_t bytes = 0;
    collect(m);
    for (int n = 0; n < m->span_count; n++) bytes += (size_t)(m->spans[n].high - m->spans[n].low) + APART;
    m->memory = gpu_make(bytes);
    char *at = m->memory;
    for (int n = 0; n < m->span_count; n++) {
        span *s = &m->spans[n];
        at += ((uintptr_t)s->low - (uintptr_t)at) % 16; /* as aligned as on the host, and no more */
        s->device = at;
        gpu_write(at, s->low, (size_t)(s->high - s->low));
        at += s->high - s->low + APART / 2;
    }
    for (int n = 0; n < m->count; n++)
        for (int k = 0; k < m->span_count; k++) {
            const span *s = &m->spans[k];
            char *data = m->all[n]->data;
            if (data < s->low || data >= s->high) continue;
            m->all[n]->data = s->device + (data - s->low);
            break;
        }
}

static void to_host(mirror *m)
{
    for (int n = 0; n < m->span_count; n++)
        gpu_read(m->spans[n].low, m->spans[n].device, (size_t)(m->spans[n].high - m->spans[n].low));
    if (!gpu_free(m->memory)) {
        printf("    a kernel wrote behind the memory of a call\n");
        exit(1);
    }
}

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

static mha_context *inner(const mha_context *ctx) { return ctx->device; }

/* What the GPU's context says becomes what this one says. */
static mha_status answer(mha_context *ctx, mha_status status)
{
    return status ? mha_fail(ctx, status, "%s", mha_context_error(inner(ctx))) : MHA_OK;
}

static void add_options(mirror *m, mha_attention_options *o)
{
    mha_tensor *const all[] = {&o->mask,          &o->bias,        &o->alibi_slopes, &o->sinks,     &o->offsets,
                               &o->query_lengths, &o->key_lengths, &o->query_starts, &o->key_starts};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) add(m, all[n]);
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

static mha_status forward(const mha_problem *p)
{
    mirror m = {.count = 0};
    mha_problem d = *p;
    mha_attention_options o = given(&p->options);
    mha_tensor *const all[] = {&d.out,          &d.q, &d.k, &d.v, &d.extras.lse, &d.extras.softmax, &d.extras.weights,
                               &d.extras.scores};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) add(&m, all[n]);
    add_options(&m, &o);
    to_device(&m);
    mha_status status = mha_attention_forward(inner(p->ctx), d.out, &d.extras, d.q, d.k, d.v, &o);
    to_host(&m);
    return answer(p->ctx, status);
}

/* Gradients of options have the rank of the options. */
static void match(mha_tensor *gradient, mha_tensor option)
{
    if (gradient->rank != 2 || option.rank != 1) return;
    *gradient = (mha_tensor){gradient->data, gradient->type, 1, {gradient->size[1]}, {gradient->stride[1]}};
}

static mha_status backward(const mha_gradient_call *call)
{
    mirror m = {.count = 0};
    mha_gradient_call d = *call;
    mha_attention_options o = given(&d.problem.options);
    mha_attention_gradients *g = &d.gradients;
    if (g->bias.rank) g->bias = call->dbias;
    match(&g->alibi_slopes, o.alibi_slopes);
    mha_tensor *const all[] = {&d.problem.out, &d.problem.q,     &d.problem.k, &d.problem.v,  &d.problem.extras.softmax,
                               &d.dout,        &d.dlse,          &g->q,        &g->k,         &g->v,
                               &g->bias,       &g->alibi_slopes, &g->sinks,    &g->importance};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) add(&m, all[n]);
    add_options(&m, &o);
    to_device(&m);
    const mha_attention_saved saved = {d.problem.q, d.problem.k, d.problem.v, d.problem.out, d.problem.extras.softmax};
    mha_status status = mha_attention_backward(inner(call->problem.ctx), g, &saved, d.dout, d.dlse, &o);
    to_host(&m);
    return answer(call->problem.ctx, status);
}

/* The blocks of a GPU are not threads of the host, and its scratch is its own. */
static mha_status explain(const mha_problem *p, mha_attention_plan *plan)
{
    mha_attention_options o = given(&p->options);
    mha_status status = mha_attention_explain(inner(p->ctx), plan, p->out, &p->extras, p->q, p->k, p->v, &o);
    plan->threads = 1;
    return answer(p->ctx, status);
}

static mha_status explain_backward(const mha_gradient_call *call, mha_attention_plan *plan)
{
    const mha_problem *p = &call->problem;
    mha_attention_options o = given(&p->options);
    mha_attention_gradients g = call->gradients;
    const mha_attention_saved saved = {p->q, p->k, p->v, p->out, p->extras.softmax};
    if (g.bias.rank) g.bias = call->dbias;
    match(&g.alibi_slopes, o.alibi_slopes);
    mha_status status = mha_attention_explain_backward(inner(p->ctx), plan, &g, &saved, call->dout, call->dlse, &o);
    plan->threads = 1;
    return answer(p->ctx, status);
}

/* ---- The device ------------------------------------------------------------------------------------------------- */

static void copy(mha_context *ctx, mha_tensor to, mha_tensor from, bool add_to)
{
    (void)ctx;
    int64_t n[4] = {1, 1, 1, 1};
    for (int axis = 0; axis < to.rank; axis++) n[axis] = to.size[axis];
    for (int axis = to.rank; axis < 4; axis++) to.stride[axis] = from.stride[axis] = 0;
    for (int64_t i = 0; i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++)
            for (int64_t k = 0; k < n[2]; k++)
                for (int64_t l = 0; l < n[3]; l++) {
                    double x = element_get(mha_at(from, i, j, k, l), from.type);
                    if (add_to) x += element_get(mha_at(to, i, j, k, l), to.type);
                    element_set(mha_at(to, i, j, k, l), to.type, x);
                }
}

static void fill(mha_context *ctx, mha_tensor to, float value)
{
    float one = value;
    mha_tensor from = {.data = &one, .type = MHA_FLOAT32, .rank = to.rank};
    copy(ctx, to, from, false);
}

static const mha_backend mirror_backend = {
    .device = "mirror",
    .attention_forward = forward,
    .attention_explain = explain,
    .attention_explain_backward = explain_backward,
    .attention_backward = backward,
    .copy = copy,
    .fill = fill,
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
