/* Bias, masks and dropout of a tile of 64 rows, for the kernels of backward.cuh with maps.
 *
 * A warp has 16 keys. A thread has two of them, key and key + 8, and rows 8 b + {0,1} from `lane % 4 * 2` on, b = 0 to 7. */
#ifndef MHA_CUDA_BACKWARD_MAPS_CUH
#define MHA_CUDA_BACKWARD_MAPS_CUH

#include "backward_parts.cuh"
#include "philox.cuh"

namespace
{

/* The bits of a row and 16 keys, those of a warp: which it sees, and which of its weights dropout keeps. Warps that have
 * nothing else to do find them and leave them in shared memory, for 128 keys and 64 rows, which lie side by side. */
enum { VISIBLE = 0, KEPT = 16 };
enum { BIT_STAGES = 2, BIT_SIXTEENS = KEYS / 16, BIT_ROWS = 64 + 4, BIT_FINDERS = 96 };

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
    int thread = threadIdx.x - GROUP;
    return m.w.first + thread / 32 * 16 + thread % 32 / 4;
}

/* ---- Masks and dropout ------------------------------------------------------------------------------------------ */

/* Bit n of four: whether byte n is not 0. */
MHA_DEVICE uint32_t bits_of_bytes(uint32_t x)
{
    uint32_t high = (x | ((x & 0x7f7f7f7fu) + 0x7f7f7f7fu)) & 0x80808080u;
    return (high >> 7) * 0x01020408u >> 24 & 15;
}

MHA_DEVICE uint32_t bits_of_sixteen(uint4 x)
{
    return bits_of_bytes(x.x) | bits_of_bytes(x.y) << 4 | bits_of_bytes(x.z) << 8 | bits_of_bytes(x.w) << 12;
}

typedef uint32_t bits_of_tile[BIT_SIXTEENS * BIT_ROWS];

/* Where a warp finds bits: in 64 rows of a head, of tile i of the block, after so many others. In shared memory, for want of
 * registers. */
struct place_of_bits {
    int head, row, i, count;
};

/* Asked anew each time, for the same reason. */
MHA_DEVICE bool is_first_lane(void)
{
    uint32_t lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane == 0;
}

MHA_DEVICE void put_bits(bits_of_tile *to, const volatile place_of_bits &t, int at, uint32_t bits)
{
    to[t.count % BIT_STAGES][at % BIT_SIXTEENS * BIT_ROWS + at / BIT_SIXTEENS] = bits;
}

/* Of 16 keys from `key` on, of the row whose mask begins at `from`. */
MHA_DEVICE uint32_t visible_bits(const mha_cuda_backward &c, const uint8_t *from, int key, int length)
{
    uint32_t bits = 0;
    if (c.mask_sixteens && key + 16 <= length) return bits_of_sixteen(*(const uint4 *)(from + key));
#pragma unroll 1
    for (int n = 0; n < 16; n++)
        bits |= (from[min(key + n, length - 1) * c.mask.stride[3]] != 0 ? 1u : 0u) << n;
    return bits;
}

/* Four neighbouring keys have one draw. */
MHA_DEVICE uint32_t kept_bits(const mha_cuda_backward &c, const volatile work &w, const volatile place_of_bits &t, int at)
{
    uint32_t bits = 0, dropped = (uint32_t)c.dropped, row = t.row + at / BIT_SIXTEENS, head = t.head,
             four = (uint32_t)(w.first + at % BIT_SIXTEENS * 16) / 4;
    uint64_t stream = c.stream + (uint64_t)w.batch, key = c.seed + (stream >> 32) * 0x9E3779B97F4A7C15ull;
#pragma unroll
    for (int n = 0; n < 16; n += 4) {
        uint32_t x[4] = {four + n / 4, row, head, (uint32_t)stream};
        philox(x, key);
#pragma unroll
        for (int k = 0; k < 4; k++) bits |= x[k] >= dropped ? 1u << (n + k) : 0;
    }
    return bits;
}

/* Eight threads have a row together. */
MHA_DEVICE void find_bits(bits_of_tile *to, const mha_cuda_backward &c, const volatile work &w, const volatile part_of_sequence &part,
                          const volatile place_of_bits &t)
{
#pragma unroll 1
    for (int at = threadIdx.x - (GROUP - BIT_FINDERS); at < 64 * BIT_SIXTEENS; at += BIT_FINDERS) {
        uint32_t visible = 0xffff, kept = 0xffff;
        if (c.mask.data) {
            int row = min(t.row + at / BIT_SIXTEENS, part.queries - 1);
            visible = visible_bits(c, (const uint8_t *)c.mask.data + place(c.mask, w.batch, t.head, row, 0),
                                   w.first + at % BIT_SIXTEENS * 16, part.length);
        }
        if (c.dropped) kept = kept_bits(c, w, t, at);
        put_bits(to, t, at, visible << VISIBLE | kept << KEPT);
    }
}

/* Whether tiles of a mask are all that there is, and can be read 16 keys at a time. They are fetched while the bits of the tile
 * before are found; a thread finds those of what it has fetched. */
MHA_DEVICE bool has_whole_masks(const mha_cuda_backward &c, const volatile work &w, const volatile part_of_sequence &part)
{
    return c.mask_sixteens && !c.dropped && w.first + KEYS <= part.length;
}

MHA_DEVICE void fetch_mask(uint32_t to, const mha_cuda_backward &c, const volatile work &w, const volatile part_of_sequence &part,
                           const volatile place_of_bits &t)
{
    const uint8_t *from = (const uint8_t *)c.mask.data + place(c.mask, w.batch, t.head, 0, w.first);
#pragma unroll 1
    for (int at = threadIdx.x - (GROUP - BIT_FINDERS); at < 64 * BIT_SIXTEENS; at += BIT_FINDERS) {
        int row = min(t.row + at / BIT_SIXTEENS, part.queries - 1);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + at * 16),
                     "l"(from + row * c.mask.stride[2] + at % BIT_SIXTEENS * 16)
                     : "memory");
    }
}

MHA_DEVICE void find_mask_bits(uint32_t *to, const unsigned char *from)
{
#pragma unroll 1
    for (int at = threadIdx.x - (GROUP - BIT_FINDERS); at < 64 * BIT_SIXTEENS; at += BIT_FINDERS)
        to[at % BIT_SIXTEENS * BIT_ROWS + at / BIT_SIXTEENS] = bits_of_sixteen(*(const uint4 *)(from + at * 16)) | 0xffffu << KEPT;
}

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

/* Two 8 x 8 matrices, turned; lanes 0 to 15 give the addresses of their rows. */
MHA_DEVICE void load_matrices_turned(uint32_t (&x)[2], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(row));
}

/* From a tile of 16-bit numbers in shared memory. */
template <typename T> MHA_DEVICE void bias_of_halves(float (&add)[4], uint32_t tile, int b, float by)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x % GROUP / 32, who = threadIdx.x / GROUP - 1, piece = warp * 2 + lane / 8 % 2;
    uint32_t x[2];
    load_matrices_turned(x, tile + who * MAP_PANEL + (8 * b + lane % 8) * ROW_BYTES + (piece ^ lane % 8) * 16);
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
        float x;
        asm volatile("ld.shared.f32 %0, [%1];"
                     : "=f"(x)
                     : "r"(tile + row * ROW_BYTES + (column / 4 ^ row % 8) * 16 + column % 4 * 4));
        add[n] = x * by;
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
    int row = m.row + 8 * b + threadIdx.x % 4 * 2, key = first_key(m), queries = m.part.queries, length = m.part.length;
    float *to = (float *)c.dbias.data + place(c.dbias, m.w.batch, m.head, row, key);
#pragma unroll
    for (int n = 0; n < 4; n++) {
        if (row + n % 2 >= queries || key + n / 2 * 8 >= length) continue;
        float *own = to + n % 2 * c.dbias.stride[2] + n / 2 * 8 * c.dbias.stride[3];
        /* Nobody else adds to it in this launch. */
        if (c.dbias_adds) asm volatile("red.global.add.f32 [%0], %1;" ::"l"(own), "f"(x[n]) : "memory");
        else asm volatile("st.global.f32 [%0], %1;" ::"l"(own), "f"(x[n]) : "memory");
    }
}

} // namespace

#endif
