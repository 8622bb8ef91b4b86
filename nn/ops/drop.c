/* Dropout of residual branches. A sequence is one array of numbers, divided into groups of 256; a group uses 32 Philox
 * blocks, each of eight 16-bit numbers, and number i of the group takes its 16 bits from block i % 32. So blocks are
 * computed in parallel lanes, and their results are used in memory order:
 *
 *     16 bits of number i of group g = half i / 32 of the block nn_philox_at(seed, NN_PHILOX_DROP, 32 g + i % 32, stream)
 *
 * where half 0 is the low half of the first word, half 1 its high half, and so on. A number is dropped if its bits are
 * below drop * 2^16, rounded. 32 bits per number would take twice the time to remove a bias of less than 2^-17, which
 * is negligible in training. */
#include "ops/chunks.h"
#include "ops/clones.h"
#include "ops/ops.h"
#include "ops/philox.h"
#include <string.h>

enum {
    LANES = 8,         /* blocks in one vector loop */
    CHAINS = 4,        /* blocks per iteration, to hide the latency of multiplications */
    BLOCKS = 32,       /* of a group: LANES * CHAINS */
    GROUP = 256,       /* numbers: 8 * BLOCKS */
    PIECE = 16 * GROUP /* numbers of one task; they stay in L1 */
};

typedef struct counter {
    uint32_t word[4];
} counter;

/* ---- Random bits ------------------------------------------------------------------------------------------------ */

/* One round of nn_philox_refill. */
NN_INLINE counter turn(counter c, uint32_t k0, uint32_t k1)
{
    uint64_t p0 = (uint64_t)UINT32_C(0xD2511F53) * c.word[0], p1 = (uint64_t)UINT32_C(0xCD9E8D57) * c.word[2];
    return (counter){
        {(uint32_t)(p1 >> 32) ^ c.word[1] ^ k0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ c.word[3] ^ k1, (uint32_t)p0}};
}

/* Round n of each chain. */
NN_INLINE void turn_all(counter c[CHAINS], uint64_t seed, uint32_t n)
{
    const uint32_t k0 = (uint32_t)seed + n * UINT32_C(0x9E3779B9);
    const uint32_t k1 = (uint32_t)(seed >> 32) + n * UINT32_C(0xBB67AE85);
    for (int i = 0; i < CHAINS; i++) c[i] = turn(c[i], k0, k1);
}

/* bits (4,BLOCKS): the words of the blocks from `first` on. The rounds are unrolled by hand, since gcc unrolls the loop
 * over them only after vectorization. */
NN_CLONES static void draw_group(uint32_t *restrict bits, uint64_t seed, uint64_t stream, uint32_t first)
{
    const uint32_t low = (uint32_t)stream, high = (uint32_t)(stream >> 32), use = (uint32_t)NN_PHILOX_DROP << 24;
    for (uint32_t l = 0; l < LANES; l++) {
        counter c[CHAINS];
        for (uint32_t i = 0; i < CHAINS; i++) c[i] = (counter){{low, high, first + i * LANES + l, use}};
        turn_all(c, seed, 0);
        turn_all(c, seed, 1);
        turn_all(c, seed, 2);
        turn_all(c, seed, 3);
        turn_all(c, seed, 4);
        turn_all(c, seed, 5);
        turn_all(c, seed, 6);
        turn_all(c, seed, 7);
        turn_all(c, seed, 8);
        turn_all(c, seed, 9);
        for (int i = 0; i < CHAINS; i++)
            for (int word = 0; word < 4; word++) bits[word * BLOCKS + i * LANES + (int)l] = c[i].word[word];
    }
}

/* Whether the sequence is kept. */
static bool keeps_sequence(const nn_drop *d, uint64_t stream)
{
    nn_philox draw = nn_philox_at(d->seed, NN_PHILOX_PATH, 0, stream);
    return nn_philox_next(&draw) >= (uint64_t)((double)d->path * 0x1p32);
}

/* ---- Products --------------------------------------------------------------------------------------------------- */

NN_CLONES static void scale(float *to, float by, int64_t count)
{
    for (int64_t i = 0; i < count; i++) to[i] *= by;
}

/* Half `high` of a word of each block, against the threshold. */
NN_CLONES static void multiply(float *restrict to, const uint32_t *restrict word, int high, uint32_t below, float kept)
{
    for (int l = 0; l < BLOCKS; l++) to[l] *= (word[l] >> high & 0xffff) < below ? 0.0f : kept;
}

static void drop_group(float to[GROUP], uint64_t seed, uint64_t stream, uint32_t first, uint32_t below, float kept)
{
    uint32_t bits[4 * BLOCKS];
    draw_group(bits, seed, stream, first);
    for (int half = 0; half < 8; half++)
        multiply(to + half * BLOCKS, bits + half / 2 * BLOCKS, half % 2 * 16, below, kept);
}

typedef struct sweep {
    nn_drop drop;
    uint32_t below; /* of 2^16 */
    float kept;     /* factor of kept numbers */
    float *to;
    const float *from;
    int64_t size, pieces; /* of a sequence */
} sweep;

/* The last numbers of a sequence, padded to a group. */
static void drop_rest(const sweep *s, float *to, uint64_t stream, uint32_t first, int64_t count)
{
    float group[GROUP] = {0};
    memcpy(group, to, (size_t)count * sizeof *group);
    drop_group(group, s->drop.seed, stream, first, s->below, s->kept);
    memcpy(to, group, (size_t)count * sizeof *group);
}

/* Numbers [first, first + count) of a sequence, stored at `to`; `first` is the start of a group. */
static void drop_numbers(const sweep *s, float *to, uint64_t stream, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i += GROUP) {
        const uint32_t number = (uint32_t)((first + i) / 8);
        if (count - i < GROUP) drop_rest(s, to + i, stream, number, count - i);
        else drop_group(to + i, s->drop.seed, stream, number, s->below, s->kept);
    }
}

static void drop_piece(void *arg, int64_t n)
{
    const sweep *s = arg;
    const int64_t sequence = n / s->pieces, first = n % s->pieces * PIECE, left = s->size - first;
    const int64_t at = sequence * s->size + first, count = left < PIECE ? left : PIECE;
    const uint64_t stream = s->drop.stream + (uint64_t)sequence;
    if (s->to != s->from) memcpy(s->to + at, s->from + at, (size_t)count * sizeof(float));
    if (s->drop.path > 0 && !keeps_sequence(&s->drop, stream)) scale(s->to + at, 0, count);
    else if (s->drop.drop > 0) drop_numbers(s, s->to + at, stream, first, count);
    else if (s->drop.path > 0) scale(s->to + at, s->kept, count);
}

void nn_drop_apply(mha_context *ctx, const nn_drop *d, float *to, const float *from, int64_t rows, int64_t width)
{
    sweep s = {.drop = *d, .to = to, .from = from, .size = d->tokens * width};
    if (to == from && !(d->drop > 0) && !(d->path > 0)) return;
    s.below = (uint32_t)((double)d->drop * 0x1p16 + 0.5);
    s.kept = (float)(1 / ((1 - (double)d->drop) * (1 - (double)d->path)));
    s.pieces = (s.size + PIECE - 1) / PIECE;
    mha_context_each(ctx, rows / d->tokens * s.pieces, drop_piece, &s);
}
