/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011),
 * which the library also uses, here as a short sequence for one object, such as an image:
 *
 *     nn_philox draw = nn_philox_at(seed, NN_PHILOX_AUGMENT, epoch, index);
 *     float angle = nn_philox_uniform(&draw, -10, 10);
 *
 * The same seed, use, epoch and index give the same numbers, on any thread and in any order. */
#ifndef NN_OPS_PHILOX_H
#define NN_OPS_PHILOX_H

#include <stdint.h>

/* The use of the numbers: sequences for different uses of one seed never overlap. */
enum {
    NN_PHILOX_DIGITS = 1,
    NN_PHILOX_AUGMENT,
    NN_PHILOX_PARAMETERS,
    NN_PHILOX_TOKENS,
    NN_PHILOX_ORDER,
    NN_PHILOX_DROP,
    NN_PHILOX_PATH
};

typedef struct nn_philox {
    uint64_t key;
    uint32_t counter[4]; /* index (64 bits), epoch or similar (32 bits), use and block */
    uint32_t block[4];
    unsigned used; /* of the block */
} nn_philox;

static inline nn_philox nn_philox_at(uint64_t seed, uint32_t use, uint32_t epoch, uint64_t index)
{
    return (nn_philox){seed, {(uint32_t)index, (uint32_t)(index >> 32), epoch, use << 24}, {0}, 4};
}

/* The next block of four numbers. */
static inline void nn_philox_refill(nn_philox *draw)
{
    uint32_t k0 = (uint32_t)draw->key, k1 = (uint32_t)(draw->key >> 32), *c = draw->block;
    for (int i = 0; i < 4; i++) c[i] = draw->counter[i];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)UINT32_C(0xD2511F53) * c[0], p1 = (uint64_t)UINT32_C(0xCD9E8D57) * c[2];
        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)p0;
        k0 += UINT32_C(0x9E3779B9);
        k1 += UINT32_C(0xBB67AE85);
    }
    draw->counter[3]++;
    draw->used = 0;
}

static inline uint32_t nn_philox_next(nn_philox *draw)
{
    if (draw->used == 4) nn_philox_refill(draw);
    return draw->block[draw->used++];
}

/* One of 2^24 evenly spaced numbers from `low` to just below `high`. */
static inline float nn_philox_uniform(nn_philox *draw, float low, float high)
{
    return low + (high - low) * ((float)(nn_philox_next(draw) >> 8) * 0x1p-24f);
}

#endif
