/* Matrix products on tensor cores: c (M,N) = alpha a b + old + bias for bfloat16 or float16 factors, sums in float32.
 *
 * A block computes tiles of ROWS rows and COLUMNS columns. One warp copies steps of 64 summed numbers of both factors into a
 * ring; warpgroups multiply, 64 rows each. A factor may lie along the summed axis or along the other one, as the layer's
 * forward and backward products need it; the tensor cores read both. Every sum goes through K in the same order whatever the
 * tile, so that the bits of a number depend on its row and its column alone. */
#ifndef MHA_CUDA_PRODUCT_CUH
#define MHA_CUDA_PRODUCT_CUH

#include "hopper.cuh"
#include "result.cuh"

namespace
{

enum { GROUP = 128, DEPTH = MHA_CUDA_PRODUCT_DEPTH, TOGETHER = 8 };
enum { SLICE = 16, PITCH = SLICE + 4 }; /* columns of sums that leave one by one */

template <typename T, int ROWS, int COLUMNS, int STAGES, int PANELS> struct shared_memory {
    enum { BYTES = PANELS ? PANELS * MHA_CUDA_PRODUCT_PANEL : MHA_CUDA_PRODUCT_ROOM };
    alignas(1024) T a[STAGES][ROWS * DEPTH];
    alignas(1024) T b[STAGES][COLUMNS * DEPTH];
    alignas(1024) unsigned char room[ROWS / 16][BYTES];
    alignas(8) uint64_t full[STAGES], empty[STAGES];
};

struct tile {
    int row, column;
};

/* Tiles of TOGETHER lines of rows go through the columns together, so that they share columns in the cache. */
template <int ROWS, int COLUMNS> MHA_DEVICE tile tile_of(const product &c, int n)
{
    int stripe = TOGETHER * c.column_tiles, first = n / stripe * TOGETHER, rest = n % stripe;
    int high = min(TOGETHER, c.row_tiles - first);
    return {(first + rest % high) * ROWS, rest / high * COLUMNS};
}

/* `size` lines of a factor, from `line` on, and DEPTH summed numbers from k on. */
template <int SIZE, bool TURNED>
MHA_DEVICE void copy_factor(uint32_t to, const CUtensorMap *map, uint32_t barrier, int line, int k)
{
    if (!TURNED) copy_in(to, map, barrier, k, line, 0, 0);
    else
        for (int panel = 0; panel < SIZE / PANEL; panel++)
            copy_in(to + panel * DEPTH * ROW_BYTES, map, barrier, line + panel * PANEL, k, 0, 0);
}

template <typename T, int ROWS, int COLUMNS, int STAGES, int PANELS, bool A, bool B>
MHA_DEVICE void copy_tiles(shared_memory<T, ROWS, COLUMNS, STAGES, PANELS> &s, const product &c)
{
    uint32_t stage = 0, round = 0;
    int bytes = ((A ? ROWS : c.lines) + COLUMNS) * DEPTH * 2;
    for (int n = blockIdx.x; n < c.row_tiles * c.column_tiles; n += gridDim.x) {
        tile t = tile_of<ROWS, COLUMNS>(c, n);
        for (int k = 0; k < c.K; k += DEPTH) {
            uint32_t full = shared_address(&s.full[stage]);
            barrier_wait(shared_address(&s.empty[stage]), round ^ 1);
            barrier_expect(full, bytes);
            copy_factor<COLUMNS, B>(shared_address(s.b[stage]), &c.b_map, full, t.column, k);
            copy_factor<ROWS, A>(shared_address(s.a[stage]), &c.a_map, full, t.row, k);
            if (++stage == STAGES) stage = 0, round ^= 1;
        }
    }
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

/* The sums of a warp, 16 rows, to where they belong: a slice of columns at a time through shared memory, so that a row's
 * numbers are written together. */
template <int COLUMNS>
MHA_DEVICE void put_slices(const product &c, float *room, const float (&sums)[COLUMNS / 2], int row, int column)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int slice = 0; slice < COLUMNS / SLICE; slice++) {
        float *to = room + lane / 4 * PITCH + lane % 4 * 2;
        __syncwarp();
#pragma unroll
        for (int i = 0; i < SLICE / 2; i += 2)
            *(float2 *)(to + i / 2 % 2 * 8 * PITCH + i / 4 * 8) =
                make_float2(sums[slice * SLICE / 2 + i], sums[slice * SLICE / 2 + i + 1]);
        __syncwarp();
        int j = column + slice * SLICE + lane % SLICE;
#pragma unroll 1
        for (int r = lane / SLICE; r < 16; r += 32 / SLICE)
            if (row + r < c.M && j < c.N) put_number(c, row + r, j, room[r * PITCH + lane % SLICE]);
    }
}

/* Two neighbours of row `row` of a panel in shared memory: numbers 2 * lane % 4 of eight, the eights counted by j. */
template <typename OUT> struct panel_of {
    enum { WIDE = 64 };
    static MHA_DEVICE void put(uint32_t panel, int row, int j, int pair, float x, float y)
    {
        uint32_t at = panel + row * ROW_BYTES + ((j ^ row % 8) << 4) + pair * 4;
        put_shared(at, pack<OUT>(x, y));
    }
};
template <> struct panel_of<float> {
    enum { WIDE = 32 };
    static MHA_DEVICE void put(uint32_t panel, int row, int j, int pair, float x, float y)
    {
        uint32_t at = panel + row * ROW_BYTES + (((j * 2 + pair / 2) ^ row % 8) << 4) + pair % 2 * 8;
        put_shared_pair(at, x, y);
    }
};

/* The same through the copy engine, a panel of 128 bytes of each row at a time. OLD: onto what is there. */
template <typename OUT, bool OLD, int COLUMNS, int PANELS>
MHA_DEVICE void put_panels(const product &c, uint32_t room, const float (&sums)[COLUMNS / 2], int row, int column)
{
    enum { WIDE = panel_of<OUT>::WIDE };
    int lane = threadIdx.x % 32, pair = lane % 4;
    const float *bias = (const float *)c.bias.data;
#pragma unroll
    for (int p = 0; p < COLUMNS / WIDE; p++) {
        uint32_t to = room + p % PANELS * MHA_CUDA_PRODUCT_PANEL;
        if (lane == 0) copies_read_but<PANELS - 1>();
        __syncwarp();
#pragma unroll
        for (int j = 0; j < WIDE / 8; j++) {
            int at = column + p * WIDE + j * 8 + pair * 2;
            bool first = at < c.N, second = at + 1 < c.N;
            float b0 = bias && first ? bias[at] : 0.0f, b1 = bias && second ? bias[at + 1] : 0.0f;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int i = (p * WIDE / 8 + j) * 4 + h * 2, r = lane / 4 + h * 8;
                float x = __fmul_rn(sums[i], c.alpha), y = __fmul_rn(sums[i + 1], c.alpha);
                if (OLD && row + r < c.M) {
                    const float *old = (const float *)c.old.data + (row + r) * c.old.stride[0] + at;
                    if (first) x = __fadd_rn(x, old[0]);
                    if (second) y = __fadd_rn(y, old[1]);
                }
                if (bias) x = __fadd_rn(x, b0), y = __fadd_rn(y, b1);
                panel_of<OUT>::put(to, r, j, pair, x, y);
            }
        }
        publish_shared();
        __syncwarp();
        if (lane == 0) {
            if (row < c.M && column + p * WIDE < c.N) copy_out(&c.c_map, to, column + p * WIDE, row, 0, 0);
            copies_commit();
        }
    }
}

template <typename T, int COLUMNS, int PANELS>
MHA_DEVICE void put_sums(const product &c, void *room, const float (&sums)[COLUMNS / 2], int row, int column)
{
    if constexpr (PANELS > 0) {
        if (c.quick) {
            uint32_t to = shared_address(room);
            if (c.old.data) put_panels<float, true, COLUMNS, PANELS>(c, to, sums, row, column);
            else if (c.c.type == FLOAT32) put_panels<float, false, COLUMNS, PANELS>(c, to, sums, row, column);
            else put_panels<T, false, COLUMNS, PANELS>(c, to, sums, row, column);
            return;
        }
    }
    put_slices<COLUMNS>(c, (float *)room, sums, row, column);
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------ */

template <typename T, int ROWS, int COLUMNS, int STAGES, int PANELS, bool A, bool B>
MHA_DEVICE void compute_tiles(shared_memory<T, ROWS, COLUMNS, STAGES, PANELS> &s, const product &c, int who)
{
    int thread = threadIdx.x % GROUP, warp = thread / 32;
    uint32_t stage = 0, round = 0;
    float sums[COLUMNS / 2];
    for (int n = blockIdx.x; n < c.row_tiles * c.column_tiles; n += gridDim.x) {
        tile t = tile_of<ROWS, COLUMNS>(c, n);
        uint32_t before = stage;
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) sums[i] = 0;
        touch(sums);
        for (int k = 0; k < c.K; k += DEPTH) {
            barrier_wait(shared_address(&s.full[stage]), round);
            /* 64 rows are 64 lines of a panel, or a panel of their own. */
            uint64_t a = factor(shared_address(s.a[stage]) + who * 64 * ROW_BYTES, DEPTH * ROW_BYTES);
            uint64_t b = factor(shared_address(s.b[stage]), DEPTH * ROW_BYTES);
            products_begin();
#pragma unroll
            for (int i = 0; i < DEPTH / 16; i++)
                product_any<T, COLUMNS / 2, A, B>::run(sums, a + i * (A ? 16 * ROW_BYTES >> 4 : 2),
                                                       b + i * (B ? 16 * ROW_BYTES >> 4 : 2));
            products_commit();
            products_wait<1>();
            if (k > 0 && thread == 0) barrier_arrive(shared_address(&s.empty[before]));
            before = stage;
            if (++stage == STAGES) stage = 0, round ^= 1;
        }
        products_wait<0>();
        touch(sums);
        if (c.K > 0 && thread == 0) barrier_arrive(shared_address(&s.empty[before]));
        put_sums<T, COLUMNS, PANELS>(c, s.room[who * 4 + warp], sums, t.row + who * 64 + warp * 16, t.column);
    }
    if (PANELS > 0 && thread % 32 == 0) copies_wait();
}

template <typename T, int ROWS, int COLUMNS, int STAGES, int PANELS, bool A, bool B> MHA_DEVICE void multiply(const product &c)
{
    enum { GROUPS = ROWS / 64 };
    unsigned char *memory = dynamic_memory<1024>();
    auto &s = *(shared_memory<T, ROWS, COLUMNS, STAGES, PANELS> *)memory;
    if (threadIdx.x == 0) {
        for (int n = 0; n < STAGES; n++) {
            barrier_make(shared_address(&s.full[n]), 1);
            barrier_make(shared_address(&s.empty[n]), GROUPS);
        }
        barriers_made();
    }
    __syncthreads();
    int group = threadIdx.x / GROUP;
    if (group < GROUPS) compute_tiles<T, ROWS, COLUMNS, STAGES, PANELS, A, B>(s, c, group);
    else if (threadIdx.x == GROUPS * GROUP) copy_tiles<T, ROWS, COLUMNS, STAGES, PANELS, A, B>(s, c);
}

} // namespace

/* product_TYPE_COLUMNS_SIDES: SIDES says for each factor whether it lies along the summed axis (n) or the other one (t). */
#define PRODUCT(NAME, T, ROWS, COLUMNS, STAGES, PANELS, BLOCKS, SIDES, A, B)                                       \
    extern "C" __global__ void __launch_bounds__(ROWS * 2 + 32, BLOCKS)                                            \
        NAME##_##COLUMNS##_##SIDES(const __grid_constant__ mha_cuda_product c)                                     \
    {                                                                                                              \
        multiply<T, ROWS, COLUMNS, STAGES, PANELS, A, B>(c);                                                       \
    }
#define PRODUCTS(NAME, T, ROWS, COLUMNS, STAGES, PANELS, BLOCKS)                                                   \
    PRODUCT(NAME, T, ROWS, COLUMNS, STAGES, PANELS, BLOCKS, nn, false, false)                                      \
    PRODUCT(NAME, T, ROWS, COLUMNS, STAGES, PANELS, BLOCKS, nt, false, true)                                       \
    PRODUCT(NAME, T, ROWS, COLUMNS, STAGES, PANELS, BLOCKS, tn, true, false)                                       \
    PRODUCT(NAME, T, ROWS, COLUMNS, STAGES, PANELS, BLOCKS, tt, true, true)

#endif
