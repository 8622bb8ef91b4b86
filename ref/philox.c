/* Philox4x32-10: ten rounds of two 32x32 -> 64 bit products and a key that walks by two Weyl constants (Salmon, Moraes,
 * Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011). Checked against the authors' known answers by
 * test_oracle. */
#include "ref.h"

void ref_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53 * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57 * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* One Philox block serves four neighbouring keys; the upper half of the stream goes into the key. A number r of 32 bits is kept when r / 2^32 >= dropout. */
bool ref_keeps(double dropout, uint64_t seed, uint64_t stream, int64_t h, int64_t i, int64_t j)
{
    uint64_t mixed = seed + (stream >> 32) * 0x9E3779B97F4A7C15u;
    uint32_t key[2] = {(uint32_t)mixed, (uint32_t)(mixed >> 32)};
    uint32_t counter[4] = {(uint32_t)(j / 4), (uint32_t)i, (uint32_t)h, (uint32_t)stream};
    uint32_t random[4];
    ref_philox(random, counter, key);
    return (uint64_t)random[j % 4] >= (uint64_t)(dropout * 4294967296.0);
}
