/* Calls for the decode kernels: few rows, many keys. */
#include "cuda/decode.h"
#include "cuda/attention.h"
#include "cuda/device.h"

static int32_t splits_of(const mha_problem *p)
{
    return (int32_t)((p->Tk + MHA_CUDA_DECODE_KEYS - 1) / MHA_CUDA_DECODE_KEYS);
}

mha_status mha_cuda_decode_forward(const mha_problem *p, mha_arena *arena, bool run)
{
    mha_cuda_device *d = mha_cuda_of(p->ctx);
    int64_t heads = p->B * p->G, rows = p->share * p->Tq, parts = mha_arena_times(heads * splits_of(p), rows);
    int type = p->q.type == MHA_FLOAT16, width = p->D > 64;
    mha_cuda_decode c = {.splits = splits_of(p)};
    MHA_TAKE(arena, c.sums, mha_arena_times(parts, p->D));
    MHA_TAKE(arena, c.softmax, mha_arena_times(parts, 2));
    if (!run) return MHA_OK;
    c.g = mha_cuda_describe_general(p);
    c.counters = (int32_t *)(uintptr_t)d->counter; // NOLINT(performance-no-int-to-ptr)
    TRY(mha_cuda_map(p->ctx, &c.k, p->k, MHA_CUDA_DECODE_TILE));
    TRY(mha_cuda_map(p->ctx, &c.v, p->v, MHA_CUDA_DECODE_TILE));
    for (int64_t first = 0; first < heads; first += MHA_CUDA_COUNTERS) {
        int64_t some = heads - first < MHA_CUDA_COUNTERS ? heads - first : MHA_CUDA_COUNTERS;
        c.first_head = (int32_t)first;
        mha_cuda_launch l = {d->decode[type][width], mha_cuda_decode_name(type, width), some * c.splits,
                             MHA_CUDA_DECODE_THREADS, mha_cuda_decode_shared((int)p->D)};
        TRY(mha_cuda_start_early(p->ctx, &l, &c));
    }
    return MHA_OK;
}
