#include "cuda/attention/layout.h"
#include "cuda/attention/choose.h"
#include "cuda/device/device.h"

/* The tensors of a call that may have to be copied: inputs, then results. */
typedef struct tensors {
    mha_tensor *at[8];
    int inputs, count;
} tensors;

static tensors of_forward(mha_problem *p) { return (tensors){{&p->q, &p->k, &p->v, &p->out}, 3, 4}; }

static tensors of_backward(mha_gradient_call *call)
{
    mha_problem *p = &call->problem;
    mha_attention_gradients *g = &call->gradients;
    return (tensors){{&p->q, &p->k, &p->v, &p->out, &call->dout, &g->q, &g->k, &g->v}, 5, 8};
}

/* Dense tensors in scratch in place of those that the copy engine, or copies of float32, cannot take. */
static void make_dense(const mha_problem *p, tensors all, mha_arena *arena)
{
    for (int n = 0; n < all.count; n++) {
        mha_tensor *t = all.at[n];
        if (mha_cuda_strides_fit(p, *t) && mha_cuda_address_fits(*t)) continue;
        void *data = mha_arena_take(arena, mha_element_count(*t), mha_type_size(t->type));
        *t = mha_tensor_4d(data, t->type, t->size[0], t->size[1], t->size[2], t->size[3]);
    }
}

mha_problem mha_cuda_laid_out(const mha_problem *p, mha_arena *arena, mha_cuda_choice *choice)
{
    const mha_arena before = *arena;
    mha_problem own = *p;
    *choice = mha_cuda_choose(MHA_CUDA_FORWARD, p, NULL);
    if (!mha_cuda_is_general(choice)) return own;
    make_dense(p, of_forward(&own), arena);
    const mha_cuda_choice dense = mha_cuda_choose(MHA_CUDA_FORWARD, &own, NULL);
    if (!mha_cuda_is_general(&dense)) return *choice = dense, own;
    *arena = before;
    return *p;
}

mha_gradient_call mha_cuda_laid_out_backward(const mha_gradient_call *call, mha_arena *arena, mha_cuda_choice *choice)
{
    const mha_arena before = *arena;
    mha_gradient_call own = *call;
    *choice = mha_cuda_choose(MHA_CUDA_BACKWARD, &call->problem, call);
    if (!mha_cuda_is_general(choice)) return own;
    make_dense(&call->problem, of_backward(&own), arena);
    const mha_cuda_choice dense = mha_cuda_choose(MHA_CUDA_BACKWARD, &own.problem, &own);
    if (!mha_cuda_is_general(&dense)) return *choice = dense, own;
    *arena = before;
    return *call;
}

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

/* Tensors first to last - 1, where they are not the same. */
static mha_status copy(mha_context *ctx, tensors to, tensors from, int first, int last)
{
    for (int n = first; n < last; n++)
        if (to.at[n]->data != from.at[n]->data) TRY(mha_cuda_copy_tensor(ctx, *to.at[n], *from.at[n], false));
    return MHA_OK;
}

/* Rows of a packed batch that belong to no sequence are not written, so the copies of results have them as they are. */
mha_status mha_cuda_copy_in(const mha_problem *p, const mha_problem *own)
{
    mha_problem from = *p, to = *own;
    tensors all = of_forward(&to);
    return copy(p->ctx, all, of_forward(&from), 0, mha_options_are_ragged(&p->options) ? all.count : all.inputs);
}

mha_status mha_cuda_copy_out(const mha_problem *p, const mha_problem *own)
{
    mha_problem from = *own, to = *p;
    tensors all = of_forward(&to);
    return copy(p->ctx, all, of_forward(&from), all.inputs, all.count);
}

/* Gradients may also be added to what is there. */
mha_status mha_cuda_copy_in_backward(const mha_gradient_call *call, const mha_gradient_call *own)
{
    mha_gradient_call from = *call, to = *own;
    tensors all = of_backward(&to);
    bool results = call->gradients.accumulate || mha_options_are_ragged(&call->problem.options);
    return copy(call->problem.ctx, all, of_backward(&from), 0, results ? all.count : all.inputs);
}

mha_status mha_cuda_copy_out_backward(const mha_gradient_call *call, const mha_gradient_call *own)
{
    mha_gradient_call from = *own, to = *call;
    tensors all = of_backward(&to);
    return copy(call->problem.ctx, all, of_backward(&from), all.inputs, all.count);
}
