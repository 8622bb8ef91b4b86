/* Calls for the decode kernels: few rows, many keys. */
#include "cuda/attention/decode.h"
#include "cuda/attention.h"
#include "cuda/attention/ways.h"
#include "cuda/device.h"
#include "cuda/schedule.h"

/* How a family of kernels shares the keys of a head. */
typedef struct family {
    mha_cuda_way way;
    int32_t rows;    /* of a key head, at most */
    int32_t tile;    /* keys */
    int32_t columns; /* of sums */
    int32_t least;   /* keys of a block, at least */
    int32_t splits;  /* blocks of a key head */
} family;

static family few_of(const mha_problem *p)
{
    const int columns = mha_cuda_decode_widths[mha_cuda_decode_width(p)];
    return (family){.way = MHA_CUDA_BY_DECODING,
                    .rows = MHA_CUDA_DECODE_MOST,
                    .tile = MHA_CUDA_DECODE_TILE(columns),
                    .columns = columns,
                    .least = mha_cuda_decode_least(columns),
                    .splits = mha_cuda_decode_blocks(columns, (int32_t)mha_cuda_most_of(p, 3),
                                                     mha_sequences_are_alike(&p->options))};
}

static family many_of(const mha_problem *p)
{
    return (family){.way = MHA_CUDA_BY_DECODING_MANY,
                    .rows = MHA_CUDA_MANY_ROWS,
                    .tile = MHA_CUDA_MANY_TILE,
                    .columns = mha_cuda_many_widths[mha_cuda_many_width(p)].values,
                    .least = mha_cuda_many_keys(0),
                    .splits =
                        mha_cuda_many_blocks((int32_t)mha_cuda_most_of(p, 3), mha_sequences_are_alike(&p->options))};
}

/* Blocks of a key head of all sequences, packed. */
static int32_t slots_of(const mha_problem *p, const family *f)
{
    return mha_cuda_slots((int32_t)p->B, p->k.size[2], f->least, 0, true);
}

/* Blocks of all key heads; where keys lie packed, so many that each sequence has its own. */
static int64_t blocks_of(const mha_problem *p, const family *f)
{
    return p->G * (p->options.key_starts.rank ? (int64_t)slots_of(p, f) : p->B * f->splits);
}

int64_t mha_cuda_decode_all_blocks(const mha_problem *p)
{
    const family f = few_of(p);
    return blocks_of(p, &f);
}

int64_t mha_cuda_many_all_blocks(const mha_problem *p)
{
    const family f = many_of(p);
    return blocks_of(p, &f);
}

/* What kernels of a family are told, beside the key heads of a launch; and scratch. */
static mha_status describe(mha_cuda_decode *c, const family *f, const mha_problem *p, mha_arena *arena,
                           const int32_t *counts, bool run)
{
    int64_t rows = p->share * mha_cuda_most_of(p, 2);
    *c = (mha_cuda_decode){.splits = f->splits,
                           .blocks = f->splits,
                           .units = 1,
                           .slots = p->options.key_starts.rank ? slots_of(p, f) : 0,
                           .alike = !mha_cuda_has_spans(p),
                           .ways = mha_cuda_ways_forward(p),
                           .count = counts ? counts + f->way : NULL,
                           .room = (int32_t)(rows < f->rows ? rows : f->rows)};
    int64_t parts = mha_arena_times(blocks_of(p, f), c->room);
    MHA_TAKE(arena, c->sums, mha_arena_times(parts, f->columns));
    MHA_TAKE(arena, c->softmax, mha_arena_times(parts, 2));
    if (!run) return MHA_OK;
    c->g = mha_cuda_describe_general(p);
    TRY(mha_cuda_map(p->ctx, &c->k, p->k, f->tile));
    return mha_cuda_map(p->ctx, &c->v, p->v, f->tile);
}

mha_status mha_cuda_decode_some(const mha_problem *p, mha_arena *arena, bool run, const int32_t *counts)
{
    mha_cuda_device *d = mha_cuda_of(p->ctx);
    const family f = few_of(p);
    int type = p->q.type == MHA_FLOAT16, width = mha_cuda_decode_width(p);
    int64_t heads = p->B * p->G, all = blocks_of(p, &f);
    mha_cuda_decode c;
    TRY(describe(&c, &f, p, arena, counts, run));
    c.counters = (int32_t *)(uintptr_t)d->counter; // NOLINT(performance-no-int-to-ptr)
    for (int64_t first = 0; run && first < heads; first += MHA_CUDA_COUNTERS) {
        int64_t some = heads - first < MHA_CUDA_COUNTERS ? heads - first : MHA_CUDA_COUNTERS;
        c.first_head = (int32_t)first, c.heads = (int32_t)some;
        mha_cuda_launch l = {d->decode[type][width], mha_cuda_decode_name(type, width), c.slots ? all : some * c.splits,
                             MHA_CUDA_DECODE_THREADS, mha_cuda_decode_shared(width)};
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

mha_status mha_cuda_decode_many_some(const mha_problem *p, mha_arena *arena, bool run, const int32_t *counts)
{
    mha_cuda_device *d = mha_cuda_of(p->ctx);
    const family f = many_of(p);
    int type = p->q.type == MHA_FLOAT16, width = mha_cuda_many_width(p);
    bool wide = mha_cuda_many_is_wide(p);
    mha_cuda_decode c;
    TRY(describe(&c, &f, p, arena, counts, run));
    if (!run) return MHA_OK;
    c.heads = (int32_t)(p->B * p->G);
    if (!c.slots) {
        const int fit = wide ? 1 : MHA_CUDA_MANY_BLOCKS(mha_cuda_many_widths[width].keys, 64);
        c.units = splits_in_a_row(c.heads, c.splits, (int64_t)d->processors * fit);
        c.blocks = (c.splits + c.units - 1) / c.units;
    }
    const int64_t chunks = (c.room + MHA_CUDA_MERGE_ROWS - 1) / MHA_CUDA_MERGE_ROWS;
    mha_cuda_launch l = {d->many[type][width][wide], mha_cuda_many_name(type, width, wide),
                         c.slots ? blocks_of(p, &f) : (int64_t)c.heads * c.blocks,
                         wide ? MHA_CUDA_MANY_THREADS(128) : MHA_CUDA_MANY_THREADS(64),
                         mha_cuda_many_shared(width, wide)};
    mha_cuda_launch merge = {d->merge[f.columns / 64 - 1], mha_cuda_merge_name(f.columns), c.heads * chunks,
                             32 * MHA_CUDA_MERGE_ROWS, 0};
    TRY(mha_cuda_start_early(p->ctx, &l, &c));
    return mha_cuda_start_early(p->ctx, &merge, &c);
}

/* Sequences that are not alike may go both ways. */
mha_status mha_cuda_decode_forward(const mha_problem *p, mha_arena *arena, bool run)
{
    const unsigned among = mha_cuda_ways_among(p, mha_cuda_ways_forward(p));
    if (among & MHA_CUDA_BIT(MHA_CUDA_BY_DECODING)) TRY(mha_cuda_decode_some(p, arena, run, NULL));
    return among & MHA_CUDA_BIT(MHA_CUDA_BY_DECODING_MANY) ? mha_cuda_decode_many_some(p, arena, run, NULL) : MHA_OK;
}
