/* Calls for the kernels of narrow heads and short sequences: one launch, forward and backward. */
#include "cuda/attention.h"
#include "cuda/attention/small_plan.h"
#include "cuda/device.h"

/* Nothing, if there is no tensor. */
static mha_cuda_rows rows_of(mha_tensor t)
{
    return (mha_cuda_rows){t.rank ? t.data : NULL, t.stride[0], t.stride[1], t.stride[2]};
}

static mha_cuda_small describe(const mha_problem *p, const mha_cuda_small_plan *plan)
{
    const double log2_e = 1.4426950408889634;
    return (mha_cuda_small){.q = rows_of(p->q),
                            .k = rows_of(p->k),
                            .v = rows_of(p->v),
                            .out = rows_of(p->out),
                            .lse = mha_cuda_view_of(p->extras.lse),
                            .softmax = mha_cuda_view_of(p->extras.softmax),
                            .scale = p->options.scale,
                            .scale_log2 = (float)(p->options.scale * log2_e),
                            .Tq = (int32_t)p->Tq,
                            .Tk = (int32_t)p->Tk,
                            .D = (int32_t)p->D,
                            .E = (int32_t)p->E,
                            .G = (int32_t)p->G,
                            .group = (int32_t)p->share,
                            .offset = plan->offset};
}

static mha_status start(mha_context *ctx, const mha_cuda_small_plan *plan, const mha_cuda_small *c)
{
    mha_cuda_launch l = {mha_cuda_of(ctx)->kernels[plan->kernel], mha_cuda_kernel_name(plan->kernel), plan->blocks,
                         plan->threads, plan->shared};
    return mha_cuda_start_early(ctx, &l, c);
}

mha_status mha_cuda_small_forward(const mha_problem *p, mha_arena *arena, bool run)
{
    (void)arena;
    if (!run || !mha_element_count(p->q)) return MHA_OK;
    const mha_cuda_small_plan plan = mha_cuda_plan_small(p, false);
    const mha_cuda_small c = describe(p, &plan);
    return start(p->ctx, &plan, &c);
}

/* lse from another forward pass, which has no other results. */
static mha_status find_lse(const mha_problem *p, mha_tensor lse)
{
    mha_problem own = *p;
    own.out = (mha_tensor)MHA_NO_TENSOR;
    own.extras.lse = lse;
    return mha_cuda_small_forward(&own, NULL, true);
}

mha_status mha_cuda_small_backward(const mha_gradient_call *call, mha_arena *arena, bool run)
{
    const mha_problem *p = &call->problem;
    const mha_attention_gradients *g = &call->gradients;
    const mha_cuda_small_plan plan = mha_cuda_plan_small(p, true);
    mha_cuda_small c = describe(p, &plan);
    float *lse = NULL;
    if (!p->extras.softmax.rank) MHA_TAKE(arena, lse, mha_arena_times(p->B * p->H, p->Tq));
    if (!run) return MHA_OK;
    if (!mha_element_count(p->q) || !mha_element_count(p->k)) {
        TRY(mha_cuda_clear(p->ctx, g->q));
        TRY(mha_cuda_clear(p->ctx, g->k));
        return mha_cuda_clear(p->ctx, g->v);
    }
    if (lse) {
        const mha_tensor dense = mha_tensor_3d(lse, MHA_FLOAT32, p->B, p->H, p->Tq);
        c.lse = mha_cuda_view_of(dense);
        TRY(find_lse(p, dense));
    }
    c.dout = rows_of(call->dout);
    c.dq = rows_of(g->q), c.dk = rows_of(g->k), c.dv = rows_of(g->v);
    return start(p->ctx, &plan, &c);
}
