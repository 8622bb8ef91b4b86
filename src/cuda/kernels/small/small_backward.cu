/* Attention backward of narrow heads and short sequences, for bfloat16 and float16: small.cuh. A block has one key head, with its
 * keys and values in shared memory, and goes through its query heads in order.
 *
 * The weights are computed twice from lse. Some warps have 16 rows of a query head each, for which they go through the keys and sum
 * up dQ. The others have 16 keys each, for which they go through the rows and sum up dK and dV, with the transposed scores: rows of a
 * product are then keys, and its results are the first factor of the next product without a way through shared memory. All sums are
 * in registers and have one order; nothing is left for another kernel. delta is dO . O of a row. */
#include "elements.cuh"
#include "small.cuh"

namespace
{

/* A block's head in shared memory. */
struct head_memory {
    float *lse, *delta;  /* of rows; lse in units of log 2 */
    uint32_t k, v, q, d; /* rows of whole steps; d: dO */
};

template <int W> MHA_DEVICE head_memory memory_of(const mha_cuda_small &c, unsigned char *memory)
{
    uint32_t rows = whole_steps(c.Tq), keys = whole_steps(c.Tk);
    head_memory s = {(float *)memory, (float *)memory + rows};
    s.k = shared_address(s.delta + rows), s.v = s.k + keys * width<W>::PITCH;
    s.q = s.v + keys * width<W>::PITCH, s.d = s.q + rows * width<W>::PITCH;
    return s;
}

/* ---- The softmax of rows ---------------------------------------------------------------------------------------- */

/* As the forward call left it. */
MHA_DEVICE float given_lse(const mha_cuda_small &c, int batch, int head, int row)
{
    if (!c.softmax.data) return ((const float *)c.lse.data)[place(c.lse, batch, head, row, 0)];
    const float *from = (const float *)c.softmax.data + place(c.softmax, batch, head, row, 0);
    float sum = from[c.softmax.stride[3]];
    return sum > 0 ? from[0] + logf(sum) : -INFINITY;
}

/* Whether lse has lost the sum of exponentials beside a large score, or is infinite because scores are. */
MHA_DEVICE bool is_far(float lse) { return !(fabsf(lse) <= 1e5f); }

/* Of a row that sees a key. */
template <typename T, int W>
MHA_DEVICE double careful_lse(const mha_cuda_small &c, int batch, int head, int row, const careful_row<W> &q)
{
    float lse = given_lse(c, batch, head, row);
    if (!is_far(lse)) return (double)lse;
    careful_softmax s = soften_carefully<T, W>(c, batch, head, row, q);
    return s.top + log(s.sum);
}

/* lse and delta of all rows of a query head to shared memory. NaN in place of an lse that is far makes gradients be computed
 * carefully. */
template <typename T, int W> MHA_DEVICE void describe_rows(const head_memory &s, const mha_cuda_small &c, int batch, int head)
{
    enum { PIECES = width<W>::PIECES };
    for (int n = threadIdx.x; n < whole_steps(c.Tq) * PIECES; n += blockDim.x) {
        int row = n / PIECES, column = n % PIECES * 8;
        float delta = 0;
        if (row < c.Tq && column < c.E) {
            const uint4 both[2] = {*(const uint4 *)(row_at<T>(c.out, batch, head, row) + column),
                                   *(const uint4 *)(row_at<T>(c.dout, batch, head, row) + column)};
            const uint32_t o[4] = {both[0].x, both[0].y, both[0].z, both[0].w},
                           d[4] = {both[1].x, both[1].y, both[1].z, both[1].w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float2 a = pair_of<T>::get(o[i]), b = pair_of<T>::get(d[i]);
                delta = fmaf(a.y, b.y, fmaf(a.x, b.x, delta));
            }
        }
#pragma unroll
        for (int lane = 1; lane < PIECES; lane *= 2) delta += __shfl_xor_sync(~0u, delta, lane);
        if (column) continue;
        float lse = keys_seen(c, row) ? given_lse(c, batch, head, row) : 0; /* a row that sees nothing has no weights */
        s.lse[row] = is_far(lse) ? NAN : lse * 1.44269504f;
        s.delta[row] = delta;
    }
}

/* ---- Gradients in float64 --------------------------------------------------------------------------------------- */

/* A weight and its part of dS. */
struct careful_pair {
    double p, ds;
};

template <typename T, int W>
MHA_DEVICE careful_pair careful_weight(const mha_cuda_small &c, int batch, int head, int row, double lse,
                                       const careful_row<W> &q, const careful_row<W> &k, const careful_row<W> &d,
                                       const careful_row<W> &v)
{
    double p = exp(careful_score((double)c.scale, q, k) - lse);
    return {p, p * (careful_dot(d, v) - careful_dot(d, careful_load<T, W>(c.out, batch, head, row, c.E)))};
}

/* dQ of the 16 rows of a warp. */
template <typename T, int W>
__device__ __noinline__ void rows_carefully(const mha_cuda_small &c, int batch, int head, int first)
{
    int own = head / c.group;
    for (int row = first; row < min(first + STEP, c.Tq); row++) {
        int keys = keys_seen(c, row);
        careful_sum<W> sum = {{0}};
        careful_row<W> q = careful_load<T, W>(c.q, batch, head, row, c.D),
                       d = careful_load<T, W>(c.dout, batch, head, row, c.E);
        double lse = keys ? careful_lse<T, W>(c, batch, head, row, q) : 0;
        for (int j = 0; j < keys; j++) {
            careful_row<W> k = careful_load<T, W>(c.k, batch, own, j, c.D), v = careful_load<T, W>(c.v, batch, own, j, c.E);
            careful_add(sum, careful_weight<T, W>(c, batch, head, row, lse, q, k, d, v).ds * (double)c.scale, k);
        }
        careful_store<T>(c.dq, batch, head, row, sum, c.D);
    }
}

/* dK and dV of the 16 keys of a warp. */
template <typename T, int W>
__device__ __noinline__ void keys_carefully(const mha_cuda_small &c, int batch, int head, int first)
{
    for (int key = first; key < min(first + STEP, c.Tk); key++) {
        careful_sum<W> dk = {{0}}, dv = {{0}};
        careful_row<W> k = careful_load<T, W>(c.k, batch, head, key, c.D);
        for (int n = head * c.group; n < (head + 1) * c.group; n++)
            for (int row = first_row(c, key); row < c.Tq; row++) {
                careful_row<W> q = careful_load<T, W>(c.q, batch, n, row, c.D),
                               d = careful_load<T, W>(c.dout, batch, n, row, c.E);
                double lse = careful_lse<T, W>(c, batch, n, row, q);
                careful_pair x = careful_weight<T, W>(c, batch, n, row, lse, q, k, d,
                                                      careful_load<T, W>(c.v, batch, head, key, c.E));
                careful_add(dk, x.ds * (double)c.scale, q);
                careful_add(dv, x.p, d);
            }
        careful_store<T>(c.dk, batch, head, key, dk, c.D);
        careful_store<T>(c.dv, batch, head, key, dv, c.E);
    }
}

/* ---- Gradients -------------------------------------------------------------------------------------------------- */

/* A product becomes a weight, and the product of dO and a value its part of dS; zeros where a row does not see a key: whatever is
 * hidden may be NaN. */
MHA_DEVICE void weigh(float &x, float &dp, bool visible, float scale, float lse, float delta)
{
    float p = exp2_fast(fmaf(x, scale, -lse));
    x = visible ? p : 0;
    dp = visible ? p * (dp - delta) : 0;
}

/* dQ of 16 rows. */
template <typename T, int W>
MHA_DEVICE void sum_rows(const head_memory &s, const mha_cuda_small &c, int batch, int head, int first)
{
    enum { PITCH = width<W>::PITCH };
    int lane = threadIdx.x % 32, row = first + lane / 4, end = keys_seen(c, min(first + STEP, c.Tq) - 1);
    const int keys[2] = {keys_seen(c, row), keys_seen(c, row + 8)};
    const float lse[2] = {s.lse[row], s.lse[row + 8]}, delta[2] = {s.delta[row], s.delta[row + 8]};
    float dq[W / 8][4] = {};
    uint32_t q[width<W>::PARTS][4], d[width<W>::PARTS][4];
    load_first<W>(q, s.q + first * PITCH);
    load_first<W>(d, s.d + first * PITCH);
    for (int j = 0; j < end; j += STEP) {
        float x[2][4], dp[2][4];
        uint32_t ds[4];
        multiply_rows<T, W>(x, q, s.k + j * PITCH);
        multiply_rows<T, W>(dp, d, s.v + j * PITCH);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int h = i / 2 % 2, key = j + i / 4 * 8 + lane % 4 * 2 + i % 2;
            weigh(x[i / 4][i % 4], dp[i / 4][i % 4], key < keys[h], c.scale_log2, lse[h], delta[h]);
        }
        pack_weights<T>(ds, dp[0], dp[1]);
        add_rows<T, W>(dq, ds, s.k + j * PITCH);
    }
    if (!c.dq.data) return;
    if (is_any_lost(dq)) rows_carefully<T, W>(c, batch, head, first);
    else put_rows<T, W>(c.dq, batch, head, first, c.Tq - first, dq, c.scale, c.scale, c.D);
}

/* What the rows of a query head add to dK, without the scale, and dV of 16 keys. */
template <typename T, int W>
MHA_DEVICE void add_keys(float (&dk)[W / 8][4], float (&dv)[W / 8][4], const head_memory &s, const mha_cuda_small &c,
                         int first)
{
    enum { PITCH = width<W>::PITCH };
    int lane = threadIdx.x % 32, key = first + lane / 4;
    const int from[2] = {first_row(c, key), first_row(c, key + 8)};
    uint32_t k[width<W>::PARTS][4], v[width<W>::PARTS][4];
    load_first<W>(k, s.k + first * PITCH);
    load_first<W>(v, s.v + first * PITCH);
    for (int j = first_row(c, first) / STEP * STEP; j < c.Tq; j += STEP) {
        float x[2][4], dp[2][4];
        uint32_t p[4], ds[4];
        multiply_rows<T, W>(x, k, s.q + j * PITCH);
        multiply_rows<T, W>(dp, v, s.d + j * PITCH);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int row = j + i / 4 * 8 + lane % 4 * 2 + i % 2;
            weigh(x[i / 4][i % 4], dp[i / 4][i % 4], row >= from[i / 2 % 2] && row < c.Tq, c.scale_log2, s.lse[row],
                  s.delta[row]);
        }
        pack_weights<T>(p, x[0], x[1]);
        pack_weights<T>(ds, dp[0], dp[1]);
        add_rows<T, W>(dv, p, s.d + j * PITCH);
        add_rows<T, W>(dk, ds, s.q + j * PITCH);
    }
}

/* A query head comes to shared memory, where all warps of the block have done with the one before it. */
template <typename T, int W> MHA_DEVICE void next_head(const head_memory &s, const mha_cuda_small &c, int batch, int head)
{
    group_sync(0, blockDim.x);
    bring_head<T, W>(s.q, c.q, batch, head, c.Tq, c.D);
    bring_head<T, W>(s.d, c.dout, batch, head, c.Tq, c.E);
    describe_rows<T, W>(s, c, batch, head);
    pieces_come();
    group_sync(0, blockDim.x);
}

/* A key head of a sequence. With MORE there may be more warps than it has rows and keys for. */
template <typename T, int W, bool MORE> MHA_DEVICE void compute(const mha_cuda_small &c, int batch, int own)
{
    unsigned char *memory = dynamic_memory<16>();
    const head_memory s = memory_of<W>(c, memory);
    int first = threadIdx.x / 32 * STEP, rows = whole_steps(c.Tq);
    bring_head<T, W>(s.k, c.k, batch, own, c.Tk, c.D);
    bring_head<T, W>(s.v, c.v, batch, own, c.Tk, c.E);
    if (first < rows) {
        for (int head = own * c.group; head < (own + 1) * c.group; head++) {
            next_head<T, W>(s, c, batch, head);
            sum_rows<T, W>(s, c, batch, head, first);
        }
        return;
    }
    first -= rows;
    float dk[W / 8][4] = {}, dv[W / 8][4] = {};
    for (int head = own * c.group; head < (own + 1) * c.group; head++) {
        next_head<T, W>(s, c, batch, head);
        if (!MORE || first < c.Tk) add_keys<T, W>(dk, dv, s, c, first);
    }
    if (MORE && first >= c.Tk) return;
    if (is_any_lost(dk) || is_any_lost(dv)) {
        keys_carefully<T, W>(c, batch, own, first);
        return;
    }
    if (c.dk.data) put_rows<T, W>(c.dk, batch, own, first, c.Tk - first, dk, c.scale, c.scale, c.D);
    if (c.dv.data) put_rows<T, W>(c.dv, batch, own, first, c.Tk - first, dv, 1, 1, c.E);
}

template <typename T, int W> MHA_DEVICE void backward(const mha_cuda_small &c)
{
    let_next_start();
    wait_for_last();
    compute<T, W, false>(c, blockIdx.x / c.G, blockIdx.x % c.G);
}

/* The same where sequences are not alike. */
template <typename T, int W> MHA_DEVICE void backward_sequences(const mha_cuda_small &c)
{
    __shared__ lone s;
    int own = blockIdx.x % c.G;
    let_next_start();
    wait_for_last();
    if (c.count && *c.count == 0) return;
    if (threadIdx.x == 0) find_lone(s, c, blockIdx.x / c.G);
    __syncthreads();
    if (!s.is_here) return;
    clear_rows(s.c.dk, own, s.c.Tk, s.keys, c.D);
    clear_rows(s.c.dv, own, s.c.Tk, s.keys, c.E);
    for (int n = 0; n < c.group; n++) clear_rows(s.c.dq, own * c.group + n, s.c.Tq, s.padded, c.D);
    compute<T, W, true>(s.c, 0, own);
}

} // namespace

#define KERNEL(NAME, T, W, BLOCKS)                                                                          \
    extern "C" __global__ void __launch_bounds__(512, BLOCKS) NAME(const __grid_constant__ mha_cuda_small c) \
    {                                                                                                       \
        backward<T, W>(c);                                                                                  \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                    \
        NAME##_sequences(const __grid_constant__ mha_cuda_small c)                                          \
    {                                                                                                       \
        backward_sequences<T, W>(c);                                                                        \
    }

KERNEL(small_backward_bf16_16, __nv_bfloat16, 16, 2)
KERNEL(small_backward_bf16_32, __nv_bfloat16, 32, 1)
KERNEL(small_backward_f16_16, __half, 16, 2)
KERNEL(small_backward_f16_32, __half, 32, 1)
