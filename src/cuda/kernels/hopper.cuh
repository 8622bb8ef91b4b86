/* Tiles in shared memory and factors of products.
 *
 * Tiles lie in shared memory as panels of 64 numbers of 16 bits: rows of 128 bytes whose 16-byte pieces are permuted
 * (piece ^ row % 8), as the copy engine writes and the tensor cores read them. A panel begins at a multiple of 1024. */
#ifndef MHA_CUDA_HOPPER_CUH
#define MHA_CUDA_HOPPER_CUH

#include "instructions.cuh"

enum { PANEL = 64, ROW_BYTES = 128 };

/* Two numbers in one register (pack). */
template <typename T> struct pair_of;
template <> struct pair_of<__nv_bfloat16> {
    static MHA_DEVICE float2 get(uint32_t x)
    {
        return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000));
    }
};
template <> struct pair_of<__half> {
    static MHA_DEVICE float2 get(uint32_t x) { return __half22float2(*(const __half2 *)&x); }
};

/* A number that all threads of a warp have. The compiler then knows it, and keeps what depends on it, such as where a factor lies, in
 * registers of the warp. */
MHA_DEVICE uint32_t uniform(uint32_t x) { return __shfl_sync(~0u, x, 0); }

/* Zero, but the compiler does not know it: an address with it is computed by every thread, */
MHA_DEVICE uint32_t unknown_zero(void) { return threadIdx.x >> 30; }

/* and with this one, when x and y have come. */
MHA_DEVICE uint32_t zero_after(float x, float y) { return (__float_as_uint(x) | __float_as_uint(y)) & unknown_zero(); }

/* ---- Products --------------------------------------------------------------------------------------------------- */

/* Where a factor lies. `leading` is the distance of panels, for a factor whose rows are the summed axis. */
MHA_DEVICE uint64_t factor(uint32_t address, int leading)
{
    const uint64_t group = 8 * ROW_BYTES;
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 | (group >> 4) << 32 |
           UINT64_C(1) << 62;
}

/* The same of an address that is divided by 16, which has 14 bits, and one panel or rows that are not the summed axis. */
MHA_DEVICE uint64_t factor_at(uint32_t place) { return (uint64_t)((8 * ROW_BYTES >> 4) | 1u << 30) << 32 | place; }

#endif
