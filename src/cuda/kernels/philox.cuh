/* Philox4x32-10, as in core/philox.h. */
#ifndef MHA_CUDA_PHILOX_CUH
#define MHA_CUDA_PHILOX_CUH

#include "inline.cuh"
#include <stdint.h>

MHA_DEVICE void philox(uint32_t (&c)[4], uint64_t key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1, c[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
}

#endif
