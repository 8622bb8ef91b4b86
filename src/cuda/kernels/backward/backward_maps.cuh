/* Bias, masks and dropout of a tile of 64 rows, for the kernels of backward.cuh with maps.
 *
 * A warp has 16 keys. A thread has two of them, key and key + 8, and rows 8 b + {0,1} from `lane % 4 * 2` on, b = 0 to 7. */
#ifndef MHA_CUDA_BACKWARD_MAPS_CUH
#define MHA_CUDA_BACKWARD_MAPS_CUH

#include "backward_parts.cuh"
#include "philox.cuh"

namespace
{

/* For templates that are chosen when a kernel runs. */
struct yes {
    enum { value = 1 };
};
struct no {
    enum { value = 0 };
};

/* The bits of a row: which of the 16 keys of a warp it sees, and which of its weights dropout keeps. */
enum { VISIBLE = 0, KEPT = 16 };

struct maps_of_tile {
    int b, head, row, key; /* the first of the 64 rows, the first of the warp's keys */
    int queries, length;   /* of the sequence: what is not there is not read */
    uint32_t bits[2];      /* of rows lane and lane + 32 */
    uint32_t bias;         /* the tile in shared memory, or 0: it is read as it is */
};

/* ---- Masks and dropout ------------------------------------------------------------------------------------------ */

/* Bit n of four: whether byte n is not 0. */
MHA_DEVICE uint32_t bits_of_bytes(uint32_t x)
{
    uint32_t high = (x | ((x & 0x7f7f7f7fu) + 0x7f7f7f7fu)) & 0x80808080u;
    return (high >> 7) * 0x01020408u >> 24 & 15;
}

MHA_DEVICE uint32_t visible_bits(const mha_cuda_backward &c, const maps_of_tile &m, int row)
{
    const uint8_t *from = (const uint8_t *)c.mask.data + place(c.mask, m.b, m.head, min(row, m.queries - 1), 0);
    uint32_t bits = 0;
    if (c.mask_sixteens && m.key + 16 <= m.length) {
        uint4 x = *(const uint4 *)(from + m.key);
        return bits_of_bytes(x.x) | bits_of_bytes(x.y) << 4 | bits_of_bytes(x.z) << 8 | bits_of_bytes(x.w) << 12;
    }
#pragma unroll 4
    for (int n = 0; n < 16; n++)
        bits |= (from[min(m.key + n, m.length - 1) * c.mask.stride[3]] != 0 ? 1u : 0u) << n;
    return bits;
}

/* Four neighbouring keys have one draw. */
MHA_DEVICE uint32_t kept_bits(const mha_cuda_backward &c, const maps_of_tile &m, int row)
{
    uint64_t stream = c.stream + (uint64_t)m.b, key = c.seed + (stream >> 32) * 0x9E3779B97F4A7C15ull;
    uint32_t bits = 0;
#pragma unroll 1
    for (int n = 0; n < 16; n += 4) {
        uint32_t x[4] = {(uint32_t)(m.key + n) / 4, (uint32_t)row, (uint32_t)m.head, (uint32_t)stream};
        philox(x, key);
#pragma unroll
        for (int k = 0; k < 4; k++) bits |= (x[k] >= c.dropped ? 1u : 0u) << (n + k);
    }
    return bits;
}

MHA_DEVICE void find_bits(maps_of_tile &m, const mha_cuda_backward &c)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = m.row + 32 * h + threadIdx.x % 32;
        uint32_t visible = c.mask.data ? visible_bits(c, m, row) : 0xffff, kept = c.dropped ? kept_bits(c, m, row) : 0xffff;
        m.bits[h] = visible << VISIBLE | kept << KEPT;
    }
}

/* Of the thread's two rows from 8 b on, beginning with its key. */
MHA_DEVICE void bits_of_rows(uint32_t (&bits)[2], const maps_of_tile &m, int b)
{
    int lane = threadIdx.x % 32, from = b % 4 * 8 + lane % 4 * 2;
    bits[0] = __shfl_sync(~0u, m.bits[b / 4], from) >> lane / 4;
    bits[1] = __shfl_sync(~0u, m.bits[b / 4], from + 1) >> lane / 4;
}

/* ---- Bias ------------------------------------------------------------------------------------------------------- */

/* Tiles of bias come in one stage of float32 or in two of 16 bits, as panels of 64 rows of 128 bytes. */
enum { MAP_PANEL = 64 * ROW_BYTES };

MHA_DEVICE uint32_t map_stage(uint32_t count, int stages) { return count & (stages - 1); }
MHA_DEVICE uint32_t map_parity(uint32_t count, int stages) { return count >> (stages - 1) & 1; }

/* Two 8 x 8 matrices, turned; lanes 0 to 15 give the addresses of their rows. */
MHA_DEVICE void load_matrices_turned(uint32_t (&x)[2], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(row) : "memory");
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
                     : "r"(tile + row * ROW_BYTES + (column / 4 ^ row % 8) * 16 + column % 4 * 4)
                     : "memory");
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
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int64_t row = place(c.bias, m.b, m.head, min(m.row + 8 * b + lane % 4 * 2 + e, m.queries - 1), 0);
#pragma unroll
        for (int i = 0; i < 2; i++)
            add[2 * i + e] =
                load(c.bias, row + min(m.key + lane / 4 + 8 * i, m.length - 1) * c.bias.stride[3]) * log2_e;
    }
}

/* The gradient of the bias of the thread's two rows from 8 b on: a warp has 32 bytes of each row. */
MHA_DEVICE void put_bias(const float (&x)[4], const mha_cuda_backward &c, const maps_of_tile &m, int b)
{
    int lane = threadIdx.x % 32, row = m.row + 8 * b + lane % 4 * 2, key = m.key + lane / 4;
    float *to = (float *)c.dbias.data + place(c.dbias, m.b, m.head, row, key);
#pragma unroll
    for (int n = 0; n < 4; n++) {
        if (row + n % 2 >= m.queries || key + n / 2 * 8 >= m.length) continue;
        float *own = to + n % 2 * c.dbias.stride[2] + n / 2 * 8 * c.dbias.stride[3];
        /* Nobody else adds to it in this launch. */
        if (c.dbias_adds) asm volatile("red.global.add.f32 [%0], %1;" ::"l"(own), "f"(x[n]) : "memory");
        else asm volatile("st.global.f32 [%0], %1;" ::"l"(own), "f"(x[n]) : "memory");
    }
}

} // namespace

#endif
