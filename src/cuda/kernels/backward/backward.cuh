/* Attention backward on tensor cores, for bfloat16 and float16: the bodies of the kernels in backward*.cu.
 *
 * A block of threads owns KEYS keys and streams the query rows that see them, a tile of QUERIES rows after another, of all
 * query heads of its key head. One warpgroup copies; the other two have half of the keys each, and compute, transposed,
 *
 *     S = K Q^T    P = exp(scale S - lse)    dP = V dO^T    dS = P (dP - delta)    dV += P dO    dK += dS Q
 *
 * with dV and dK in registers, and together dQ of the tile from all their keys: dS goes through shared memory.
 *
 * Many blocks add to the same rows of dQ, in any order. Their sums are integers, so that the order does not matter: the
 * numbers of a row are multiples of a power of two, small enough that the largest sum possible fits 30 bits. That is
 * bounded by 2 |dO_i| max |V_j| max |K_jd|, because the weights of a row sum to 1.
 *
 * Zeroing and converting those integers, and the bounds, cost as much as the products where sequences are brief. There the
 * sums are float32, of key tile 0, 1, 2 and so on in this order: a block owns the first key tiles of a head and takes one after
 * another. It owns all of them, or, where heads are too few for that, other blocks own one each of the rest, and all c.parts blocks
 * of a head keep their parts of dQ for `convert`, which adds them to the first. These are the same additions, because no part but the
 * first is a sum of tiles; so the bits do not depend on the number of heads.
 *
 * Heads of other widths, multiples of 8, run on the next larger kernel: the copy engine fills tiles with zeros and cuts results.
 * Beyond 128 columns a warpgroup cannot hold dV and dK of 64 keys. A block then owns 64 keys; both warpgroups compute S and dP of
 * all of them, and each dV, dK and dQ of half of the columns: seven products in place of five, and nothing else to exchange.
 *
 * The kernels of a call start early (programmatic dependent launch): each waits for the one before it itself. */
#ifndef MHA_CUDA_BACKWARD_CUH
#define MHA_CUDA_BACKWARD_CUH

#include "backward_copies.cuh"
#include "backward_options.cuh"

namespace
{

/* s (64 keys, N rows) = a (64,D) b (N,D)^T, of a tile of ROWS rows. */
template <typename T, int D, int N, int ROWS = N> MHA_DEVICE void scores(float (&s)[N / 2], uint64_t a, uint64_t b)
{
    products_begin();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        product_shared<T>(s, a + i / 4 * (KEYS * ROW_BYTES >> 4) + i % 4 * 2,
                          b + i / 4 * (ROWS * ROW_BYTES >> 4) + i % 4 * 2, i > 0);
    products_commit();
}

/* sums (64 keys, D) += x (64, N rows) of registers times rows (N,D). */
template <typename T, int D, int N>
MHA_DEVICE void add_rows(float (&sums)[D / 2], const uint32_t (&x)[N / 4], uint64_t rows)
{
    products_begin();
#pragma unroll
    for (int i = 0; i < N / 16; i++) product_registers<T>(sums, x + 4 * i, rows + i * (16 * ROW_BYTES >> 4), 1);
    products_commit();
}

template <typename T, int D, kind KIND, typename WORK>
MHA_DEVICE void put_rows(const mha_cuda_backward &c, const WORK &w, const volatile part_of_sequence *part, int who, bool values,
                         uint32_t to, const float (&x)[D / 2], float by)
{
    int thread = threadIdx.x % GROUP, lane = thread % 32, warp = thread / 32;
    int row = warp * 16 + lane / 8 % 2 * 8 + lane % 8, column = HALVES ? who * D : 0;
    to += HALVES ? column / PANEL * KEYS * ROW_BYTES : who * 64 * ROW_BYTES;
    if (is_lost(x)) {
        c.lost_heads[w.batch * c.G + w.head] = 1;
        c.lost_keys[(w.batch * c.G + w.head) * c.key_tiles + w.first / KEYS] = 1;
        if (c.any) *c.any = 1;
    }
#pragma unroll
    for (int b = 0; b < D / 8; b += 2) {
        int piece = b + lane / 16;
        const float *y = x + 4 * b;
        store_matrices(to + piece / 8 * KEYS * ROW_BYTES + row * ROW_BYTES + ((piece % 8) ^ (row % 8)) * 16,
                       pack<T>(y[0] * by, y[1] * by), pack<T>(y[2] * by, y[3] * by), pack<T>(y[4] * by, y[5] * by),
                       pack<T>(y[6] * by, y[7] * by));
    }
    publish_shared();
    group_sync(ALL + 1 + who, GROUP);
    int first = w.first + (HALVES ? 0 : who * 64), batch = w.batch;
    if constexpr (KIND >= SEQUENCES) {
        int count = part->keys - first;
        first += part->key_row, batch = part->key_batch;
        if (c.key_starts.data && count < 64) {
            if constexpr (HALVES) {
                mha_cuda_rows rows = values ? c.grad_v : c.grad_k;
                rows.data = (T *)rows.data + column;
                put_some_rows<T>(rows, batch, w.head, first, to, count, min(D, (values ? c.E : c.D) - column));
            } else put_some_rows<T>(values ? c.grad_v : c.grad_k, batch, w.head, first, to, count, values ? c.E : c.D);
            return;
        }
    }
    if (thread == 0) {
        for (int panel = 0; panel < D / PANEL; panel++)
            copy_out(values ? &c.dv : &c.dk, to + panel * KEYS * ROW_BYTES, column + panel * PANEL, first, w.head, batch);
        copies_commit();
    }
}

/* 64 columns of dQ of 16 rows, as the lanes of a warp hold them, to the `rows` rows at `dq`: through shared memory, so that eight lanes
 * write a row. */
template <typename T, int QUERIES>
MHA_DEVICE void put_dq(const mha_cuda_backward &c, const uint32_t (&x)[16], T *dq, int rows, int tile, int who)
{
    enum { WARPS = CONSUMERS * GROUP / 32 };
    alignas(128) __shared__ unsigned char staged[WARPS][16 * ROW_BYTES];
    uint32_t thread = thread_again(); /* there are no registers for what is known of it */
    int lane = thread % 32, row = lane / 8 % 2 * 8 + lane % 8, column = (QUERIES == 128 ? 0 : who * 64) + lane % 8 * 8;
    int first = tile * QUERIES + (QUERIES == 128 ? who * 64 : 0) + thread % GROUP / 32 * 16 + lane / 8;
    uint32_t own = shared_address(staged[thread / 32 % WARPS]);
    __syncwarp(); /* the last ones have been read */
#pragma unroll
    for (int b = 0; b < 8; b += 2)
        store_matrices(own + row * ROW_BYTES + ((b + lane / 16) ^ (row % 8)) * 16, x[2 * b], x[2 * b + 1], x[2 * b + 2],
                       x[2 * b + 3]);
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 16; r += 4) {
        uint4 y = get_piece(own + (r + lane / 8) * ROW_BYTES + ((lane % 8) ^ ((r + lane / 8) % 8)) * 16);
        if (first + r < rows && column < c.D) *(uint4 *)(dq + (first + r) * c.dq.row + column) = y;
    }
}

/* What lies behind the rows of a sequence is padding, or another sequence. */
template <int D, int QUERIES, typename S> MHA_DEVICE void clear_padding(S &s, int stage, int q0, int who)
{
    int queries = ((const volatile part_of_sequence *)s.part)->queries;
    if (q0 + QUERIES <= queries) return;
    clear_rows<D, QUERIES>(shared_address(s.q[stage]), queries - q0);
    clear_rows<D, QUERIES>(shared_address(s.d_out[stage]), queries - q0);
    publish_shared();
    group_sync(ALL + 1 + who, GROUP);
}

/* What a thread knows of the rows from `first` on and its keys, of which the first of its warp is `key`. */
template <kind KIND, bool PLAIN>
MHA_DEVICE facts_of_tile facts_at(const mha_cuda_backward &c, const volatile part_of_sequence &part, int batch, int head,
                                  int first, int key, int first_key)
{
    int lane = threadIdx.x % 32, length = c.Tk, queries = c.Tq, offset = c.offset, left = c.left, right = c.right;
    if (KIND >= SEQUENCES)
        length = part.length, queries = part.queries, offset = part.offset, left = part.left, right = part.right;
    float behind = (float)(first + lane % 4 * 2 - key - lane / 4);
    bool there = key + lane / 4 < length, next = key + lane / 4 + 8 < length;
    bool cut = first_key + KEYS > length || (KIND >= SEQUENCES && first + 64 > queries);
    return {{there ? behind : -INFINITY, next ? behind - 8 : -INFINITY},
            !PLAIN && c.slopes ? c.slopes[batch * c.slope_batch + head * c.slope_head] * 1.44269504f : 0,
            (float)offset,
            (float)-right,
            (float)-left,
            queries - first - lane % 4 * 2,
            cut || first_key + KEYS - 1 > first + right || first_key < first + 63 + left};
}

/* With options: S and dP of tile n, 64 rows at a time, become weights and dS. PLAIN: there are none. */
template <typename T, int D, int QUERIES, kind KIND, bool PLAIN, typename S, typename WORK, typename F, typename G>
MHA_DEVICE void scores_to_gradients(S &s, const mha_cuda_backward &c, const WORK &w, uint64_t k, uint64_t v, uint32_t (&p)[QUERIES / 4],
                     uint32_t (&ds)[QUERIES / 4], uint32_t n, int head, int q0, int who, F last_is_done, G free_last)
{
    const volatile part_of_sequence &part = *s.part;
    int thread = threadIdx.x % GROUP, lane = thread % 32, key = w.first + (HALVES ? 0 : who * 64) + thread / 32 * 16,
        stage = n % S::STAGES;
    bool bits = KIND == MAPS && (c.mask.data || c.dropped), tiles = KIND == MAPS && c.bias_stages;
    if (KIND >= SEQUENCES) clear_padding<D, QUERIES>(s, stage, q0, who);
#pragma unroll
    for (int half = 0; half < QUERIES / 64; half++) {
        float x[32], y[32];
        int first = q0 + 64 * half;
        scores<T, D, 64, QUERIES>(x, k, factor(shared_address(s.q[stage]) + half * 64 * ROW_BYTES, 0));
        if (half == 0) last_is_done();
        scores<T, D, 64, QUERIES>(y, v, factor(shared_address(s.d_out[stage]) + half * 64 * ROW_BYTES, 0));
        if (half == 0) free_last();
        facts_of_tile t = facts_at<KIND, PLAIN>(c, part, w.batch, head, first, key, w.first);
        const float *rows = s.rows[stage] + 64 * half + lane % 4 * 2;
        uint32_t count = n * (QUERIES / 64) + half, *own_p = p + 16 * half, *own_ds = ds + 16 * half;
        maps_of_tile maps = {w, part, head, first, nullptr, 0};
        if constexpr (KIND == MAPS)
            maps.bits = s.bits[count % BIT_STAGES] + ((HALVES ? 0 : who * 4) + thread / 32) * BIT_ROWS + lane % 4 * 2;
        if (tiles) {
            int at = map_stage(count, c.bias_stages);
            barrier_wait(shared_address(&s.map_full[at]), map_parity(count, c.bias_stages));
            maps.bias = shared_address(s.maps) + at * (MHA_CUDA_MAP_BYTES / c.bias_stages);
        }
        if (bits) barrier_wait(shared_address(&s.bits_full[count % BIT_STAGES]), count / BIT_STAGES % 2);
        if (!PLAIN && c.cap != 0) {
            products_wait<0>();
            touch(x), touch(y);
            if (bits) capped_scores_to_gradients<T, QUERIES, KIND, KIND == MAPS>(x, y, own_p, own_ds, c, rows, t, maps);
            else capped_scores_to_gradients<T, QUERIES, KIND, false>(x, y, own_p, own_ds, c, rows, t, maps);
        } else {
            products_wait<1>();
            touch(x);
            if (bits) weigh<T, QUERIES, KIND, KIND == MAPS>(x, c, rows, t, maps);
            else weigh<T, QUERIES, KIND, false>(x, c, rows, t, maps);
            products_wait<0>();
            touch(y);
            if (PLAIN) gradients_of_scores_plain<T, QUERIES>(x, y, own_p, own_ds, rows);
            else if (bits) gradients_of_scores<T, QUERIES, KIND, KIND == MAPS, KIND == MAPS>(x, y, own_p, own_ds, c, rows, maps);
            else if (KIND == MAPS && c.dbias.data) gradients_of_scores<T, QUERIES, KIND, false, KIND == MAPS>(x, y, own_p, own_ds, c, rows, maps);
            else gradients_of_scores<T, QUERIES, KIND, false, false>(x, y, own_p, own_ds, c, rows, maps);
        }
        if (bits) barrier_arrive(shared_address(&s.bits_empty[count % BIT_STAGES]));
        __syncwarp();
        if (tiles && lane == 0) barrier_arrive(shared_address(&s.map_empty[map_stage(count, c.bias_stages)]));
    }
}

/* dK and dV of keys that two blocks share: a warpgroup leaves them to that of the other block, or, as the second, adds what that has left,
 * and returns true. The sum of two numbers does not depend on their order. */
template <int OWN, typename S, typename WORK>
MHA_DEVICE bool add_shares(S &s, const mha_cuda_backward &c, const WORK &w, int who, float (&dk)[OWN / 2], float (&dv)[OWN / 2])
{
    const int thread = threadIdx.x % GROUP;
    int *tickets = c.tickets + (((w.batch * c.G + w.head) * c.key_tiles + w.first / KEYS) * CONSUMERS + who) * 2;
    float4 *kept = (float4 *)(c.shares + ((int64_t)w.number * CONSUMERS + who) * GROUP * OWN) + thread;
    if (thread == 0) s.came[who] = count_one(tickets);
    group_sync(ALL + 1 + who, GROUP);
    if (*(volatile int *)&s.came[who] == 0) {
#pragma unroll
        for (int i = 0; i < OWN / 2; i += 4) {
            kept[i / 4 * GROUP] = make_float4(dk[i], dk[i + 1], dk[i + 2], dk[i + 3]);
            kept[(OWN / 8 + i / 4) * GROUP] = make_float4(dv[i], dv[i + 1], dv[i + 2], dv[i + 3]);
        }
        group_sync(ALL + 1 + who, GROUP);
        if (thread == 0) count_one(tickets + 1);
        return false;
    }
    while (thread == 0 && look_at(tickets + 1) == 0) continue;
    group_sync(ALL + 1 + who, GROUP);
#pragma unroll
    for (int i = 0; i < OWN / 2; i += 4) {
        const float4 x = __ldcg(kept + i / 4 * GROUP), y = __ldcg(kept + (OWN / 8 + i / 4) * GROUP);
        dk[i] += x.x, dk[i + 1] += x.y, dk[i + 2] += x.z, dk[i + 3] += x.w;
        dv[i] += y.x, dv[i + 1] += y.y, dv[i + 2] += y.z, dv[i + 3] += y.w;
    }
    return true;
}

/* dQ of tile n - 1 is computed in the step of tile n, so that the warpgroups need not wait for each other's dS, and leaves in the next
 * step, when S of tile n + 1 is under way: the tensor cores should not wait for it. (In the first step its products are those of whatever
 * the memory holds, and are not used.) In order it leaves at once, which is 1 to 7 % faster with the few steps of brief sequences. */
template <typename T, int D, int QUERIES, kind KIND, sums SUMS, bool PLAIN, bool SHARES, typename WORK>
MHA_DEVICE void compute_all(shared_memory<T, D, QUERIES, KIND> &s, const mha_cuda_backward &c, const WORK &w, int who,
                            uint32_t base, int key_tile)
{
    enum { STAGES = shared_memory<T, D, QUERIES, KIND>::STAGES, OWN = HALVES ? D / 2 : D }; /* columns of dK and dV */
    int thread = threadIdx.x % GROUP, lane = thread % 32, warp = thread / 32, first_key = HALVES ? 0 : who * 64;
    int key = w.first + first_key + warp * 16 + lane / 4, total = w.heads * w.count;
    float dk[OWN / 2], dv[OWN / 2], power[2], scale = c.scale * 1.44269504f;
    /* Warpgroups that may begin a step together end up in step: both compute at the same time, and the tensor cores wait. Turns at S and
     * dP keep them apart, which saves 4 to 6 % with these kernels, 7 to 14 % with maps at D 64. With options at D 128, of unlike sequences,
     * and in order, they cost 2 to 7 %. */
    enum { TURNS = SUMS == INTEGERS && !HALVES && (KIND < OPTIONS || (KIND != SEQUENCES && D == 64)) };
    enum { LATE = SUMS == INTEGERS }; /* whether dQ leaves in the next step */
    enum { AT_ONCE = SUMS == ORDERED && KIND >= SEQUENCES }; /* where it goes is found when it leaves, for want of registers */
    enum { LANES = KIND < OPTIONS || (KIND == OPTIONS && D == 128) ? 32 : 1 }; /* where registers for it cost nothing else */
    float head_power = SUMS == INTEGERS ? power_of<KIND, LANES>(c, s.part, w.head, w.batch) : 1;
    bool tail = w.first + KEYS > c.Tk;
    uint32_t p[QUERIES / 4], ds[QUERIES / 4];
    uint64_t k = factor(shared_address(s.k) + first_key * ROW_BYTES, 0);
    uint64_t v = factor(shared_address(s.v) + first_key * ROW_BYTES, 0);
    float dq[32];
    place_of_rows here = first_place(w), last = here, sent = here; /* this tile, the last, and that of dq */
    int number = 0;                                                       /* of that of dq, among all */
    uint32_t after_power = 0; /* zero, known when `power` has been read */
#pragma unroll
    for (int i = 0; i < OWN / 2; i++) dk[i] = dv[i] = 0;

    /* The tile of rows behind the last: computed anew where there are no registers for it. */
    auto end_of_tiles = [&](void) {
        if (KIND >= OPTIONS) return w.from + w.count;
        return KIND == FULL || SUMS == ORDERED ? c.row_tiles : end_of_rows<QUERIES>(c, w.first);
    };
    /* dQ of tile n: 64 rows of it and 64 columns, a piece for each warpgroup or, of halves, the first or second of two. */
    auto piece_of = [&](int half) { return HALVES ? who * 2 + half : who; };
    auto issue_dq = [&](uint32_t n, int half) {
        uint64_t a = factor(shared_address(s.ds[n % 2]) + (QUERIES == 128 ? who * 64 * ROW_BYTES : 0), 0);
        uint64_t b = factor(shared_address(s.k) + (QUERIES == 128 ? 0 : piece_of(half) * KEYS * ROW_BYTES), KEYS * ROW_BYTES);
        barrier_wait(shared_address(&s.ds_full[n % 2]), n / 2 % 2);
        products_begin();
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++)
            product_transposed<T>(dq, a + i / 4 * (QUERIES * ROW_BYTES >> 4) + i % 4 * 2, b + i * (16 * ROW_BYTES >> 4),
                              i > 0);
        products_commit();
    };
    /* In order: dQ of a tile is added to what key tiles of the part before this one have, or is its first; if no other part follows,
     * the last one writes it. */
    auto send_in_order = [&](void) {
        if (AT_ONCE) sent = last, number = (int)tile_number<KIND>(c, s.part, w.batch, last.head, last.tile);
        int own = w.first / KEYS, part = mha_cuda_part_of(own, c.ordered_tiles, c.parts);
        bool done = part == 0 && own == last_keys<QUERIES, KIND>(c, *s.part, sent.tile);
        int64_t tiles = tiles_of_all<KIND>(c), at = (part * tiles + number) * QUERIES * D + who * PIECE;
        float4 *sums = (float4 *)((float *)c.sums + at) + thread;
        if (part == 0 && own > 0) {
#pragma unroll
            for (int i = 0; i < 32; i += 4) {
                float4 old = sums[i / 4 * GROUP];
                dq[i] += old.x, dq[i + 1] += old.y, dq[i + 2] += old.z, dq[i + 3] += old.w;
            }
        }
        if (!done) {
#pragma unroll
            for (int i = 0; i < 32; i += 4)
                sums[i / 4 * GROUP] = make_float4(dq[i], dq[i + 1], dq[i + 2], dq[i + 3]);
            return;
        }
        if (is_lost(dq)) c.lost_rows[lost_place(c, w.batch, sent.head, sent.tile)] = c.lost_heads[w.batch * c.G + w.head] = 1;
        uint32_t x[16];
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] = pack<T>(dq[2 * i] * c.scale, dq[2 * i + 1] * c.scale);
        T *dq_rows = (T *)c.dq.data + sent.head * c.dq.head;
        int rows = c.Tq;
        if constexpr (KIND >= SEQUENCES) {
            const volatile part_of_sequence &own_part = *s.part;
            dq_rows += own_part.query_batch * c.dq.batch + own_part.query_row * c.dq.row, rows = own_part.padded;
        } else dq_rows += w.batch * c.dq.batch;
        put_dq<T, QUERIES>(c, x, dq_rows, rows, sent.tile, who);
    };
    auto send_dq = [&](int half) {
        if (SUMS == ORDERED) {
            send_in_order();
            return;
        }
        unsigned long long *to =
            (unsigned long long *)(c.sums + (int64_t)number * QUERIES * D + piece_of(half) * PIECE) + thread;
#pragma unroll
        for (int i = 0; i < 32; i += 2) {
            int low = __float2int_rn(dq[i] * power[i / 2 % 2]), high = __float2int_rn(dq[i + 1] * power[i / 2 % 2]);
            atomicAdd(to + i / 2 * GROUP,
                      ((unsigned long long)(unsigned)high << 32) + (unsigned long long)(long long)low);
        }
    };

    /* What comes next in dq is that of the last tile, number `at` of the block. */
    auto turn_to_last = [&](uint32_t at) {
        sent = last;
        number = (int)tile_number<KIND>(c, s.part, w.batch, last.head, last.tile);
        if (SUMS == ORDERED) return;
        const float *own = s.rows[at % STAGES] + POWER * QUERIES + (QUERIES == 128 ? who * 64 : 0) + warp * 16 + lane / 4;
        power[0] = own[0] * head_power, power[1] = own[8] * head_power;
        after_power = zero_after(own[0], own[8]);
    };

    auto step = [&](uint32_t n) {
        uint32_t at = base + n; /* among all tiles of the block */
        int stage = at % STAGES, q0 = here.tile * QUERIES;
        const float *rows = s.rows[stage];
        barrier_wait(shared_address(&s.full[stage]), at / STAGES % 2);
        if (TURNS && (at > 0 || who > 0)) group_sync(TURN + who, CONSUMERS * GROUP);
        auto last_is_done = [&](void) { /* dK of the last tile */
            products_wait<1>();
            touch(dk);
            keep(ds);
            if (LATE && n > 1) send_dq(1);
            if (!AT_ONCE) turn_to_last(at - 1);
        };
        auto free_last = [&](void) { /* its rows, and the turn */
            if (TURNS) group_arrive(TURN + 1 - who, CONSUMERS * GROUP);
            __syncwarp();
            if (n > 0 && lane == 0) barrier_arrive(shared_address(&s.empty[(at - 1) % STAGES]) + after_power);
        };
        if constexpr (KIND >= OPTIONS) {
            scores_to_gradients<T, D, QUERIES, KIND, PLAIN>(s, c, w, k, v, p, ds, at, here.head, q0, who, last_is_done, free_last);
        } else {
            float x[QUERIES / 2], y[QUERIES / 2];
            scores<T, D, QUERIES>(x, k, factor(shared_address(s.q[stage]), 0));
            last_is_done();
            scores<T, D, QUERIES>(y, v, factor(shared_address(s.d_out[stage]), 0));
            free_last();
            products_wait<1>();
            touch(x);
#pragma unroll
            for (int b = 0; b < QUERIES / 8; b++) {
                float2 lse = *(const float2 *)(rows + LSE * QUERIES + 8 * b + lane % 4 * 2);
#pragma unroll
                for (int i = 0; i < 4; i++) x[4 * b + i] = exp2_fast(fmaf(x[4 * b + i], scale, -(i % 2 ? lse.y : lse.x)));
            }
            /* Before it is known whether any is hidden, or the compiler would do both when dP has come. */
#pragma unroll
            for (int i = 0; i < QUERIES / 4; i++) p[i] = pack<T>(x[2 * i], x[2 * i + 1]);
            float2 deltas[QUERIES / 8];
#pragma unroll
            for (int b = 0; b < QUERIES / 8; b++) deltas[b] = *(const float2 *)(rows + DELTA * QUERIES + 8 * b + lane % 4 * 2);
            int ahead = w.first - q0; /* of the first key */
            if (tail || (KIND == WINDOW && (ahead > c.right - KEYS + 1 || ahead < c.left + QUERIES - 1))) {
                const uint32_t seen = c.right - c.left; /* a row sees keys up to here behind the first that it sees */
                uint32_t behind = key - c.left - (q0 + lane % 4 * 2), none = INT32_MIN;
                uint32_t own[2] = {key < c.Tk ? behind : none, key + 8 < c.Tk ? behind + 8 : none};
#pragma unroll
                for (int i = 0; i < QUERIES / 4; i++) {
                    if (own[i % 2] - i / 2 * 8 > seen) p[i] &= 0xffff0000u;
                    if (own[i % 2] - i / 2 * 8 - 1 > seen) p[i] &= 0xffffu;
                }
            }
            products_wait<0>();
            touch(y);
#pragma unroll
            for (int b = 0; b < QUERIES / 8; b++) {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float2 weight = pair_of<T>::get(p[2 * b + i]);
                    ds[2 * b + i] =
                        pack<T>(weight.x * (y[4 * b + 2 * i] - deltas[b].x), weight.y * (y[4 * b + 2 * i + 1] - deltas[b].y));
                }
            }
        }
        barrier_wait(shared_address(&s.ds_empty[at % 2]), at / 2 % 2 ^ 1);
        uint32_t row = shared_address(s.ds[at % 2]) + (HALVES ? 0 : who * QUERIES * ROW_BYTES) +
                       (lane / 16 * 8 + lane % 8) * ROW_BYTES + ((warp * 2 + lane / 8 % 2) ^ (lane % 8)) * 16;
#pragma unroll
        for (int b = 0; b < QUERIES / 8; b += 2) {
            if (HALVES && b / (QUERIES / 16) != who) continue; /* both have all of it */
            store_matrices_transposed(row + b * 8 * ROW_BYTES, ds[2 * b], ds[2 * b + 1], ds[2 * b + 2], ds[2 * b + 3]);
        }
        publish_shared();
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&s.ds_full[at % 2]));
        const int columns = HALVES ? who * (OWN / PANEL) * QUERIES * ROW_BYTES : 0; /* in tiles of rows */
        issue_dq(at - 1, 0);
        add_rows<T, OWN, QUERIES>(dv, p, factor(shared_address(s.d_out[stage]) + columns, QUERIES * ROW_BYTES));
        if constexpr (HALVES) {
            products_wait<1>();
            touch(dq);
            if (n > 0) send_dq(0);
            issue_dq(at - 1, 1);
        }
        add_rows<T, OWN, QUERIES>(dk, ds, factor(shared_address(s.q[stage]) + columns, QUERIES * ROW_BYTES));
        if (!LATE) {
            products_wait<2>();
            touch(dq);
            if (n > 0) send_dq(1);
        }
        products_wait<1>();
        touch(dq), touch(dv);
        keep(p);
        if (n > 0 && lane == 0) barrier_arrive(shared_address(&s.ds_empty[(at - 1) % 2]));
        last = here;
        here = next_place(w, here, end_of_tiles());
    };

    barrier_wait(shared_address(&s.keys_full), key_tile % 2);
    if constexpr (KIND >= SEQUENCES) {
        int there = s.part->length - w.first; /* what lies behind the keys of the sequence may be anything */
        if (total > 0 && there < KEYS) {
            clear_rows<D, KEYS>(shared_address(s.k), there);
            clear_rows<D, KEYS>(shared_address(s.v), there);
            publish_shared();
            group_sync(ALL + 1 + who, GROUP);
        }
    }
    if (total > 0) {
        uint32_t at = base + total - 1;
        touch(dk), touch(dv), touch(dq); /* so that nothing of them is left to do when products run */
        for (int n = 0; n < total; n++) step(n);
        if (LATE && total > 1) send_dq(1);
        turn_to_last(at);
        for (int half = 0; half <= HALVES; half++) {
            issue_dq(at, half);
            products_wait<0>();
            touch(dk), touch(dq);
            keep(ds);
            if (SUMS == ORDERED) {
                if (lane == 0) barrier_arrive(shared_address(&s.empty[at % STAGES]));
                if (lane == 0) barrier_arrive(shared_address(&s.ds_empty[at % 2]));
            }
            send_dq(half);
        }
        group_sync(ALL, CONSUMERS * GROUP);
    }
    /* Results leave through the memory of K and V, or that of dS if it has room for them: the next keys may then come meanwhile. */
    enum { MEANWHILE = SUMS == ORDERED && D <= QUERIES };
    uint32_t for_dk = shared_address(MEANWHILE ? s.ds[0] : s.k), for_dv = MEANWHILE ? for_dk + KEYS * D * 2 : shared_address(s.v);
    if (MEANWHILE && thread == 0) barrier_arrive(shared_address(&s.keys_empty));
    if (SHARES && w.sharers > 1 && !add_shares<OWN>(s, c, w, who, dk, dv)) return;
    put_rows<T, OWN, KIND>(c, w, s.part, who, false, for_dk, dk, c.scale);
    put_rows<T, OWN, KIND>(c, w, s.part, who, true, for_dv, dv, KIND == MAPS ? c.kept : 1);
    if (SUMS == INTEGERS) {
        if (who == 0 && thread == 0) c.powers[w.batch * c.G + w.head] = head_power;
        if (thread == 0) copies_wait();
    } else {
        if (thread == 0) copies_read();
        if (!MEANWHILE && thread == 0) barrier_arrive(shared_address(&s.keys_empty));
        group_sync(ALL, CONSUMERS * GROUP);
    }
}

/* A block without its threads' roles: its key tiles of a head in order. */
template <int QUERIES, kind KIND, typename F>
MHA_DEVICE void in_order(const mha_cuda_backward &c, const volatile mha_cuda_share &own, const volatile part_of_sequence &part, F each)
{
    uint32_t base = 0;
    for (int key_tile = 0; key_tile < own.count && own.first + key_tile < tiles_in_order<KIND>(c, part, true); key_tile++) {
        work w = work_in_order<QUERIES, KIND>(c, part, own.head, own.first + key_tile);
        each(w, base, key_tile);
        base += c.H / c.G * work_in_order<QUERIES, KIND>(c, part, own.head, own.first + key_tile).count; /* anew: registers */
    }
}

/* PLAIN: sequences have nothing else that only kernels with options do. SHARES: blocks may share a tile of keys; where that is decided when
 * the kernel is compiled, its loop is 4 to 9 % faster, because the compiler orders it otherwise. */
template <typename T, int D, int QUERIES, kind KIND, sums SUMS = INTEGERS, bool PLAIN = KIND == SEQUENCES,
          bool SHARES = SUMS == INTEGERS && !HALVES && KIND >= OPTIONS>
MHA_DEVICE void run(const mha_cuda_backward &c)
{
    unsigned char *memory = dynamic_memory<1024>();
    typedef shared_memory<T, D, QUERIES, KIND> layout;
    enum { STAGES = layout::STAGES };
    layout &s = *(layout *)memory;
    static_assert(sizeof(layout) <= 227 * 1024, "more shared memory than a block can have");
    if (threadIdx.x == 0) {
        barrier_make(shared_address(&s.keys_full), 1);
        barrier_make(shared_address(&s.keys_empty), CONSUMERS);
        for (int i = 0; i < STAGES; i++) {
            barrier_make(shared_address(&s.full[i]), 1);
            barrier_make(shared_address(&s.empty[i]), CONSUMERS * GROUP / 32);
        }
        for (int i = 0; i < 2; i++) {
            barrier_make(shared_address(&s.ds_full[i]), CONSUMERS * GROUP / 32);
            barrier_make(shared_address(&s.ds_empty[i]), CONSUMERS * GROUP / 32);
            barrier_make(shared_address(&s.map_full[i]), 1);
            barrier_make(shared_address(&s.map_empty[i]), CONSUMERS * GROUP / 32);
            barrier_make(shared_address(&s.bits_full[i]), BIT_FINDERS);
            barrier_make(shared_address(&s.bits_empty[i]), CONSUMERS * GROUP);
        }
        if (SUMS == ORDERED) s.share = mha_cuda_share_of(blockIdx.x, c.G * c.B, c.ordered_tiles, c.parts);
        barriers_made();
        publish_shared();
    }
    __syncthreads();
    let_next_start();
    if constexpr (KIND >= SEQUENCES && SUMS == ORDERED) {
        if (threadIdx.x == 0) {
            s.part->b = s.share.head / c.G;
            put_part(*s.part, c, sequence_at(c, s.part->b), QUERIES);
        }
        __syncthreads();
        if (method_of(c, *s.part) != MHA_CUDA_BY_ORDER) {
            wait_for_last(); /* or this kernel could end before the one before it, and the next one begin */
            return;
        }
    } else if constexpr (KIND >= SEQUENCES) {
        int slot = c.first_slot + mha_cuda_place_of(tile_of_block(c), c.G, c.slots, c.section).tile;
        find_part(*s.part, c, true, slot, KEYS, c.key_tiles, QUERIES);
    }
    wait_for_last();
    const int who = (int)uniform(threadIdx.x / GROUP) - 1;
    if constexpr (SUMS == ORDERED) {
        if (threadIdx.x < GROUP) {
            registers_give<FEW>();
            if (threadIdx.x == 0)
                in_order<QUERIES, KIND>(
                    c, s.share, *s.part, [&](const work &w, uint32_t base, int key_tile) { copy_key_tile(s, c, w, base, key_tile); });
        } else {
            registers_take<MANY>();
            in_order<QUERIES, KIND>(c, s.share, *s.part, [&](const work &w, uint32_t base, int key_tile) {
                if constexpr (KIND >= SEQUENCES) { /* for want of registers */
                    if (threadIdx.x == GROUP) s.own = w;
                    group_sync(ALL, CONSUMERS * GROUP);
                    compute_all<T, D, QUERIES, KIND, ORDERED, PLAIN, false, volatile work>(s, c, s.own, who, base, key_tile);
                } else compute_all<T, D, QUERIES, KIND, ORDERED, PLAIN, false>(s, c, w, who, base, key_tile);
            });
            if (threadIdx.x % GROUP == 0) copies_wait();
        }
        return;
    }
    work w = work_of<QUERIES, KIND, SHARES>(c, s.part);
    if (w.count < 0) return; /* there is no such tile */
    if constexpr (KIND >= OPTIONS || HALVES) { /* for want of registers */
        if (threadIdx.x == 0) s.own = w;
        __syncthreads();
        if (threadIdx.x < GROUP) {
            registers_give<FEW>();
            if (threadIdx.x == 0) copy_all<T, D, QUERIES, KIND, volatile work>(s, c, s.own);
            if constexpr (KIND == MAPS)
                if (threadIdx.x >= GROUP - BIT_FINDERS && (c.mask.data || c.dropped) && w.count) find_all_bits<QUERIES>(s, c, s.own);
        } else {
            registers_take<MANY>();
            compute_all<T, D, QUERIES, KIND, INTEGERS, PLAIN, SHARES, volatile work>(s, c, s.own, who, 0, 0);
        }
        return;
    }
    if (threadIdx.x < GROUP) {
        registers_give<FEW>();
        if (threadIdx.x == 0) copy_all(s, c, w);
    } else {
        registers_take<MANY>();
        compute_all<T, D, QUERIES, KIND, INTEGERS, PLAIN, SHARES>(s, c, w, who, 0, 0);
    }
}

} // namespace

#endif
