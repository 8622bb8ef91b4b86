/* The order in which blocks of threads take the tiles of a call, for the host and the device.
 *
 * Heads are worked on in sections whose tensors fit the cache of the GPU. In a section, tile 0 of every head comes first,
 * then tile 1, and so on; forward kernels count tiles from the last rows, which see the most keys when they are causal. */
#ifndef MHA_CUDA_SCHEDULE_H
#define MHA_CUDA_SCHEDULE_H

#include "window.h"

/* How a sequence is computed. Its own rows and keys, without padding, decide, and what is the same for all sequences of a call: so a
 * sequence has the same kernels, and the same bits, alone and in any batch. Where sequences differ, each kernel of a call leaves out those
 * of the others. */
typedef enum mha_cuda_method {
    MHA_CUDA_BY_TILES,
    MHA_CUDA_BY_ONE_TILE, /* forward, more than MHA_CUDA_ONE_TILE_ABOVE rows that fit one tile: blocks of fewer keys */
    MHA_CUDA_BY_ORDER,    /* backward, few rows and keys: dQ is summed in order */
    MHA_CUDA_BY_DECODING, /* forward, very few rows */
    MHA_CUDA_BY_SMALL_HEADS,   /* few rows and keys of narrow heads */
    MHA_CUDA_BY_DECODING_MANY, /* forward, few rows, which with those of the other heads of their key head are many */
    MHA_CUDA_METHODS
} mha_cuda_method;

/* The most rows, and keys where they count, of a sequence that is computed by a method; MHA_CUDA_NONE: no sequence is. */
typedef struct mha_cuda_limits {
    int32_t one_tile, ordered, decoded, small, decoded_many;
} mha_cuda_limits;

enum { MHA_CUDA_NONE = -1, MHA_CUDA_ONE_TILE_ABOVE = 192, MHA_CUDA_ONE_TILE_ROWS = 256 };

MHA_CUDA_SHARED mha_cuda_method mha_cuda_method_of(mha_cuda_limits most, int32_t rows, int32_t keys)
{
    if (rows <= most.small && keys <= most.small) return MHA_CUDA_BY_SMALL_HEADS;
    if (rows <= most.decoded) return MHA_CUDA_BY_DECODING;
    if (rows <= most.decoded_many) return MHA_CUDA_BY_DECODING_MANY;
    if (rows <= most.ordered && keys <= most.ordered) return MHA_CUDA_BY_ORDER;
    return rows > MHA_CUDA_ONE_TILE_ABOVE && rows <= most.one_tile ? MHA_CUDA_BY_ONE_TILE : MHA_CUDA_BY_TILES;
}

/* Tile `tile` of head `head`, counted over all sequences. */
typedef struct mha_cuda_place {
    int32_t head, tile;
} mha_cuda_place;

/* The place of piece n, from 0 to heads * tiles - 1. */
MHA_CUDA_SHARED mha_cuda_place mha_cuda_place_of(int32_t n, int32_t heads, int32_t tiles, int32_t section)
{
    int32_t in_section = section * tiles, first = n / in_section * section, rest = n % in_section;
    int32_t width = section < heads - first ? section : heads - first;
    mha_cuda_place place = {first + rest % width, rest / width};
    return place;
}

/* The key tiles of a backward block whose sums are in order: [first, first + count) of a head, counted over all sequences. Of `parts`
 * blocks of a head, all but the first have one tile: float32 sums are then added in the same order whatever their number is. Blocks
 * with the most tiles come first. */
typedef struct mha_cuda_share {
    int32_t head, first, count;
} mha_cuda_share;

/* The part that has key tile `tile`. */
MHA_CUDA_SHARED int32_t mha_cuda_part_of(int32_t tile, int32_t tiles, int32_t parts)
{
    int32_t part = tile - (tiles - parts);
    return part > 0 ? part : 0;
}

/* The share of block n, from 0 to heads * parts - 1. */
MHA_CUDA_SHARED mha_cuda_share mha_cuda_share_of(int32_t n, int32_t heads, int32_t tiles, int32_t parts)
{
    int32_t part = n / heads, more = tiles - parts; /* tiles that the first block has beyond one */
    mha_cuda_share share = {n % heads, part ? more + part : 0, part ? 1 : more + 1};
    return share;
}

/* Tiles of `size` rows of all sequences of a head, by number. Each sequence has `tiles` of them; or, if sequences lie packed one
 * behind another, as many as it needs: sequence b, which begins with row `row`, has those from b + row / size on, so that nobody
 * has to count the tiles of those before it. */
MHA_CUDA_SHARED int32_t mha_cuda_first_slot(int32_t b, int64_t row, int32_t size, int32_t tiles, int packed)
{
    return packed ? b + (int32_t)(row / size) : b * tiles;
}

/* How many numbers there are, with `rows` rows in all if sequences lie packed. */
MHA_CUDA_SHARED int32_t mha_cuda_slots(int32_t B, int64_t rows, int32_t size, int32_t tiles, int packed)
{
    return mha_cuda_first_slot(B, rows, size, tiles, packed);
}

/* Blocks backward that share a tile of keys, each with some of the query heads of its key head: two where sequences have few tiles of
 * keys, each of which takes long, so that one block for each would leave multiprocessors without work. */
enum { MHA_CUDA_SHARED_HEADS = 8, MHA_CUDA_SHARED_ROWS = 2048 };

MHA_CUDA_SHARED int32_t mha_cuda_sharers(int32_t group, int32_t rows)
{
    return group >= MHA_CUDA_SHARED_HEADS && rows <= MHA_CUDA_SHARED_ROWS ? 2 : 1;
}

enum { MHA_CUDA_DECODE_LONG = 4096 }; /* keys from which on a sequence is long */

/* Keys of a block of a decode kernel of `width` columns, a power of two: 128 KB of keys and as much of values, or half of it at width 64
 * if the sequence is not long, so that enough blocks share its keys. `length`, its number of keys without padding, decides, so that
 * its bits depend neither on the batch nor on the sizes of tensors. */
MHA_CUDA_SHARED int32_t mha_cuda_decode_keys(int32_t width, int32_t length)
{
    return width == 64 && length < MHA_CUDA_DECODE_LONG ? 512 : 65536 / width;
}

/* The fewest that there are. */
MHA_CUDA_SHARED int32_t mha_cuda_decode_least(int32_t width) { return mha_cuda_decode_keys(width, 0); }

/* How many of these blocks a sequence of at most Tk keys may have. If lengths differ, one that is not long may have more of them
 * than a longer one. */
MHA_CUDA_SHARED int32_t mha_cuda_decode_blocks(int32_t width, int32_t Tk, int alike)
{
    int32_t not_long = Tk < MHA_CUDA_DECODE_LONG ? Tk : MHA_CUDA_DECODE_LONG - 1;
    int32_t all = (Tk - 1) / mha_cuda_decode_keys(width, Tk) + 1,
            most = (not_long - 1) / mha_cuda_decode_keys(width, not_long) + 1;
    return alike || all > most ? all : most;
}

/* The same for the kernels of many rows. The sums of a block are as long as its rows, so blocks of long sequences, of which there are
 * enough, have more keys. */
enum { MHA_CUDA_MANY_LONG = 8192, MHA_CUDA_MANY_LONGER = 32768 };

MHA_CUDA_SHARED int32_t mha_cuda_many_keys(int32_t length)
{
    return length < MHA_CUDA_MANY_LONG ? 256 : length < MHA_CUDA_MANY_LONGER ? 512 : 1024;
}

MHA_CUDA_SHARED int32_t mha_cuda_many_blocks(int32_t Tk, int alike)
{
    const int32_t ends[] = {Tk, MHA_CUDA_MANY_LONG - 1, MHA_CUDA_MANY_LONGER - 1};
    int32_t most = 0;
    for (int n = 0; n < (alike ? 1 : 3); n++) {
        int32_t keys = ends[n] < Tk ? ends[n] : Tk, own = (keys - 1) / mha_cuda_many_keys(keys) + 1;
        if (own > most) most = own;
    }
    return most;
}

#endif
