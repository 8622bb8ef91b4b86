/* Philox4x32-10, as in core/philox.h. */
#ifndef MHA_CUDA_PHILOX_CUH
#define MHA_CUDA_PHILOX_CUH

#include "instructions.cuh"

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
