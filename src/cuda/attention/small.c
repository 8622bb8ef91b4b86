/* Calls for the kernels of narrow heads and short sequences: one launch, forward and backward. */
#include "cuda/attention/attention.h"
#include "cuda/kernels/small.h"

/* Nothing, if there is no tensor. */
static mha_cuda_rows rows_of(mha_tensor t)
{
    return (mha_cuda_rows){t.rank ? t.data : NULL, t.stride[0], t.stride[1], t.stride[2]};
}

static mha_cuda_small describe(const mha_problem *p, const mha_cuda_choice *choice)
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
                            .offset = mha_cuda_edges_of(p).right,
                            .align = general.align,
                            .causal = general.causal,
                            .limits = choice->limits,
                            .query_rows = p->q.size[2],
                            .key_rows = p->k.size[2],
                            .offsets = general.offsets,
                            .query_lengths = general.query_lengths,
                            .key_lengths = general.key_lengths,
                            .query_starts = general.query_starts,
                            .key_starts = general.key_starts};
}

/* Longer sequences have other kernels. */
static int64_t tiles_of(int64_t length)
{
    enum { ROWS = MHA_CUDA_SMALL_ROWS };
    return ((length < MHA_CUDA_SMALL_LENGTH ? length : MHA_CUDA_SMALL_LENGTH) + ROWS - 1) / ROWS;
}

mha_cuda_small_launch mha_cuda_small_launch_of(const mha_problem *p, const mha_cuda_row *row)
{
    enum { ROWS = MHA_CUDA_SMALL_ROWS, GAP = 8, BYTES = 2 }; /* GAP: numbers between rows in shared memory */
    const int64_t rows = tiles_of(mha_cuda_most_of(p, 2)), keys = tiles_of(mha_cuda_most_of(p, 3));
    const size_t step = ROWS * BYTES * (size_t)(row->D + GAP); /* bytes of the rows of a warp */
    if (row->pass == MHA_CUDA_FORWARD)                         /* all warps copy K, V and Q */
        return (mha_cuda_small_launch){.blocks = p->B * p->H,
                                       .threads = (int)(32 * (rows > keys ? rows : keys)),
                                       .shared = (size_t)(2 * keys + rows) * step};
    return (mha_cuda_small_launch){/* K, V, Q and dO; lse and delta */
                                   .blocks = p->B * p->G,
                                   .threads = (int)(32 * (rows + keys)),
                                   .shared =
                                       (size_t)(2 * (keys + rows)) * step + (size_t)(2 * rows * ROWS) * sizeof(float)};
}

static mha_status start(const mha_problem *p, const mha_cuda_row *row, const mha_cuda_small *c)
{
    const mha_cuda_small_launch small = mha_cuda_small_launch_of(p, row);
    mha_cuda_launch l = {row->kernel, small.blocks, small.threads, small.shared};
    return mha_cuda_start_early(p->ctx, &l, c);
}

mha_status mha_cuda_small_some(const mha_problem *p, const mha_cuda_choice *choice, bool run, const int32_t *counts)
{
    if (!run || !mha_element_count(p->q)) return MHA_OK;
    mha_cuda_small c = describe(p, choice);
    if (counts) c.count = counts + MHA_CUDA_BY_SMALL_HEADS;
    return start(p, mha_cuda_row_for(choice, p, MHA_CUDA_BY_SMALL_HEADS), &c);
}

mha_status mha_cuda_small_forward(const mha_problem *p, const mha_cuda_choice *choice, mha_arena *arena, bool run)
{
    (void)arena;
    return mha_cuda_small_some(p, choice, run, NULL);
}

/* lse from another forward pass, which has no other results; for the sequences that the backward call has small kernels for. */
static mha_status find_lse(const mha_problem *p, mha_cuda_limits limits, mha_tensor lse)
{
    mha_problem own = *p;
    mha_cuda_choice choice = mha_cuda_choose(MHA_CUDA_FORWARD, p, NULL);
    choice.limits = limits;
    own.out = (mha_tensor)MHA_NO_TENSOR;
    own.extras.lse = lse;
    const mha_cuda_small c = describe(&own, &choice);
    return start(&own, mha_cuda_row_for(&choice, p, MHA_CUDA_BY_SMALL_HEADS), &c);
}

mha_status mha_cuda_small_backward(const mha_gradient_call *call, const mha_cuda_choice *choice, mha_arena *arena,
                                   bool run)
{
    const mha_problem *p = &call->problem;
    const mha_attention_gradients *g = &call->gradients;
    mha_cuda_small c = describe(p, choice);
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
        TRY(find_lse(p, choice->limits, dense));
    }
    c.dout = rows_of(call->dout);
    c.dq = rows_of(g->q), c.dk = rows_of(g->k), c.dv = rows_of(g->v);
    return start(p, mha_cuda_row_for(choice, p, MHA_CUDA_BY_SMALL_HEADS), &c);
}
