/* What comes before and after the products of backward.cuh: the softmax of rows, the bounds of integer sums, rows whose numbers
 * are too large for either, and the conversion of dQ. */
#ifndef MHA_CUDA_BACKWARD_ROWS_CUH
#define MHA_CUDA_BACKWARD_ROWS_CUH

#include "backward.cuh"

namespace
{

/* Whether lse has lost the sum of exponentials beside a large score, or is infinite because scores are. */
MHA_DEVICE bool is_far(float lse) { return !(fabsf(lse) <= 1e5f); }

/* Of a row that sees a key. */
template <typename T, int D>
__device__ __noinline__ double careful_lse(const mha_cuda_backward &c, int batch, int head, int row,
                                           const careful_row<D> &q)
{
    int own = head / (c.H / c.G), first = mha_cuda_first_key(row, c.left), keys = keys_seen<FULL>(c, nullptr, row);
    float lse = c.lse[((int64_t)batch * c.H + head) * c.Tq + row];
    double top = -INFINITY, sum = 0;
    if (!is_far(lse)) return (double)lse;
    for (int j = first; j < keys; j++)
        top = fmax(top, careful_score((double)c.scale, q, careful_load<T, D>(c.keys, batch, own, j, c.D)));
    for (int j = first; j < keys; j++)
        sum += exp(careful_score((double)c.scale, q, careful_load<T, D>(c.keys, batch, own, j, c.D)) - top);
    return top + log(sum);
}

/* A weight and its part of dS, from rows alone. */
struct careful_pair {
    double p, ds;
};

template <typename T, int D>
MHA_DEVICE careful_pair careful_weight(const mha_cuda_backward &c, int batch, int head, int row, double lse,
                                       const careful_row<D> &q, const careful_row<D> &k, const careful_row<D> &d,
                                       const careful_row<D> &v)
{
    double p = exp(careful_score((double)c.scale, q, k) - lse);
    return {p, p * (careful_dot(d, v) - careful_dot(d, careful_load<T, D>(c.out, batch, head, row, c.E)))};
}

/* Eight numbers of 16 bits, and as float. */
template <typename T> MHA_DEVICE void widen(float (&to)[8], uint4 from)
{
    const uint32_t x[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 both = pair_of<T>::get(x[i]);
        to[2 * i] = both.x, to[2 * i + 1] = both.y;
    }
}

/* Over the LANES that hold a row together. */
template <int LANES> MHA_DEVICE float sum_lanes(float x)
{
    for (int lane = LANES / 2; lane; lane /= 2) x += __shfl_xor_sync(~0u, x, lane);
    return x;
}

/* Zeros behind the last column. */
template <typename T>
MHA_DEVICE uint4 load_eight(const mha_cuda_rows &t, int batch, int head, int row, int column, int width)
{
    if (column >= width) return make_uint4(0, 0, 0, 0);
    return *(const uint4 *)((const T *)t.data + batch * t.batch + head * t.head + row * t.row + column);
}

/* A block for BOUND_KEYS keys of a head: the largest norm of their values, without numbers that are not finite, and the
 * largest number of the keys, infinite if one is not finite. */
template <typename T, int D, kind KIND>
MHA_DEVICE void bound_keys(const mha_cuda_backward &c, const part_of_sequence *p, int block, int head, int batch)
{
    enum { LANES = D / 8, ROWS = 256 / LANES };
    __shared__ float norms[8], numbers[8];
    float norm = 0, number = 0, k[8], v[8];
    int lane = threadIdx.x % LANES, count = c.Tk, first = 0, where = batch, tiles = c.key_tiles;
    if (KIND >= SEQUENCES) {
        count = p->length, first = p->key_row, where = p->key_batch, tiles = (p->keys + KEYS - 1) / KEYS;
    }
#pragma unroll 4
    for (int r = 0; r < BOUND_KEYS; r += ROWS) {
        int key = block * BOUND_KEYS + r + threadIdx.x / LANES;
        float squares = 0;
        if (key < count) {
            widen<T>(k, load_eight<T>(c.keys, where, head, first + key, lane * 8, c.D));
            widen<T>(v, load_eight<T>(c.values, where, head, first + key, lane * 8, c.E));
            for (int i = 0; i < 8; i++) {
                number = fmaxf(number, fabsf(k[i]) < INFINITY ? fabsf(k[i]) : INFINITY);
                if (fabsf(v[i]) < INFINITY) squares += v[i] * v[i];
            }
        }
        norm = fmaxf(norm, sum_lanes<LANES>(squares));
    }
    for (int i = 16; i; i /= 2) {
        norm = fmaxf(norm, __shfl_xor_sync(~0u, norm, i));
        number = fmaxf(number, __shfl_xor_sync(~0u, number, i));
    }
    for (int tile = block * BOUND_KEYS / KEYS + threadIdx.x; tile < min(tiles, (block + 1) * BOUND_KEYS / KEYS);
         tile += 256) {
        const int own = (batch * c.G + head) * c.key_tiles + tile;
        c.lost_keys[own] = 0;
        if (c.tickets) ((int4 *)c.tickets)[own] = make_int4(0, 0, 0, 0);
    }
    if (threadIdx.x % 32 == 0) norms[threadIdx.x / 32] = norm, numbers[threadIdx.x / 32] = number;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < 8; i++) norm = fmaxf(norm, norms[i]), number = fmaxf(number, numbers[i]);
    float *to = bounds_at<KIND>(c, p, head, batch).first + 2 * block;
    to[0] = sqrtf(norm), to[1] = number;
}

/* The lse of a row: from the softmax of the forward call, and then for others, too; or as another kernel wrote it. */
MHA_DEVICE float lse_of(const mha_cuda_backward &c, int batch, int head, int row, int rows)
{
    float &lse = c.lse[((int64_t)batch * c.H + head) * rows + row];
    if (!c.softmax.data) return lse;
    const int64_t *stride = c.softmax.stride;
    const float *from = (const float *)c.softmax.data + batch * stride[0] + head * stride[1] + row * stride[2];
    float sum = from[stride[3]];
    return lse = sum > 0 ? from[0] + logf(sum) : -INFINITY;
}

/* What the kernels need to know of the softmax of a row, in units of log 2. The weights of a row that sees nothing are 0; NaN makes
 * its gradients be computed carefully. */
template <kind KIND>
MHA_DEVICE float known_lse(const mha_cuda_backward &c, const part_of_sequence *p, int batch, int head, int row, float lse)
{
    if (!sees_any<KIND>(c, p, row)) return INFINITY;
    /* Nothing is visible to it, unless scores are too large for the forward pass that gave it. */
    if (KIND == MAPS && lse == -INFINITY)
        if (!c.lost_anew || !c.lost_anew[((int64_t)batch * c.H + head) * c.anew_tiles + row / 64]) return INFINITY;
    return is_far(lse) ? NAN : lse * 1.44269504f;
}

/* A block for a tile of query rows. */
template <typename T, int D, int QUERIES, kind KIND, sums SUMS>
MHA_DEVICE void prepare_rows(const mha_cuda_backward &c, const part_of_sequence *p, int tile, int head, int batch)
{
    enum { LANES = D / 8, ROWS = 256 / LANES, PASSES = QUERIES / ROWS };
    int64_t number = tile_number<KIND>(c, p, batch, head, tile);
    int lane = threadIdx.x % LANES, own = threadIdx.x / LANES, first = tile * QUERIES;
    /* Rows without padding, and with it; where they lie, and how many rows lie there. */
    int queries = c.Tq, padded = c.Tq, before = 0, where = batch, all = c.Tq;
    if (KIND >= SEQUENCES)
        queries = p->queries, padded = p->padded, before = p->query_row, where = p->query_batch, all = (int)c.query_rows;
    float *rows = c.rows + number * ROW_KINDS * QUERIES, o[8], d[8];
    uint4 both[PASSES][2];
#pragma unroll
    for (int r = 0; r < PASSES; r++) {
        int row = first + r * ROWS + own;
        if (row >= queries) continue;
        both[r][0] = load_eight<T>(c.out, where, head, before + row, lane * 8, c.E);
        both[r][1] = load_eight<T>(c.d_o, where, head, before + row, lane * 8, c.E);
    }
    if (SUMS == INTEGERS) { /* zeros for the warps of which a row is there */
        int4 *sums = (int4 *)(c.sums + number * QUERIES * D);
        int warp = threadIdx.x % (GROUP / 2) / 16;
#pragma unroll
        for (int i = 0; i < QUERIES * D / 4; i += 256) {
            int above = (QUERIES == 128 ? i / (QUERIES * D / 8) * 64 : 0) + warp * 16;
            if (first + above < padded) sums[i + threadIdx.x] = make_int4(0, 0, 0, 0);
        }
    }
    if ((SUMS == ORDERED || KIND >= SEQUENCES) && threadIdx.x == 0) c.lost_rows[lost_place(c, batch, head, tile)] = 0;
    if (SUMS == ORDERED && tile == 0 && head % (c.H / c.G) == 0)
        for (int n = threadIdx.x; n < c.key_tiles; n += 256) c.lost_keys[(batch * c.G + head / (c.H / c.G)) * c.key_tiles + n] = 0;
    if (tile == 0 && head % (c.H / c.G) == 0 && threadIdx.x == 0) {
        int own = batch * c.G + head / (c.H / c.G);
        c.lost_heads[own] = 0;
        if (SUMS == INTEGERS) c.powers[own] = 1;
    }
    if (threadIdx.x < QUERIES) { /* while `out` and `dout` are on their way */
        int row = first + threadIdx.x;
        rows[LSE * QUERIES + threadIdx.x] =
            row < queries ? known_lse<KIND>(c, p, batch, head, row, lse_of(c, where, head, before + row, all)) : INFINITY;
    }
#pragma unroll
    for (int r = 0; r < PASSES; r++) {
        int row = first + r * ROWS + own;
        float delta = 0, squares = 0;
        if (row < queries) {
            widen<T>(o, both[r][0]);
            widen<T>(d, both[r][1]);
            for (int i = 0; i < 8; i++) delta += o[i] * d[i], squares += d[i] * d[i];
        }
        delta = sum_lanes<LANES>(delta);
        if (SUMS == INTEGERS) squares = sum_lanes<LANES>(squares);
        if (lane) continue;
        int exponent, at = r * ROWS + own;
        frexpf(sqrtf(squares), &exponent);
        rows[DELTA * QUERIES + at] = delta;
        if (SUMS == INTEGERS) rows[POWER * QUERIES + at] = exp2f((float)-exponent);
    }
}

template <typename T, int D, int QUERIES> MHA_DEVICE void prepare(const mha_cuda_backward &c)
{
    int n = blockIdx.x, keys = c.G * c.B * c.bound_tiles;
    wait_for_last(); /* first: the kernels behind it read lengths before they wait */
    let_next_start();
    if (n == 0 && threadIdx.x == 0 && c.any) *c.any = 0;
    if (n < keys)
        bound_keys<T, D, FULL>(c, nullptr, n % c.bound_tiles, n / c.bound_tiles % c.G, n / c.bound_tiles / c.G);
    else {
        n -= keys;
        prepare_rows<T, D, QUERIES, FULL, INTEGERS>(c, nullptr, n % c.row_tiles, n / c.row_tiles % c.H,
                                                    n / c.row_tiles / c.H);
    }
}

/* The same for the tiles of sequences. */
template <typename T, int D, int QUERIES, kind KIND, sums SUMS> MHA_DEVICE void prepare_parts(const mha_cuda_backward &c)
{
    __shared__ part_of_sequence part;
    int n = blockIdx.x, keys = SUMS == INTEGERS ? c.G * c.bound_slots : 0;
    bool of_keys = n < keys;
    wait_for_last();
    let_next_start();
    if (n == 0 && threadIdx.x == 0) *c.any = 0;
    if (!of_keys) n -= keys;
    int slots = of_keys ? c.bound_slots : c.row_slots, head = n / slots;
    find_part(part, c, of_keys, n % slots, of_keys ? BOUND_KEYS : QUERIES, of_keys ? c.bound_tiles : c.row_tiles, QUERIES);
    if (part.b >= c.B) return;
    if (of_keys) bound_keys<T, D, KIND>(c, &part, part.tile, head, part.b);
    else prepare_rows<T, D, QUERIES, KIND, SUMS>(c, &part, part.tile, head, part.b);
}

template <typename T, int D, int QUERIES> MHA_DEVICE void prepare_in_order(const mha_cuda_backward &c)
{
    int n = blockIdx.x, head = n / c.row_tiles;
    wait_for_last();
    let_next_start();
    prepare_rows<T, D, QUERIES, FULL, ORDERED>(c, nullptr, n % c.row_tiles, head % c.H, head / c.H);
}

/* Numbers of a row to memory. */
template <typename T, int D>
MHA_DEVICE void careful_store(const mha_cuda_rows &t, int batch, int head, int row, const careful_sum<D> &x, int width)
{
    T *to = (T *)t.data + batch * t.batch + head * t.head + row * t.row + threadIdx.x % 32 * 2;
    for (int k = 0; k < D / 64; k++)
        if ((int)threadIdx.x % 32 * 2 + 64 * k < width)
            *(uint32_t *)(to + 64 * k) = pack<T>((float)x.x[2 * k], (float)x.x[2 * k + 1]);
}

/* dQ of a tile of rows, a warp for each. */
template <typename T, int D, int QUERIES>
__device__ __noinline__ void rows_carefully(const mha_cuda_backward &c, int tile, int head, int batch)
{
    int own = head / (c.H / c.G);
    for (int row = tile * QUERIES + threadIdx.x / 32; row < min(c.Tq, (tile + 1) * QUERIES); row += 8) {
        int first = mha_cuda_first_key(row, c.left), keys = keys_seen<FULL>(c, nullptr, row);
        careful_sum<D> sum = {{0}};
        careful_row<D> q = careful_load<T, D>(c.queries, batch, head, row, c.D);
        careful_row<D> d = careful_load<T, D>(c.d_o, batch, head, row, c.E);
        double lse = first < keys ? careful_lse<T, D>(c, batch, head, row, q) : 0;
        for (int j = first; j < keys; j++) {
            careful_row<D> k = careful_load<T, D>(c.keys, batch, own, j, c.D),
                           v = careful_load<T, D>(c.values, batch, own, j, c.E);
            careful_add(sum, careful_weight<T, D>(c, batch, head, row, lse, q, k, d, v).ds * (double)c.scale, k);
        }
        careful_store<T>(c.dq, batch, head, row, sum, c.D);
    }
}

/* dK and dV of a key, by a warp. */
template <typename T, int D>
MHA_DEVICE void key_carefully(const mha_cuda_backward &c, int key, int head, int batch)
{
    int group = c.H / c.G;
    careful_sum<D> dk = {{0}}, dv = {{0}};
    careful_row<D> k = careful_load<T, D>(c.keys, batch, head, key, c.D);
    careful_row<D> v = careful_load<T, D>(c.values, batch, head, key, c.E);
    for (int n = head * group; n < (head + 1) * group; n++)
        for (int row = mha_cuda_first_row(key, c.right); row < mha_cuda_end_of_rows(c.Tq, key, c.left); row++) {
            careful_row<D> q = careful_load<T, D>(c.queries, batch, n, row, c.D);
            careful_row<D> d = careful_load<T, D>(c.d_o, batch, n, row, c.E);
            double lse = careful_lse<T, D>(c, batch, n, row, q);
            careful_pair x = careful_weight<T, D>(c, batch, n, row, lse, q, k, d, v);
            careful_add(dk, x.ds * (double)c.scale, q);
            careful_add(dv, x.p, d);
        }
    careful_store<T>(c.grad_k, batch, head, key, dk, c.D);
    careful_store<T>(c.grad_v, batch, head, key, dv, c.E);
}

/* The key tiles of a head that are lost, of every `step`th from `tile` on. */
template <typename T, int D>
__device__ __noinline__ void keys_carefully(const mha_cuda_backward &c, int tile, int step, int head, int batch)
{
    for (; tile < c.key_tiles; tile += step) {
        if (!c.lost_keys[(batch * c.G + head) * c.key_tiles + tile]) continue;
        for (int key = tile * KEYS + threadIdx.x / 32; key < min(c.Tk, (tile + 1) * KEYS); key += 8)
            key_carefully<T, D>(c, key, head, batch);
    }
}

/* Whether dQ of a tile of rows may be lost: one of the keys up to the last that it sees is not finite, or one of their
 * gradients, as it is where dS is. The same for all threads of the block. */
template <int QUERIES, kind KIND, sums SUMS>
MHA_DEVICE bool is_lost_tile(const mha_cuda_backward &c, const part_of_sequence *p, int tile, int head, int batch)
{
    int64_t own = (int64_t)batch * c.G + head / (c.H / c.G);
    int last = min(KIND >= SEQUENCES ? p->queries : c.Tq, (tile + 1) * QUERIES) - 1, lost = 0;
    int keys = last < tile * QUERIES ? 0 : keys_seen<KIND>(c, p, last);
    const float *bounds = SUMS == INTEGERS ? bounds_at<KIND>(c, p, head / (c.H / c.G), batch).first : nullptr;
    for (int i = threadIdx.x; i * KEYS < keys; i += 256) lost |= c.lost_keys[own * c.key_tiles + i];
    for (int i = threadIdx.x; SUMS == INTEGERS && i * BOUND_KEYS < keys; i += 256)
        lost |= !(bounds[2 * i + 1] < INFINITY);
    if (SUMS == ORDERED) lost |= c.lost_rows[lost_place(c, batch, head, tile)];
    return __syncthreads_or(lost);
}

/* What is lost of a head, by the block of one of its tiles of rows: dQ of these, and dK and dV of its share of key tiles. */
template <typename T, int D, int QUERIES, sums SUMS>
__device__ __noinline__ void repair(const mha_cuda_backward &c, int tile, int head, int batch)
{
    int group = c.H / c.G;
    if (is_lost_tile<QUERIES, FULL, SUMS>(c, nullptr, tile, head, batch)) rows_carefully<T, D, QUERIES>(c, tile, head, batch);
    keys_carefully<T, D>(c, head % group * c.row_tiles + tile, group * c.row_tiles, head / group, batch);
}

/* dQ of a tile of rows from its integers, which lie as the threads of a block held them: pairs, of which the first has borrowed
 * from the second if it is negative. */
template <typename T, int D, int QUERIES, kind KIND>
MHA_DEVICE void convert_rows(const mha_cuda_backward &c, const part_of_sequence *p, int tile, int head, int batch)
{
    int64_t number = tile_number<KIND>(c, p, batch, head, tile);
    int lane = threadIdx.x % 32, who = threadIdx.x / GROUP, warp = threadIdx.x % GROUP / 32,
        row = (QUERIES == 128 ? who * 64 : 0) + warp * 16 + lane / 4, padded = KIND >= SEQUENCES ? p->padded : c.Tq;
    const long long *sums = (const long long *)(c.sums + number * QUERIES * D) + who * (PIECE / 2) + threadIdx.x % GROUP;
    const float *power = c.rows + number * ROW_KINDS * QUERIES + POWER * QUERIES + row;
    bool there = tile * QUERIES + row - lane / 4 < padded; /* the same for a warp */
    enum { PIECES = QUERIES * D / PIECE / 2 }; /* of a thread, in every second place */
    long long both[PIECES][16];
    const int of_keys = batch * c.G + head / (c.H / c.G), lost_head = c.lost_heads[of_keys];
    float head_power = c.powers[of_keys], own[2] = {power[0], power[8]};
#pragma unroll
    for (int i = 0; i < 16 * PIECES; i++) both[i / 16][i % 16] = there ? sums[i / 16 * PIECE + i % 16 * GROUP] : 0;
    if (c.any) {
        bool lost = lost_head && is_lost_tile<QUERIES, KIND, INTEGERS>(c, p, tile, head, batch);
        if (threadIdx.x == 0) c.lost_rows[lost_place(c, batch, head, tile)] = lost;
        if (lost && threadIdx.x == 0) *c.any = 1;
    }
    float by[2] = {c.scale / (own[0] * head_power), c.scale / (own[1] * head_power)};
#pragma unroll
    for (int piece = 0; there && piece < PIECES; piece++) {
        uint32_t x[16];
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int low = (int)both[piece][i], high = (int)((both[piece][i] - low) >> 32);
            x[i] = pack<T>((float)low * by[i % 2], (float)high * by[i % 2]);
        }
        T *dq = (T *)c.dq.data + head * c.dq.head;
        dq += KIND >= SEQUENCES ? p->query_batch * c.dq.batch + p->query_row * c.dq.row : batch * c.dq.batch;
        put_dq<T, QUERIES>(c, x, dq, padded, tile, who + 2 * piece);
    }
    if constexpr (KIND < SEQUENCES)
        if (lost_head && !c.any) {
            __syncthreads(); /* what is written now is written after the rows above */
            repair<T, D, QUERIES, INTEGERS>(c, tile, head, batch);
        }
}

template <typename T, int D, int QUERIES> MHA_DEVICE void convert(const mha_cuda_backward &c)
{
    int tile = blockIdx.x % c.row_tiles, head = blockIdx.x / c.row_tiles % c.H, batch = blockIdx.x / c.row_tiles / c.H;
    wait_for_last();
    convert_rows<T, D, QUERIES, FULL>(c, nullptr, tile, head, batch);
}

/* A tile of rows, in order: the sum of its parts, if blocks have kept them; and what is lost of its head. */
template <typename T, int D, int QUERIES, kind KIND>
MHA_DEVICE void finish_rows(const mha_cuda_backward &c, const part_of_sequence *p, int tile, int head, int batch)
{
    int who = threadIdx.x / GROUP, warp = threadIdx.x % GROUP / 32;
    int64_t tiles = tiles_of_all<KIND>(c), number = tile_number<KIND>(c, p, batch, head, tile);
    int last = mha_cuda_part_of(last_keys<QUERIES, KIND>(c, *p, tile), c.ordered_tiles, c.parts), padded = KIND >= SEQUENCES ? p->padded : c.Tq;
    int lost = c.lost_heads[batch * c.G + head / (c.H / c.G)];
    bool empty = KIND >= SEQUENCES && (p->length == 0 || tile * QUERIES >= p->queries); /* nobody has written it */
    T *to = (T *)c.dq.data + head * c.dq.head;
    to += KIND >= SEQUENCES ? p->query_batch * c.dq.batch + p->query_row * c.dq.row : batch * c.dq.batch;
    if ((last > 0 || empty) && tile * QUERIES + (QUERIES == 128 ? who * 64 : 0) + warp * 16 < padded) {
        float dq[32];
        const float4 *sums = (const float4 *)((const float *)c.sums + (number * QUERIES * D + who * QUERIES * D / 2)) +
                             threadIdx.x % GROUP;
#pragma unroll
        for (int i = 0; i < 32; i += 4) {
            float4 x = empty ? make_float4(0, 0, 0, 0) : sums[i / 4 * GROUP];
            dq[i] = x.x, dq[i + 1] = x.y, dq[i + 2] = x.z, dq[i + 3] = x.w;
        }
#pragma unroll 1
        for (int part = 1; part <= last && !empty; part++)
#pragma unroll
            for (int i = 0; i < 32; i += 4) {
                float4 x = sums[part * tiles * QUERIES * D / 4 + i / 4 * GROUP];
                dq[i] += x.x, dq[i + 1] += x.y, dq[i + 2] += x.z, dq[i + 3] += x.w;
            }
        if (is_lost(dq)) lost = c.lost_rows[lost_place(c, batch, head, tile)] = 1;
        uint32_t x[16];
#pragma unroll
        for (int i = 0; i < 16; i++) x[i] = pack<T>(dq[2 * i] * c.scale, dq[2 * i + 1] * c.scale);
        put_dq<T, QUERIES>(c, x, to, padded, tile, who);
    }
    if (!__syncthreads_or(lost)) return;
    if constexpr (KIND < SEQUENCES) repair<T, D, QUERIES, ORDERED>(c, tile, head, batch);
    else if (is_lost_tile<QUERIES, KIND, ORDERED>(c, p, tile, head, batch) && threadIdx.x == 0)
        c.lost_rows[lost_place(c, batch, head, tile)] = *c.any = 1;
}

/* The same for the tiles of sequences; what is lost is left to the general kernels. */
template <typename T, int D, int QUERIES, kind KIND> MHA_DEVICE void convert_parts(const mha_cuda_backward &c)
{
    __shared__ part_of_sequence part;
    int slot = blockIdx.x % c.row_slots, head = blockIdx.x / c.row_slots;
    find_part(part, c, false, slot, QUERIES, c.row_tiles, QUERIES);
    wait_for_last();
    if (part.b >= c.B) return;
    const mha_cuda_method method = method_of(c, part);
    if constexpr (KIND == SEQUENCES && D <= 128)
        if (method == MHA_CUDA_BY_ORDER) finish_rows<T, D, QUERIES, KIND>(c, &part, part.tile, head, part.b);
    if (method == MHA_CUDA_BY_TILES) convert_rows<T, D, QUERIES, KIND>(c, &part, part.tile, head, part.b);
}

/* What is left of a call in order: the sums of tiles of rows, if blocks have kept their parts, or else what is lost. */
template <typename T, int D, int QUERIES> MHA_DEVICE void convert_in_order(const mha_cuda_backward &c)
{
    int left = c.parts > 1;
    wait_for_last();
    for (int own = threadIdx.x; !left && own < c.G * c.B; own += 256) left = c.lost_heads[own];
    if (!__syncthreads_or(left)) return;
    for (int n = blockIdx.x; n < c.B * c.H * c.row_tiles; n += gridDim.x)
        finish_rows<T, D, QUERIES, FULL>(c, nullptr, n % c.row_tiles, n / c.row_tiles % c.H, n / c.row_tiles / c.H);
}

} // namespace

#endif
