/* Attention forward on tensor cores, for bfloat16 and float16: plain, with keys up to Tk; if WINDOW, between two diagonals;
 * with OPTIONS, in windows, with slopes, a softcap and sinks, and of sequences of unlike lengths; with MAPS, with bias,
 * mask and dropout as well; with BITS, with a mask, and dropout beside it, which other warps find ahead; with BIAS, with a bias of T
 * alone, in windows, with sinks and of sequences of unlike lengths. Rows of fewer than D numbers are filled with zeros by the copy engine.
 *
 * A block of threads computes tiles of ROWS query rows. One warpgroup copies: it has the copy engine bring Q and, key
 * block by key block from right to left, K and V into rings of STAGES. The others compute 64 rows each. For a key block j
 * a warpgroup issues S(j) = Q K(j)^T and then O += P(j+1) V(j+1), and while the second product runs it turns S(j) into
 * P(j); the warpgroups take turns at issuing, so that one's exponentials run beside another's products.
 *
 * The weights of a row are relative to a reference, its largest score so far, in units of log 2. The reference moves
 * only when the largest score has grown by more than 8, and then the sums are rescaled; each row decides for itself, so
 * that its bits do not depend on its neighbours.
 *
 * Up to 64 columns (is_ahead) a warpgroup goes from one tile to the next as it goes from block to block: the first scores of the
 * next tile are computed beside the last results of this one. */
#ifndef MHA_CUDA_FORWARD_CUH
#define MHA_CUDA_FORWARD_CUH

#include "forward_rows.cuh"

namespace
{

/* Where a warpgroup is in the rings, from tile to tile. */
template <typename S> struct progress {
    slot<S::Q_STAGES> q;
    slot<S::STAGES> k, v;
};

/* Q of the 64 rows of a warpgroup: where it is in shared memory, */
template <typename T, int D, int ROWS, bool IN_REGISTERS> struct own_queries {
    uint64_t at;
    MHA_DEVICE void read(const T *tile, int who) { at = factor(shared_address(tile) + who * 64 * ROW_BYTES, 0); }
    template <int COUNT> MHA_DEVICE void begin_product(float (&x)[COUNT], int i, uint64_t keys) const
    {
        product_shared<T>(x, at + i / 4 * (ROWS * ROW_BYTES >> 4) + i % 4 * 2, keys, i > 0);
    }
};

/* or its numbers. */
template <typename T, int D, int ROWS> struct own_queries<T, D, ROWS, true> {
    uint32_t numbers[D / 16][4];
    MHA_DEVICE void read(const T *tile, int who)
    {
        int row = threadIdx.x % GROUP / 32 * 16 + threadIdx.x % 16, half = threadIdx.x % 32 / 16;
        uint32_t from = shared_address(tile) + (who * 64 + row) * ROW_BYTES;
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            load_matrices(numbers[i], from + i / 4 * ROWS * ROW_BYTES + ((i % 4 * 2 + half) ^ (row % 8)) * 16);
    }
    template <int COUNT> MHA_DEVICE void begin_product(float (&x)[COUNT], int i, uint64_t keys) const
    {
        product_rows<T>(x, numbers[i], keys, i > 0);
    }
};

/* Q K^T of a block of keys, under way. */
template <typename T, int D, int KEYS, typename Q> MHA_DEVICE void begin_scores(float (&x)[KEYS / 2], const Q &q, const T *keys)
{
    products_begin();
    uint64_t k = factor(shared_address(keys), 0);
#pragma unroll
    for (int i = 0; i < D / 16; i++) q.begin_product(x, i, k + i / 4 * (KEYS * ROW_BYTES >> 4) + i % 4 * 2);
    products_commit();
}

/* Q of a tile has come. Its memory is free when all warps have it in registers, */
template <typename Q, typename S> MHA_DEVICE void read_queries(Q &q, S &s, int stage, int who)
{
    q.read(s.q[stage], who);
    if (!S::IN_REGISTERS) return;
    finish_loads();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(shared_address(&s.q_empty[stage]));
}

/* or when the last scores have been computed. */
template <typename S> MHA_DEVICE void free_queries(S &s, int stage)
{
    if (!S::IN_REGISTERS && threadIdx.x % GROUP == 0) barrier_arrive(shared_address(&s.q_empty[stage]));
}

/* O += P V of a block of keys, under way. */
template <typename T, int D, int KEYS> MHA_DEVICE void begin_results(float (&o)[D / 2], const uint32_t (&p)[KEYS / 4], const T *values)
{
    products_begin();
    uint64_t v = factor(shared_address(values), KEYS * ROW_BYTES);
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) product_registers<T>(o, p + 4 * i, v + i * (16 * ROW_BYTES >> 4), 1);
    products_commit();
}

template <typename T, int D, int CONSUMERS, int KEYS, kind KIND, typename TILE>
MHA_DEVICE void compute_tile(shared_memory<T, D, CONSUMERS, KEYS, KIND> &s, const mha_cuda_forward &c, const TILE &t,
                             progress<shared_memory<T, D, CONSUMERS, KEYS, KIND>> &at, int who)
{
    typedef shared_memory<T, D, CONSUMERS, KEYS, KIND> S;
    enum { ROWS = 64 * CONSUMERS, COLUMNS = S::COLUMNS };
    int thread = threadIdx.x % GROUP, lane = thread % 32, warp = thread / 32;
    own_queries<T, D, ROWS, S::IN_REGISTERS> q;
    float o[D / 2], x[KEYS / 2], by[2];
    uint32_t p[KEYS / 4], bias[S::BIAS_EARLY ? KEYS / 16 : 1][4];
    rows r = first_rows<KIND>(c, t);
    ramp lacking = {{0, 0}, 0, 0};
    int row = t.row + who * 64 + warp * 16 + lane / 4, first = lane % 4 * 2;
    const keys_seen seen = keys_of<KIND>(c, t, row);
    const float &scale = KIND >= OPTIONS ? c.scale_after : c.scale;
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] = 0;

    auto scores = [&](void) { begin_scores<T, D, KEYS>(x, q, s.k[at.k.stage()]); };
    auto results = [&](void) {
        barrier_wait(shared_address(&s.v_full[at.v.stage()]), at.v.parity());
        begin_results<T, D, KEYS>(o, p, s.v[at.v.stage()]);
    };
    auto end_results = [&](void) {
        products_wait<0>();
        touch(o);
        if (thread == 0) barrier_arrive(shared_address(&s.v_empty[at.v.stage()]));
        at.v.next();
    };

    /* The `count`th tile of bias, which is read and then free. */
    auto with_bias = [&](uint32_t count, auto read) {
        const int stages = KIND == BIAS ? MAP_STAGES : c.bias_stages, stage = map_stage(count, stages);
        barrier_wait(shared_address(&s.map_full[who][stage]), map_parity(count, stages));
        read(shared_address(map_tile(s, who)) + stage * (S::MAP_BYTES / stages));
        finish_loads();
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&s.map_empty[who][stage]));
    };
    auto read_bias = [&](void) {
        if (!S::BIAS_EARLY) return;
        with_bias(at.k.count, [&](uint32_t tile) {
#pragma unroll
            for (int m = 0; m < KEYS / 16; m++) load_pairs(bias[m], tile, 2 * m);
        });
    };

    if (!S::SEPARATE || t.blocks > 0) {
        barrier_wait(shared_address(&s.q_full[0]), at.q.parity());
        read_queries(q, s, at.q.stage(), who);
        at.q.next();
    }
    if (t.blocks > 0) {
        int j = t.first + t.blocks - 1;
        barrier_wait(shared_address(&s.k_full[at.k.stage()]), at.k.parity());
        scores();
        read_bias();
        products_wait<0>();
        touch(x);
        if (thread == 0) barrier_arrive(shared_address(&s.k_empty[at.k.stage()]));
        at.k.next();
        auto here = [&](void) {
            return map_place_of(t.batch, t.head, row, t.span.queries, j * KEYS + first, t.span.length);
        };
        auto add_bias = [&](void) {
            if (S::BIAS_EARLY) {
#pragma unroll
                for (int m = 0; m < KEYS / 16; m++) add_pairs<T>(x + 8 * m, bias[m], c.bias_by);
                return;
            }
            if (!S::HAS_BIAS || (KIND == MAPS && !c.bias.data)) return;
            if (KIND == MAPS && !c.bias_stages) {
                add_plain(x, c, here());
                return;
            }
            with_bias(at.k.count - 1, [&](uint32_t tile) {
                if (KIND == BIAS) add_tile_of<T>(x, tile, c.bias_by);
                else add_tile(x, c, tile);
            });
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
            lacking = shape<ROWS, KEYS, KIND>(x, r, c, t, j, row, [&](void) {
                add_bias();
                if (KIND == MAPS && c.mask.data) apply_mask(x, c, here());
                if (KIND == BITS) show_found();
            });
        };
        auto drop = [&](void) {
            if (KIND == MAPS && c.dropped) drop_weights(x, c, here(), row);
            if (KIND == BITS) drop_found();
        };
        if (KIND >= OPTIONS || j >= t.whole || (KIND == WINDOW && j < t.closed)) mask();
        soften<KEYS, ramps<KEYS, KIND>::ANY>(x, r, by, scale, lacking);
        drop();
        pack_all<T, KEYS>(p, x);
        if (KIND >= OPTIONS && (j + 1) * KEYS > t.span.length) { /* of all blocks, this one alone */
            barrier_wait(shared_address(&s.v_full[at.v.stage()]), at.v.parity());
            clear_values<COLUMNS, KEYS>(shared_address(s.v[at.v.stage()]), t.span.length - j * KEYS, who);
        }

        auto step = [&](bool masked) {
            barrier_wait(shared_address(&s.k_full[at.k.stage()]), at.k.parity());
            if (CONSUMERS > 1) group_sync(TURN + who, 2 * GROUP);
            scores();
            results();
            if (CONSUMERS > 1) group_arrive(TURN + (who + 1) % CONSUMERS, 2 * GROUP);
            read_bias();
            products_wait<1>();
            touch(x);
            /* With an address that every thread computes, this and the wait for O come amid the exponentials. Before or after them
             * forward at D 128 takes 6 or 11 % longer. */
            if (thread == 0) barrier_arrive(shared_address(&s.k_empty[at.k.stage()]) + (KIND < OPTIONS ? unknown_zero() : 0));
            at.k.next();
            if (masked) mask();
            if (KIND >= MAPS) end_results(); /* branches of `drop` would keep it behind the exponentials */
            soften<KEYS, ramps<KEYS, KIND>::ANY>(x, r, by, scale, lacking);
            drop();
            if (KIND < MAPS) end_results();
            pack_all<T, KEYS>(p, x);
            rescale(o, by);
        };
        if (KIND >= OPTIONS) {
            for (j--; j >= t.first; j--) step(true);
        } else {
            const int end = KIND == WINDOW ? t.first : 0, open = KIND == WINDOW ? max(end, t.closed) : 0;
            for (j--; j >= end && j >= t.whole; j--) step(true);
            for (; j >= open; j--) step(false);
            for (; KIND == WINDOW && j >= end; j--) step(true);
        }

        if (S::SEPARATE) free_queries(s, 0);
        results();
        end_results();
    }
    finish<T, D, ROWS, KIND>(s, c, t, o, r, KIND >= OPTIONS ? keys_of<KIND>(c, t, row) : seen, who);
}

template <typename T, int D, int CONSUMERS, int KEYS, kind KIND>
MHA_DEVICE void compute_tiles(shared_memory<T, D, CONSUMERS, KEYS, KIND> &s, const mha_cuda_forward &c, int who)
{
    int thread = threadIdx.x % GROUP;
    slot<TILE_STAGES> next;
    progress<shared_memory<T, D, CONSUMERS, KEYS, KIND>> at;
    for (;; next.next()) {
        uint32_t empty = shared_address(&s.tile_empty[next.stage()]);
        barrier_wait(shared_address(&s.tile_full[next.stage()]), next.parity());
        if (s.number[next.stage()] < 0) break;
        compute_tile<T, D, CONSUMERS, KEYS, KIND, volatile tile>(s, c, s.tiles[next.stage()], at, who);
        if (thread == 0) barrier_arrive(empty);
    }
}

/* The same without a pause between tiles. */
template <typename T, int D, int CONSUMERS, int KEYS, kind KIND>
MHA_DEVICE void compute_ahead(shared_memory<T, D, CONSUMERS, KEYS, KIND> &s, const mha_cuda_forward &c, int who)
{
    typedef shared_memory<T, D, CONSUMERS, KEYS, KIND> S;
    enum { ROWS = 64 * CONSUMERS };
    const int thread = threadIdx.x % GROUP, own_row = who * 64 + thread / 32 * 16 + thread % 32 / 4;
    own_queries<T, D, ROWS, S::IN_REGISTERS> q;
    float o[D / 2], x[KEYS / 2], by[2];
    uint32_t p[KEYS / 4];
    rows r, coming;
    progress<S> at;
    slot<TILE_STAGES> next;

    /* The next tile has come: whether there is one. */
    auto is_there = [&](void) {
        barrier_wait(shared_address(&s.tile_full[next.stage()]), next.parity());
        return s.number[next.stage()] >= 0;
    };
    auto begin_block = [&](void) {
        barrier_wait(shared_address(&s.k_full[at.k.stage()]), at.k.parity());
        if (CONSUMERS > 1) group_sync(TURN + who, 2 * GROUP);
        begin_scores<T, D, KEYS>(x, q, s.k[at.k.stage()]);
    };
    auto begin_last = [&](void) {
        barrier_wait(shared_address(&s.v_full[at.v.stage()]), at.v.parity());
        begin_results<T, D, KEYS>(o, p, s.v[at.v.stage()]);
        if (CONSUMERS > 1) group_arrive(TURN + (who + 1) % CONSUMERS, 2 * GROUP);
    };
    /* Scores of block j of a tile have come, and become weights. */
    auto weigh = [&](const volatile tile &t, const volatile share &own, int j, rows &to, bool masked) {
        touch(x);
        if (thread == 0) barrier_arrive(shared_address(&s.k_empty[at.k.stage()]) + (CONSUMERS == 2 ? unknown_zero() : 0));
        at.k.next();
        if (masked) hide_edges<KEYS, KIND>(x, c, t, j, t.row + own_row, own.whole, own.open);
        soften<KEYS, false>(x, to, by, c.scale, {{0, 0}, 0, 0});
    };
    auto end_results = [&](void) {
        products_wait<0>();
        touch(o);
        if (thread == 0) barrier_arrive(shared_address(&s.v_empty[at.v.stage()]));
        at.v.next();
    };
    auto step = [&](const volatile tile &t, const volatile share &own, int j, bool masked) {
        begin_block();
        begin_last();
        products_wait<1>();
        weigh(t, own, j, r, masked);
        end_results();
        pack_all<T, KEYS>(p, x);
        rescale(o, by);
    };
    /* Keys, and values, of blocks that others need; turns go on. */
    auto leave_keys = [&](int count) {
#pragma unroll 1
        for (; count > 0; count--) {
            barrier_wait(shared_address(&s.k_full[at.k.stage()]), at.k.parity());
            group_sync(TURN + who, 2 * GROUP);
            group_arrive(TURN + (who + 1) % CONSUMERS, 2 * GROUP);
            if (thread == 0) barrier_arrive(shared_address(&s.k_empty[at.k.stage()]));
            at.k.next();
        }
    };
    auto leave_values = [&](int count) {
#pragma unroll 1
        for (; count > 0; count--) {
            barrier_wait(shared_address(&s.v_full[at.v.stage()]), at.v.parity());
            if (thread == 0) barrier_arrive(shared_address(&s.v_empty[at.v.stage()]));
            at.v.next();
        }
    };

    for (bool there = is_there(), begun = false; there;) {
        const volatile tile &t = s.tiles[next.stage()];
        const volatile share &own = s.shares[next.stage()][S::SHARES ? who : 0];
        int j = own.last;
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] = 0;
        r = begun ? coming : first_rows<KIND>(c, t);
        if (t.blocks > 0 && !begun) {
            barrier_wait(shared_address(&s.q_full[at.q.stage()]), at.q.parity());
            read_queries(q, s, at.q.stage(), who);
            if (S::SHARES) leave_keys(own.before), leave_values(own.before);
            begin_block();
            if (CONSUMERS > 1) group_arrive(TURN + (who + 1) % CONSUMERS, 2 * GROUP);
            products_wait<0>();
            weigh(t, own, j, r, j >= own.whole || (KIND == WINDOW && j < own.open));
            pack_all<T, KEYS>(p, x);
        }
        for (j--; j >= own.end && j >= own.whole; j--) step(t, own, j, true);
        for (; j >= own.open; j--) step(t, own, j, false);
        for (; KIND == WINDOW && j >= own.end; j--) step(t, own, j, true);
        if (t.blocks > 0) {
            free_queries(s, at.q.stage());
            at.q.next();
        }
        next.next();
        there = is_there();
        const volatile tile &u = s.tiles[next.stage()];
        const volatile share &next_own = s.shares[next.stage()][S::SHARES ? who : 0];
        begun = there && t.blocks > 0 && u.blocks > 0;
        if (S::SHARES && t.blocks > 0) leave_keys(own.after + (begun ? next_own.before : 0));
        if (begun) {
            barrier_wait(shared_address(&s.q_full[at.q.stage()]), at.q.parity());
            read_queries(q, s, at.q.stage(), who);
            begin_block();
            begin_last();
            products_wait<1>();
            coming = first_rows<KIND>(c, u);
            const int last = next_own.last;
            weigh(u, next_own, last, coming, last >= next_own.whole || (KIND == WINDOW && last < next_own.open));
            end_results();
            if (S::SHARES) leave_values(own.after + next_own.before);
            pack_all<T, KEYS>(p, x);
        } else if (t.blocks > 0) {
            if (CONSUMERS > 1) group_sync(TURN + who, 2 * GROUP);
            begin_last();
            end_results();
            if (S::SHARES) leave_values(own.after);
        }
        finish<T, D, ROWS, KIND>(s, c, t, o, r, keys_of<KIND>(c, t, t.row + own_row), who);
        if (thread == 0) barrier_arrive(shared_address(&s.tile_empty[(next.count - 1) % TILE_STAGES]));
    }
}

/* ---- The kernel ------------------------------------------------------------------------------------------------- */

template <typename T, int D, int CONSUMERS, int KEYS, kind KIND> MHA_DEVICE void run(const mha_cuda_forward &c)
{
    unsigned char *memory = dynamic_memory<1024>();
    typedef shared_memory<T, D, CONSUMERS, KEYS, KIND> layout;
    layout &s = *(layout *)memory;
    static_assert(sizeof(layout) <= 227 * 1024, "more shared memory than a block can have");
    typedef block<D, CONSUMERS, KIND> own;
    /* Who reads a tile: the warpgroups, with options the thread that copies, with maps those that bring the bias, and the warps
     * that find bits. */
    const int arrivals =
        CONSUMERS + (KIND >= OPTIONS) + (layout::HAS_BIAS ? CONSUMERS : 0) + (KIND == BITS ? own::FINDERS / 32 : 0);
    let_next_start();
    if (threadIdx.x == 0) {
        fetch_map(&c.q), fetch_map(&c.k), fetch_map(&c.v);
        for (int i = 0; i < layout::Q_STAGES; i++) {
            barrier_make(shared_address(&s.q_full[i]), 1);
            barrier_make(shared_address(&s.q_empty[i]), layout::IN_REGISTERS ? CONSUMERS * GROUP / 32 : CONSUMERS);
        }
        for (int i = 0; i < TILE_STAGES; i++) {
            barrier_make(shared_address(&s.tile_full[i]), 1);
            barrier_make(shared_address(&s.tile_empty[i]), arrivals);
        }
        for (int i = 0; i < layout::STAGES; i++) {
            barrier_make(shared_address(&s.k_full[i]), 1);
            barrier_make(shared_address(&s.v_full[i]), 1);
            barrier_make(shared_address(&s.k_empty[i]), CONSUMERS);
            barrier_make(shared_address(&s.v_empty[i]), CONSUMERS);
        }
        for (int n = 0; KIND > OPTIONS && n < CONSUMERS * MAP_STAGES; n++) {
            barrier_make(shared_address(&s.map_full[n / MAP_STAGES][n % MAP_STAGES]), KIND == BITS ? own::FINDERS : 1);
            barrier_make(shared_address(&s.map_empty[n / MAP_STAGES][n % MAP_STAGES]), GROUP / 32);
        }
        barriers_made();
        publish_shared();
    }
    wait_for_last();
    __syncthreads();
    if (threadIdx.x < GROUP) {
        registers_give<own::FEW>();
        if constexpr (KIND < OPTIONS) {
            if (threadIdx.x == 0) copy_tiles<layout, 64 * CONSUMERS, KEYS, KIND>(s, c);
        } else {
            if (threadIdx.x == 0) copy_found_tiles<layout, 64 * CONSUMERS, KEYS, KIND>(s, c);
            if (threadIdx.x == 32) find_tiles<layout, 64 * CONSUMERS, KEYS, KIND>(s, c);
        }
        if constexpr (layout::HAS_BIAS) { /* one thread for each of the others, of up to two warps */
            int who = threadIdx.x % 32 * 2 + threadIdx.x / 32 - 2;
            if (threadIdx.x >= 64 && who < CONSUMERS) copy_maps<layout, KEYS>(s, c, who);
        }
        if constexpr (KIND == BITS && !own::APART)
            if (threadIdx.x >= own::FIRST_FINDER) find_all_bits<layout, KEYS, CONSUMERS, own>(s, c);
    } else if (!own::APART || threadIdx.x < own::FIRST_FINDER) {
        registers_take<own::MANY>();
        int group = threadIdx.x / GROUP, who = (D <= 128 ? (int)uniform(group) : group) - 1; /* beyond, registers spill */
        if (CONSUMERS > 1 && who == CONSUMERS - 1) group_arrive(TURN, 2 * GROUP); /* the first one may begin */
        if constexpr (layout::AHEAD) compute_ahead<T, D, CONSUMERS, KEYS, KIND>(s, c, who);
        else compute_tiles<T, D, CONSUMERS, KEYS, KIND>(s, c, who);
        if (threadIdx.x % GROUP == 0) copies_read();
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
