/* Philox4x32-10, as in core/philox.h. */
#ifndef MHA_CUDA_PHILOX_CUH
#define MHA_CUDA_PHILOX_CUH

#include "inline.cuh"
#include <stdint.h>

/* 64 bits, the lower ones first. From a product in C the compiler adds the parts that are 0. */
MHA_DEVICE uint2 product_of(uint32_t x, uint32_t y)
{
    uint2 both;
    asm("{\n\t.reg .u64 p;\n\tmul.wide.u32 p, %2, %3;\n\tmov.b64 {%0, %1}, p;\n\t}" : "=r"(both.x), "=r"(both.y) : "r"(x), "r"(y));
    return both;
}

MHA_DEVICE void philox(uint32_t (&c)[4], uint64_t key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint2 p0 = product_of(c[0], 0xD2511F53u), p1 = product_of(c[2], 0xCD9E8D57u);
        c[0] = p1.y ^ c[1] ^ k0, c[1] = p1.x;
        c[2] = p0.y ^ c[3] ^ k1, c[3] = p0.x;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
}

#endif
