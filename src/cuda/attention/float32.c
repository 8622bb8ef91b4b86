/* Calls for the kernels for float32: a block for each tile of rows, or of keys, of a head. */
#include "cuda/attention.h"
#include "cuda/device.h"

static bool is_wide(const mha_problem *p) { return p->D > 64 || p->E > 64; }

mha_cuda_kernel mha_cuda_float32_kernel(const mha_problem *p)
{
    return is_wide(p) ? MHA_CUDA_K_forward_f32_128 : MHA_CUDA_K_forward_f32_64;
}

mha_cuda_kernel mha_cuda_float32_keys_kernel(const mha_problem *p)
{
    return is_wide(p) ? MHA_CUDA_K_backward_f32_keys_128 : MHA_CUDA_K_backward_f32_keys_64;
}

/* For `heads` heads of `lines` rows or keys each. */
static mha_status start(const mha_problem *p, mha_cuda_kernel kernel, const mha_cuda_general *c, int64_t lines,
                        int64_t heads)
{
    const mha_cuda_tile tile = mha_cuda_kernel_tile(kernel);
    mha_cuda_launch l = {mha_cuda_of(p->ctx)->kernels[kernel], mha_cuda_kernel_name(kernel),
                         (lines + tile.rows - 1) / tile.rows * heads, tile.threads, tile.shared};
    return mha_cuda_start(p->ctx, &l, c);
}

mha_status mha_cuda_float32_forward(const mha_problem *p, mha_arena *arena, bool run)
{
    const mha_cuda_general c = mha_cuda_describe_general(p);
    (void)arena;
    return run ? start(p, mha_cuda_float32_kernel(p), &c, c.Tq, p->H * p->B) : MHA_OK;
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

static bool wants_rows(const mha_gradient_call *call) { return call->gradients.q.rank; }
static bool wants_keys(const mha_gradient_call *call) { return call->gradients.k.rank || call->gradients.v.rank; }

/* Key heads whose gradients by scores are kept at a time: parts of the same size, and 0 if the kernel of rows is to compute them again,
 * because nobody else does, or because so few heads fit the memory that launches would leave much of the GPU idle: at their end, and
 * where blocks are not alike, since the longest lasts. Bits are the same. */
static int64_t heads_of_part(const mha_gradient_call *call, const mha_cuda_general *c)
{
    const int64_t most = (int64_t)512 << 20; /* bytes */
    const mha_problem *p = &call->problem;
    const int64_t all = p->B * p->G, room = mha_arena_times(mha_arena_times(c->by_keys, c->by_rows), 4 * p->share);
    if (!wants_rows(call) || !wants_keys(call) || !all || !room || room > most) return 0;
    const int64_t parts = (all - 1) / (most / room) + 1, each = (all - 1) / parts + 1;
    const mha_cuda_tile tile = mha_cuda_kernel_tile(mha_cuda_float32_keys_kernel(p));
    const int64_t at_once = mha_cuda_of(p->ctx)->processors * tile.blocks,
                  blocks = each * ((c->Tk - 1) / tile.rows + 1);
    const int64_t rounds = (blocks - 1) / at_once + 1;
    const bool alike = !c->causal && c->window_left < 0 && c->window_right < 0;
    return each == all || (alike ? 5 * blocks >= 4 * rounds * at_once : rounds >= 4) ? each : 0;
}

void mha_cuda_float32_scratch(const mha_gradient_call *call, mha_arena *arena, mha_cuda_general *c)
{
    enum { STEP = 128 }; /* lines of the widest block */
    c->by_keys = (c->Tk + STEP - 1) / STEP * STEP, c->by_rows = (c->Tq + STEP - 1) / STEP * STEP;
    int64_t heads = heads_of_part(call, c) * call->problem.share;
    if (heads) MHA_TAKE(arena, c->by_scores, heads * c->by_keys * c->by_rows);
}

mha_status mha_cuda_float32_gradients(const mha_gradient_call *call, mha_cuda_general *c)
{
    const mha_problem *p = &call->problem;
    const mha_cuda_kernel keys = mha_cuda_float32_keys_kernel(p);
    const int64_t all = p->B * p->G, part = heads_of_part(call, c);
    if (!part && wants_rows(call))
        TRY(start(p, is_wide(p) ? MHA_CUDA_K_backward_f32_rows_128 : MHA_CUDA_K_backward_f32_rows_64, c, c->Tq,
                  p->H * p->B));
    if (!part && wants_keys(call)) TRY(start(p, keys, c, c->Tk, all));
    for (int64_t first = 0; part && first < all; first += part) {
        int64_t some = all - first < part ? all - first : part;
        c->first_head = (int32_t)first;
        TRY(start(p, keys, c, c->Tk, some));
        TRY(start(p,
                  is_wide(p) ? MHA_CUDA_K_backward_f32_rows_by_scores_128 : MHA_CUDA_K_backward_f32_rows_by_scores_64,
                  c, c->Tq, some * p->share));
    }
    return MHA_OK;
}
