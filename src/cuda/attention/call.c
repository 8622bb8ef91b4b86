/* Calls of attention on a GPU: checks, scratch, the choice of kernels. Everything is checked and reserved before the
 * first launch. */
#include "cuda/attention/attention.h"
#include "cuda/attention/layout.h"

/* Scratch for what `measure` counted. */
static mha_status reserve(mha_context *ctx, const mha_arena *measure, mha_arena *arena)
{
    *arena = (mha_arena){0};
    if (measure->too_large) return mha_fail(ctx, MHA_TOO_LARGE, "q, k: need more scratch than there is memory");
    return mha_cuda_reserve(ctx, measure->used, &arena->base);
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

mha_cuda_forward_family *mha_cuda_forward_family_of(const mha_cuda_choice *choice)
{
    const unsigned decoding = MHA_CUDA_BIT(MHA_CUDA_BY_DECODING) | MHA_CUDA_BIT(MHA_CUDA_BY_DECODING_MANY);
    if (mha_cuda_is_general(choice)) return mha_cuda_general_forward;
    if (choice->row->type == MHA_FLOAT32) return mha_cuda_float32_forward;
    if (mha_cuda_has_only(choice, decoding)) return mha_cuda_decode_forward;
    if (mha_cuda_has_only(choice, MHA_CUDA_BIT(MHA_CUDA_BY_SMALL_HEADS))) return mha_cuda_small_forward;
    return mha_cuda_tiles_forward;
}

static mha_status run_forward(const mha_problem *p)
{
    mha_arena measure = {0}, arena;
    mha_cuda_choice choice;
    mha_problem own = mha_cuda_laid_out(p, &measure, &choice);
    mha_cuda_forward_family *run = mha_cuda_forward_family_of(&choice);
    TRY(run(&own, &choice, &measure, false));
    TRY(reserve(p->ctx, &measure, &arena));
    own = mha_cuda_laid_out(p, &arena, &choice);
    TRY(mha_cuda_copy_in(p, &own));
    TRY(run(&own, &choice, &arena, true));
    return mha_cuda_copy_out(p, &own);
}

mha_status mha_cuda_op_attention_forward(const mha_problem *p)
{
    TRY(mha_cuda_check_sizes(p));
    TRY(mha_cuda_enter(p->ctx));
    mha_status status = run_forward(p);
    mha_cuda_leave(p->ctx);
    return status;
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* Of float32, the kernels of dQ and of dK and dV take the place of general ones. */
mha_cuda_backward_family *mha_cuda_backward_family_of(const mha_cuda_choice *choice)
{
    if (mha_cuda_is_general(choice) || choice->row->type == MHA_FLOAT32) return mha_cuda_general_backward;
    if (mha_cuda_has_only(choice, MHA_CUDA_BIT(MHA_CUDA_BY_SMALL_HEADS))) return mha_cuda_small_backward;
    return mha_cuda_tiles_backward;
}

enum { GRADIENTS = 6 };

static void list(mha_attention_gradients *g, mha_tensor *all[GRADIENTS])
{
    all[0] = &g->q, all[1] = &g->k, all[2] = &g->v;
    all[3] = &g->bias, all[4] = &g->alibi_slopes, all[5] = &g->sinks;
}

/* The call with dense gradients of its own, if they are to be added to what is there. The kernels of Hopper write 16 bits. */
mha_gradient_call mha_cuda_with_own_gradients(const mha_gradient_call *call, const mha_cuda_choice *choice,
                                              mha_arena *arena)
{
    mha_gradient_call own = *call;
    mha_tensor *all[GRADIENTS];
    const bool float32 = mha_cuda_backward_family_of(choice) == mha_cuda_general_backward;
    list(&own.gradients, all);
    if (!call->gradients.accumulate) return own;
    for (int n = 0; n < GRADIENTS; n++) {
        mha_tensor *t = all[n];
        int64_t stride = 1;
        if (!t->rank) continue;
        for (int axis = t->rank - 1; axis >= 0; axis--) t->stride[axis] = stride, stride *= t->size[axis];
        if (float32) t->type = MHA_FLOAT32;
        t->data = mha_arena_take(arena, mha_element_count(*t), mha_type_size(t->type));
    }
    if (own.gradients.bias.rank) own.dbias = mha_broadcast(own.gradients.bias);
    return own;
}

static mha_status add_gradients(const mha_gradient_call *call, mha_gradient_call *own)
{
    mha_attention_gradients wanted = call->gradients;
    mha_tensor *to[GRADIENTS], *from[GRADIENTS];
    list(&wanted, to);
    list(&own->gradients, from);
    for (int n = 0; n < GRADIENTS; n++) TRY(mha_cuda_copy_tensor(call->problem.ctx, *to[n], *from[n], true));
    return MHA_OK;
}

/* Rows that belong to no sequence are not written. */
static mha_status clear_gradients(mha_gradient_call *own)
{
    mha_tensor *all[GRADIENTS];
    list(&own->gradients, all);
    for (int n = 0; n < GRADIENTS; n++) TRY(mha_cuda_clear(own->problem.ctx, *all[n]));
    return MHA_OK;
}

static mha_status run_backward(const mha_gradient_call *call, const mha_cuda_choice *choice, mha_arena *arena)
{
    mha_gradient_call own = mha_cuda_with_own_gradients(call, choice, arena);
    mha_cuda_backward_family *run = mha_cuda_backward_family_of(choice);
    if (!call->gradients.accumulate) return run(&own, choice, arena, true);
    TRY(clear_gradients(&own));
    TRY(run(&own, choice, arena, true));
    return add_gradients(call, &own);
}

static mha_status lay_and_run_backward(const mha_gradient_call *call)
{
    mha_arena measure = {0}, arena;
    mha_cuda_choice choice;
    mha_gradient_call laid = mha_cuda_laid_out_backward(call, &measure, &choice),
                      own = mha_cuda_with_own_gradients(&laid, &choice, &measure);
    TRY(mha_cuda_backward_family_of(&choice)(&own, &choice, &measure, false));
    TRY(reserve(call->problem.ctx, &measure, &arena));
    laid = mha_cuda_laid_out_backward(call, &arena, &choice);
    TRY(mha_cuda_copy_in_backward(call, &laid));
    TRY(run_backward(&laid, &choice, &arena));
    return mha_cuda_copy_out_backward(call, &laid);
}

mha_status mha_cuda_op_attention_backward(const mha_gradient_call *call)
{
    mha_context *ctx = call->problem.ctx;
    TRY(mha_cuda_check_sizes(&call->problem));
    TRY(mha_cuda_enter(ctx));
    mha_status status = lay_and_run_backward(call);
    mha_cuda_leave(ctx);
    return status;
}
