#include "cuda/attention/ways.h"
#include "cuda/attention/small.h"
#include "cuda/general.h"
#include "cuda/plan.h"

static int64_t widest_of(const mha_problem *p) { return p->D > p->E ? p->D : p->E; }

/* The kernels of small heads have no windows; rows may be causal. */
static int32_t small_of(const mha_problem *p)
{
    const mha_attention_options *o = &p->options;
    bool unlimited = o->window_left == MHA_UNLIMITED && o->window_right == MHA_UNLIMITED;
    bool fits = widest_of(p) <= MHA_CUDA_SMALL_WIDTH && mha_cuda_is_plain(p) && unlimited;
    return fits ? MHA_CUDA_SMALL_LENGTH : MHA_CUDA_NONE;
}

mha_cuda_ways mha_cuda_ways_forward(const mha_problem *p)
{
    bool full = !mha_cuda_has_window(&p->options);
    enum { MOST = 16 }; /* rows of a query head: more fill the tiles of the other kernels */
    const bool decodes = !mha_cuda_decode_obstacle(p);
    const int64_t few = MHA_CUDA_DECODE_MOST / p->share, many = MHA_CUDA_MANY_ROWS / p->share;
    return (mha_cuda_ways){.small = mha_cuda_is_for_tiles(p) ? small_of(p) : MHA_CUDA_NONE,
                           .decoded = decodes && few ? (int32_t)few : MHA_CUDA_NONE,
                           .decoded_many = decodes && many ? (int32_t)(many < MOST ? many : MOST) : MHA_CUDA_NONE,
                           .ordered = MHA_CUDA_NONE,
                           .short_rows = full && mha_cuda_is_plain(p) && widest_of(p) <= 64 ? MHA_CUDA_SHORT_ROWS
                                                                                            : MHA_CUDA_NONE};
}

mha_cuda_ways mha_cuda_ways_backward(const mha_problem *p)
{
    enum { ORDERED = 512 }; /* rows and keys: beyond, one block for a head is slower than many that add integers */
    return (mha_cuda_ways){.small = small_of(p),
                           .decoded = MHA_CUDA_NONE,
                           .decoded_many = MHA_CUDA_NONE,
                           .ordered = mha_cuda_is_plain(p) && widest_of(p) <= 128 ? ORDERED : MHA_CUDA_NONE,
                           .short_rows = MHA_CUDA_NONE};
}

/* The way of a sequence is the same between numbers of rows, or keys, where a way ends: the ends, and one more, stand for all. */
unsigned mha_cuda_ways_among(const mha_problem *p, mha_cuda_ways ways)
{
    const mha_attention_options *o = &p->options;
    const int32_t most_rows = (int32_t)mha_cuda_most_of(p, 2), most_keys = (int32_t)mha_cuda_most_of(p, 3);
    const int32_t least_rows = o->query_lengths.rank || o->query_starts.rank ? 0 : most_rows;
    const int32_t least_keys = o->key_lengths.rank || o->key_starts.rank ? 0 : most_keys;
    const int32_t ends[] = {ways.small,      ways.decoded,         ways.ordered,
                            ways.short_rows, MHA_CUDA_SHORT_ABOVE, ways.decoded_many};
    enum { ENDS = sizeof ends / sizeof *ends, ALL = 2 * ENDS + 2 };
    int32_t rows[ALL] = {least_rows, most_rows}, keys[ALL] = {least_keys, most_keys};
    unsigned among = 0;
    for (int n = 0; n < 2 * ENDS; n++) rows[n + 2] = keys[n + 2] = ends[n / 2] + n % 2;
    for (int i = 0; i < ALL; i++)
        for (int j = 0; j < ALL; j++)
            if (rows[i] >= least_rows && rows[i] <= most_rows && keys[j] >= least_keys && keys[j] <= most_keys)
                among |= MHA_CUDA_BIT(mha_cuda_way_of(ways, rows[i], keys[j]));
    return among;
}

mha_cuda_path mha_cuda_path_forward(const mha_problem *p)
{
    unsigned among = mha_cuda_ways_among(p, mha_cuda_ways_forward(p));
    if (!(among & ~(MHA_CUDA_BIT(MHA_CUDA_BY_DECODING) | MHA_CUDA_BIT(MHA_CUDA_BY_DECODING_MANY))))
        return MHA_CUDA_PATH_DECODE;
    if (!mha_cuda_float32_obstacle(p)) return MHA_CUDA_PATH_FLOAT32;
    if (mha_cuda_obstacle(p)) return MHA_CUDA_PATH_GENERAL;
    return among == MHA_CUDA_BIT(MHA_CUDA_BY_SMALL_HEADS) ? MHA_CUDA_PATH_SMALL : MHA_CUDA_PATH_TILES;
}

mha_cuda_path mha_cuda_path_backward(const mha_gradient_call *call)
{
    const mha_problem *p = &call->problem;
    if (mha_cuda_obstacle_backward(call)) return MHA_CUDA_PATH_GENERAL;
    unsigned among = mha_cuda_ways_among(p, mha_cuda_ways_backward(p));
    return among == MHA_CUDA_BIT(MHA_CUDA_BY_SMALL_HEADS) ? MHA_CUDA_PATH_SMALL : MHA_CUDA_PATH_TILES;
}
