/* Bias, masks and dropout of a tile of scores, for the forward kernels with maps.
 *
 * A thread has SCORES scores, of SCORES / 2 keys and two rows, r and r + 8: of 8 m + {0,1} from its first key on, m = 0 to
 * SCORES / 4 - 1. Element 4 m + 2 h + e is key 8 m + e of row h, and bit 2 m + e of a word of row h stands for the same. */
#ifndef MHA_CUDA_MAPS_CUH
#define MHA_CUDA_MAPS_CUH

#include "bits.cuh"
#include "forward.h"
#include "hopper.cuh"

enum { MAP_PANEL = 64 * ROW_BYTES }; /* of a tile of bias */

/* Which rows and keys of a map a thread reads. Those that are not there are not read: others are, and are not visible. */
struct map_place {
    int batch, head, row[2], key;
    int keys; /* of the sequence; above 0 */
};

MHA_DEVICE map_place map_place_of(int batch, int head, int row, int queries, int key, int keys)
{
    return {batch, head, {min(row, queries - 1), min(row + 8, queries - 1)}, key, keys};
}

/* ---- Bias ------------------------------------------------------------------------------------------------------- */

/* Bias of a thread's scores 4 m to 4 m + 7, in pairs, from a tile of 64 rows in shared memory, in panels of 128 bytes. */
MHA_DEVICE void load_pairs(uint32_t (&x)[4], uint32_t tile, int m)
{
    int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 8 % 2 * 8 + lane % 8, piece = m + lane / 16;
    load_matrices(x, tile + piece / 8 * MAP_PANEL + row * ROW_BYTES + ((piece % 8) ^ (row % 8)) * 16);
}

/* Eight scores += by * bias. */
template <typename T> MHA_DEVICE void add_pairs(float *s, const uint32_t (&x)[4], float by)
{
#pragma unroll
    for (int n = 0; n < 4; n++) {
        float2 both = pair_of<T>::get(x[n]);
        s[2 * n] = fmaf(both.x, by, s[2 * n]);
        s[2 * n + 1] = fmaf(both.y, by, s[2 * n + 1]);
    }
}

/* All of them. */
template <typename T, int SCORES> MHA_DEVICE void add_tile_of(float (&s)[SCORES], uint32_t tile, float by)
{
#pragma unroll
    for (int m = 0; m < SCORES / 4; m += 2) {
        uint32_t x[4];
        load_pairs(x, tile, m);
        add_pairs<T>(s + 4 * m, x, by);
    }
}

template <int SCORES> MHA_DEVICE void add_tile_of_floats(float (&s)[SCORES], uint32_t tile, float by)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = threadIdx.x % 128 / 32 * 16 + h * 8 + lane / 4;
#pragma unroll
        for (int m = 0; m < SCORES / 4; m++) {
            int piece = m % 4 * 2 + lane % 4 / 2;
            float2 both = get_shared_pair(tile + m / 4 * MAP_PANEL + row * ROW_BYTES + (piece ^ (row % 8)) * 16 +
                                           lane % 2 * 8);
            s[4 * m + 2 * h] = fmaf(both.x, by, s[4 * m + 2 * h]);
            s[4 * m + 2 * h + 1] = fmaf(both.y, by, s[4 * m + 2 * h + 1]);
        }
    }
}

template <int SCORES> MHA_DEVICE void add_tile(float (&s)[SCORES], const mha_cuda_forward &c, uint32_t tile)
{
    if (c.bias.type == BFLOAT16) add_tile_of<__nv_bfloat16>(s, tile, c.bias_by);
    else if (c.bias.type == FLOAT16) add_tile_of<__half>(s, tile, c.bias_by);
    else add_tile_of_floats(s, tile, c.bias_by);
}

/* The same from where it is, for layouts that the copy engine cannot take. */
template <typename T, int SCORES>
MHA_DEVICE void add_plain_of(float (&s)[SCORES], const mha_cuda_forward &c, const map_place &p)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const T *from = (const T *)c.bias.data + place(c.bias, p.batch, p.head, p.row[h], 0);
#pragma unroll
        for (int i = 0; i < SCORES / 2; i++) {
            int key = min(p.key + i / 2 * 8 + i % 2, p.keys - 1);
            s[i / 2 * 4 + 2 * h + i % 2] =
                fmaf((float)from[key * c.bias.stride[3]], c.bias_by, s[i / 2 * 4 + 2 * h + i % 2]);
        }
    }
}

template <int SCORES> MHA_DEVICE void add_plain(float (&s)[SCORES], const mha_cuda_forward &c, const map_place &p)
{
    if (c.bias.type == BFLOAT16) add_plain_of<__nv_bfloat16>(s, c, p);
    else if (c.bias.type == FLOAT16) add_plain_of<__half>(s, c, p);
    else add_plain_of<float>(s, c, p);
}

/* ---- Masks ------------------------------------------------------------------------------------------------------ */

/* Which keys a mask shows. */
template <int SCORES> MHA_DEVICE void mask_bits(uint32_t (&bits)[2], const mha_cuda_forward &c, const map_place &p)
{
    const int KEYS = 2 * SCORES;
    bool pairs = c.mask_pairs && p.key - p.key % KEYS + KEYS <= p.keys;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint8_t *from = (const uint8_t *)c.mask.data + place(c.mask, p.batch, p.head, p.row[h], 0);
        bits[h] = 0;
        if (pairs) {
#pragma unroll
            for (int m = 0; m < SCORES / 4; m++) {
                uint32_t both = *(const uint16_t *)(from + p.key + 8 * m);
                bits[h] |= ((both & 0xff) != 0 ? 1u : 0u) << 2 * m | (both > 0xff ? 2u : 0u) << 2 * m;
            }
        } else {
#pragma unroll 4
            for (int i = 0; i < SCORES / 2; i++)
                bits[h] |= (from[min(p.key + i / 2 * 8 + i % 2, p.keys - 1) * c.mask.stride[3]] != 0 ? 1u : 0u) << i;
        }
    }
}

/* What of the scores has no bit becomes `hidden`. */
template <int SCORES> MHA_DEVICE void apply_bits(float (&s)[SCORES], const uint32_t (&bits)[2], float hidden)
{
#pragma unroll
    for (int i = 0; i < SCORES; i++)
        if (!(bits[i / 2 % 2] >> (i / 4 * 2 + i % 2) & 1)) s[i] = hidden;
}

template <int SCORES> MHA_DEVICE void apply_mask(float (&s)[SCORES], const mha_cuda_forward &c, const map_place &p)
{
    uint32_t bits[2];
    mask_bits<SCORES>(bits, c, p);
    apply_bits(s, bits, -INFINITY);
}

/* Whether one of the keys from `low` to `high` is visible to a row. The lanes of a warp look together. */
static __device__ __noinline__ bool is_any_visible(const mha_cuda_forward &c, int batch, int head, int row, int low,
                                                   int high)
{
    for (int j = low; j <= high; j += 32) {
        int key = j + threadIdx.x % 32;
        bool visible = key <= high;
        if (visible && c.mask.data) visible = ((const uint8_t *)c.mask.data)[place(c.mask, batch, head, row, key)] != 0;
        if (visible && c.bias.data) visible = load(c.bias, place(c.bias, batch, head, row, key)) != -INFINITY;
        if (__any_sync(~0u, visible)) return true;
    }
    return false;
}

/* ---- Dropout ---------------------------------------------------------------------------------------------------- */

/* Which weights are kept. Four neighbouring keys have one draw, two threads have two rows of them: each draws for one row
 * and gives the other thread its half. */
template <int SCORES> MHA_DEVICE void kept_bits(uint32_t (&bits)[2], const mha_cuda_forward &c, const map_place &p, int row)
{
    int odd = threadIdx.x % 2;
    uint64_t stream = c.stream + (uint64_t)p.batch, key = c.seed + (stream >> 32) * 0x9E3779B97F4A7C15ull;
    uint32_t own = 0, others = 0;
#pragma unroll 1
    for (int m = 0; m < SCORES / 4; m++) {
        uint32_t x[4] = {(uint32_t)(p.key + 8 * m) / 4, (uint32_t)(row + 8 * odd), (uint32_t)p.head, (uint32_t)stream};
        philox(x, key);
        uint32_t low = (x[0] >= c.dropped ? 1u : 0u) | (x[1] >= c.dropped ? 2u : 0u),
                 high = (x[2] >= c.dropped ? 1u : 0u) | (x[3] >= c.dropped ? 2u : 0u);
        own |= (odd ? high : low) << 2 * m;
        others |= (odd ? low : high) << 2 * m;
    }
    others = __shfl_xor_sync(~0u, others, 1);
    bits[0] = odd ? others : own;
    bits[1] = odd ? own : others;
}

template <int SCORES> MHA_DEVICE void drop_weights(float (&s)[SCORES], const mha_cuda_forward &c, const map_place &p, int row)
{
    uint32_t bits[2];
    kept_bits<SCORES>(bits, c, p, row);
    apply_bits(s, bits, 0);
}

/* ---- Bits that others have found -------------------------------------------------------------------------------- */

/* What of the scores has no bit of a kind becomes `hidden`. `words` is the shared memory of those of the thread's first row. */
template <int SCORES> MHA_DEVICE void apply_found(float (&s)[SCORES], uint32_t words, int kind, float hidden)
{
    static_assert(SCORES % 8 == 0, "a word has 16 keys");
#pragma unroll
    for (int i = 0; i < SCORES; i += 8)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t bits = get_shared(words + 4 * (i / 8 * BIT_ROWS + 8 * h)) >> (kind + threadIdx.x % 4 * 2);
#pragma unroll
            for (int n = 0; n < 4; n++)
                if (!(bits >> (n / 2 * 8 + n % 2) & 1)) s[i + n / 2 * 4 + 2 * h + n % 2] = hidden;
        }
}

#endif
