#include "cuda/attention/layout.h"
#include "cuda/device.h"
#include "cuda/plan.h"

enum { FORWARD = 4, BACKWARD = 8 }; /* tensors of a call that the copy engine reads or writes */

/* Those of a forward call: what it reads, and its result at the end. */
static void list(mha_problem *p, mha_tensor *all[FORWARD])
{
    all[0] = &p->q, all[1] = &p->k, all[2] = &p->v, all[3] = &p->out;
}

/* Those of a backward call: what it reads, and three gradients. */
static void list_backward(mha_gradient_call *call, mha_tensor *all[BACKWARD])
{
    list(&call->problem, all);
    all[4] = &call->dout, all[5] = &call->gradients.q, all[6] = &call->gradients.k, all[7] = &call->gradients.v;
}

static bool is_general(const mha_problem *p) { return mha_cuda_obstacle(p) && mha_cuda_decode_obstacle(p); }

static void make_dense(const mha_problem *p, mha_tensor *t)
{
    if (mha_cuda_view_obstacle(p, *t))
        *t = mha_tensor_4d(NULL, t->type, t->size[0], t->size[1], t->size[2], t->size[3]);
}

/* Places in scratch for those of `all` that are dense now, and were not. */
static void take(const mha_problem *p, mha_tensor *const all[], mha_tensor *const before[], int count, mha_arena *arena)
{
    for (int n = 0; n < count; n++)
        if (mha_cuda_view_obstacle(p, *before[n]))
            all[n]->data = mha_arena_take(arena, mha_element_count(*all[n]), mha_type_size(all[n]->type));
}

static mha_status copy(mha_context *ctx, const mha_tensor *to, const mha_tensor *from)
{
    return to->data == from->data ? MHA_OK : mha_cuda_copy_tensor(ctx, *to, *from, false);
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

mha_problem mha_cuda_laid_out(const mha_problem *p, mha_arena *arena)
{
    mha_problem own = *p, before = *p;
    mha_tensor *all[FORWARD], *from[FORWARD];
    list(&own, all), list(&before, from);
    for (int n = 0; n < FORWARD; n++) make_dense(p, all[n]);
    if (!is_general(p) || is_general(&own)) return *p;
    take(p, all, from, FORWARD, arena);
    return own;
}

/* Rows of a packed batch that belong to no sequence are not written, so the copy of `out` has them as they are. */
mha_status mha_cuda_copy_in(const mha_problem *p, const mha_problem *own)
{
    mha_problem to = *own, from = *p;
    mha_tensor *all[FORWARD], *there[FORWARD];
    list(&to, all), list(&from, there);
    int count = FORWARD - !mha_options_are_ragged(&p->options);
    for (int n = 0; n < count; n++) TRY(copy(p->ctx, all[n], there[n]));
    return MHA_OK;
}

mha_status mha_cuda_copy_out(const mha_problem *p, const mha_problem *own) { return copy(p->ctx, &p->out, &own->out); }

/* ---- Backward --------------------------------------------------------------------------------------------------- */

mha_gradient_call mha_cuda_laid_out_backward(const mha_gradient_call *call, mha_arena *arena)
{
    const mha_problem *p = &call->problem;
    mha_gradient_call own = *call, before = *call;
    mha_tensor *all[BACKWARD], *from[BACKWARD];
    list_backward(&own, all), list_backward(&before, from);
    for (int n = 0; n < BACKWARD; n++) make_dense(p, all[n]);
    if (!mha_cuda_obstacle_backward(call) || mha_cuda_obstacle_backward(&own)) return *call;
    take(p, all, from, BACKWARD, arena);
    return own;
}

/* Gradients that are added to, or whose rows are not all written, are copied as well. */
mha_status mha_cuda_copy_in_backward(const mha_gradient_call *call, const mha_gradient_call *own)
{
    mha_gradient_call to = *own, from = *call;
    mha_tensor *all[BACKWARD], *there[BACKWARD];
    list_backward(&to, all), list_backward(&from, there);
    bool gradients = call->gradients.accumulate || mha_options_are_ragged(&call->problem.options);
    for (int n = 0; n < (gradients ? BACKWARD : FORWARD + 1); n++) TRY(copy(call->problem.ctx, all[n], there[n]));
    return MHA_OK;
}

mha_status mha_cuda_copy_out_backward(const mha_gradient_call *call, const mha_gradient_call *own)
{
    mha_context *ctx = call->problem.ctx;
    TRY(copy(ctx, &call->gradients.q, &own->gradients.q));
    TRY(copy(ctx, &call->gradients.k, &own->gradients.k));
    return copy(ctx, &call->gradients.v, &own->gradients.v);
}
