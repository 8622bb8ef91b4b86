/* What the kernels of backward.cuh and backward_rows.cuh share: kinds, the work of a block, and where sequences lie that are not
 * alike.
 *
 * The tiles of all sequences of a head have numbers ("slots", schedule.h). A block has one of them, and looks for the sequence
 * whose it is; numbers that no sequence has are left out. */
#ifndef MHA_CUDA_BACKWARD_PARTS_CUH
#define MHA_CUDA_BACKWARD_PARTS_CUH

#include "backward.h"
#include "careful.cuh"
#include "schedule.h"
#include "sequences.cuh"

namespace
{

/* A block owns 128 keys, half of them for each warpgroup that computes; or, as backward_wide.cu has it, 64 for both, and half of
 * the columns of dK, dV and dQ for each. */
#ifndef MHA_CUDA_BACKWARD_KEYS
#define MHA_CUDA_BACKWARD_KEYS 128
#endif
enum { GROUP = 128, CONSUMERS = 2, KEYS = MHA_CUDA_BACKWARD_KEYS, ALL = 1, TURN = ALL + 1 + CONSUMERS };
enum { HALVES = KEYS == 64 }; /* of columns, in place of keys */
enum { PIECE = 64 * 64 };     /* numbers of dQ that a warpgroup computes at a time */

/* Registers of a thread of the warpgroup that copies, and of one that computes. With more than a block has, it would wait for ever. */
enum { FEW = 24, MANY = 240 };
static_assert(FEW + CONSUMERS * MANY <= 504, "more registers than a block of three warpgroups has");
enum { LSE, DELTA, POWER, ROW_KINDS };
enum { BOUND_KEYS = 512 }; /* keys of a partial bound */

/* What rows see: all keys, those between two diagonals, what options say, what they say in sequences that are not alike, or
 * that with a bias, a mask and dropout. */
enum kind { FULL, WINDOW, OPTIONS, SEQUENCES, MAPS };

/* How dQ is summed: in integers, or in the order of key tiles. */
enum sums { INTEGERS, ORDERED };

/* What a block works on: keys from `first` on of a head, and the tiles of rows [from, from + count) of each query head,
 * beginning with `start` and around. A negative count: nothing, not even zeros. */
struct work {
    int first, head, batch, from, count, start;
    int query_head, heads; /* the query heads: all of the key head, or, of a tile of keys that blocks share, some */
    int sharers, number;   /* these blocks, and the number of the tile in c.shares */
};

/* ---- Sequences -------------------------------------------------------------------------------------------------- */

/* The sequence of a block, in shared memory; left and right as in mha_cuda_span. */
struct part_of_sequence {
    int b, tile; /* of the block; b is B if there is none */
    int queries, padded, length, keys;
    int query_row, key_row, query_batch, key_batch;
    int offset, left, right;
    int row_slot, bound_slot; /* numbers of its first tiles */
};

MHA_DEVICE sequence sequence_at(const mha_cuda_backward &c, int b)
{
    return find_sequence(c, c.query_rows, c.key_rows, b);
}

MHA_DEVICE mha_cuda_method method_of(const mha_cuda_backward &c, const volatile part_of_sequence &p)
{
    return mha_cuda_method_of(c.limits, p.queries, p.length);
}

/* What is known of sequence p.b, by one thread. */
MHA_DEVICE void put_part(volatile part_of_sequence &p, const mha_cuda_backward &c, const sequence &s, int rows_of_tile)
{
    const int64_t far = 1 << 30;
    p.queries = s.queries, p.padded = s.padded, p.length = s.length, p.keys = s.keys;
    p.query_row = (int)s.query_row, p.key_row = (int)s.key_row;
    p.query_batch = s.query_batch, p.key_batch = s.key_batch;
    p.offset = (int)limit(s.offset, -far, far);
    p.left = mha_cuda_left_edge(s.offset, c.window_left, s.queries, s.length);
    p.right = mha_cuda_right_edge(s.offset, c.window_right, s.queries, s.length);
    p.row_slot = mha_cuda_first_slot(s.b, s.query_row, rows_of_tile, c.row_tiles, c.query_starts.data != nullptr);
    p.bound_slot = mha_cuda_first_slot(s.b, s.key_row, BOUND_KEYS, c.bound_tiles, c.key_starts.data != nullptr);
}

/* All threads of a block look for the sequence of tile `slot`, of `size` keys or else rows; `tiles` is how many a sequence has
 * that is not packed. */
MHA_DEVICE void find_part(volatile part_of_sequence &p, const mha_cuda_backward &c, bool of_keys, int slot, int size,
                          int tiles, int rows_of_tile)
{
    bool packed = of_keys ? c.key_starts.data : c.query_starts.data;
    if (threadIdx.x == 0) p.b = packed ? c.B : slot / tiles;
    __syncthreads();
    for (int b = threadIdx.x; packed && b < c.B; b += blockDim.x) {
        sequence s = sequence_at(c, b);
        int first = mha_cuda_first_slot(b, of_keys ? s.key_row : s.query_row, size, tiles, true);
        int count = ((of_keys ? s.keys : s.padded) + size - 1) / size;
        if (slot >= first && slot < first + count) atomicMin((int *)&p.b, b);
    }
    __syncthreads();
    if (threadIdx.x == 0 && p.b < c.B) {
        sequence s = sequence_at(c, p.b);
        p.tile = slot - mha_cuda_first_slot(s.b, of_keys ? s.key_row : s.query_row, size, tiles, packed);
        put_part(p, c, s, rows_of_tile);
    }
    __syncthreads();
}

/* The number of a tile of rows among those of all heads. */
template <kind KIND>
MHA_DEVICE int64_t tile_number(const mha_cuda_backward &c, const volatile part_of_sequence *p, int batch, int head,
                               int tile)
{
    if (KIND >= SEQUENCES) return (int64_t)head * c.row_slots + p->row_slot + tile;
    return ((int64_t)batch * c.H + head) * c.row_tiles + tile;
}

/* How many there are. */
template <kind KIND> MHA_DEVICE int64_t tiles_of_all(const mha_cuda_backward &c)
{
    return (int64_t)c.H * (KIND >= SEQUENCES ? c.row_slots : c.B * c.row_tiles);
}

/* Its place in `lost_rows`, where all sequences have as many. */
MHA_DEVICE int64_t lost_place(const mha_cuda_backward &c, int batch, int head, int tile)
{
    return ((int64_t)batch * c.H + head) * c.row_tiles + tile;
}

/* Where the bounds of a key head are, and how many. */
struct bounds_of_head {
    float *first;
    int count;
};

template <kind KIND>
MHA_DEVICE bounds_of_head bounds_at(const mha_cuda_backward &c, const volatile part_of_sequence *p, int head, int batch)
{
    if (KIND >= SEQUENCES)
        return {c.bounds + 2 * ((int64_t)head * c.bound_slots + p->bound_slot), (p->length + BOUND_KEYS - 1) / BOUND_KEYS};
    return {c.bounds + 2 * ((int64_t)batch * c.G + head) * c.bound_tiles, c.bound_tiles};
}

/* The power of two that a key head's numbers have in the integers of dQ. LANES of a warp look for it together, and say if a bound is
 * infinite. */
template <kind KIND, int LANES>
MHA_DEVICE float power_of(const mha_cuda_backward &c, const volatile part_of_sequence *p, int head, int batch)
{
    const bounds_of_head bounds = bounds_at<KIND>(c, p, head, batch);
    float norm = 0, number = 0;
    for (int i = threadIdx.x % LANES; i < bounds.count; i += LANES) {
        norm = fmaxf(norm, bounds.first[2 * i]);
        if (bounds.first[2 * i + 1] < INFINITY) number = fmaxf(number, bounds.first[2 * i + 1]);
        else c.lost_heads[batch * c.G + head] = 1;
    }
    for (int lane = LANES / 2; lane; lane /= 2) {
        norm = fmaxf(norm, __shfl_xor_sync(~0u, norm, lane));
        number = fmaxf(number, __shfl_xor_sync(~0u, number, lane));
    }
    if (KIND == MAPS) norm *= c.kept;
    int exponent;
    frexpf(norm * number, &exponent);
    return exp2f((float)min(100, max(-100, 28 - exponent)));
}

/* Up to which key a row sees keys, by position. */
template <kind KIND>
MHA_DEVICE int keys_seen(const mha_cuda_backward &c, const volatile part_of_sequence *p, int row)
{
    if (KIND >= SEQUENCES) return row < p->queries ? mha_cuda_end_of_keys(p->length, row, p->right) : 0;
    return mha_cuda_end_of_keys(c.Tk, row, c.right);
}

template <kind KIND> MHA_DEVICE bool sees_any(const mha_cuda_backward &c, const volatile part_of_sequence *p, int row)
{
    int left = c.left;
    if (KIND >= SEQUENCES) left = p->left; /* in one expression, c.left would be volatile, too */
    return keys_seen<KIND>(c, p, row) > mha_cuda_first_key(row, left);
}

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

/* Zeros in place of the rows of a tile of SIZE from `first` on: their weights are 0, but 0 times NaN is NaN. Each warpgroup
 * writes all of them, so that none has to wait for another. */
template <int D, int SIZE> MHA_DEVICE void clear_rows(uint32_t tile, int first)
{
    first = max(0, first);
    for (int n = threadIdx.x % GROUP; n < (SIZE - first) * (D / 8); n += GROUP) {
        int row = first + n / (D / 8), piece = n % (D / 8);
        clear_piece(tile + piece / 8 * SIZE * ROW_BYTES + row * ROW_BYTES + piece % 8 * 16);
    }
}

/* `count` rows of a tile of keys to rows of a tensor, of `width` numbers: behind them lie those of another sequence. */
template <typename T>
__device__ __noinline__ void put_some_rows(const mha_cuda_rows &t, int batch, int head, int first, uint32_t from, int count,
                                           int width)
{
    T *to = (T *)t.data + batch * t.batch + head * t.head + first * t.row;
    for (int n = threadIdx.x % GROUP; n < count * (width / 8); n += GROUP) {
        int r = n / (width / 8), piece = n % (width / 8);
        *(uint4 *)(to + r * t.row + piece * 8) =
            get_piece(from + piece / 8 * KEYS * ROW_BYTES + r * ROW_BYTES + ((piece % 8) ^ (r % 8)) * 16);
    }
}

} // namespace

#endif
