/* Attention forward of narrow heads and short sequences, for bfloat16 and float16: small.cuh. A block has one query head, with its
 * keys and values in shared memory, a warp 16 of its rows, which go through 32 keys at a time: with more in registers, fewer blocks
 * would share a multiprocessor. The weights of a row are relative to a reference, its largest score so far, as in forward.cuh. */
#include "elements.cuh"
#include "small.cuh"

namespace
{

enum { KEYS = MHA_CUDA_SMALL_KEYS }; /* whose scores are in registers */

/* What a thread keeps of its two rows, r and r + 8 of its warp's 16. */
struct rows {
    int keys[2]; /* that it sees */
    float reference[2], sum[2];
};

/* Scores of keys from `first` on become weights; returns by how much the sums so far have to be multiplied. */
MHA_DEVICE void soften(float (&x)[KEYS / 8][4], rows &r, float (&by)[2], int first, float scale)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = -INFINITY, sum[2] = {0, 0};
        int own = r.keys[h] - first - (int)threadIdx.x % 4 * 2;
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            float &y = x[i / 2][2 * h + i % 2];
            if (i / 2 * 8 + i % 2 >= own) y = -INFINITY;
            top = fmaxf(top, y);
        }
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2)) * scale;
        by[h] = 1;
        if (top > r.reference[h] + 8) {
            by[h] = exp2_fast(r.reference[h] - top);
            r.reference[h] = top;
            r.sum[h] *= by[h];
        }
        float less = r.reference[h] == -INFINITY ? 0 : r.reference[h];
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) {
            float &y = x[i / 2][2 * h + i % 2];
            y = exp2_fast(fmaf(y, scale, -less));
            sum[i % 2] += y;
        }
        r.sum[h] += sum[0] + sum[1];
    }
}

/* lse of a row, which sees something or not. */
MHA_DEVICE void put_lse(const mha_cuda_small &c, int batch, int head, int row, bool sees, float lse)
{
    if (!sees) lse = -INFINITY;
    if (c.lse.data) ((float *)c.lse.data)[place(c.lse, batch, head, row, 0)] = lse;
    if (c.softmax.data) {
        float *to = (float *)c.softmax.data + place(c.softmax, batch, head, row, 0);
        to[0] = lse, to[c.softmax.stride[3]] = sees ? 1.0f : 0.0f;
    }
}

/* The 16 rows of a warp. Results may lie in place of Q, of which a row is read before it is written. */
template <typename T, int W>
__device__ __noinline__ void finish_carefully(const mha_cuda_small &c, int batch, int head, int first)
{
    for (int row = first; row < min(first + STEP, c.Tq); row++) {
        int keys = keys_seen(c, row);
        careful_sum<W> o = {{0}};
        careful_row<W> q = careful_load<T, W>(c.q, batch, head, row, c.D);
        careful_softmax s = soften_carefully<T, W>(c, batch, head, row, q);
        for (int j = 0; j < keys; j++) {
            careful_row<W> k = careful_load<T, W>(c.k, batch, head / c.group, j, c.D),
                           v = careful_load<T, W>(c.v, batch, head / c.group, j, c.E);
            careful_add(o, exp(careful_score((double)c.scale, q, k) - s.top) / s.sum, v);
        }
        careful_store<T>(c.out, batch, head, row, o, c.E);
        if (threadIdx.x % 32 == 0) put_lse(c, batch, head, row, keys > 0, (float)(s.top + log(s.sum)));
    }
}

/* The sums, divided, to the tensor; and the logarithms of the sums of exponentials. */
template <typename T, int W>
MHA_DEVICE void finish(const mha_cuda_small &c, int batch, int head, int first, const float (&o)[W / 8][4], const rows &r)
{
    int lane = threadIdx.x % 32;
    bool lost = false;
    float by[2], sum[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] = r.sum[h];
        sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
        sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
        by[h] = sum[h] > 0 ? 1 / sum[h] : 0;
        lost = lost || (r.keys[h] > 0 && !(sum[h] > 0 && sum[h] < INFINITY));
    }
    if (is_any_lost(o) || __any_sync(~0u, lost)) {
        finish_carefully<T, W>(c, batch, head, first);
        return;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = first + lane / 4 + 8 * h;
        if (lane % 4 == 0 && row < c.Tq)
            put_lse(c, batch, head, row, r.keys[h] > 0, (r.reference[h] + __log2f(sum[h])) * 0.6931471806f);
    }
    if (c.out.data) put_rows<T, W>(c.out, batch, head, first, c.Tq - first, o, by[0], by[1], c.E);
}

/* A head of a sequence. */
template <typename T, int W> MHA_DEVICE void compute(const mha_cuda_small &c, int batch, int head)
{
    unsigned char *memory = dynamic_memory<16>();
    enum { PITCH = width<W>::PITCH };
    uint32_t k = shared_address(memory), v = k + whole_steps(c.Tk) * PITCH, q = v + whole_steps(c.Tk) * PITCH;
    int lane = threadIdx.x % 32, first = threadIdx.x / 32 * STEP;
    bring_head<T, W>(q, c.q, batch, head, c.Tq, c.D);
    bring_head<T, W>(k, c.k, batch, head / c.group, c.Tk, c.D);
    bring_head<T, W>(v, c.v, batch, head / c.group, c.Tk, c.E);
    pieces_come();
    __syncthreads();
    if (first >= c.Tq) return;

    rows r = {{keys_seen(c, first + lane / 4), keys_seen(c, first + lane / 4 + 8)}, {-INFINITY, -INFINITY}, {0, 0}};
    int end = keys_seen(c, min(first + STEP, c.Tq) - 1); /* the last row sees the most */
    float o[W / 8][4] = {}, by[2];
    uint32_t a[width<W>::PARTS][4];
    load_first<W>(a, q + first * PITCH);
    for (int j = 0; j < end; j += KEYS) {
        float x[KEYS / 8][4] = {};
#pragma unroll
        for (int i = 0; i < KEYS / STEP; i++)
            if (j + i * STEP < end) {
                float both[2][4];
                multiply_rows<T, W>(both, a, k + (j + i * STEP) * PITCH);
#pragma unroll
                for (int n = 0; n < 8; n++) x[2 * i + n / 4][n % 4] = both[n / 4][n % 4];
            }
        soften(x, r, by, j, c.scale_log2);
#pragma unroll
        for (int i = 0; i < W / 8; i++) o[i][0] *= by[0], o[i][1] *= by[0], o[i][2] *= by[1], o[i][3] *= by[1];
#pragma unroll
        for (int i = 0; i < KEYS / STEP; i++)
            if (j + i * STEP < end) {
                uint32_t p[4];
                pack_weights<T>(p, x[2 * i], x[2 * i + 1]);
                add_rows<T, W>(o, p, v + (j + i * STEP) * PITCH);
            }
    }
    finish<T, W>(c, batch, head, first, o, r);
}

template <typename T, int W> MHA_DEVICE void forward(const mha_cuda_small &c)
{
    int heads = c.G * c.group;
    let_next_start();
    wait_for_last();
    compute<T, W>(c, blockIdx.x / heads, blockIdx.x % heads);
}

/* The same where sequences are not alike. */
template <typename T, int W> MHA_DEVICE void forward_sequences(const mha_cuda_small &c)
{
    __shared__ lone s;
    int heads = c.G * c.group, head = blockIdx.x % heads;
    let_next_start();
    wait_for_last();
    if (c.count && *c.count == 0) return;
    if (threadIdx.x == 0) find_lone(s, c, blockIdx.x / heads);
    __syncthreads();
    if (!s.is_here) return;
    clear_rows(s.c.out, head, s.c.Tq, s.padded, c.E);
    for (int row = s.c.Tq + threadIdx.x; row < s.padded; row += blockDim.x) put_lse(s.c, 0, head, row, false, 0);
    compute<T, W>(s.c, 0, head);
}

} // namespace

#define KERNEL(NAME, T, W, BLOCKS)                                                                          \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) NAME(const __grid_constant__ mha_cuda_small c) \
    {                                                                                                       \
        forward<T, W>(c);                                                                                   \
    }                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS)                                               \
        NAME##_sequences(const __grid_constant__ mha_cuda_small c)                                          \
    {                                                                                                       \
        forward_sequences<T, W>(c);                                                                         \
    }

KERNEL(small_forward_bf16_16, __nv_bfloat16, 16, 4)
KERNEL(small_forward_bf16_32, __nv_bfloat16, 32, 3)
KERNEL(small_forward_f16_16, __half, 16, 4)
KERNEL(small_forward_f16_32, __half, 32, 3)
