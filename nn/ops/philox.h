/* Counter-based random numbers: the blocks of mha_random_block, as a short sequence for one object, such as an image:
 *
 *     nn_philox draw = nn_philox_at(seed, NN_PHILOX_AUGMENT, epoch, index);
 *     float angle = nn_philox_uniform(&draw, -10, 10);
 *
 * The same seed, use, epoch and index give the same numbers, on any thread and in any order. */
#ifndef NN_OPS_PHILOX_H
#define NN_OPS_PHILOX_H

#include <mha_ops.h>

/* The use of the numbers: sequences for different uses of one seed never overlap. 6 and 7 are those of mha_dropout. */
enum {
    NN_PHILOX_DIGITS = 1,
    NN_PHILOX_AUGMENT,
    NN_PHILOX_PARAMETERS,
    NN_PHILOX_TOKENS,
    NN_PHILOX_ORDER,
    NN_PHILOX_SHUFFLES = 8,
    NN_PHILOX_SAMPLING
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

static inline uint32_t nn_philox_next(nn_philox *draw)
{
    if (draw->used == 4) {
        mha_random_block(draw->block, draw->key, draw->counter);
        draw->counter[3]++;
        draw->used = 0;
    }
    return draw->block[draw->used++];
}

/* One of 2^24 evenly spaced numbers from `low` to just below `high`. */
static inline float nn_philox_uniform(nn_philox *draw, float low, float high)
{
    return low + (high - low) * ((float)(nn_philox_next(draw) >> 8) * 0x1p-24f);
}

#endif
