/* What masks and dropout do to a tile of 64 rows, as bits in shared memory: warps that do not compute find them a tile ahead.
 *
 * A word has the bits of a row and 16 keys: which of them it sees, and which of its weights dropout keeps. The words of the
 * same keys and of all rows lie side by side. A call C has `mask`, `mask_sixteens`, `dropped`, `seed` and `stream` (forward.h,
 * backward.h), and for teams with several words in hand `mask_fours`; a place P says which tile it is: batch(), head(), row() and key(), its first ones, and queries() and length(),
 * the rows and keys of the sequence. What is not there is not read. */
#ifndef MHA_CUDA_BITS_CUH
#define MHA_CUDA_BITS_CUH

#include "elements.cuh"
#include "philox.cuh"

enum { VISIBLE = 0, KEPT = 16 };
enum { BIT_STAGES = 2, BIT_ROWS = 64 + 4 };

/* The threads that find the bits of 64 rows and KEYS keys: FINDERS of them, from thread FIRST on. Each has AT_ONCE words in
 * hand, and as many bytes of a mask that has to be read byte by byte. */
template <int KEYS, int FIRST, int FINDERS, int AT_ONCE> struct bit_team {
    enum { SIXTEENS = KEYS / 16, WORDS = 64 * SIXTEENS, COUNT = FINDERS, TOGETHER = AT_ONCE };
    static MHA_DEVICE int self(void)
    {
        if constexpr ((FINDERS & (FINDERS - 1)) == 0 && FIRST % FINDERS == 0) return threadIdx.x % FINDERS;
        else return threadIdx.x - FIRST;
    }
};

/* Calls `each` with the words of this thread, UNROLL in a row. */
template <typename TEAM, int UNROLL, typename F> MHA_DEVICE void for_own_words(F each)
{
    if constexpr (TEAM::WORDS % TEAM::COUNT == 0) {
#pragma unroll UNROLL
        for (int n = 0; n < TEAM::WORDS / TEAM::COUNT; n++) each(TEAM::self() + n * TEAM::COUNT);
    } else {
#pragma unroll UNROLL
        for (int at = TEAM::self(); at < TEAM::WORDS; at += TEAM::COUNT) each(at);
    }
}

/* Bit n of four: whether byte n is not 0. */
MHA_DEVICE uint32_t bits_of_bytes(uint32_t x)
{
    uint32_t high = (x | ((x & 0x7f7f7f7fu) + 0x7f7f7f7fu)) & 0x80808080u;
    return (high >> 7) * 0x01020408u >> 24 & 15;
}

MHA_DEVICE uint32_t bits_of_sixteen(uint4 x)
{
    return bits_of_bytes(x.x) | bits_of_bytes(x.y) << 4 | bits_of_bytes(x.z) << 8 | bits_of_bytes(x.w) << 12;
}

/* Of 16 keys from `key` on, of the row whose mask begins at `from`. */
template <int AT_ONCE, typename C>
MHA_DEVICE uint32_t visible_bits(const C &c, const uint8_t *from, int key, int length)
{
    uint32_t bits = 0;
    if (c.mask_sixteens && key + 16 <= length) return bits_of_sixteen(*(const uint4 *)(from + key));
    if constexpr (AT_ONCE > 1) {
        if (c.mask_fours && key + 16 <= length) {
            const uint32_t *own = (const uint32_t *)(from + key);
            return bits_of_sixteen(make_uint4(own[0], own[1], own[2], own[3]));
        }
    }
#pragma unroll AT_ONCE
    for (int n = 0; n < 16; n++)
        bits |= (from[min(key + n, length - 1) * c.mask.stride[3]] != 0 ? 1u : 0u) << n;
    return bits;
}

/* The same of word `at` of a tile. */
template <typename TEAM, typename C, typename P> MHA_DEVICE uint32_t visible_word(const C &c, const P &p, int at)
{
    int row = min(p.row() + at / TEAM::SIXTEENS, p.queries() - 1);
    return visible_bits<TEAM::TOGETHER>(c, (const uint8_t *)c.mask.data + place(c.mask, p.batch(), p.head(), row, 0),
                                        p.key() + at % TEAM::SIXTEENS * 16, p.length());
}

/* Which weights are kept. Four neighbouring keys have one draw. */
template <typename TEAM, typename C, typename P> MHA_DEVICE uint32_t kept_word(const C &c, const P &p, int at)
{
    uint32_t bits = 0, dropped = (uint32_t)c.dropped, row = p.row() + at / TEAM::SIXTEENS, head = p.head(),
             four = (uint32_t)(p.key() + at % TEAM::SIXTEENS * 16) / 4;
    uint64_t stream = c.stream + (uint64_t)p.batch(), key = c.seed + (stream >> 32) * 0x9E3779B97F4A7C15ull;
#pragma unroll
    for (int n = 0; n < 16; n += 4) {
        uint32_t x[4] = {four + n / 4, row, head, (uint32_t)stream};
        philox(x, key);
#pragma unroll
        for (int k = 0; k < 4; k++) bits |= x[k] >= dropped ? 1u << (n + k) : 0;
    }
    return bits;
}

template <typename TEAM> MHA_DEVICE void put_word(uint32_t *to, int at, uint32_t word)
{
    to[at % TEAM::SIXTEENS * BIT_ROWS + at / TEAM::SIXTEENS] = word;
}

template <typename TEAM, typename C, typename P> MHA_DEVICE void find_bits(uint32_t *to, const C &c, const P &p)
{
    for_own_words<TEAM, 1>([&](int at) {
        uint32_t visible = 0xffff, kept = 0xffff;
        if (c.mask.data) visible = visible_word<TEAM>(c, p, at);
        if (c.dropped) kept = kept_word<TEAM>(c, p, at);
        put_word<TEAM>(to, at, visible << VISIBLE | kept << KEPT);
    });
}

/* A mask alone, of which 16 keys can be read at a time, is fetched while the bits of the tile before are found; a thread finds
 * those of what it has fetched. */
template <int KEYS, typename C> MHA_DEVICE bool can_fetch(const C &c, int key, int length)
{
    return c.mask_sixteens && !c.dropped && key + KEYS <= length;
}

template <typename TEAM, typename C, typename P> MHA_DEVICE void fetch_mask(uint32_t to, const C &c, const P &p)
{
    const uint8_t *from = (const uint8_t *)c.mask.data + place(c.mask, p.batch(), p.head(), 0, p.key());
    for_own_words<TEAM, TEAM::TOGETHER>([&](int at) {
        int row = min(p.row() + at / TEAM::SIXTEENS, p.queries() - 1);
        fetch_piece(to + at * 16, from + row * c.mask.stride[2] + at % TEAM::SIXTEENS * 16);
    });
}

template <typename TEAM> MHA_DEVICE void find_fetched_bits(uint32_t *to, const unsigned char *from)
{
    for_own_words<TEAM, TEAM::TOGETHER>([&](int at) {
        put_word<TEAM>(to, at, bits_of_sixteen(*(const uint4 *)(from + at * 16)) | 0xffffu << KEPT);
    });
}

#endif
