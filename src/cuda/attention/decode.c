/* Calls for the decode kernels: few rows, many keys. */
#include "cuda/kernels/decode.h"
#include "cuda/attention/attention.h"

/* How a kernel shares the keys of a head. */
typedef struct sharing {
    int32_t rows;   /* of a key head, at most */
    int32_t least;  /* keys of a block, at least */
    int32_t splits; /* blocks of a key head */
} sharing;

static sharing sharing_of(const mha_problem *p, const mha_cuda_row *row)
{
    const int32_t keys = (int32_t)mha_cuda_most_of(p, 3);
    const bool alike = mha_sequences_are_alike(&p->options);
    if (row->method == MHA_CUDA_BY_DECODING)
        return (sharing){.rows = MHA_CUDA_DECODE_MOST,
                         .least = mha_cuda_decode_least(row->D),
                         .splits = mha_cuda_decode_blocks(row->D, keys, alike)};
    return (sharing){
        .rows = MHA_CUDA_MANY_ROWS, .least = mha_cuda_many_keys(0), .splits = mha_cuda_many_blocks(keys, alike)};
}

/* Blocks of a key head of all sequences, packed. */
static int32_t slots_of(const mha_problem *p, sharing s)
{
    return mha_cuda_slots((int32_t)p->B, p->k.size[2], s.least, 0, true);
}

/* Blocks of all key heads; where keys lie packed, so many that each sequence has its own. */
int64_t mha_cuda_decode_all_blocks(const mha_problem *p, const mha_cuda_row *row)
{
    const sharing s = sharing_of(p, row);
    return p->G * (p->options.key_starts.rank ? (int64_t)slots_of(p, s) : p->B * s.splits);
}

/* What a kernel is told, beside the key heads of a launch; and scratch. */
static mha_status describe(mha_cuda_decode *c, const mha_cuda_row *row, const mha_problem *p,
                           const mha_cuda_choice *choice, mha_arena *arena, const int32_t *counts, bool run)
{
    const sharing s = sharing_of(p, row);
    int64_t rows = p->share * mha_cuda_most_of(p, 2);
    *c = (mha_cuda_decode){.splits = s.splits,
                           .blocks = s.splits,
                           .units = 1,
                           .slots = p->options.key_starts.rank ? slots_of(p, s) : 0,
                           .alike = !mha_cuda_has_spans(p),
                           .limits = choice->limits,
                           .count = counts ? counts + row->method : NULL,
                           .room = (int32_t)(rows < s.rows ? rows : s.rows)};
    int64_t parts = mha_arena_times(mha_cuda_decode_all_blocks(p, row), c->room);
    MHA_TAKE(arena, c->sums, mha_arena_times(parts, row->E));
    MHA_TAKE(arena, c->softmax, mha_arena_times(parts, 2));
    if (!run) return MHA_OK;
    c->g = mha_cuda_describe_general(p);
    TRY(mha_cuda_map(p->ctx, &c->k, p->k, row->keys));
    return mha_cuda_map(p->ctx, &c->v, p->v, row->keys);
}

mha_status mha_cuda_decode_some(const mha_problem *p, const mha_cuda_choice *choice, mha_arena *arena, bool run,
                                const int32_t *counts)
{
    const mha_cuda_row *row = mha_cuda_row_for(choice, p, MHA_CUDA_BY_DECODING);
    int64_t heads = p->B * p->G, all = mha_cuda_decode_all_blocks(p, row);
    mha_cuda_decode c;
    TRY(describe(&c, row, p, choice, arena, counts, run));
    c.counters = (int32_t *)(uintptr_t)mha_cuda_of(p->ctx)->counter; // NOLINT(performance-no-int-to-ptr)
    for (int64_t first = 0; run && first < heads; first += MHA_CUDA_COUNTERS) {
        int64_t some = heads - first < MHA_CUDA_COUNTERS ? heads - first : MHA_CUDA_COUNTERS;
        c.first_head = (int32_t)first, c.heads = (int32_t)some;
        mha_cuda_launch l = {row->kernel, c.slots ? all : some * c.splits, row->threads, mha_cuda_row_shared(row)};
        TRY(mha_cuda_start_early(p->ctx, &l, &c));
    }
    return MHA_OK;
}

/* How many splits in a row a block has, of those of `heads` key heads, where `fit` blocks run at a time: what takes the fewest rounds.
 * Beginning costs a block as much as two fifths of a split. */
static int32_t splits_in_a_row(int64_t heads, int32_t splits, int64_t fit)
{
    enum { MOST = 64 };
    int64_t least = INT64_MAX;
    int32_t best = 1;
    for (int32_t units = 1; units <= splits && units <= MOST; units++) {
        int64_t blocks = heads * ((splits + units - 1) / units), time = (blocks + fit - 1) / fit * (5 * units + 2);
        if (time < least) least = time, best = units;
    }
    return best;
}

mha_status mha_cuda_decode_many_some(const mha_problem *p, const mha_cuda_choice *choice, mha_arena *arena, bool run,
                                     const int32_t *counts)
{
    static const mha_cuda_kernel merges[] = {MHA_CUDA_K_decode_merge_64, MHA_CUDA_K_decode_merge_128,
                                             MHA_CUDA_K_decode_merge_192, MHA_CUDA_K_decode_merge_256};
    const mha_cuda_row *row = mha_cuda_row_for(choice, p, MHA_CUDA_BY_DECODING_MANY);
    mha_cuda_decode c;
    TRY(describe(&c, row, p, choice, arena, counts, run));
    if (!run) return MHA_OK;
    c.heads = (int32_t)(p->B * p->G);
    if (!c.slots) {
        const int64_t fit = MHA_CUDA_MANY_BLOCKS(row->D, row->rows);
        c.units = splits_in_a_row(c.heads, c.splits, mha_cuda_of(p->ctx)->processors * fit);
        c.blocks = (c.splits + c.units - 1) / c.units;
    }
    const int64_t chunks = (c.room + MHA_CUDA_MERGE_ROWS - 1) / MHA_CUDA_MERGE_ROWS;
    const int64_t blocks = c.slots ? mha_cuda_decode_all_blocks(p, row) : (int64_t)c.heads * c.blocks;
    mha_cuda_launch l = {row->kernel, blocks, row->threads, mha_cuda_row_shared(row)};
    mha_cuda_launch merge = {merges[row->E / 64 - 1], c.heads * chunks, 32 * MHA_CUDA_MERGE_ROWS, 0};
    TRY(mha_cuda_start_early(p->ctx, &l, &c));
    return mha_cuda_start_early(p->ctx, &merge, &c);
}

/* Sequences that are not alike may be decoded in both ways. */
mha_status mha_cuda_decode_forward(const mha_problem *p, const mha_cuda_choice *choice, mha_arena *arena, bool run)
{
    if (choice->methods & MHA_CUDA_BIT(MHA_CUDA_BY_DECODING)) TRY(mha_cuda_decode_some(p, choice, arena, run, NULL));
    if (!(choice->methods & MHA_CUDA_BIT(MHA_CUDA_BY_DECODING_MANY))) return MHA_OK;
    return mha_cuda_decode_many_some(p, choice, arena, run, NULL);
}
