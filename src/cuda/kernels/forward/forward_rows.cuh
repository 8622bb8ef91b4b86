/* The rows of a tile of forward.cuh: what they see, scores that become weights, and results that leave. */
#ifndef MHA_CUDA_FORWARD_ROWS_CUH
#define MHA_CUDA_FORWARD_ROWS_CUH

#include "careful.cuh"
#include "forward_copies.cuh"

namespace
{

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
        if (KIND == WINDOW) x.first[h] = mha_cuda_first_key(row, c.left), x.last[h] = mha_cuda_last_key(c.Tk, row, c.right);
        if (KIND < OPTIONS) continue;
        x.first[h] = mha_cuda_first_key(row, t.span.left);
        x.last[h] = row < t.span.queries ? mha_cuda_last_key(t.span.length, row, t.span.right) : -1;
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

/* The same before the first key that a row sees. */
template <int KEYS> MHA_DEVICE void hide_before(float (&s)[KEYS / 2], int first_key, const int (&first)[2])
{
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) {
        int key = first_key + i / 4 * 8 + i % 2;
        if (key < first[i / 2 % 2]) s[i] = -INFINITY;
    }
}

/* Both in block j, from `whole` on and below `open`. `row` is the first of the thread's rows. */
template <int KEYS, kind KIND, typename TILE>
MHA_DEVICE void hide_edges(float (&s)[KEYS / 2], const mha_cuda_forward &c, const TILE &t, int j, int row, int whole, int open)
{
    const int first_key = j * KEYS + threadIdx.x % 4 * 2;
    const keys_seen seen = keys_of<KIND>(c, t, row);
    if (KIND == FULL || j >= whole) hide<KEYS>(s, first_key, seen.last);
    if (KIND != FULL && j < open) hide_before<KEYS>(s, first_key, seen.first);
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

/* Whether slopes are ramps: wide heads, whose blocks have fewer keys, have no registers for them. */
template <int KEYS, kind KIND> struct ramps {
    enum { ANY = KIND == OPTIONS && KEYS == 128 };
};

/* What scores of blocks with a slope still lack: something for all keys of a row, and for a thread's even and odd ones. */
struct ramp {
    float row[2], even, odd;
};

/* Products become scores where all visible keys stand at or before their rows, so that a slope rises from key to key: it costs one
 * instruction for four of them. `ahead` is how far the first row stands before the first key of the block, `first` how far the
 * thread's first key stands behind that one. */
template <int KEYS> MHA_DEVICE ramp climb(float (&s)[KEYS / 2], float scale, float slope, float ahead, int first)
{
#pragma unroll
    for (int i = 0; i < KEYS / 2; i++) s[i] = fmaf(s[i], scale, slope * (i / 4 * 8));
    return {{-slope * ahead, -slope * (ahead + 8)}, slope * first, slope * (first + 1)};
}

/* Scores become weights; returns by how much the sums so far have to be multiplied. With RAMP, scores lack what `lacking` says. */
template <int KEYS, bool RAMP>
MHA_DEVICE void soften(float (&s)[KEYS / 2], rows &r, float (&by)[2], float scale, const ramp &lacking)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float a = s[2 * h], b = s[2 * h + 1];
#pragma unroll
        for (int i = 4; i < KEYS / 2; i += 4) a = fmaxf(a, s[i + 2 * h]), b = fmaxf(b, s[i + 2 * h + 1]);
        float top = RAMP ? fmaxf(a + lacking.even, b + lacking.odd) : fmaxf(a, b);
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2)) * scale;
        if (RAMP) top += lacking.row[h];
        by[h] = 1;
        if (top > r.reference[h] + 8) {
            by[h] = exp2_fast(r.reference[h] - top);
            r.reference[h] = top;
            r.sum[h] *= by[h];
        }
        float less = r.reference[h] == -INFINITY ? 0 : r.reference[h], even = less, odd = less, c = 0, d = 0;
        if (RAMP) even = less - lacking.row[h] - lacking.even, odd = less - lacking.row[h] - lacking.odd;
#pragma unroll
        for (int i = 0; i < KEYS / 2; i += 4) {
            s[i + 2 * h] = exp2_fast(fmaf(s[i + 2 * h], scale, -even));
            s[i + 2 * h + 1] = exp2_fast(fmaf(s[i + 2 * h + 1], scale, -odd));
            c += s[i + 2 * h];
            d += s[i + 2 * h + 1];
        }
        r.sum[h] += c + d;
    }
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

/* Products of block j become scores, of which the hidden ones are -infinity; returns what they lack. `row` is the first of this
 * thread's; `add_maps` adds what pairs have of their own. */
template <int ROWS, int KEYS, kind KIND, typename TILE, typename F>
MHA_DEVICE ramp shape(float (&x)[KEYS / 2], rows &r, const mha_cuda_forward &c, const TILE &t, int j, int row, F add_maps)
{
    ramp lacking = {{0, 0}, 0, 0};
    const int first = threadIdx.x % 4 * 2;
    if (KIND < OPTIONS) {
        hide_edges<KEYS, KIND>(x, c, t, j, row, t.whole, t.closed);
        return lacking;
    }
    if (KIND != BIAS && c.cap != 0 && ((j + 1) * KEYS > t.span.length || t.row + ROWS > t.span.queries))
        clear<KEYS>(x, j * KEYS + first, t.span.length, row, t.span.queries);
    int ahead = row + t.span.offset - j * KEYS;
    if (ramps<KEYS, KIND>::ANY && c.modified && c.cap == 0 && t.span.right <= t.span.offset)
        lacking = climb<KEYS>(x, c.scale, t.slope, (float)ahead, first);
    else if (KIND != BIAS && c.modified && modify<KEYS, KIND == BITS || (KIND == OPTIONS && !ramps<KEYS, KIND>::ANY)>(x, c, t.slope, (float)(ahead - first))) r.sum[0] = r.sum[1] = NAN;
    add_maps();
    const int whole = t.whole, closed = t.closed; /* read together */
    if (j < whole && j >= closed) return lacking;
    if (j >= whole) hide<KEYS>(x, j * KEYS + first, keys_of<KIND>(c, t, row).last); /* read again: there are few registers */
    if (j < closed) hide_before<KEYS>(x, j * KEYS + first, keys_of<KIND>(c, t, row).first);
    return lacking;
}

/* What the two rows of a thread begin with. */
template <kind KIND, typename TILE> MHA_DEVICE rows first_rows(const mha_cuda_forward &c, const TILE &t)
{
    rows r = {{-INFINITY, -INFINITY}, {0, 0}};
    if (KIND < OPTIONS || !c.sinks) return r;
    float sink = c.sinks[t.head * c.sink_head] * 1.4426950409f;
    r.reference[0] = r.reference[1] = sink;
    r.sum[0] = r.sum[1] = sink > -INFINITY && threadIdx.x % 4 == 0 ? 1 : 0;
    return r;
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

/* lse of a row of a sequence, which sees something or not. */
MHA_DEVICE void put_lse(const mha_cuda_forward &c, int batch, int head, int row, bool sees, float lse)
{
    if (!sees) lse = -INFINITY;
    if (c.lse.data) ((float *)c.lse.data)[place(c.lse, batch, head, row, 0)] = lse;
    if (c.softmax.data) {
        float *to = (float *)c.softmax.data + place(c.softmax, batch, head, row, 0);
        to[0] = lse, to[c.softmax.stride[3]] = sees ? 1.0f : 0.0f;
    }
}

/* The 16 rows of a warp from `first` on, to the tile at `to`, whose row `at` is the first. */
template <typename T, int D, int ROWS, kind KIND>
__device__ __noinline__ void finish_carefully(const mha_cuda_forward &c, int batch, int head, int first, uint32_t to, int at)
{
    int of_keys = head / c.group;
    double scale = (double)c.scale * 0.69314718055994530942;
    for (int row = first; row < min(first + 16, c.Tq); row++) {
        int keys = KIND == WINDOW ? mha_cuda_end_of_keys(c.Tk, row, c.right) : c.Tk;
        int before = KIND == WINDOW ? min(keys, mha_cuda_first_key(row, c.left)) : 0;
        double top = -INFINITY, sum = 0;
        careful_sum<D> o = {{0}};
        careful_row<D> q = careful_load<T, D>(c.queries, batch, head, row, c.D);
        for (int j = before; j < keys; j++)
            top = fmax(top, careful_score(scale, q, careful_load<T, D>(c.keys, batch, of_keys, j, c.D)));
        for (int j = before; j < keys; j++) {
            double p = exp(careful_score(scale, q, careful_load<T, D>(c.keys, batch, of_keys, j, c.D)) - top);
            careful_add(o, p, careful_load<T, D>(c.values, batch, of_keys, j, c.E));
            sum += p;
        }
        for (int i = 0; keys > before && i < careful_row<D>::COUNT; i++) o.x[i] /= sum;
        careful_put<T>(to, ROWS * ROW_BYTES, at + row - first, o);
        if (threadIdx.x % 32 == 0) put_lse(c, batch, head, row, keys > before, (float)(top + log(sum)));
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
        *(uint4 *)(to + 2 * (r * stride + piece * 8)) =
            get_piece(from + piece / 8 * ROWS * ROW_BYTES + r * ROW_BYTES + ((piece % 8) ^ (r % 8)) * 16);
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
        if (lane % 4 == 0 && row < c.Tq)
            put_lse(c, t.batch, t.head, row, sees[h], (r.reference[h] + __log2f(sum[h])) * 0.6931471806f);
    }
    if (S::SEPARATE && thread == 0) copies_read();
    group_sync(OWN + who, GROUP);
    if (KIND < OPTIONS && __any_sync(~0u, lost)) {
        if constexpr (KIND < OPTIONS) finish_carefully<T, D, ROWS, KIND>(c, t.batch, t.head, first_row, to, warp * 16);
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
            barrier_arrive(shared_address(&s.q_empty[0]));
        }
        return;
    }
    if (KIND > OPTIONS) look(c, t, first_row, seen, sum, sees);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        lost = lost || (sees[h] && !(sum[h] > 0 && sum[h] < INFINITY));
        int row = first_row + h * 8 + lane / 4;
        if (lane % 4 == 0 && row < t.span.padded)
            put_lse(c, t.span.query_batch, t.head, t.span.query_row + row, sees[h],
                    (r.reference[h] + __log2f(sum[h])) * 0.6931471806f);
    }
    int any = group_any(OWN + who, GROUP, lost);
    if (thread == 0) c.lost[((int64_t)(t.batch * c.H + t.head) * c.row_tiles * ROWS + t.row) / 64 + who] = any;
    if (thread == 0 && any && c.any_lost) *c.any_lost = 1;
    put_results<S::COLUMNS, ROWS, KIND>(c, t, to, who);
    if (!S::SEPARATE && thread == 0) copies_read();
    group_sync(OWN + who, GROUP); /* the next results may be put there */
    if (!S::SEPARATE && thread == 0) barrier_arrive(shared_address(&s.q_empty[0]));
}

/* Zeros in place of the values from row `first` of a block on: their weights are 0, but 0 times NaN is NaN. Each warpgroup
 * writes them, so that none has to wait for another. */
template <int COLUMNS, int KEYS> MHA_DEVICE void clear_values(uint32_t v, int first, int who)
{
    for (int n = threadIdx.x % GROUP; n < (KEYS - first) * (COLUMNS / 8); n += GROUP) {
        int row = first + n / (COLUMNS / 8), piece = n % (COLUMNS / 8);
        clear_piece(v + piece / 8 * KEYS * ROW_BYTES + row * ROW_BYTES + piece % 8 * 16);
    }
    publish_shared();
    group_sync(OWN + who, GROUP);
}

} // namespace

#endif
