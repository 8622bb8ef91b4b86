/* Philox4x32-10: four 32-bit numbers from a counter and a key, with no state. The same place gives the
 * same numbers, on any thread, in any order. (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.) */
#ifndef MHA_CORE_PHILOX_H
#define MHA_CORE_PHILOX_H

#include <stdint.h>

enum { MHA_PHILOX_ROUNDS = 10 };
#define MHA_PHILOX_M0 UINT32_C(0xD2511F53)
#define MHA_PHILOX_M1 UINT32_C(0xCD9E8D57)
#define MHA_PHILOX_W0 UINT32_C(0x9E3779B9)
#define MHA_PHILOX_W1 UINT32_C(0xBB67AE85)

/* One round on one counter. */
static inline void mha_philox_round(uint32_t *c0, uint32_t *c1, uint32_t *c2, uint32_t *c3, uint32_t k0, uint32_t k1)
{
    uint64_t p0 = (uint64_t)MHA_PHILOX_M0 * *c0, p1 = (uint64_t)MHA_PHILOX_M1 * *c2;
    *c0 = (uint32_t)(p1 >> 32) ^ *c1 ^ k0;
    *c1 = (uint32_t)p1;
    *c2 = (uint32_t)(p0 >> 32) ^ *c3 ^ k1;
    *c3 = (uint32_t)p0;
}

static inline void mha_philox(uint32_t c[4], uint64_t key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < MHA_PHILOX_ROUNDS; round++) {
        mha_philox_round(&c[0], &c[1], &c[2], &c[3], k0, k1);
        k0 += MHA_PHILOX_W0;
        k1 += MHA_PHILOX_W1;
    }
}

/* The key for a seed and a stream of 64 bits: the counter has room for the lower half of the stream only. */
static inline uint64_t mha_philox_key(uint64_t seed, uint64_t stream)
{
    return seed + (stream >> 32) * UINT64_C(0x9E3779B97F4A7C15);
}

#endif
