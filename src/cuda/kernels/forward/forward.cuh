/* Attention forward on tensor cores, for bfloat16 and float16: plain, with keys up to Tk; if CAUSAL, up to the diagonal;
 * with OPTIONS, in windows, with slopes, a softcap and sinks, and of sequences of unlike lengths; with MAPS, with bias,
 * mask and dropout as well; with BITS, with mask and dropout without a bias, which others find for those that compute. Rows of fewer than D numbers are filled with zeros by the copy engine.
 *
 * A block of threads computes tiles of ROWS query rows. One warpgroup copies: it has the copy engine bring Q and, key
 * block by key block from right to left, K and V into rings of STAGES. The others compute 64 rows each. For a key block j
 * a warpgroup issues S(j) = Q K(j)^T and then O += P(j+1) V(j+1), and while the second product runs it turns S(j) into
 * P(j); the warpgroups take turns at issuing, so that one's exponentials run beside another's products.
 *
 * The weights of a row are relative to a reference, its largest score so far, in units of log 2. The reference moves
 * only when the largest score has grown by more than 8, and then the sums are rescaled; each row decides for itself, so
 * that its bits do not depend on its neighbours. */
#ifndef MHA_CUDA_FORWARD_CUH
#define MHA_CUDA_FORWARD_CUH

#include "careful.cuh"
#include "forward.h"
#include "maps.cuh"
#include "schedule.h"

namespace
{

enum { GROUP = 128, STAGES = 2 }; /* threads of a warpgroup; key blocks in flight */
enum { TURN = 1, OWN = 5 };       /* numbers of barriers: turns at issuing, and of each warpgroup's own threads */

/* What rows see: all keys, those up to their position, what options say, or what options and maps say, the latter as they are
 * or as bits. */
enum kind { FULL, CAUSAL, OPTIONS, MAPS, BITS };

/* The warpgroups of a block: one that copies, those that compute, and with bits one that finds them; beyond 128 columns, where
 * four warpgroups do not have registers enough, the last two warps of the first one do. What they have of registers together
 * does not grow once a block runs. */
template <int D, int CONSUMERS, kind KIND> struct block {
    enum { APART = KIND == BITS && D <= 128, GROUPS = CONSUMERS + 1 + APART };
    enum { FIRST_FINDER = APART ? GROUP * (CONSUMERS + 1) : 64, FINDERS = APART ? GROUP : 64 };
    enum {
        FEW = CONSUMERS == 3 ? 32 : KIND == BITS && !APART ? 56 : 24,
        MANY = CONSUMERS == 3 ? 160 : APART ? 216 : KIND == BITS ? 224 : 240,
        SOME = APART ? 56 : 0
    };
    static_assert(FEW + CONSUMERS * MANY + SOME <= 65536 / (GROUP * GROUPS) / 8 * 8 * GROUPS, "they would wait for ever");
};

/* A tile: its first row, its head and sequence, how many key blocks it sees, the first of them, and with options what a
 * span says. */
struct tile {
    int row, head, batch, blocks, first;
    int whole, closed; /* key blocks from `closed` on and below `whole` are visible to all rows of the tile */
    mha_cuda_span span;
    float slope; /* times log2(e) */
};

/* Tiles of bias, for each warpgroup its rows, where there are maps: of float32, or two stages of 16 bits. */
template <int CONSUMERS, int BYTES, bool ANY> struct map_memory {
};
template <int CONSUMERS, int BYTES> struct map_memory<CONSUMERS, BYTES, true> {
    alignas(1024) unsigned char maps[CONSUMERS][BYTES];
};

/* Bits of masks and dropout, likewise, and masks that are on their way. */
template <int KEYS> struct bit_memory {
    alignas(16) unsigned char masks[BIT_STAGES][64 * KEYS];
    uint32_t bits[BIT_STAGES][KEYS / 16 * BIT_ROWS];
};
template <int CONSUMERS, int KEYS, bool ANY> struct bits_memory {
};
template <int CONSUMERS, int KEYS> struct bits_memory<CONSUMERS, KEYS, true> {
    static_assert(sizeof(bit_memory<KEYS>) == MHA_CUDA_BIT_BYTES(KEYS), "as the host counts");
    bit_memory<KEYS> found[CONSUMERS];
};

/* Results leave through memory of their own, so that the next tile's Q can come while they do; or, where there is no room,
 * through that of Q. */
template <typename T, int SIZE, bool OWN_MEMORY> struct result_memory {
    alignas(1024) T o[SIZE];
};
template <typename T, int SIZE> struct result_memory<T, SIZE, false> {
};

template <int D, kind KIND> constexpr bool has_room(void) { return KIND != MAPS && D <= (KIND == BITS ? 64 : 128); }

template <typename T, int D, int CONSUMERS, int KEYS, kind KIND>
struct shared_memory : result_memory<T, 64 * CONSUMERS * ((D + PANEL - 1) / PANEL) * PANEL, has_room<D, KIND>()>,
                       map_memory<CONSUMERS, 64 * KEYS * 4, KIND == MAPS>,
                       bits_memory<CONSUMERS, KEYS, KIND == BITS> {
    enum { ROWS = 64 * CONSUMERS, COLUMNS = (D + PANEL - 1) / PANEL * PANEL, MAP_BYTES = 64 * KEYS * 4 };
    enum { SEPARATE = has_room<D, KIND>() }; /* results have memory of their own */
    alignas(1024) T q[ROWS * COLUMNS];
    alignas(1024) T k[STAGES][KEYS * COLUMNS];
    alignas(1024) T v[STAGES][KEYS * COLUMNS];
    int number[STAGES]; /* of tiles, from the warpgroup that copies to the others; -1: no more */
    tile tiles[KIND >= OPTIONS ? STAGES : 1]; /* with options: the tiles themselves */
    alignas(8) uint64_t tile_full[STAGES],
        tile_empty[STAGES], q_full, q_empty, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    uint64_t map_full[KIND >= MAPS ? CONSUMERS : 1][STAGES], map_empty[KIND >= MAPS ? CONSUMERS : 1][STAGES]; /* or bits */
};

/* A place in a ring of stages. */
struct slot {
    uint32_t count = 0;
    MHA_DEVICE uint32_t stage(void) const { return count % STAGES; }
    MHA_DEVICE uint32_t parity(void) const { return count / STAGES % 2; }
    MHA_DEVICE void next(void) { count++; }
};

/* The same of block `count` for a ring of one or two stages. */
MHA_DEVICE uint32_t map_stage(uint32_t count, int stages) { return count & (stages - 1); }
MHA_DEVICE uint32_t map_parity(uint32_t count, int stages) { return count >> (stages - 1) & 1; }

/* How many tiles there are. */
template <kind KIND> MHA_DEVICE int tiles_of(const mha_cuda_forward &c)
{
    return KIND >= OPTIONS && c.spans ? *c.span_count * c.H : c.tiles;
}

/* The span of tile n, and its head. With few registers: straight to shared memory. */
template <int ROWS, kind KIND> MHA_DEVICE void put_span(volatile tile &t, const mha_cuda_forward &c, int n)
{
    if (c.spans) {
        mha_cuda_place p = mha_cuda_place_of(n, c.H, *c.span_count, c.section);
        const int32_t *from = (const int32_t *)(c.spans + p.tile);
        volatile int32_t *to = (volatile int32_t *)&t.span;
        for (int i = 0; i < (int)(sizeof(mha_cuda_span) / sizeof *from); i++) to[i] = from[i];
        t.head = p.head;
        return;
    }
    mha_cuda_place p = mha_cuda_place_of(n, c.H * c.B, c.row_tiles, c.section);
    /* Sequences that share a bias or a mask come one behind the other. */
    int batch = KIND >= MAPS ? p.head % c.B : p.head / c.H;
    t.head = KIND >= MAPS ? p.head / c.B : p.head % c.H;
    t.span.row = (c.row_tiles - 1 - p.tile) * ROWS;
    t.span.batch = t.span.query_batch = t.span.key_batch = batch;
    t.span.queries = t.span.padded = c.Tq, t.span.length = c.Tk;
    t.span.query_row = t.span.key_row = 0;
    t.span.offset = c.offset, t.span.left = c.left, t.span.right = c.right;
}

/* A tile of a kernel with options, in shared memory. */
template <int ROWS, int KEYS, kind KIND> MHA_DEVICE void put_tile(volatile tile &t, const mha_cuda_forward &c, int n)
{
    put_span<ROWS, KIND>(t, c, n);
    int row = t.span.row, batch = t.span.batch;
    t.slope = c.slopes ? c.slopes[batch * c.slope_batch + t.head * c.slope_head] * 1.4426950409f : 0;
    t.row = row, t.batch = batch;
    int rows = min(ROWS, t.span.queries - row);
    int blocks = rows > 0 ? mha_cuda_blocks_seen(row, rows, KEYS, t.span.length, t.span.right, true) : 0;
    int first = min(blocks, max(0, row + t.span.left) / KEYS);
    t.first = first, t.blocks = blocks - first;
    t.whole = rows < ROWS ? 0 : min(t.span.length, max(0, row + t.span.right + 1)) / KEYS;
    t.closed = (max(0, row + ROWS - 1 + t.span.left) + KEYS - 1) / KEYS;
}

/* A tile of another kernel. */
template <int ROWS, int KEYS, kind KIND> MHA_DEVICE tile tile_of(const mha_cuda_forward &c, int n)
{
    mha_cuda_place p = mha_cuda_place_of(n, c.H * c.B, c.row_tiles, c.section);
    int row = (c.row_tiles - 1 - p.tile) * ROWS; /* the longest rows come first */
    int blocks = mha_cuda_blocks_seen(row, ROWS, KEYS, c.Tk, c.offset, KIND != FULL);
    int whole = (KIND == CAUSAL ? min(c.Tk, max(0, row + c.offset + 1)) : c.Tk) / KEYS;
    return {row, p.head % c.H, p.head / c.H, blocks, 0, whole, 0};
}

/* ---- The warpgroup that copies ---------------------------------------------------------------------------------- */

template <typename S, int KEYS, kind KIND, typename TILE>
MHA_DEVICE void copy_block(S &s, bool values, slot p, const CUtensorMap *map, const TILE &t, int j, int group)
{
    uint32_t full = shared_address(values ? &s.v_full[p.stage()] : &s.k_full[p.stage()]);
    uint32_t to = shared_address(values ? s.v[p.stage()] : s.k[p.stage()]);
    int row = j * KEYS, batch = t.batch;
    if (KIND >= OPTIONS) row += t.span.key_row, batch = t.span.key_batch;
    barrier_wait(shared_address(values ? &s.v_empty[p.stage()] : &s.k_empty[p.stage()]), p.parity() ^ 1);
    barrier_expect(full, KEYS * S::COLUMNS * 2);
    for (int panel = 0; panel < S::COLUMNS / PANEL; panel++)
        copy_in(to + panel * KEYS * ROW_BYTES, map, full, panel * PANEL, row, t.head / group, batch);
}

/* Q, K and V of a tile. */
template <typename S, int ROWS, int KEYS, kind KIND, typename TILE>
MHA_DEVICE void copy_tile(S &s, const mha_cuda_forward &c, const TILE &t, slot &k, slot &v, uint32_t &turn)
{
    if (S::SEPARATE && t.blocks == 0) return;
    barrier_wait(shared_address(&s.q_empty), turn ^ 1);
    turn ^= 1;
    if (!S::SEPARATE && t.blocks == 0) { /* results leave through Q */
        barrier_arrive(shared_address(&s.q_full));
        return;
    }
    barrier_expect(shared_address(&s.q_full), ROWS * S::COLUMNS * 2);
    int row = t.row, batch = t.batch;
    if (KIND >= OPTIONS) row += t.span.query_row, batch = t.span.query_batch;
    for (int panel = 0; panel < S::COLUMNS / PANEL; panel++)
        copy_in(shared_address(s.q) + panel * ROWS * ROW_BYTES, &c.q, shared_address(&s.q_full), panel * PANEL, row,
                t.head, batch);
    for (int j = t.blocks; j >= 0; j--) {
        if (j > 0) copy_block<S, KEYS, KIND>(s, false, k, &c.k, t, t.first + j - 1, c.group), k.next();
        if (j < t.blocks) copy_block<S, KEYS, KIND>(s, true, v, &c.v, t, t.first + j, c.group), v.next();
    }
}

/* The number of the next tile of a block. */
MHA_DEVICE int next_number(const mha_cuda_forward &c, int tiles)
{
    int n = atomicAdd(c.counter, 1) + gridDim.x;
    if (n == tiles + (int)gridDim.x - 1) *c.counter = 0; /* everybody has what it gets: ready for the next call */
    return n;
}

template <typename S, int ROWS, int KEYS, kind KIND> MHA_DEVICE void copy_tiles(S &s, const mha_cuda_forward &c)
{
    slot k, v, next;
    uint32_t turn = 0;
    for (int n = blockIdx.x;;) {
        int stage = next.stage(), now = n;
        barrier_wait(shared_address(&s.tile_empty[stage]), next.parity() ^ 1);
        s.number[stage] = n < c.tiles ? n : -1;
        barrier_arrive(shared_address(&s.tile_full[stage]));
        next.next();
        if (n >= c.tiles) break;
        n = next_number(c, c.tiles);
        copy_tile<S, ROWS, KEYS, KIND>(s, c, tile_of<ROWS, KEYS, KIND>(c, now), k, v, turn);
    }
}

/* With options, tiles take more registers than one thread has for both: one finds them, */
template <typename S, int ROWS, int KEYS, kind KIND> MHA_DEVICE void find_tiles(S &s, const mha_cuda_forward &c)
{
    for (slot next;; next.next()) {
        int stage = next.stage();
        barrier_wait(shared_address(&s.tile_empty[stage]), next.parity() ^ 1);
        int tiles = tiles_of<KIND>(c), n = next.count ? next_number(c, tiles) : (int)blockIdx.x;
        bool there = n < tiles;
        s.number[stage] = there ? n : -1;
        if (there) put_tile<ROWS, KEYS, KIND>(s.tiles[stage], c, n);
        barrier_arrive(shared_address(&s.tile_full[stage]));
        if (!there) break;
    }
}

/* and one copies them. */
template <typename S, int ROWS, int KEYS, kind KIND> MHA_DEVICE void copy_found_tiles(S &s, const mha_cuda_forward &c)
{
    slot k, v, next;
    uint32_t turn = 0;
    for (;; next.next()) {
        int stage = next.stage();
        barrier_wait(shared_address(&s.tile_full[stage]), next.parity());
        if (s.number[stage] < 0) break;
        copy_tile<S, ROWS, KEYS, KIND, volatile tile>(s, c, s.tiles[stage], k, v, turn);
        barrier_arrive(shared_address(&s.tile_empty[stage]));
    }
}

/* The rows of a warpgroup of block j of bias, the `count`th that it gets. 128 bytes are 32 numbers, or 64 in two stages. */
template <typename S, int KEYS>
MHA_DEVICE void copy_map(S &s, const mha_cuda_forward &c, const volatile tile &t, int j, int who, uint32_t count)
{
    const int stage = map_stage(count, c.bias_stages), bytes = S::MAP_BYTES / c.bias_stages;
    uint32_t full = shared_address(&s.map_full[who][stage]), to = shared_address(s.maps[who]) + stage * bytes;
    barrier_wait(shared_address(&s.map_empty[who][stage]), map_parity(count, c.bias_stages) ^ 1);
    barrier_expect(full, bytes);
#pragma unroll 1
    for (int key = j * KEYS; key < (j + 1) * KEYS; key += 32 * c.bias_stages, to += MAP_PANEL)
        copy_in(to, &c.bias_map, full, key, t.row + who * 64, t.head * c.bias_head, t.batch * c.bias_batch);
}

/* Other threads bring the tiles of bias, one for each warpgroup. */
template <typename S, int KEYS> MHA_DEVICE void copy_maps(S &s, const mha_cuda_forward &c, int who)
{
    slot next;
    uint32_t count = 0;
    for (;; next.next()) {
        barrier_wait(shared_address(&s.tile_full[next.stage()]), next.parity());
        if (s.number[next.stage()] < 0) break;
        const volatile tile &t = s.tiles[next.stage()];
        for (int j = t.first + (c.bias_stages ? t.blocks : 0) - 1; j >= t.first; j--, count++)
            copy_map<S, KEYS>(s, c, t, j, who, count);
        barrier_arrive(shared_address(&s.tile_empty[next.stage()]));
    }
}

/* The tiles of bias of a warpgroup. */
template <kind KIND, typename S> MHA_DEVICE const void *map_tile(S &s, int who)
{
    if constexpr (KIND == MAPS) return s.maps[who];
    else return s.q;
}

/* Where results are put together. */
template <typename S> MHA_DEVICE const void *result_tile(const S &s)
{
    if constexpr (S::SEPARATE) return s.o;
    else return s.q;
}

/* ---- The warps that find bits ----------------------------------------------------------------------------------- */

/* The 64 rows of a warpgroup of key block j, for bits.cuh. */
template <int KEYS> struct bits_at {
    const tile &t;
    int j, who;
    MHA_DEVICE int batch(void) const { return t.batch; }
    MHA_DEVICE int head(void) const { return t.head; }
    MHA_DEVICE int row(void) const { return t.row + who * 64; }
    MHA_DEVICE int key(void) const { return j * KEYS; }
    MHA_DEVICE int queries(void) const { return t.span.queries; }
    MHA_DEVICE int length(void) const { return t.span.length; }
};

/* What masks and dropout do to the key blocks of a tile, for one warpgroup after the other, after `count` blocks of other tiles.
 * The mask of a step is fetched while the bits of the step before are found. */
template <typename S, int KEYS, int CONSUMERS, typename TEAM>
MHA_DEVICE void find_bits_of_tile(S &s, const mha_cuda_forward &c, const tile &t, uint32_t count)
{
    const int steps = t.blocks * CONSUMERS;
    auto place_of = [&](int n) { return bits_at<KEYS>{t, t.first + t.blocks - 1 - n / CONSUMERS, n % CONSUMERS}; };
#pragma unroll 1
    for (int n = 0; n <= steps; n++) {
        const bits_at<KEYS> next = place_of(n), now = place_of(n - 1);
        uint32_t coming = (count + n / CONSUMERS) % BIT_STAGES, at = count + (n - 1) / CONSUMERS, stage = at % BIT_STAGES;
        if (n < steps && can_fetch<KEYS>(c, next.key(), next.length()))
            fetch_mask<TEAM>(shared_address(s.found[next.who].masks[coming]), c, next);
        fetches_commit();
        if (n == 0) continue;
        fetches_wait_but_last();
        barrier_wait(shared_address(&s.map_empty[now.who][stage]), at / BIT_STAGES % 2 ^ 1);
        uint32_t *to = s.found[now.who].bits[stage];
        if (can_fetch<KEYS>(c, now.key(), now.length())) find_fetched_bits<TEAM>(to, s.found[now.who].masks[stage]);
        else find_bits<TEAM>(to, c, now);
        barrier_arrive(shared_address(&s.map_full[now.who][stage]));
    }
}

template <typename S, int KEYS, int CONSUMERS, typename BLOCK> MHA_DEVICE void find_all_bits(S &s, const mha_cuda_forward &c)
{
    enum { EACH = 64 * KEYS / 16 / BLOCK::FINDERS }; /* words of a step that a thread finds */
    typedef bit_team<KEYS, BLOCK::FIRST_FINDER, BLOCK::FINDERS, EACH> team;
    slot next;
    uint32_t count = 0;
    for (;; next.next()) {
        barrier_wait(shared_address(&s.tile_full[next.stage()]), next.parity());
        if (s.number[next.stage()] < 0) break;
        const tile t = s.tiles[next.stage()];
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&s.tile_empty[next.stage()]));
        find_bits_of_tile<S, KEYS, CONSUMERS, team>(s, c, t, count);
        count += t.blocks;
    }
}

/* The words of a thread's first row, in shared memory. */
template <kind KIND, typename S> MHA_DEVICE uint32_t found_words(S &s, int who, uint32_t stage)
{
    if constexpr (KIND == BITS)
        return shared_address(s.found[who].bits[stage] + threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 32 / 4);
    else return 0;
}

/* ---- The warpgroups that compute -------------------------------------------------------------------------------- */

/* What a thread keeps of its two rows, r and r + 8 of its warp's 16. */
struct rows {
    float reference[2], sum[2];
};

/* The first and the last key that the two rows of a thread, row and row + 8, see by position. */
struct keys_seen {
    int first[2], last[2];
};

template <kind KIND, typename TILE> MHA_DEVICE keys_seen keys_of(const mha_cuda_forward &c, const TILE &t, int row)
{
    keys_seen x = {{0, 0}, {c.Tk - 1, c.Tk - 1}};
#pragma unroll
    for (int h = 0; h < 2; h++, row += 8) {
        if (KIND == CAUSAL) x.last[h] = min(c.Tk - 1, row + c.offset);
        if (KIND < OPTIONS) continue;
        x.first[h] = max(0, row + t.span.left);
        x.last[h] = row < t.span.queries ? min(t.span.length - 1, row + t.span.right) : -1;
    }
    return x;
}

/* Scores that are not visible become -infinity. `last` is the last key that the first of the two rows sees. */
template <int KEYS> MHA_DEVICE void hide(float (&s)[KEYS / 2], int first_key, const int (&last)[2])
{
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
        int key = first_key + i / 4 * 8 + i % 2;
        if (key > last[i / 2 % 2]) s[i] = -INFINITY;
    }
}

/* The same where `first` is the first key that a row sees. */
template <int KEYS>
MHA_DEVICE void hide(float (&s)[KEYS / 2], int first_key, const int (&first)[2], const int (&last)[2])
{
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
        int key = first_key + i / 4 * 8 + i % 2;
        if (key > last[i / 2 % 2] || key < first[i / 2 % 2]) s[i] = -INFINITY;
    }
}

/* Products become scores, in units of log 2, with cap and slope. `ahead` is how far the first row stands before the first
 * of this thread's keys. A product that is not finite, which the cap would cover: the score is NaN; or, unless SPARING, which takes
 * registers, it returns whether there is one. */
template <int KEYS, bool SPARING>
MHA_DEVICE bool modify(float (&s)[KEYS / 2], const mha_cuda_forward &c, float slope, float ahead)
{
    float zero = 0;
    if (c.cap != 0) {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) {
            if (SPARING) s[i] = fmaf(s[i], 0.0f, s[i]);
            else zero = fmaf(s[i], 0.0f, zero);
            s[i] = fmaf(-2 * c.cap, inverse_fast(1 + exp2_fast(s[i] * c.cap_inverse)), c.cap);
        }
    } else {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) s[i] *= c.scale;
    }
    if (slope != 0) {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++)
            s[i] = fmaf(-slope, fabsf(ahead + (i / 2 % 2 * 8 - i / 4 * 8 - i % 2)), s[i]);
    }
    return zero != 0;
}

/* Scores become weights; returns by how much the sums so far have to be multiplied. */
template <int KEYS> MHA_DEVICE void soften(float (&s)[KEYS / 2], rows &r, float (&by)[2], float scale)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float a = s[2 * h], b = s[2 * h + 1];
#pragma unroll
        for (int i = 4; i < KEYS / 2; i += 4) a = fmaxf(a, s[i + 2 * h]), b = fmaxf(b, s[i + 2 * h + 1]);
        float top = fmaxf(a, b);
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2)) * scale;
        by[h] = 1;
        if (top > r.reference[h] + 8) {
            by[h] = exp2_fast(r.reference[h] - top);
            r.reference[h] = top;
            r.sum[h] *= by[h];
        }
        float less = r.reference[h] == -INFINITY ? 0 : r.reference[h], c = 0, d = 0;
#pragma unroll
        for (int i = 0; i < KEYS / 2; i += 4) {
            s[i + 2 * h] = exp2_fast(fmaf(s[i + 2 * h], scale, -less));
            s[i + 2 * h + 1] = exp2_fast(fmaf(s[i + 2 * h + 1], scale, -less));
            c += s[i + 2 * h];
            d += s[i + 2 * h + 1];
        }
        r.sum[h] += c + d;
    }
}

template <typename T, int KEYS> MHA_DEVICE void pack_all(uint32_t (&p)[KEYS / 4], const float (&s)[KEYS / 2])
{
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) p[i] = pack<T>(s[2 * i], s[2 * i + 1]);
}

template <int COUNT> MHA_DEVICE void rescale(float (&o)[COUNT], const float (&by)[2])
{
    if (!__any_sync(~0u, by[0] != 1 || by[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < COUNT; i++) o[i] *= by[i / 2 % 2];
}

/* The 16 rows of a warp from `first` on, to the tile at `to`, whose row `at` is the first. */
template <typename T, int D, int ROWS, kind KIND>
__device__ __noinline__ void finish_carefully(const mha_cuda_forward &c, tile t, int first, uint32_t to, int at)
{
    int head = t.head / c.group;
    double scale = (double)c.scale * 0.69314718055994530942;
    for (int row = first; row < min(first + 16, c.Tq); row++) {
        int keys = KIND == CAUSAL ? min(c.Tk, max(0, row + c.offset + 1)) : c.Tk;
        double top = -INFINITY, sum = 0;
        careful_row<D> o = {{0}}, q = careful_load<T, D>(c.queries, t.batch, t.head, row, c.D);
        for (int j = 0; j < keys; j++)
            top = fmax(top, careful_score(scale, q, careful_load<T, D>(c.keys, t.batch, head, j, c.D)));
        for (int j = 0; j < keys; j++) {
            double p = exp(careful_score(scale, q, careful_load<T, D>(c.keys, t.batch, head, j, c.D)) - top);
            careful_add(o, p, careful_load<T, D>(c.values, t.batch, head, j, c.E));
            sum += p;
        }
        for (int i = 0; keys && i < careful_row<D>::COUNT; i++) o.x[i] /= sum;
        careful_put<T>(to, ROWS * ROW_BYTES, at + row - first, o);
        if (c.lse && threadIdx.x % 32 == 0)
            c.lse[((int64_t)t.batch * c.H + t.head) * c.Tq + row] = (float)(top + log(sum));
    }
}

/* lse of a row, in units of log 2, to the tensors of the caller. */
template <typename TILE> MHA_DEVICE void put_lse(const mha_cuda_forward &c, const TILE &t, int row, bool sees, float lse)
{
    int batch = t.span.query_batch, at = t.span.query_row + row;
    lse = sees ? lse * 0.6931471806f : -INFINITY;
    if (c.as_lse.data) ((float *)c.as_lse.data)[place(c.as_lse, batch, t.head, at, 0)] = lse;
    if (c.as_softmax.data) {
        float *to = (float *)c.as_softmax.data + place(c.as_softmax, batch, t.head, at, 0);
        to[0] = lse, to[c.as_softmax.stride[3]] = sees ? 1.0f : 0.0f;
    }
}

/* Whether the mask and the bias show a row one of the keys that it sees by position; a thread has two rows of its warp. */
template <typename TILE> MHA_DEVICE void look(const mha_cuda_forward &c, const TILE &t, int first_row, const keys_seen &seen,
                     const float (&sum)[2], bool (&sees)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        unsigned unsure = __ballot_sync(~0u, sees[h] && (sum[h] == 0 || (c.sinks && sum[h] == 1)));
        while (unsure) {
            int lane = __ffs(unsure) - 1, row = first_row + h * 8 + lane / 4;
            bool any = is_any_visible(c, t.batch, t.head, row, __shfl_sync(~0u, seen.first[h], lane),
                                      __shfl_sync(~0u, seen.last[h], lane));
            if ((int)threadIdx.x % 32 / 4 == lane / 4) sees[h] = any;
            unsure &= ~(15u << lane / 4 * 4);
        }
    }
}

/* Rows of a tile in shared memory, `count` of them, to rows of E numbers that are `stride` apart. */
template <int ROWS> __device__ __noinline__ void put_rows(char *to, int64_t stride, uint32_t from, int count, int E)
{
    for (int n = threadIdx.x % GROUP; n < count * (E / 8); n += GROUP) {
        int r = n / (E / 8), piece = n % (E / 8);
        uint4 x;
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "r"(from + piece / 8 * ROWS * ROW_BYTES + r * ROW_BYTES + ((piece % 8) ^ (r % 8)) * 16)
                     : "memory");
        *(uint4 *)(to + 2 * (r * stride + piece * 8)) = x;
    }
}

/* The 64 rows of results of a warpgroup, from shared memory to the tensor. Behind the rows of a sequence there may be those
 * of another one. */
template <int COLUMNS, int ROWS, kind KIND, typename TILE>
MHA_DEVICE void put_results(const mha_cuda_forward &c, const TILE &t, uint32_t from, int who)
{
    int row = t.row + who * 64, batch = t.batch;
    if (KIND >= OPTIONS) {
        int count = min(64, t.span.padded - row);
        row += t.span.query_row, batch = t.span.query_batch;
        if (c.spans && count < 64) {
            char *to = (char *)c.results.data +
                       2 * (batch * c.results.batch + t.head * c.results.head + row * c.results.row);
            put_rows<ROWS>(to, c.results.row, from, count, c.E);
            return;
        }
    }
    if (threadIdx.x % GROUP == 0) {
        for (int panel = 0; panel < COLUMNS / PANEL; panel++)
            copy_out(&c.o, from + panel * ROWS * ROW_BYTES, panel * PANEL, row, t.head, batch);
        copies_commit();
    }
}

/* The sums, divided, to shared memory and from there to the tensor; and the logarithms of the sums of exponentials. `seen`:
 * the keys that the two rows see by position. */
template <typename T, int D, int ROWS, kind KIND, typename S, typename TILE>
MHA_DEVICE void finish(S &s, const mha_cuda_forward &c, const TILE &t, float (&o)[D / 2], rows &r, const keys_seen &seen, int who)
{
    int thread = threadIdx.x % GROUP, lane = thread % 32, warp = thread / 32, first_row = t.row + who * 64 + warp * 16;
    uint32_t to = shared_address(result_tile(s)) + who * 64 * ROW_BYTES;
    bool sees[2] = {seen.last[0] >= seen.first[0], seen.last[1] >= seen.first[1]}, lost = is_lost(o);
    float by[2], sum[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] = r.sum[h];
        sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
        sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
        by[h] = sum[h] > 0 ? 1 / sum[h] : 0;
        if (KIND >= MAPS) by[h] *= c.kept;
        if (KIND >= OPTIONS) continue;
        lost = lost || (sees[h] && !(sum[h] > 0 && sum[h] < INFINITY));
        int row = first_row + h * 8 + lane / 4;
        if (c.lse && lane % 4 == 0 && row < c.Tq)
            c.lse[((int64_t)t.batch * c.H + t.head) * c.Tq + row] =
                sees[h] ? (r.reference[h] + __log2f(sum[h])) * 0.6931471806f : -INFINITY;
    }
    if (S::SEPARATE && thread == 0) copies_read();
    group_sync(OWN + who, GROUP);
    if (KIND < OPTIONS && __any_sync(~0u, lost)) {
        if constexpr (KIND < OPTIONS) finish_carefully<T, D, ROWS, KIND>(c, t, first_row, to, warp * 16);
    } else {
        int row = warp * 16 + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
        for (int b = 0; b < D / 8; b += 2) {
            int piece = b + lane / 16;
            uint32_t at = to + piece / 8 * ROWS * ROW_BYTES + row * ROW_BYTES + ((piece % 8) ^ (row % 8)) * 16;
            const float *x = o + 4 * b;
            store_matrices(at, pack<T>(x[0] * by[0], x[1] * by[0]), pack<T>(x[2] * by[1], x[3] * by[1]),
                           pack<T>(x[4] * by[0], x[5] * by[0]), pack<T>(x[6] * by[1], x[7] * by[1]));
        }
    }
    publish_shared();
    if (KIND < OPTIONS) {
        group_sync(OWN + who, GROUP);
        put_results<S::COLUMNS, ROWS, KIND>(c, t, to, who);
        if (!S::SEPARATE && thread == 0) { /* the next Q may come */
            copies_read();
            barrier_arrive(shared_address(&s.q_empty));
        }
        return;
    }
    if (KIND >= MAPS) look(c, t, first_row, seen, sum, sees);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        lost = lost || (sees[h] && !(sum[h] > 0 && sum[h] < INFINITY));
        int row = first_row + h * 8 + lane / 4;
        if (lane % 4 == 0 && row < t.span.padded) put_lse(c, t, row, sees[h], r.reference[h] + __log2f(sum[h]));
    }
    int any = group_any(OWN + who, GROUP, lost);
    if (thread == 0) c.lost[((int64_t)(t.batch * c.H + t.head) * c.row_tiles * ROWS + t.row) / 64 + who] = any;
    put_results<S::COLUMNS, ROWS, KIND>(c, t, to, who);
    if (!S::SEPARATE && thread == 0) copies_read();
    group_sync(OWN + who, GROUP); /* the next results may be put there */
    if (!S::SEPARATE && thread == 0) barrier_arrive(shared_address(&s.q_empty));
}

/* Zeros in place of what a sequence without padding does not have: padding may be infinite or NaN, which a cap would cover. */
template <int KEYS>
MHA_DEVICE void clear(float (&s)[KEYS / 2], int first_key, int length, int row, int queries)
{
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
        int key = first_key + i / 4 * 8 + i % 2;
        if (key >= length || row + i / 2 % 2 * 8 >= queries) s[i] = 0;
    }
}

/* Zeros in place of the values from row `first` of a block on: their weights are 0, but 0 times NaN is NaN. Each warpgroup
 * writes them, so that none has to wait for another. */
template <int COLUMNS, int KEYS> MHA_DEVICE void clear_values(uint32_t v, int first, int who)
{
    for (int n = threadIdx.x % GROUP; n < (KEYS - first) * (COLUMNS / 8); n += GROUP) {
        int row = first + n / (COLUMNS / 8), piece = n % (COLUMNS / 8);
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(v + piece / 8 * KEYS * ROW_BYTES + row * ROW_BYTES +
                                                                      piece % 8 * 16),
                     "r"(0)
                     : "memory");
    }
    publish_shared();
    group_sync(OWN + who, GROUP);
}

/* Where a warpgroup is in the rings, from tile to tile. */
struct progress {
    slot k, v;
    uint32_t turn = 0; /* of Q */
};

template <typename T, int D, int CONSUMERS, int KEYS, kind KIND, typename TILE>
MHA_DEVICE void compute_tile(shared_memory<T, D, CONSUMERS, KEYS, KIND> &s, const mha_cuda_forward &c, const TILE &t,
                             progress &at, int who)
{
    typedef shared_memory<T, D, CONSUMERS, KEYS, KIND> S;
    enum { ROWS = 64 * CONSUMERS, COLUMNS = S::COLUMNS };
    int thread = threadIdx.x % GROUP, lane = thread % 32, warp = thread / 32;
    uint64_t q = factor(shared_address(s.q) + who * 64 * ROW_BYTES, 0);
    float o[D / 2], x[KEYS / 2], by[2];
    uint32_t p[KEYS / 4];
    rows r = {{-INFINITY, -INFINITY}, {0, 0}};
    int row = t.row + who * 64 + warp * 16 + lane / 4, first = lane % 4 * 2;
    const keys_seen seen = keys_of<KIND>(c, t, row);
    const float &scale = KIND >= OPTIONS ? c.scale_after : c.scale;
    if (KIND >= OPTIONS) {
        if (c.sinks) {
            float sink = c.sinks[t.head * c.sink_head] * 1.4426950409f;
            r.reference[0] = r.reference[1] = sink;
            r.sum[0] = r.sum[1] = sink > -INFINITY && lane % 4 == 0 ? 1 : 0;
        }
    }
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] = 0;

    auto scores = [&](void) {
        products_begin();
        uint64_t k = factor(shared_address(s.k[at.k.stage()]), 0);
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            product_shared<T>(x, q + i / 4 * (ROWS * ROW_BYTES >> 4) + i % 4 * 2,
                              k + i / 4 * (KEYS * ROW_BYTES >> 4) + i % 4 * 2, i > 0);
        products_commit();
    };
    auto results = [&](int j) {
        if (KIND >= OPTIONS && (j + 1) * KEYS > t.span.length)
            clear_values<COLUMNS, KEYS>(shared_address(s.v[at.v.stage()]), t.span.length - j * KEYS, who);
        products_begin();
        uint64_t v = factor(shared_address(s.v[at.v.stage()]), KEYS * ROW_BYTES);
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++) product_registers<T>(o, p + 4 * i, v + i * (16 * ROW_BYTES >> 4), 1);
        products_commit();
    };

    if (!S::SEPARATE || t.blocks > 0) {
        barrier_wait(shared_address(&s.q_full), at.turn);
        at.turn ^= 1;
    }
    if (t.blocks > 0) {
        int j = t.first + t.blocks - 1;
        barrier_wait(shared_address(&s.k_full[at.k.stage()]), at.k.parity());
        scores();
        products_wait<0>();
        touch(x);
        if (thread == 0) barrier_arrive(shared_address(&s.k_empty[at.k.stage()]));
        at.k.next();
        auto here = [&](void) {
            return map_place_of(t.batch, t.head, row, t.span.queries, j * KEYS + first, t.span.length);
        };
        auto add_bias = [&](void) {
            if (KIND != MAPS || !c.bias.data) return;
            if (!c.bias_stages) {
                add_plain(x, c, here());
                return;
            }
            int stage = map_stage(at.k.count - 1, c.bias_stages), bytes = S::MAP_BYTES / c.bias_stages;
            barrier_wait(shared_address(&s.map_full[who][stage]), map_parity(at.k.count - 1, c.bias_stages));
            add_tile(x, c, shared_address(map_tile<KIND>(s, who)) + stage * bytes);
            group_sync(OWN + who, GROUP);
            if (thread == 0) barrier_arrive(shared_address(&s.map_empty[who][stage]));
        };
        auto show_found = [&](void) {
            uint32_t count = at.k.count - 1, stage = count % BIT_STAGES;
            barrier_wait(shared_address(&s.map_full[who][stage]), count / BIT_STAGES % 2);
            if (c.mask.data) apply_found(x, found_words<KIND>(s, who, stage), VISIBLE, -INFINITY);
        };
        auto drop_found = [&](void) {
            uint32_t stage = (at.k.count - 1) % BIT_STAGES;
            if (c.dropped) apply_found(x, found_words<KIND>(s, who, stage), KEPT, 0);
            __syncwarp();
            if (lane == 0) barrier_arrive(shared_address(&s.map_empty[who][stage]));
        };
        auto mask = [&](void) {
            if (KIND < OPTIONS) {
                hide<KEYS>(x, j * KEYS + first, seen.last);
                return;
            }
            if (c.cap != 0 && ((j + 1) * KEYS > t.span.length || t.row + ROWS > t.span.queries))
                clear<KEYS>(x, j * KEYS + first, t.span.length, row, t.span.queries);
            if (c.modified && modify<KEYS, KIND == BITS>(x, c, t.slope, (float)(row + t.span.offset - j * KEYS - first)))
                r.sum[0] = r.sum[1] = NAN;
            add_bias();
            if (KIND == MAPS && c.mask.data) apply_mask(x, c, here());
            if (KIND == BITS) show_found();
            if (j >= t.whole || j < t.closed) {
                const keys_seen now = keys_of<KIND>(c, t, row); /* read again: there are few registers */
                hide<KEYS>(x, j * KEYS + first, now.first, now.last);
            }
        };
        auto drop = [&](void) {
            if (KIND == MAPS && c.dropped) drop_weights(x, c, here(), row);
            if (KIND == BITS) drop_found();
        };
        if (KIND >= OPTIONS || j >= t.whole) mask();
        soften<KEYS>(x, r, by, scale);
        drop();
        pack_all<T, KEYS>(p, x);

        auto step = [&](bool masked) {
            barrier_wait(shared_address(&s.k_full[at.k.stage()]), at.k.parity());
            if (CONSUMERS > 1) group_sync(TURN + who, 2 * GROUP);
            scores();
            barrier_wait(shared_address(&s.v_full[at.v.stage()]), at.v.parity());
            results(j + 1);
            if (CONSUMERS > 1) group_arrive(TURN + (who + 1) % CONSUMERS, 2 * GROUP);
            products_wait<1>();
            touch(x);
            if (thread == 0) barrier_arrive(shared_address(&s.k_empty[at.k.stage()]));
            at.k.next();
            if (masked) mask();
            soften<KEYS>(x, r, by, scale);
            drop();
            products_wait<0>();
            touch(o);
            if (thread == 0) barrier_arrive(shared_address(&s.v_empty[at.v.stage()]));
            at.v.next();
            pack_all<T, KEYS>(p, x);
            rescale(o, by);
        };
        if (KIND >= OPTIONS) {
            for (j--; j >= t.first; j--) step(true);
        } else {
            for (j--; j >= 0 && j >= t.whole; j--) step(true);
            for (; j >= 0; j--) step(false);
        }

        if (S::SEPARATE && thread == 0) barrier_arrive(shared_address(&s.q_empty));
        barrier_wait(shared_address(&s.v_full[at.v.stage()]), at.v.parity());
        results(t.first);
        products_wait<0>();
        touch(o);
        if (thread == 0) barrier_arrive(shared_address(&s.v_empty[at.v.stage()]));
        at.v.next();
    }
    finish<T, D, ROWS, KIND>(s, c, t, o, r, KIND >= OPTIONS ? keys_of<KIND>(c, t, row) : seen, who);
}

template <typename T, int D, int CONSUMERS, int KEYS, kind KIND>
MHA_DEVICE void compute_tiles(shared_memory<T, D, CONSUMERS, KEYS, KIND> &s, const mha_cuda_forward &c, int who)
{
    int thread = threadIdx.x % GROUP;
    slot next;
    progress at;
    if (CONSUMERS > 1 && who == CONSUMERS - 1) group_arrive(TURN, 2 * GROUP); /* the first one may begin */
    for (;;) {
        uint32_t empty = shared_address(&s.tile_empty[next.stage()]);
        barrier_wait(shared_address(&s.tile_full[next.stage()]), next.parity());
        int n = s.number[next.stage()];
        if constexpr (KIND < OPTIONS) {
            group_sync(OWN + who, GROUP);
            if (thread == 0) barrier_arrive(empty);
            if (n < 0) break;
            compute_tile<T, D, CONSUMERS, KEYS, KIND>(s, c, tile_of<64 * CONSUMERS, KEYS, KIND>(c, n), at, who);
        } else {
            if (n < 0) break;
            compute_tile<T, D, CONSUMERS, KEYS, KIND, volatile tile>(s, c, s.tiles[next.stage()], at, who);
            if (thread == 0) barrier_arrive(empty);
        }
        next.next();
    }
    if (thread == 0) copies_read();
}

/* ---- The kernel ------------------------------------------------------------------------------------------------- */

template <typename T, int D, int CONSUMERS, int KEYS, kind KIND> MHA_DEVICE void run(const mha_cuda_forward &c)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    typedef shared_memory<T, D, CONSUMERS, KEYS, KIND> layout;
    layout &s = *(layout *)memory;
    static_assert(sizeof(layout) <= 227 * 1024, "more shared memory than a block can have");
    static_assert(KIND != MAPS || CONSUMERS == 2, "two threads bring bias");
    typedef block<D, CONSUMERS, KIND> own;
    /* Who reads a tile: the warpgroups, with options the thread that copies, with maps those that bring the bias, and the warps
     * that find bits. */
    const int arrivals =
        CONSUMERS + (KIND >= OPTIONS) + (KIND == MAPS ? CONSUMERS : 0) + (KIND == BITS ? own::FINDERS / 32 : 0);
    if (threadIdx.x == 0) {
        barrier_make(shared_address(&s.q_full), 1);
        barrier_make(shared_address(&s.q_empty), CONSUMERS);
        for (int i = 0; i < STAGES; i++) {
            barrier_make(shared_address(&s.tile_full[i]), 1);
            barrier_make(shared_address(&s.tile_empty[i]), arrivals);
            barrier_make(shared_address(&s.k_full[i]), 1);
            barrier_make(shared_address(&s.v_full[i]), 1);
            barrier_make(shared_address(&s.k_empty[i]), CONSUMERS);
            barrier_make(shared_address(&s.v_empty[i]), CONSUMERS);
            for (int who = 0; KIND >= MAPS && who < CONSUMERS; who++) {
                barrier_make(shared_address(&s.map_full[who][i]), KIND == BITS ? own::FINDERS : 1);
                barrier_make(shared_address(&s.map_empty[who][i]), KIND == BITS ? GROUP / 32 : 1);
            }
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        publish_shared();
    }
    __syncthreads();
    if (threadIdx.x < GROUP) {
        registers_give<own::FEW>();
        if constexpr (KIND < OPTIONS) {
            if (threadIdx.x == 0) copy_tiles<layout, 64 * CONSUMERS, KEYS, KIND>(s, c);
        } else {
            if (threadIdx.x == 0) copy_found_tiles<layout, 64 * CONSUMERS, KEYS, KIND>(s, c);
            if (threadIdx.x == 32) find_tiles<layout, 64 * CONSUMERS, KEYS, KIND>(s, c);
        }
        if constexpr (KIND == MAPS)
            if (threadIdx.x == 64 || threadIdx.x == 96) copy_maps<layout, KEYS>(s, c, threadIdx.x / 32 - 2);
        if constexpr (KIND == BITS && !own::APART)
            if (threadIdx.x >= own::FIRST_FINDER) find_all_bits<layout, KEYS, CONSUMERS, own>(s, c);
    } else if (!own::APART || threadIdx.x < own::FIRST_FINDER) {
        registers_take<own::MANY>();
        compute_tiles<T, D, CONSUMERS, KEYS, KIND>(s, c, threadIdx.x / GROUP - 1);
    } else if constexpr (own::APART) {
        registers_give<own::SOME>();
        find_all_bits<layout, KEYS, CONSUMERS, own>(s, c);
    }
}

} // namespace

#define FORWARD_KERNEL(NAME, T, D, CONSUMERS, KEYS, KIND)                                     \
    extern "C" __global__ void __launch_bounds__(GROUP *block<D, CONSUMERS, KIND>::GROUPS, 1) \
        NAME(const __grid_constant__ mha_cuda_forward c)                                      \
    {                                                                                         \
        run<T, D, CONSUMERS, KEYS, KIND>(c);                                                  \
    }

#endif
