/* The public edge of the backward pass: what may be asked of it. */
#include "attention/gradient.h"
#include "core/arena.h"
#include "core/options.h"

/* A tensor with the sizes of another one. */
static mha_status check_like(mha_gradient_call *call, mha_tensor *t, const char *name, mha_tensor like,
                             const char *other, mha_role role, bool any_float)
{
    if (!mha_is_given(*t)) return MHA_OK;
    TRY(mha_check_tensor(call->problem.ctx, t, name, like.rank, other, role));
    for (int axis = 0; axis < like.rank; axis++)
        if (t->size[axis] != like.size[axis])
            return mha_fail(call->problem.ctx, MHA_BAD_SHAPE, "%s: axis %d is %lld, must be %lld as %s", name, axis,
                            (long long)t->size[axis], (long long)like.size[axis], other);
    if (any_float ? !mha_is_float(t->type) : t->type != MHA_FLOAT32)
        return mha_fail(call->problem.ctx, MHA_BAD_TYPE, "%s: is %s, must be float32%s", name, mha_type_name(t->type),
                        any_float ? ", bfloat16 or float16" : "");
    return MHA_OK;
}

/* A gradient of an option that must be there. */
static mha_status check_option(mha_gradient_call *call, mha_tensor *t, const char *name, mha_tensor option,
                               const char *other, mha_role role)
{
    if (mha_is_given(*t) && !mha_is_given(option))
        return mha_fail(call->problem.ctx, MHA_BAD_ARGUMENT, "%s: there is no %s to have it", name, other);
    return check_like(call, t, name, option, other, role, false);
}

static mha_status check_overlap(mha_gradient_call *call)
{
    const mha_problem *p = &call->problem;
    const mha_attention_gradients *g = &call->gradients;
    const mha_argument all[] = {{"gradients.q", g->q, MHA_OUTPUT},
                                {"gradients.k", g->k, MHA_OUTPUT},
                                {"gradients.v", g->v, MHA_OUTPUT},
                                {"gradients.bias", g->bias, MHA_OUTPUT},
                                {"gradients.alibi_slopes", g->alibi_slopes, MHA_OUTPUT},
                                {"gradients.sinks", g->sinks, MHA_OUTPUT},
                                {"gradients.importance", g->importance, MHA_OUTPUT},
                                {"q", p->q, MHA_INPUT},
                                {"k", p->k, MHA_INPUT},
                                {"v", p->v, MHA_INPUT},
                                {"out", p->out, MHA_INPUT},
                                {"softmax", p->extras.softmax, MHA_INPUT},
                                {"dout", call->dout, MHA_INPUT},
                                {"dlse", call->dlse, MHA_INPUT},
                                MHA_OPTION_INPUTS(&p->options)};
    return MHA_CHECK_APART(p->ctx, all);
}

/* `input` and `output` are what tensors are for: MHA_SHAPE if the call only asks. */
static mha_status check(mha_gradient_call *call, const mha_attention_options *given, mha_role input, mha_role output)
{
    const mha_problem *p = &call->problem;
    mha_attention_gradients *g = &call->gradients;
    mha_attention_options o = MHA_ATTENTION_DEFAULTS; /* as they were given: those of the problem have four axes */
    TRY(mha_options_take(p->ctx, &o, sizeof o, given, "MHA_ATTENTION_DEFAULTS"));
    if (!mha_is_given(call->dout)) return mha_fail(call->problem.ctx, MHA_BAD_ARGUMENT, "dout: must be given");
    TRY(check_like(call, &call->dout, "dout", p->out, "out (B,H,Tq,E)", input, true));
    mha_tensor rows = p->q;
    rows.rank = 3;
    TRY(check_like(call, &call->dlse, "dlse", rows, "lse (B,H,Tq)", input, false));
    TRY(check_like(call, &g->q, "gradients.q", p->q, "q (B,H,Tq,D)", output, true));
    TRY(check_like(call, &g->k, "gradients.k", p->k, "k (B,G,Tk,D)", output, true));
    TRY(check_like(call, &g->v, "gradients.v", p->v, "v (B,G,Tk,E)", output, true));
    TRY(check_option(call, &g->bias, "gradients.bias", o.bias, "bias", output));
    TRY(check_option(call, &g->alibi_slopes, "gradients.alibi_slopes", o.alibi_slopes, "alibi_slopes", output));
    TRY(check_option(call, &g->sinks, "gradients.sinks", o.sinks, "sinks", output));
    if (mha_is_given(g->importance)) {
        mha_tensor heads = mha_tensor_2d(NULL, MHA_FLOAT32, p->B, p->H);
        TRY(check_like(call, &g->importance, "gradients.importance", heads, "(B,H)", output, false));
    }
    if (mha_is_given(g->bias)) call->dbias = mha_broadcast(g->bias);
    return output == MHA_OUTPUT ? check_overlap(call) : MHA_OK;
}

/* ---- Adding to what is there ------------------------------------------------------------------------------------ */

enum { GRADIENTS = 6 };

static void list(mha_attention_gradients *g, mha_tensor *all[GRADIENTS])
{
    all[0] = &g->q, all[1] = &g->k, all[2] = &g->v;
    all[3] = &g->bias, all[4] = &g->alibi_slopes, all[5] = &g->sinks;
}

/* Room of their own for gradients that are to be added, dense and float32. */
static void lay_out(mha_gradient_call *call, mha_arena *arena)
{
    mha_tensor *all[GRADIENTS];
    list(&call->gradients, all);
    for (int n = 0; n < GRADIENTS; n++) {
        mha_tensor *t = all[n];
        int64_t stride = 1;
        if (!t->rank) continue;
        for (int axis = t->rank - 1; axis >= 0; axis--) t->stride[axis] = stride, stride *= t->size[axis];
        t->type = MHA_FLOAT32;
        t->data = mha_arena_take(arena, mha_element_count(*t), sizeof(float));
    }
    if (mha_is_given(call->gradients.bias)) call->dbias = mha_broadcast(call->gradients.bias);
}

/* How much room that is. */
static mha_status measure_room(mha_gradient_call *call, size_t *bytes)
{
    mha_arena measure = {0};
    lay_out(call, &measure);
    if (measure.too_large)
        return mha_fail(call->problem.ctx, MHA_TOO_LARGE,
                        "gradients: have no place in memory beside what they are added to");
    *bytes = measure.used + MHA_ALIGNMENT;
    return MHA_OK;
}

/* The call with gradients of its own, which are then added to the caller's. */
static mha_status accumulate(mha_gradient_call *call)
{
    mha_context *ctx = call->problem.ctx;
    mha_attention_gradients wanted = call->gradients;
    mha_tensor *to[GRADIENTS], *from[GRADIENTS];
    mha_arena arena = {0};
    size_t bytes = 0;
    TRY(measure_room(call, &bytes));
    TRY(mha_memory_reserve(ctx, &ctx->room, bytes));
    arena.base = ctx->room.start;
    lay_out(call, &arena);
    list(&wanted, to);
    list(&call->gradients, from);
    for (int n = 0; n < GRADIENTS; n++) /* rows that belong to no sequence are not written */
        if (from[n]->rank) ctx->backend->fill(ctx, *from[n], 0.0f);
    TRY(ctx->backend->attention_backward(call));
    for (int n = 0; n < GRADIENTS; n++)
        if (from[n]->rank) ctx->backend->copy(ctx, *to[n], *from[n], true);
    return MHA_OK;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

/* Checks every argument; `role` is that of `out`: MHA_INPUT, or MHA_SHAPE if the call only asks. */
static mha_status check_call(mha_gradient_call *call, mha_context *ctx, mha_role role,
                             const mha_attention_gradients *gradients, const mha_attention_saved *saved,
                             const mha_attention_options *options)
{
    if (!gradients) return mha_fail(ctx, MHA_BAD_ARGUMENT, "gradients: is NULL");
    if (!saved) return mha_fail(ctx, MHA_BAD_ARGUMENT, "saved: is NULL");
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    call->gradients = *gradients;
    extras.softmax = saved->softmax;
    TRY(mha_problem_make(&call->problem, ctx, role, saved->out, &extras, saved->q, saved->k, saved->v, options));
    TRY(check(call, options, role, role == MHA_SHAPE ? MHA_SHAPE : MHA_OUTPUT));
    if (!mha_element_count(saved->q) && !mha_element_count(saved->k))
        call->problem.B = 0; /* no sequence has rows or keys, so their number does not matter */
    return MHA_OK;
}

mha_status mha_gradient_run(mha_context *ctx, const mha_attention_gradients *gradients,
                            const mha_attention_saved *saved, mha_tensor dout, mha_tensor dlse,
                            const mha_attention_options *options, bool others)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_gradient_call call = {.problem.ctx = ctx, .dout = dout, .dlse = dlse, .others = others};
    TRY(check_call(&call, ctx, MHA_INPUT, gradients, saved, options));
    bool added_here = gradients->accumulate && !ctx->backend->remote;
    return added_here ? accumulate(&call) : ctx->backend->attention_backward(&call);
}

mha_status mha_attention_backward(mha_context *ctx, const mha_attention_gradients *gradients,
                                  const mha_attention_saved *saved, mha_tensor dout, mha_tensor dlse,
                                  const mha_attention_options *options)
{
    return mha_gradient_run(ctx, gradients, saved, dout, dlse, options, false);
}

mha_status mha_attention_explain_backward(mha_context *ctx, mha_attention_plan *plan,
                                          const mha_attention_gradients *gradients, const mha_attention_saved *saved,
                                          mha_tensor dout, mha_tensor dlse, const mha_attention_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    if (!plan) return mha_fail(ctx, MHA_BAD_ARGUMENT, "plan: is NULL");
    mha_gradient_call call = {.problem.ctx = ctx, .dout = dout, .dlse = dlse};
    size_t room = 0;
    TRY(check_call(&call, ctx, MHA_SHAPE, gradients, saved, options));
    if (gradients->accumulate && !ctx->backend->remote) TRY(measure_room(&call, &room));
    TRY(ctx->backend->attention_explain_backward(&call, plan));
    plan->scratch_bytes += room;
    return MHA_OK;
}
