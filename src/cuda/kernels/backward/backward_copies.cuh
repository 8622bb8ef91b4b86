/* The work of a block of backward.cuh, what its warps share, and the warpgroup that copies: one thread brings tiles, three warps find
 * what masks and dropout do to them. */
#ifndef MHA_CUDA_BACKWARD_COPIES_CUH
#define MHA_CUDA_BACKWARD_COPIES_CUH

#include "backward_maps.cuh"

namespace
{

template <typename T, int D, int QUERIES, kind KIND> struct shared_memory {
    enum { STAGES = KIND == MAPS || HALVES ? 2 : 3 };
    alignas(1024) T k[KEYS * D];
    alignas(1024) T v[KEYS * D];
    alignas(1024) T q[STAGES][QUERIES * D];
    alignas(1024) T d_out[STAGES][QUERIES * D];
    alignas(1024) T ds[2][QUERIES * KEYS];
    alignas(1024) unsigned char maps[KIND == MAPS && !HALVES ? MHA_CUDA_MAP_BYTES : 1]; /* tiles of bias, 64 rows each */
    alignas(128) float rows[STAGES][ROW_KINDS * QUERIES];
    alignas(16) unsigned char masks[KIND == MAPS ? BIT_STAGES : 1][KIND == MAPS ? 64 * KEYS : 1];
    alignas(8) uint32_t bits[KIND == MAPS ? BIT_STAGES : 1][KIND == MAPS ? finders::SIXTEENS * BIT_ROWS : 2];
    alignas(8) uint64_t keys_full, full[STAGES], empty[STAGES], ds_full[2], ds_empty[2], keys_empty, map_full[2],
        map_empty[2], bits_full[BIT_STAGES], bits_empty[BIT_STAGES];
    part_of_sequence part[1]; /* of the kernels of sequences */
    work own;                 /* likewise, because there are few registers */
    mha_cuda_share share;     /* of a block whose sums are in order */
    int came[CONSUMERS];      /* of one that shares its keys: how many did before its warpgroups */
    place_of_bits found[BIT_FINDERS / 32];
};

/* The query heads of sharer `own` of a tile of keys, which has number `number`. Where no row sees it, the first of them is alone. */
MHA_DEVICE void share_heads(work &w, const mha_cuda_backward &c, int own, int sharers, int number)
{
    const int group = c.H / c.G;
    if (w.count == 0 && own > 0) w.count = -1;
    if (w.count == 0) sharers = 1;
    w.query_head = w.head * group + group * own / sharers;
    w.heads = w.head * group + group * (own + 1) / sharers - w.query_head;
    w.sharers = sharers, w.number = number;
}

/* The number of a block's tile of keys among those of the launch: its sharers come one behind another. */
MHA_DEVICE int tile_of_block(const mha_cuda_backward &c) { return blockIdx.x / c.sharers; }

/* The tiles of rows, without padding, that see keys of the tile that a block has found. */
template <int QUERIES> MHA_DEVICE work work_of_part(const mha_cuda_backward &c, const volatile part_of_sequence &p)
{
    const mha_cuda_place place = mha_cuda_place_of(tile_of_block(c), c.G, c.slots, c.section);
    const int own = blockIdx.x % c.sharers, sharers = p.b < c.B && c.sharers > 1 ? mha_cuda_sharers(c.H / c.G, p.queries) : 1;
    work w = {p.tile * KEYS, place.head, p.b};
    if (p.b >= c.B || own >= sharers) w.count = -1;
    if (w.count < 0) return w;
    const mha_cuda_method method = method_of(c, p);
    if (method == MHA_CUDA_BY_SMALL_HEADS || (method == MHA_CUDA_BY_ORDER && w.first < p.length)) w.count = -1;
    if (w.count < 0) return w;
    if (w.first >= p.length) {
        share_heads(w, c, own, sharers, 0);
        return w;
    }
    int tiles = (p.queries + QUERIES - 1) / QUERIES;
    int last = min(w.first + KEYS, p.length) - 1 - p.left; /* the last row that sees one of the keys */
    w.from = mha_cuda_first_rows(w.first, QUERIES, tiles, p.right, true);
    w.count = last < 0 ? 0 : max(0, min(tiles, last / QUERIES + 1) - w.from);
    if (w.count == tiles) { /* blocks of one head add to different rows of dQ */
        int key_tiles = (p.length + KEYS - 1) / KEYS;
        w.start = (int)((int64_t)(p.tile - p.tile % c.together) * tiles / key_tiles);
    }
    share_heads(w, c, own, sharers, place.head * c.key_slots + c.first_slot + place.tile);
    return w;
}

/* The tile of rows behind the last that sees one of the keys from `first` on. */
template <int QUERIES> MHA_DEVICE int end_of_rows(const mha_cuda_backward &c, int first)
{
    return min(c.row_tiles, max(0, first + KEYS - 1 - c.left + QUERIES) / QUERIES);
}

template <int QUERIES, kind KIND, bool SHARES>
MHA_DEVICE work work_of(const mha_cuda_backward &c, const volatile part_of_sequence *part)
{
    if constexpr (KIND >= SEQUENCES) return work_of_part<QUERIES>(c, *part);
    mha_cuda_place p = mha_cuda_place_of(SHARES ? tile_of_block(c) : blockIdx.x, c.G * c.B, c.key_tiles, c.section);
    work w = {p.tile * KEYS, p.head % c.G, p.head / c.G};
    w.from = mha_cuda_first_rows(w.first, QUERIES, c.row_tiles, c.right, KIND != FULL);
    w.count = KIND == FULL ? c.row_tiles : max(0, end_of_rows<QUERIES>(c, w.first) - w.from);
    if (KIND == FULL || (KIND == OPTIONS && w.count == c.row_tiles)) /* as sequences that are not alike have it */
        w.start = (int)((int64_t)(p.tile - p.tile % c.together) * c.row_tiles / c.key_tiles);
    if (SHARES) share_heads(w, c, blockIdx.x % c.sharers, c.sharers, p.head * c.key_tiles + p.tile);
    else w.heads = c.H / c.G, w.query_head = w.head * w.heads;
    return w;
}

/* Key tiles of a head that have work, if dQ is summed in order; the last ones may have none but zeros to write, where no other
 * kernel does. */
template <kind KIND> MHA_DEVICE int tiles_in_order(const mha_cuda_backward &c, const volatile part_of_sequence &p, bool zeros)
{
    if (KIND < SEQUENCES) return c.key_tiles;
    return ((zeros && !c.mixed ? p.keys : p.length) + KEYS - 1) / KEYS;
}

/* Key tile `tile` of a head, if dQ is summed in order. The first one writes all rows. */
template <int QUERIES, kind KIND>
MHA_DEVICE work work_in_order(const mha_cuda_backward &c, const volatile part_of_sequence &p, int head, int tile)
{
    if constexpr (KIND >= SEQUENCES) {
        int tiles = (p.queries + QUERIES - 1) / QUERIES;
        work w = {tile * KEYS, head % c.G, p.b};
        share_heads(w, c, 0, 1, 0);
        if (w.first >= p.length) return w;
        if (tile) w.from = mha_cuda_first_rows(w.first, QUERIES, tiles, p.right, true);
        w.count = tiles - w.from;
        return w;
    }
    work w = {tile * KEYS, head % c.G, head / c.G};
    share_heads(w, c, 0, 1, 0);
    if (tile) w.from = mha_cuda_first_rows(w.first, QUERIES, c.row_tiles, c.right, KIND == WINDOW);
    w.count = c.row_tiles - w.from;
    return w;
}

/* The last key tile that adds to a tile of rows, in order. */
template <int QUERIES, kind KIND>
MHA_DEVICE int last_keys(const mha_cuda_backward &c, const volatile part_of_sequence &p, int tile)
{
    int right = c.right;
    if (KIND >= SEQUENCES) right = p.right; /* in one expression, c.right would be volatile, too */
    return max(0, min(tiles_in_order<KIND>(c, p, false) - 1, (tile * QUERIES + QUERIES - 1 + right) / KEYS));
}

template <typename WORK> MHA_DEVICE int tile_at(const WORK &w, int i)
{
    int at = w.start + i;
    return w.from + (at >= w.count ? at - w.count : at);
}

/* A tile of rows, and its query head. */
struct place_of_rows {
    int head, tile;
};

/* All of a block, in their order: the first one, and the next. */
template <typename WORK> MHA_DEVICE place_of_rows first_place(const WORK &w) { return {w.query_head, w.from + w.start}; }

template <typename WORK> MHA_DEVICE place_of_rows next_place(const WORK &w, place_of_rows p, int end)
{
    p.tile = p.tile + 1 == end ? w.from : p.tile + 1;
    if (p.tile == w.from + w.start) p.head++;
    return p;
}

/* ---- The warpgroup that copies ---------------------------------------------------------------------------------- */

template <typename T, int D, int QUERIES, kind KIND, typename WORK>
MHA_DEVICE void copy_keys(shared_memory<T, D, QUERIES, KIND> &s, const mha_cuda_backward &c, const WORK &w)
{
    uint32_t full = shared_address(&s.keys_full);
    const volatile part_of_sequence &part = *s.part;
    int row = w.first, batch = w.batch;
    if (KIND >= SEQUENCES) row += part.key_row, batch = part.key_batch;
    barrier_expect(full, 2 * KEYS * D * 2);
    for (int panel = 0; panel < D / PANEL; panel++) {
        copy_in(shared_address(s.k) + panel * KEYS * ROW_BYTES, &c.k, full, panel * PANEL, row, w.head, batch);
        copy_in(shared_address(s.v) + panel * KEYS * ROW_BYTES, &c.v, full, panel * PANEL, row, w.head, batch);
    }
}

/* Tile n of a block: one of query head `head`. */
template <typename T, int D, int QUERIES, kind KIND>
MHA_DEVICE void copy_rows(shared_memory<T, D, QUERIES, KIND> &s, const mha_cuda_backward &c, int batch, int head, int tile,
                          uint32_t n)
{
    const int STAGES = shared_memory<T, D, QUERIES, KIND>::STAGES;
    int stage = n % STAGES, row = tile * QUERIES;
    int64_t number = tile_number<KIND>(c, s.part, batch, head, tile);
    uint32_t q = shared_address(s.q[stage]), d_out = shared_address(s.d_out[stage]), full = shared_address(&s.full[stage]);
    const volatile part_of_sequence &part = *s.part;
    if (KIND >= SEQUENCES) row += part.query_row, batch = part.query_batch;
    barrier_wait(shared_address(&s.empty[stage]), n / STAGES % 2 ^ 1);
    barrier_expect(full, 2 * QUERIES * D * 2 + ROW_KINDS * QUERIES * 4);
    copy_bytes(shared_address(s.rows[stage]), c.rows + number * ROW_KINDS * QUERIES, ROW_KINDS * QUERIES * 4, full);
    for (int panel = 0; panel < D / PANEL; panel++) {
        int at = panel * QUERIES * ROW_BYTES;
        copy_in(q + at, &c.q, full, panel * PANEL, row, head, batch);
        copy_in(d_out + at, &c.d_out, full, panel * PANEL, row, head, batch);
    }
}

/* The rows of a bias from `row` on, the `count`th 64 that the block gets. 128 bytes are 32 numbers, or 64 in two stages. */
template <typename S>
MHA_DEVICE void copy_map(S &s, const mha_cuda_backward &c, const volatile work &w, int head, int row, uint32_t count)
{
    const int stage = map_stage(count, c.bias_stages), bytes = MHA_CUDA_MAP_BYTES / c.bias_stages;
    uint32_t full = shared_address(&s.map_full[stage]), to = shared_address(s.maps) + stage * bytes;
    barrier_wait(shared_address(&s.map_empty[stage]), map_parity(count, c.bias_stages) ^ 1);
    barrier_expect(full, bytes);
#pragma unroll 1
    for (int key = 0; key < KEYS; key += 32 * c.bias_stages, to += MAP_PANEL)
        copy_in(to, &c.bias_map, full, w.first + key, row, head * c.bias_head, w.batch * c.bias_batch);
}

/* All tiles of a block. */
template <typename T, int D, int QUERIES, kind KIND, typename WORK>
MHA_DEVICE void copy_all(shared_memory<T, D, QUERIES, KIND> &s, const mha_cuda_backward &c, const WORK &w)
{
    uint32_t n = 0;
    copy_keys(s, c, w);
    for (int h = 0; h < w.heads; h++)
        for (int i = 0; i < w.count; i++, n++) {
            int head = w.query_head + h, tile = tile_at(w, i);
            copy_rows(s, c, w.batch, head, tile, n);
            if constexpr (KIND == MAPS)
                for (int part = 0; c.bias_stages && part < QUERIES / 64; part++)
                    copy_map(s, c, w, head, tile * QUERIES + part * 64, n * (QUERIES / 64) + part);
        }
}

/* The same for key tile `key_tile` of a block, which has copied `base` tiles of rows before. The first tile of
 * rows comes before the keys, for which it need not wait. */
template <typename T, int D, int QUERIES, kind KIND>
MHA_DEVICE void copy_key_tile(shared_memory<T, D, QUERIES, KIND> &s, const mha_cuda_backward &c, const work &w, uint32_t base,
                          int key_tile)
{
    int total = w.heads * w.count;
    for (int n = 0; n <= max(1, total); n++) {
        if (n == 1) {
            barrier_wait(shared_address(&s.keys_empty), key_tile % 2 ^ 1);
            copy_keys(s, c, w);
        }
        if (n < total) copy_rows(s, c, w.batch, w.query_head + n / w.count, tile_at(w, n % w.count), base + n);
    }
}

/* ---- Its other warps ---------------------------------------------------------------------------------------------- */

/* They find what masks and dropout do to the tiles, one after another, with few registers. */
template <int QUERIES> MHA_DEVICE void go_to_first(volatile place_of_bits &t, const mha_cuda_backward &c, const volatile work &w)
{
    if (is_first_lane()) t.count = t.i = 0, t.head = w.query_head, t.row = tile_at(w, 0) * QUERIES;
    __syncwarp();
}

template <int QUERIES> MHA_DEVICE void go_to_next(volatile place_of_bits &t, const volatile work &w)
{
    __syncwarp();
    if (is_first_lane()) {
        t.count = t.count + 1;
        if (t.count % (QUERIES / 64) == 0) t.i = t.i + 1;
        if (t.i == w.count) t.i = 0, t.head = t.head + 1;
        t.row = tile_at(w, t.i) * QUERIES + t.count % (QUERIES / 64) * 64;
    }
    __syncwarp();
}

MHA_DEVICE bool is_there(const volatile place_of_bits &t, const mha_cuda_backward &c, const volatile work &w)
{
    return t.head < w.query_head + w.heads;
}

template <typename S> MHA_DEVICE void await_bits(S &s, int count)
{
    barrier_wait(shared_address(&s.bits_empty[count % BIT_STAGES]), count / BIT_STAGES % 2 ^ 1);
}

template <typename S> MHA_DEVICE void give_bits(S &s, int count)
{
    barrier_arrive(shared_address(&s.bits_full[count % BIT_STAGES]));
}

template <int QUERIES, typename S> MHA_DEVICE void find_all_bits(S &s, const mha_cuda_backward &c, const volatile work &w)
{
    const volatile part_of_sequence &part = *s.part;
    volatile place_of_bits &t = s.found[finders::self() / 32];
    const bits_at place = {w, part, t};
    go_to_first<QUERIES>(t, c, w);
    if (!can_fetch<KEYS>(c, w.first, part.length)) {
        for (; is_there(t, c, w); go_to_next<QUERIES>(t, w)) {
            await_bits(s, t.count);
            find_bits<finders>(s.bits[t.count % BIT_STAGES], c, place);
            give_bits(s, t.count);
        }
        return;
    }
    for (bool more = true; more;) {
        int last = t.count - 1;
        more = is_there(t, c, w);
        if (more) fetch_mask<finders>(shared_address(s.masks[t.count % BIT_STAGES]), c, place);
        fetches_commit();
        go_to_next<QUERIES>(t, w);
        if (last < 0) continue;
        fetches_wait_but_last();
        await_bits(s, last);
        find_fetched_bits<finders>(s.bits[last % BIT_STAGES], s.masks[last % BIT_STAGES]);
        give_bits(s, last);
    }
}

} // namespace

#endif
