/* The tiles of forward.cuh, what the warps of a block share, and the warpgroups that do not compute: a thread that copies, one that
 * finds tiles, those that bring bias, and the warps that find bits. */
#ifndef MHA_CUDA_FORWARD_COPIES_CUH
#define MHA_CUDA_FORWARD_COPIES_CUH

#include "forward.h"
#include "maps.cuh"
#include "schedule.h"

namespace
{

enum { GROUP = 128, TILE_STAGES = 2, MAP_STAGES = 2 }; /* threads of a warpgroup; tiles, and their bias or bits, in flight */
enum { TURN = 1, OWN = 5 };       /* numbers of barriers: turns at issuing, and of each warpgroup's own threads */

/* What rows see: all keys, those of a window, or what options say; beyond, pairs of rows and keys have numbers of their own: a bias alone, all
 * maps, as they are, or bits. */
enum kind { FULL, WINDOW, OPTIONS, BIAS, MAPS, BITS };

/* The warpgroups of a block: one that copies, those that compute, and with bits one that finds them; beyond 128 columns, where
 * four warpgroups do not have registers enough, the last two warps of the first one do. What they have of registers together
 * does not grow once a block runs. */
template <int D, int CONSUMERS, kind KIND> struct block {
    enum { APART = KIND == BITS && D <= 128, GROUPS = CONSUMERS + 1 + APART };
    enum { FIRST_FINDER = APART ? GROUP * (CONSUMERS + 1) : 64, FINDERS = APART ? GROUP : 64 };
    enum {
        FEW = CONSUMERS == 3 ? 32 : KIND == BITS && !APART ? 56 : 24,
        MANY = CONSUMERS == 4 ? 112 : CONSUMERS == 3 ? 160 : APART ? 216 : KIND == BITS ? 224 : 240,
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

/* The key blocks of a tile that a warpgroup computes: from `last` down to `end`, of which all of its rows see all keys from `open` on and
 * below `whole`. The others need `before` and `after` more. */
struct share {
    int last, end, whole, open, before, after;
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
 * through that of Q. Kernels that go from tile to tile without a pause have two tiles' Q in memory, or one's in registers. */
template <typename T, int SIZE, bool OWN_MEMORY> struct result_memory {
    alignas(1024) T o[SIZE];
};
template <typename T, int SIZE> struct result_memory<T, SIZE, false> {
};

template <int D, kind KIND> constexpr bool has_room(void) { return KIND != MAPS && D <= (KIND > OPTIONS ? 64 : 128); }
template <int D, kind KIND> constexpr bool is_ahead(void) { return KIND < OPTIONS && D <= 64; }

/* Two warpgroups have registers for Q, whose memory is then free as soon as they have read it. */
template <int D, int CONSUMERS, kind KIND> constexpr bool in_registers(void)
{
    return CONSUMERS == 2 && ((KIND < OPTIONS && D <= 128) || (KIND == OPTIONS && D <= 64));
}

template <typename T, int D, int CONSUMERS, int KEYS, kind KIND>
struct shared_memory : result_memory<T, 64 * CONSUMERS * ((D + PANEL - 1) / PANEL) * PANEL, has_room<D, KIND>()>,
                       map_memory<CONSUMERS, 64 * KEYS * 4, KIND == MAPS || KIND == BIAS>,
                       bits_memory<CONSUMERS, KEYS, KIND == BITS> {
    enum { ROWS = 64 * CONSUMERS, COLUMNS = (D + PANEL - 1) / PANEL * PANEL, MAP_BYTES = 64 * KEYS * 4 };
    enum { HAS_BIAS = KIND == MAPS || KIND == BIAS };
    enum { BIAS_EARLY = KIND == BIAS && D > 64 }; /* it is in registers before scores come */
    enum { SEPARATE = has_room<D, KIND>() }; /* results have memory of their own */
    enum { AHEAD = is_ahead<D, KIND>(), IN_REGISTERS = in_registers<D, CONSUMERS, KIND>() };
    enum { SHARES = AHEAD && KIND == WINDOW && CONSUMERS > 2 }; /* each warpgroup has its share of a tile's key blocks */
    enum { Q_STAGES = AHEAD && !IN_REGISTERS ? 2 : 1, STAGES = D > 64 || KIND == BIAS ? 2 : 4 }; /* STAGES: of K and V */
    alignas(1024) T q[Q_STAGES][ROWS * COLUMNS];
    alignas(1024) T k[STAGES][KEYS * COLUMNS];
    alignas(1024) T v[STAGES][KEYS * COLUMNS];
    int number[TILE_STAGES]; /* of tiles, from the warpgroup that copies to the others; -1: no more */
    tile tiles[TILE_STAGES]; /* those of the numbers */
    share shares[TILE_STAGES][CONSUMERS]; /* likewise; a single one unless SHARES */
    alignas(8) uint64_t tile_full[TILE_STAGES], tile_empty[TILE_STAGES], q_full[Q_STAGES], q_empty[Q_STAGES];
    uint64_t k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    uint64_t map_full[KIND > OPTIONS ? CONSUMERS : 1][MAP_STAGES], map_empty[KIND > OPTIONS ? CONSUMERS : 1][MAP_STAGES]; /* or bits */
};

/* A place in a ring of stages. */
template <int STAGES> struct slot {
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
    int batch = KIND > OPTIONS ? p.head % c.B : p.head / c.H;
    t.head = KIND > OPTIONS ? p.head / c.B : p.head % c.H;
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
    int first = min(blocks, mha_cuda_first_key(row, t.span.left) / KEYS);
    t.first = first, t.blocks = blocks - first;
    t.whole = rows < ROWS ? 0 : mha_cuda_end_of_keys(t.span.length, row, t.span.right) / KEYS;
    t.closed = (mha_cuda_first_key(row + ROWS - 1, t.span.left) + KEYS - 1) / KEYS;
}

/* A tile of another kernel. */
template <int ROWS, int KEYS, kind KIND> MHA_DEVICE tile tile_of(const mha_cuda_forward &c, int n)
{
    mha_cuda_place p = mha_cuda_place_of(n, c.H * c.B, c.row_tiles, c.section);
    int row = (c.row_tiles - 1 - p.tile) * ROWS; /* the longest rows come first */
    int blocks = mha_cuda_blocks_seen(row, ROWS, KEYS, c.Tk, c.right, KIND != FULL);
    if (KIND == FULL) return {row, p.head % c.H, p.head / c.H, blocks, 0, c.Tk / KEYS, 0};
    int first = min(blocks, mha_cuda_first_key(row, c.left) / KEYS), whole = mha_cuda_end_of_keys(c.Tk, row, c.right) / KEYS;
    int closed = (mha_cuda_first_key(row + ROWS - 1, c.left) + KEYS - 1) / KEYS;
    return {row, p.head % c.H, p.head / c.H, blocks - first, first, whole, closed};
}

/* What the warpgroups compute of a tile: all of it, or each what its rows see. */
template <typename S, int KEYS> MHA_DEVICE void put_shares(volatile share *shares, const mha_cuda_forward &c, const tile &t)
{
    const int end_of_tile = t.first + t.blocks - 1;
    if constexpr (!S::SHARES) {
        shares->last = end_of_tile, shares->end = t.first;
        shares->whole = t.whole, shares->open = max(t.first, t.closed);
    } else {
#pragma unroll 1
        for (int n = 0, row = t.row; n < S::ROWS / 64; n++, row += 64) {
            int last = max(t.first, min(end_of_tile, (row + 63 + c.right) / KEYS));
            int end = min(last, max(t.first, (row + c.left) / KEYS));
            shares[n].last = last, shares[n].end = end;
            shares[n].before = end_of_tile - last, shares[n].after = end - t.first;
            shares[n].whole = mha_cuda_end_of_keys(c.Tk, row, c.right) / KEYS;
            shares[n].open = max(end, (mha_cuda_first_key(row + 63, c.left) + KEYS - 1) / KEYS);
        }
    }
}

/* ---- The warpgroup that copies ---------------------------------------------------------------------------------- */

template <typename S, int KEYS, kind KIND, typename TILE>
MHA_DEVICE void copy_block(S &s, bool values, slot<S::STAGES> p, const CUtensorMap *map, const TILE &t, int j, int group)
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
MHA_DEVICE void copy_tile(S &s, const mha_cuda_forward &c, const TILE &t, slot<S::Q_STAGES> &q, slot<S::STAGES> &k,
                          slot<S::STAGES> &v)
{
    if (S::SEPARATE && t.blocks == 0) return;
    uint32_t to = shared_address(s.q[q.stage()]), full = shared_address(&s.q_full[q.stage()]);
    barrier_wait(shared_address(&s.q_empty[q.stage()]), q.parity() ^ 1);
    q.next();
    if (!S::SEPARATE && t.blocks == 0) { /* results leave through Q */
        barrier_arrive(full);
        return;
    }
    barrier_expect(full, ROWS * S::COLUMNS * 2);
    int row = t.row, batch = t.batch;
    if (KIND >= OPTIONS) row += t.span.query_row, batch = t.span.query_batch;
    for (int panel = 0; panel < S::COLUMNS / PANEL; panel++)
        copy_in(to + panel * ROWS * ROW_BYTES, &c.q, full, panel * PANEL, row, t.head, batch);
    for (int j = t.blocks; j >= 0; j--) {
        if (j > 0) copy_block<S, KEYS, KIND>(s, false, k, &c.k, t, t.first + j - 1, c.group), k.next();
        if (j < t.blocks) copy_block<S, KEYS, KIND>(s, true, v, &c.v, t, t.first + j, c.group), v.next();
    }
}

/* The number of the next tile of a block, `taken` from the counter. */
MHA_DEVICE int next_number(const mha_cuda_forward &c, int taken, int tiles)
{
    if (taken == tiles - 1) *c.counter = 0; /* everybody has what it gets: ready for the next call */
    return taken + gridDim.x;
}

template <typename S, int ROWS, int KEYS, kind KIND> MHA_DEVICE void copy_tiles(S &s, const mha_cuda_forward &c)
{
    slot<S::Q_STAGES> q;
    slot<S::STAGES> k, v;
    slot<TILE_STAGES> next;
    for (int n = blockIdx.x;;) {
        int stage = next.stage();
        const tile t = tile_of<ROWS, KEYS, KIND>(c, min(n, c.tiles - 1));
        barrier_wait(shared_address(&s.tile_empty[stage]), next.parity() ^ 1);
        s.number[stage] = n < c.tiles ? n : -1;
        s.tiles[stage] = t;
        if (S::AHEAD) put_shares<S, KEYS>(s.shares[stage], c, t);
        barrier_arrive(shared_address(&s.tile_full[stage]));
        next.next();
        if (n >= c.tiles) break;
        int taken = atomicAdd(c.counter, 1); /* comes while this tile is copied */
        copy_tile<S, ROWS, KEYS, KIND>(s, c, t, q, k, v);
        n = next_number(c, taken, c.tiles);
    }
}

/* With options, tiles take more registers than one thread has for both: one finds them, */
template <typename S, int ROWS, int KEYS, kind KIND> MHA_DEVICE void find_tiles(S &s, const mha_cuda_forward &c)
{
    for (slot<TILE_STAGES> next;; next.next()) {
        int stage = next.stage();
        barrier_wait(shared_address(&s.tile_empty[stage]), next.parity() ^ 1);
        int tiles = tiles_of<KIND>(c), n = next.count ? next_number(c, atomicAdd(c.counter, 1), tiles) : (int)blockIdx.x;
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
    slot<S::Q_STAGES> q;
    slot<S::STAGES> k, v;
    for (slot<TILE_STAGES> next;; next.next()) {
        int stage = next.stage();
        barrier_wait(shared_address(&s.tile_full[stage]), next.parity());
        if (s.number[stage] < 0) break;
        copy_tile<S, ROWS, KEYS, KIND, volatile tile>(s, c, s.tiles[stage], q, k, v);
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
    slot<TILE_STAGES> next;
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
template <typename S> MHA_DEVICE const void *map_tile(S &s, int who)
{
    if constexpr (S::HAS_BIAS) return s.maps[who];
    else return s.q[0];
}

/* Where results are put together. */
template <typename S> MHA_DEVICE const void *result_tile(const S &s)
{
    if constexpr (S::SEPARATE) return s.o;
    else return s.q[0];
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
    slot<TILE_STAGES> next;
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

} // namespace

#endif
