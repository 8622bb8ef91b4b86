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
    int64_t rows = p->share * p->Tq, parts = mha_arena_times(p->B * p->G * splits_of(p), rows);
    int type = p->q.type == MHA_FLOAT16, width = p->D > 64;
    mha_cuda_decode c = {.splits = splits_of(p)};
    MHA_TAKE(arena, c.sums, mha_arena_times(parts, p->D));
    MHA_TAKE(arena, c.softmax, mha_arena_times(parts, 2));
    if (!run) return MHA_OK;
    c.g = mha_cuda_describe_general(p);
    TRY(mha_cuda_map(p->ctx, &c.k, p->k, MHA_CUDA_DECODE_TILE));
    TRY(mha_cuda_map(p->ctx, &c.v, p->v, MHA_CUDA_DECODE_TILE));
    mha_cuda_launch main = {d->decode[type][width], mha_cuda_decode_name(type, width), p->B * p->G * c.splits,
                            MHA_CUDA_DECODE_THREADS, mha_cuda_decode_shared((int)p->D)};
    mha_cuda_launch combine = {d->combine, "decode_combine", p->B * p->H * p->Tq, MHA_CUDA_GENERAL_THREADS, 0};
    TRY(mha_cuda_start(p->ctx, &main, &c));
    return mha_cuda_start(p->ctx, &combine, &c);
}
