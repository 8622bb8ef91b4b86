/* Matrix products in float32 without tensor cores: c (M,N) = alpha a b + old + bias, factors of any type and strides.
 *
 * plain: a block of 256 threads, 16 lines of 16, computes a tile of SIZE rows and columns, SIZE/16 each per thread, in steps of 16
 * summed numbers. The next step is loaded from memory while this one is computed from shared memory. A sum is one chain of
 * fused multiply-adds in the order of K, whatever the tile: bits depend on the row and the column alone.
 *
 * few: a few rows of float32 factors along the summed axis, as fast as b comes from memory. One thread copies steps of both
 * factors into a ring; each of four warps has some rows, each lane a column. */
#include "hopper.cuh"
#include "result.cuh"

namespace
{

enum { THREADS = 256, DEPTH = 16 };

/* How a factor lies: float32 fours along the summed axis, along the other axis, or anyhow. */
enum side { ALONG, ACROSS, ANYHOW };

/* A factor as (lines, summed numbers). */
struct lines {
    const view &t;
    int64_t line, deep; /* strides */
    int count, depth;
};

template <int SIZE> struct stage {
    enum { PITCH = SIZE + 4 };
    float number[DEPTH][PITCH];
};

/* A thread's numbers of a step on their way to shared memory. */
template <int SIZE, side SIDE> struct carrier {
    enum { FOURS = SIZE * DEPTH / 4, EACH = (FOURS + THREADS - 1) / THREADS };
    float x[EACH][4];

    /* The line and depth of number i of four n. */
    static MHA_DEVICE int line_of(int n, int i)
    {
        return SIDE == ALONG ? n / (DEPTH / 4) : SIDE == ACROSS ? n % (SIZE / 4) * 4 + i : (n * 4 + i) % SIZE;
    }
    static MHA_DEVICE int depth_of(int n, int i)
    {
        return SIDE == ALONG ? n % (DEPTH / 4) * 4 + i : SIDE == ACROSS ? n / (SIZE / 4) : (n * 4 + i) / SIZE;
    }

    MHA_DEVICE void take(const lines &f, int first, int k)
    {
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            int n = threadIdx.x + e * THREADS;
            if (FOURS % THREADS && n >= FOURS) break;
            int line = first + line_of(n, 0), depth = k + depth_of(n, 0);
            bool whole = line + (SIDE == ACROSS ? 3 : 0) < f.count && depth + (SIDE == ALONG ? 3 : 0) < f.depth;
            if (SIDE != ANYHOW && whole) {
                float4 four = *(const float4 *)((const float *)f.t.data + line * f.line + depth * f.deep);
                x[e][0] = four.x, x[e][1] = four.y, x[e][2] = four.z, x[e][3] = four.w;
                continue;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int l = first + line_of(n, i), d = k + depth_of(n, i);
                x[e][i] = l < f.count && d < f.depth ? load(f.t, l * f.line + d * f.deep) : 0.0f;
            }
        }
    }

    MHA_DEVICE void put(stage<SIZE> &s) const
    {
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            int n = threadIdx.x + e * THREADS;
            if (FOURS % THREADS && n >= FOURS) break;
#pragma unroll
            for (int i = 0; i < 4; i++) s.number[depth_of(n, i)][line_of(n, i)] = x[e][i];
        }
    }
};

template <int SIZE, side A, side B> MHA_DEVICE void multiply(const product &c)
{
    enum { EACH = SIZE / 16, RUN = EACH < 4 ? EACH : 4 }; /* rows of a thread, and how many of them are neighbours */
    __shared__ stage<SIZE> a[2], b[2];
    lines left = {c.a, c.a.stride[0], c.a.stride[1], c.M, c.K}, right = {c.b, c.b.stride[1], c.b.stride[0], c.N, c.K};
    int row = blockIdx.x % c.row_tiles * SIZE, column = blockIdx.x / c.row_tiles * SIZE;
    int y = threadIdx.x / 16, x = threadIdx.x % 16;
    float sums[EACH][EACH];
    carrier<SIZE, A> next_a;
    carrier<SIZE, B> next_b;
#pragma unroll
    for (int i = 0; i < EACH * EACH; i++) sums[i / EACH][i % EACH] = 0;
    if (c.K) {
        next_a.take(left, row, 0), next_b.take(right, column, 0);
        next_a.put(a[0]), next_b.put(b[0]);
    }
    __syncthreads();
    for (int k = 0, now = 0; k < c.K; k += DEPTH, now ^= 1) {
        bool more = k + DEPTH < c.K;
        if (more) next_a.take(left, row, k + DEPTH), next_b.take(right, column, k + DEPTH);
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            float u[EACH], v[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                u[i] = a[now].number[d][i / RUN * 16 * RUN + y * RUN + i % RUN];
                v[i] = b[now].number[d][i / RUN * 16 * RUN + x * RUN + i % RUN];
            }
#pragma unroll
            for (int i = 0; i < EACH * EACH; i++)
                sums[i / EACH][i % EACH] = fmaf(u[i / EACH], v[i % EACH], sums[i / EACH][i % EACH]);
        }
        if (more) next_a.put(a[now ^ 1]), next_b.put(b[now ^ 1]);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH * EACH; i++) {
        int r = row + i / EACH / RUN * 16 * RUN + y * RUN + i / EACH % RUN;
        int s = column + i % EACH / RUN * 16 * RUN + x * RUN + i % EACH % RUN;
        if (r < c.M && s < c.N) put_number(c, r, s, sums[i / EACH][i % EACH]);
    }
}

/* ---- Few rows --------------------------------------------------------------------------------------------------- */

enum { FEW_WARPS = 4, FEW_STAGES = MHA_CUDA_FEW_STAGES, FEW_PANELS = MHA_CUDA_FEW_DEPTH / 32 };

struct few_memory {
    alignas(1024) unsigned char a[FEW_STAGES][FEW_PANELS][MHA_CUDA_FEW_ROWS * ROW_BYTES];
    alignas(1024) unsigned char b[FEW_STAGES][FEW_PANELS][MHA_CUDA_FEW_COLUMNS * ROW_BYTES];
    alignas(8) uint64_t full[FEW_STAGES], empty[FEW_STAGES];
};

/* Four numbers of a row of a panel. */
MHA_DEVICE float4 four_of(const unsigned char *panel, int row, int four)
{
    return *(const float4 *)(panel + row * ROW_BYTES + ((four ^ row % 8) << 4));
}

MHA_DEVICE void few_copy(few_memory &s, const product &c, int column)
{
    uint32_t stage = 0, round = 0;
    for (int k = 0; k < c.K; k += MHA_CUDA_FEW_DEPTH) {
        uint32_t full = shared_address(&s.full[stage]);
        barrier_wait(shared_address(&s.empty[stage]), round ^ 1);
        barrier_expect(full, FEW_PANELS * (c.lines + MHA_CUDA_FEW_COLUMNS) * ROW_BYTES);
        for (int p = 0; p < FEW_PANELS; p++) {
            copy_in(shared_address(s.b[stage][p]), &c.b_map, full, k + p * 32, column, 0, 0);
            copy_in(shared_address(s.a[stage][p]), &c.a_map, full, k + p * 32, 0, 0, 0);
        }
        if (++stage == FEW_STAGES) stage = 0, round ^= 1;
    }
}

template <int EACH> MHA_DEVICE void few_compute(few_memory &s, const product &c, int row, int column)
{
    int lane = threadIdx.x % 32;
    uint32_t stage = 0, round = 0;
    float sums[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) sums[e] = 0;
    for (int k = 0; k < c.K; k += MHA_CUDA_FEW_DEPTH) {
        int steps = (min(c.K - k, (int)MHA_CUDA_FEW_DEPTH) + DEPTH - 1) / DEPTH; /* as many zeros as in other kernels */
        barrier_wait(shared_address(&s.full[stage]), round);
#pragma unroll
        for (int step = 0; step < MHA_CUDA_FEW_DEPTH / DEPTH; step++) {
            if (step >= steps) break;
#pragma unroll
            for (int n = step * DEPTH / 4; n < (step + 1) * DEPTH / 4; n++) {
                float4 w = four_of(s.b[stage][n / 8], lane, n % 8);
#pragma unroll
                for (int e = 0; e < EACH; e++) {
                    float4 x = four_of(s.a[stage][n / 8], row + e, n % 8);
                    sums[e] = fmaf(x.x, w.x, sums[e]);
                    sums[e] = fmaf(x.y, w.y, sums[e]);
                    sums[e] = fmaf(x.z, w.z, sums[e]);
                    sums[e] = fmaf(x.w, w.w, sums[e]);
                }
            }
        }
        finish_loads();
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(&s.empty[stage]));
        if (++stage == FEW_STAGES) stage = 0, round ^= 1;
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (row + e < c.M && column + lane < c.N) put_number(c, row + e, column + lane, sums[e]);
}

template <int EACH> MHA_DEVICE void multiply_few(const product &c)
{
    unsigned char *memory = dynamic_memory<1024>();
    auto &s = *(few_memory *)memory;
    int warp = threadIdx.x / 32, column = blockIdx.x * MHA_CUDA_FEW_COLUMNS;
    if (threadIdx.x == 0) {
        for (int n = 0; n < FEW_STAGES; n++) {
            barrier_make(shared_address(&s.full[n]), 1);
            barrier_make(shared_address(&s.empty[n]), (c.M + EACH - 1) / EACH);
        }
        barriers_made();
    }
    __syncthreads();
    if (warp == FEW_WARPS) {
        if (threadIdx.x % 32 == 0) few_copy(s, c, column);
    } else if (warp * EACH < c.M) few_compute<EACH>(s, c, warp * EACH, column);
}

} // namespace

/* plain_SIZE_SIDES: a letter for each factor: n along the summed axis, t along the other one, x anyhow. */
#define PLAIN(SIZE, SIDES, A, B)                                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS, SIZE == 128 && A != ANYHOW ? 2 : 1) plain_##SIZE##_##SIDES(const __grid_constant__ mha_cuda_product c) \
    {                                                                                                              \
        multiply<SIZE, A, B>(c);                                                                                   \
    }
#define PLAINS(SIZE)                                                                                               \
    PLAIN(SIZE, nn, ALONG, ALONG)                                                                                  \
    PLAIN(SIZE, nt, ALONG, ACROSS)                                                                                 \
    PLAIN(SIZE, tn, ACROSS, ALONG)                                                                                 \
    PLAIN(SIZE, tt, ACROSS, ACROSS)                                                                                \
    PLAIN(SIZE, xx, ANYHOW, ANYHOW)

PLAINS(128)
PLAINS(64)
PLAINS(32)

/* few_ROWS: rows of a warp. */
#define FEW(EACH)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(FEW_WARPS * 32 + 32) few_##EACH(const __grid_constant__ mha_cuda_product c) \
    {                                                                                                              \
        multiply_few<EACH>(c);                                                                                     \
    }

FEW(1)
FEW(4)
