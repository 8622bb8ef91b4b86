/* Bias, masks and dropout of a tile of 64 rows, for the kernels of backward.cuh with maps.
 *
 * A warp has 16 keys. A thread has two of them, key and key + 8, and rows 8 b + {0,1} from `lane % 4 * 2` on, b = 0 to 7. */
#ifndef MHA_CUDA_BACKWARD_MAPS_CUH
#define MHA_CUDA_BACKWARD_MAPS_CUH

#include "backward_parts.cuh"
#include "bits.cuh"

namespace
{

/* Those of the last three warps of the warpgroup that copies. With few registers: one word at a time. */
enum { BIT_FINDERS = 96 };
typedef bit_team<KEYS, GROUP - BIT_FINDERS, BIT_FINDERS, 1> finders;

struct maps_of_tile {
    const volatile work &w;
    const volatile part_of_sequence &part; /* what is not there is not read */
    int head, row;                         /* the first of the 64 rows */
    const uint32_t *bits; /* of the warp's keys, in shared memory, from the first row of the thread on */
    uint32_t bias;        /* the tile in shared memory, or 0: it is read as it is */
};

/* The first of the keys of a thread. */
MHA_DEVICE int first_key(const maps_of_tile &m)
{
    int thread = HALVES ? threadIdx.x % GROUP : threadIdx.x - GROUP;
    return m.w.first + thread / 32 * 16 + thread % 32 / 4;
}

/* ---- Masks and dropout ------------------------------------------------------------------------------------------ */

/* Where a warp finds bits: in 64 rows of a head, of tile i of the block, after so many others. In shared memory, for want of
 * registers. */
struct place_of_bits {
    int head, row, i, count;
};

/* The same for bits.cuh, read from there each time. */
struct bits_at {
    const volatile work &w;
    const volatile part_of_sequence &part;
    const volatile place_of_bits &t;
    MHA_DEVICE int batch(void) const { return w.batch; }
    MHA_DEVICE int head(void) const { return t.head; }
    MHA_DEVICE int row(void) const { return t.row; }
    MHA_DEVICE int key(void) const { return w.first; }
    MHA_DEVICE int queries(void) const { return part.queries; }
    MHA_DEVICE int length(void) const { return part.length; }
};

/* Asked anew each time, for the same reason. */
MHA_DEVICE bool is_first_lane(void) { return lane_again() == 0; }

/* Of the thread's two rows from 8 b on, beginning with its key. */
MHA_DEVICE void bits_of_rows(uint32_t (&bits)[2], const maps_of_tile &m, int b)
{
    uint2 both = *(const uint2 *)(m.bits + 8 * b);
    bits[0] = both.x >> threadIdx.x % 32 / 4, bits[1] = both.y >> threadIdx.x % 32 / 4;
}

/* ---- Bias ------------------------------------------------------------------------------------------------------- */

/* Tiles of bias come in one stage of float32 or in two of 16 bits, as panels of 64 rows of 128 bytes. */
enum { MAP_PANEL = 64 * ROW_BYTES };

MHA_DEVICE uint32_t map_stage(uint32_t count, int stages) { return count & (stages - 1); }
MHA_DEVICE uint32_t map_parity(uint32_t count, int stages) { return count >> (stages - 1) & 1; }

/* From a tile of 16-bit numbers in shared memory. */
template <typename T> MHA_DEVICE void bias_of_halves(float (&add)[4], uint32_t tile, int b, float by)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x % GROUP / 32, who = threadIdx.x / GROUP - 1, piece = warp * 2 + lane / 8 % 2;
    uint32_t x[2];
    load_matrices_transposed(x, tile + who * MAP_PANEL + (8 * b + lane % 8) * ROW_BYTES + (piece ^ lane % 8) * 16);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float2 both = pair_of<T>::get(x[i]);
        add[2 * i] = both.x * by, add[2 * i + 1] = both.y * by;
    }
}

/* From one of float32. */
MHA_DEVICE void bias_of_floats(float (&add)[4], uint32_t tile, int b, float by)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x % GROUP / 32, who = threadIdx.x / GROUP - 1;
    tile += (who * 2 + warp / 2) * MAP_PANEL;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        int row = 8 * b + lane % 4 * 2 + n % 2, column = warp % 2 * 16 + n / 2 * 8 + lane / 4;
        add[n] = get_shared_float(tile + row * ROW_BYTES + (column / 4 ^ row % 8) * 16 + column % 4 * 4) * by;
    }
}

/* The bias of the thread's two rows from 8 b on: of its first key, then of its second, in units of log 2. */
MHA_DEVICE void bias_of_rows(float (&add)[4], const mha_cuda_backward &c, const maps_of_tile &m, int b)
{
    const float log2_e = 1.44269504f;
    if (!c.bias.data) return;
    if (m.bias) {
        if (c.bias.type == BFLOAT16) bias_of_halves<__nv_bfloat16>(add, m.bias, b, log2_e);
        else if (c.bias.type == FLOAT16) bias_of_halves<__half>(add, m.bias, b, log2_e);
        else bias_of_floats(add, m.bias, b, log2_e);
        return;
    }
    int key = first_key(m), last = m.part.length - 1;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int own = min(m.row + 8 * b + (int)threadIdx.x % 4 * 2 + e, m.part.queries - 1);
        int64_t row = place(c.bias, m.w.batch, m.head, own, 0);
#pragma unroll
        for (int i = 0; i < 2; i++)
            add[2 * i + e] = load(c.bias, row + min(key + 8 * i, last) * c.bias.stride[3]) * log2_e;
    }
}

/* Products x become scores with the bias, in units of log 2. */
MHA_DEVICE void add_bias(float (&x)[32], const mha_cuda_backward &c, const maps_of_tile &m)
{
    auto all = [&](auto bias_of) {
#pragma unroll
        for (int b = 0; b < 8; b++) {
            float add[4];
            bias_of(add, b);
#pragma unroll
            for (int i = 0; i < 4; i++) x[4 * b + i] = fmaf(x[4 * b + i], c.scale_log2, add[i]);
        }
    };
    const float log2_e = 1.44269504f;
    if (!m.bias) all([&](float(&add)[4], int b) { bias_of_rows(add, c, m, b); });
    else if (c.bias.type == BFLOAT16) all([&](float(&add)[4], int b) { bias_of_halves<__nv_bfloat16>(add, m.bias, b, log2_e); });
    else if (c.bias.type == FLOAT16) all([&](float(&add)[4], int b) { bias_of_halves<__half>(add, m.bias, b, log2_e); });
    else all([&](float(&add)[4], int b) { bias_of_floats(add, m.bias, b, log2_e); });
}

/* The gradient of the bias of the thread's two rows from 8 b on: a warp has 32 bytes of each row. */
MHA_DEVICE void put_bias(const float (&x)[4], const mha_cuda_backward &c, const maps_of_tile &m, int b)
{
    if (HALVES && threadIdx.x >= 2 * GROUP) return; /* the other warpgroup has the same */
    int row = m.row + 8 * b + threadIdx.x % 4 * 2, key = first_key(m), queries = m.part.queries, length = m.part.length;
    float *to = (float *)c.dbias.data + place(c.dbias, m.w.batch, m.head, row, key);
#pragma unroll
    for (int n = 0; n < 4; n++) {
        if (row + n % 2 >= queries || key + n / 2 * 8 >= length) continue;
        float *own = to + n % 2 * c.dbias.stride[2] + n / 2 * 8 * c.dbias.stride[3];
        /* Nobody else adds to it in this launch. */
        if (c.dbias_adds) add_float(own, x[n]);
        else put_float(own, x[n]);
    }
}

} // namespace

#endif
