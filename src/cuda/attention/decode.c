/* Calls for the decode kernels: few rows, many keys. */
#include "cuda/attention/decode.h"
#include "cuda/attention.h"
#include "cuda/attention/ways.h"
#include "cuda/device.h"
#include "cuda/schedule.h"

/* Blocks of a key head of all sequences, packed. */
static int32_t slots_of(const mha_problem *p)
{
    int32_t least = mha_cuda_decode_least(mha_cuda_decode_widths[mha_cuda_decode_width(p)]);
    return mha_cuda_slots((int32_t)p->B, p->k.size[2], least, 0, true);
}

int32_t mha_cuda_decode_splits(const mha_problem *p)
{
    return mha_cuda_decode_blocks(mha_cuda_decode_widths[mha_cuda_decode_width(p)], (int32_t)mha_cuda_most_of(p, 3),
                                  mha_sequences_are_alike(&p->options));
}

/* Blocks of all key heads; where keys lie packed, so many that each sequence has its own. */
int64_t mha_cuda_decode_all_blocks(const mha_problem *p)
{
    return p->G * (p->options.key_starts.rank ? (int64_t)slots_of(p) : p->B * mha_cuda_decode_splits(p));
}

mha_status mha_cuda_decode_some(const mha_problem *p, mha_arena *arena, bool run, const int32_t *counts)
{
    mha_cuda_device *d = mha_cuda_of(p->ctx);
    int type = p->q.type == MHA_FLOAT16, width = mha_cuda_decode_width(p), columns = mha_cuda_decode_widths[width];
    int64_t heads = p->B * p->G, rows = p->share * mha_cuda_most_of(p, 2), all = mha_cuda_decode_all_blocks(p);
    mha_cuda_decode c = {.splits = mha_cuda_decode_splits(p),
                         .slots = p->options.key_starts.rank ? slots_of(p) : 0,
                         .alike = !mha_cuda_has_spans(p),
                         .ways = mha_cuda_ways_forward(p),
                         .count = counts ? counts + MHA_CUDA_BY_DECODING : NULL,
                         .room = (int32_t)(rows < MHA_CUDA_DECODE_ROWS ? rows : MHA_CUDA_DECODE_ROWS)};
    int64_t parts = mha_arena_times(all, c.room);
    MHA_TAKE(arena, c.sums, mha_arena_times(parts, columns));
    MHA_TAKE(arena, c.softmax, mha_arena_times(parts, 2));
    if (!run) return MHA_OK;
    c.g = mha_cuda_describe_general(p);
    c.counters = (int32_t *)(uintptr_t)d->counter; // NOLINT(performance-no-int-to-ptr)
    TRY(mha_cuda_map(p->ctx, &c.k, p->k, MHA_CUDA_DECODE_TILE(columns)));
    TRY(mha_cuda_map(p->ctx, &c.v, p->v, MHA_CUDA_DECODE_TILE(columns)));
    for (int64_t first = 0; first < heads; first += MHA_CUDA_COUNTERS) {
        int64_t some = heads - first < MHA_CUDA_COUNTERS ? heads - first : MHA_CUDA_COUNTERS;
        c.first_head = (int32_t)first, c.heads = (int32_t)some;
        mha_cuda_launch l = {d->decode[type][width], mha_cuda_decode_name(type, width), c.slots ? all : some * c.splits,
                             MHA_CUDA_DECODE_THREADS, mha_cuda_decode_shared(width)};
        TRY(mha_cuda_start_early(p->ctx, &l, &c));
    }
    return MHA_OK;
}

mha_status mha_cuda_decode_forward(const mha_problem *p, mha_arena *arena, bool run)
{
    return mha_cuda_decode_some(p, arena, run, NULL);
}
