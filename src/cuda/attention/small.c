/* Calls for the kernels of narrow heads and short sequences: one launch, forward and backward. */
#include "cuda/attention.h"
#include "cuda/attention/small_plan.h"
#include "cuda/attention/ways.h"
#include "cuda/device.h"

/* Nothing, if there is no tensor. */
static mha_cuda_rows rows_of(mha_tensor t)
{
    return (mha_cuda_rows){t.rank ? t.data : NULL, t.stride[0], t.stride[1], t.stride[2]};
}

static mha_cuda_small describe(const mha_problem *p, const mha_cuda_small_plan *plan, mha_cuda_ways ways)
{
    const double log2_e = 1.4426950408889634;
    const mha_cuda_general general = mha_cuda_describe_general(p);
    return (mha_cuda_small){.q = rows_of(p->q),
                            .k = rows_of(p->k),
                            .v = rows_of(p->v),
                            .out = rows_of(p->out),
                            .lse = mha_cuda_view_of(p->extras.lse),
                            .softmax = mha_cuda_view_of(p->extras.softmax),
                            .scale = p->options.scale,
                            .scale_log2 = (float)(p->options.scale * log2_e),
                            .Tq = (int32_t)mha_cuda_most_of(p, 2),
                            .Tk = (int32_t)mha_cuda_most_of(p, 3),
                            .D = (int32_t)p->D,
                            .E = (int32_t)p->E,
                            .G = (int32_t)p->G,
                            .group = (int32_t)p->share,
                            .offset = plan->offset,
                            .align = general.align,
                            .causal = general.causal,
                            .ways = ways,
                            .query_rows = p->q.size[2],
                            .key_rows = p->k.size[2],
                            .offsets = general.offsets,
                            .query_lengths = general.query_lengths,
                            .key_lengths = general.key_lengths,
                            .query_starts = general.query_starts,
                            .key_starts = general.key_starts};
}

static mha_status start(mha_context *ctx, const mha_cuda_small_plan *plan, const mha_cuda_small *c)
{
    mha_cuda_launch l = {mha_cuda_of(ctx)->kernels[plan->kernel], mha_cuda_kernel_name(plan->kernel), plan->blocks,
                         plan->threads, plan->shared};
    return mha_cuda_start_early(ctx, &l, c);
}

static mha_status start_forward(const mha_problem *p, mha_cuda_ways ways, const int32_t *counts)
{
    const mha_cuda_small_plan plan = mha_cuda_plan_small(p, false);
    mha_cuda_small c = describe(p, &plan, ways);
    if (counts) c.count = counts + MHA_CUDA_BY_SMALL_HEADS;
    return start(p->ctx, &plan, &c);
}

mha_status mha_cuda_small_some(const mha_problem *p, bool run, const int32_t *counts)
{
    return run && mha_element_count(p->q) ? start_forward(p, mha_cuda_ways_forward(p), counts) : MHA_OK;
}

mha_status mha_cuda_small_forward(const mha_problem *p, mha_arena *arena, bool run)
{
    (void)arena;
    return mha_cuda_small_some(p, run, NULL);
}

/* lse from another forward pass, which has no other results. */
static mha_status find_lse(const mha_problem *p, mha_tensor lse)
{
    mha_problem own = *p;
    own.out = (mha_tensor)MHA_NO_TENSOR;
    own.extras.lse = lse;
    return start_forward(&own, mha_cuda_ways_backward(p), NULL);
}

mha_status mha_cuda_small_backward(const mha_gradient_call *call, mha_arena *arena, bool run)
{
    const mha_problem *p = &call->problem;
    const mha_attention_gradients *g = &call->gradients;
    const mha_cuda_small_plan plan = mha_cuda_plan_small(p, true);
    mha_cuda_small c = describe(p, &plan, mha_cuda_ways_backward(p));
    const int64_t lines = p->q.size[0] * p->H;
    float *lse = NULL;
    if (!p->extras.softmax.rank) MHA_TAKE(arena, lse, mha_arena_times(lines, p->q.size[2]));
    if (!run) return MHA_OK;
    if (!mha_element_count(p->q) || !mha_element_count(p->k)) {
        TRY(mha_cuda_clear(p->ctx, g->q));
        TRY(mha_cuda_clear(p->ctx, g->k));
        return mha_cuda_clear(p->ctx, g->v);
    }
    if (lse) {
        const mha_tensor dense = mha_tensor_3d(lse, MHA_FLOAT32, p->q.size[0], p->H, p->q.size[2]);
        c.lse = mha_cuda_view_of(dense);
        TRY(find_lse(p, dense));
    }
    c.dout = rows_of(call->dout);
    c.dq = rows_of(g->q), c.dk = rows_of(g->k), c.dv = rows_of(g->v);
    return start(p->ctx, &plan, &c);
}
