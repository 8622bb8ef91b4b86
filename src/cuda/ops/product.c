/* Calls for matrix products: on tensor cores for two factors of the same 16-bit type, otherwise in float32. A factor that the
 * copy engine cannot read, because of its strides, is copied first. So types alone decide how a number is computed; the tiles
 * depend on sizes, but a number's bits do not depend on the tiles. */
#include "cuda/kernels/product.h"
#include "core/arena.h"
#include "cuda/ops/ops.h"
#include "cuda/kernels/ops.h"

/* A factor as (lines, summed numbers): how it lies. */
typedef struct factor {
    mha_tensor t;      /* (lines,K) */
    bool along, fours; /* along the summed axis, otherwise along the other one; in fours of float32 */
    bool engine;       /* the copy engine can read it */
} factor;

static bool is_multiple(int64_t stride, int64_t size, int64_t of)
{
    return size < 2 || (stride > 0 && stride % of == 0);
}

static factor factor_of(mha_tensor t)
{
    bool aligned = (uintptr_t)t.data % 16 == 0, half = t.type == MHA_BFLOAT16 || t.type == MHA_FLOAT16;
    bool along = t.stride[1] == 1 || t.size[1] < 2, across = t.stride[0] == 1 || t.size[0] < 2;
    bool lines = is_multiple(t.stride[0], t.size[0], half ? 8 : 4);
    bool deep = is_multiple(t.stride[1], t.size[1], half ? 8 : 4);
    bool n = along && lines && aligned, c = across && deep && aligned;
    bool near = (n ? t.stride[0] : t.stride[1]) < INT64_C(1) << 38; /* the engine counts bytes to 2^40 */
    return (factor){.t = t, .along = n, .fours = (n || c) && t.type == MHA_FLOAT32, .engine = (n || c) && half && near};
}

/* The kernels of a family, in the order of kernels.def, are followed by those of the other sides. */
static int side_of(factor a, factor b) { return (a.along ? 0 : 2) + (b.along ? 0 : 1); }

static int32_t up(int64_t count, int64_t size) { return (int32_t)((count + size - 1) / size); }

static mha_status map_factor(mha_context *ctx, CUtensorMap *map, factor f, int lines)
{
    mha_tensor t = {f.t.data, f.t.type, 4, {1, 1, f.t.size[0], f.t.size[1]}, {0, 0, f.t.stride[0], 1}};
    if (f.along) return mha_cuda_map(ctx, map, t, lines);
    t.size[2] = f.t.size[1], t.size[3] = f.t.size[0], t.stride[2] = f.t.stride[1];
    return mha_cuda_map(ctx, map, t, MHA_CUDA_PRODUCT_DEPTH);
}

/* ---- Tiles ------------------------------------------------------------------------------------------------------ */

/* Tiles on tensor cores (product.h), those for few rows behind the others. The kernels of a type follow each other, four sides of each
 * tile and one of each tile for few rows. */
enum { TILES_ALL = 4, TILES_FEW_ROWS = 3, TILE_KERNELS = 4 * TILES_ALL + TILES_FEW_ROWS };

typedef struct tile {
    int rows, columns, threads;
    int blocks;    /* of a multiprocessor */
    size_t shared; /* bytes */
} tile;

/* Stages of both factors, room for results, and barriers: shared_memory of product.cuh. */
#define SHARED(rows, columns, stages, panels)                                         \
    ((size_t)(stages) * (((rows) + (columns)) * MHA_CUDA_PRODUCT_DEPTH * 2 + 2 * 8) + \
     (size_t)(rows) / 16 * ((panels) ? (panels)*MHA_CUDA_PRODUCT_PANEL : MHA_CUDA_PRODUCT_ROOM))

static tile tile_at(int n)
{
    static const tile tiles[] = {
#define ROW(rows, columns, stages, panels, blocks) \
    {rows, columns, 2 * (rows) + 32, blocks, (SHARED(rows, columns, stages, panels) + 1023) / 1024 * 1024},
        MHA_CUDA_TILES(ROW) MHA_CUDA_ROW_TILES(ROW)
#undef ROW
    };
    return tiles[n];
}

size_t mha_cuda_product_shared(mha_cuda_kernel kernel)
{
    enum { BARRIERS = 16, EACH = 4 };
    int n = (int)kernel - MHA_CUDA_K_product_bf16_64_nn;
    if (kernel == MHA_CUDA_K_few_1 || kernel == MHA_CUDA_K_few_4)
        return (size_t)MHA_CUDA_FEW_STAGES *
               ((MHA_CUDA_FEW_ROWS + MHA_CUDA_FEW_COLUMNS) * MHA_CUDA_FEW_DEPTH * EACH + BARRIERS);
    if (n < 0 || n >= 2 * TILE_KERNELS) return 0;
    n %= TILE_KERNELS;
    return tile_at(n < 4 * TILES_ALL ? n / 4 : n - 3 * TILES_ALL).shared;
}

static mha_status launch(mha_context *ctx, const mha_cuda_product *p, int kernel, int64_t blocks, int threads)
{
    mha_cuda_kernel k = (mha_cuda_kernel)kernel;
    mha_cuda_launch l = {k, blocks, threads, mha_cuda_product_shared(k)};
    return mha_cuda_start(ctx, &l, p);
}

/* ---- Tensor cores ----------------------------------------------------------------------------------------------- */

/* The tile that should take least time: how often the multiprocessors compute one, times its columns, times its depth and what
 * its results take, which another block's products hide where there are two. Rates, in percent, and ends are estimates. */
static int choose_tile(const mha_cuda_device *d, const mha_cuda_product *p)
{
    static const int rates[TILES_ALL] = {60, 90, 97, 100}, ends[TILES_ALL] = {64, 64, 160, 160};
    int best = 0;
    double least = 0;
    for (int n = 0; n < TILES_ALL; n++) {
        tile t = tile_at(n);
        int64_t tiles = (int64_t)up(p->M, t.rows) * up(p->N, t.columns), times = up(tiles, d->processors);
        double cost = (double)times * t.columns * ((double)p->K + ends[n]) / rates[n];
        if (!n || cost <= least) best = n, least = cost;
    }
    return best;
}

/* The same for few rows, where b's way from memory takes the time. */
static int choose_row_tile(const mha_cuda_device *d, const mha_cuda_product *p)
{
    int best = 0;
    int64_t least = 0;
    for (int n = 0; n < TILES_FEW_ROWS; n++) {
        int columns = tile_at(TILES_ALL + n).columns;
        int64_t cost = (int64_t)up(up(p->N, columns), d->processors) * columns;
        if (!n || cost <= least) best = n, least = cost;
    }
    return best;
}

/* Whether results can leave through the copy engine. */
static bool is_quick(const mha_cuda_product *p, mha_type type)
{
    const mha_cuda_view *c = &p->c, *old = &p->old, *bias = &p->bias;
    int64_t size = (int64_t)mha_type_size((mha_type)c->type), bytes = c->stride[0] * size;
    if (c->stride[1] != 1 || (uintptr_t)c->data % 16 || (c->type != MHA_FLOAT32 && c->type != (int32_t)type))
        return false;
    if (c->size[0] > 1 && (bytes <= 0 || bytes % 16 || bytes >= INT64_C(1) << 40)) return false;
    if (bias->data && (bias->type != MHA_FLOAT32 || bias->stride[0] != 1)) return false;
    return !old->data || (old->type == MHA_FLOAT32 && c->type == MHA_FLOAT32 && old->stride[1] == 1);
}

static mha_status start_engine(mha_context *ctx, mha_cuda_product *p, factor a, factor b)
{
    enum { FEW = 64, PANEL_ROWS = 16 };
    const mha_cuda_device *d = mha_cuda_of(ctx);
    int side = side_of(a, b), kernel = MHA_CUDA_K_product_bf16_64_nn;
    bool few_rows = p->M <= FEW && !side;
    int n = few_rows ? TILES_ALL + choose_row_tile(d, p) : choose_tile(d, p);
    if (a.t.type == MHA_FLOAT16) kernel += TILE_KERNELS;
    kernel += few_rows ? 3 * TILES_ALL + n : 4 * n + side;
    tile t = tile_at(n);
    p->lines = few_rows ? up(p->M, 8) * 8 : t.rows;
    p->quick = !few_rows && is_quick(p, a.t.type);
    TRY(map_factor(ctx, &p->a_map, a, p->lines));
    TRY(map_factor(ctx, &p->b_map, b, t.columns));
    if (p->quick) {
        mha_tensor c = {p->c.data, (mha_type)p->c.type, 4, {1, 1, p->M, p->N}, {0, 0, p->c.stride[0], 1}};
        TRY(mha_cuda_map(ctx, &p->c_map, c, PANEL_ROWS));
    }
    p->row_tiles = up(p->M, t.rows), p->column_tiles = up(p->N, t.columns);
    int64_t tiles = (int64_t)p->row_tiles * p->column_tiles, most = (int64_t)d->processors * t.blocks;
    return launch(ctx, p, kernel, tiles < most ? tiles : most, t.threads);
}

/* ---- Float32 ---------------------------------------------------------------------------------------------------- */

/* A few rows, of factors that the copy engine can read. */
static bool is_few(const mha_cuda_product *p, factor a, factor b)
{
    int64_t far = INT64_C(1) << 37;
    bool near = a.t.stride[0] < far && b.t.stride[0] < far;
    return p->M <= MHA_CUDA_FEW_ROWS && a.fours && b.fours && a.along && b.along && near && p->K;
}

static mha_status start_few(mha_context *ctx, mha_cuda_product *p, factor a, factor b)
{
    enum { FEWEST = 4 };
    p->lines = p->M <= FEWEST ? FEWEST : MHA_CUDA_FEW_ROWS;
    p->row_tiles = 1, p->column_tiles = up(p->N, MHA_CUDA_FEW_COLUMNS);
    TRY(map_factor(ctx, &p->a_map, a, p->lines));
    TRY(map_factor(ctx, &p->b_map, b, MHA_CUDA_FEW_COLUMNS));
    return launch(ctx, p, p->M <= FEWEST ? MHA_CUDA_K_few_1 : MHA_CUDA_K_few_4, p->column_tiles, MHA_CUDA_FEW_THREADS);
}

static mha_status start_plain(mha_context *ctx, mha_cuda_product *p, factor a, factor b)
{
    enum { SIZES = 3, ANYHOW = 4, SIDES = 5 };
    static const int sizes[SIZES] = {128, 64, 32}, rates[SIZES] = {100, 60, 25}; /* percent, estimates */
    const mha_cuda_device *d = mha_cuda_of(ctx);
    int best = 0, side = a.fours && b.fours ? side_of(a, b) : ANYHOW;
    double least = 0;
    if (is_few(p, a, b)) return start_few(ctx, p, a, b);
    for (int n = 0; n < SIZES; n++) {
        int64_t tiles = (int64_t)up(p->M, sizes[n]) * up(p->N, sizes[n]);
        double cost = (double)up(tiles, d->processors) * sizes[n] * sizes[n] / rates[n];
        if (!n || cost < least) best = n, least = cost;
    }
    p->row_tiles = up(p->M, sizes[best]), p->column_tiles = up(p->N, sizes[best]);
    return launch(ctx, p, MHA_CUDA_K_plain_128_nn + best * SIDES + side, (int64_t)p->row_tiles * p->column_tiles,
                  MHA_CUDA_THREADS);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

static mha_status check_sizes(mha_context *ctx, mha_tensor c, int64_t K)
{
    enum { LEAST = 32 };
    int64_t tiles = mha_arena_times((c.size[0] + LEAST - 1) / LEAST, (c.size[1] + LEAST - 1) / LEAST);
    if (c.size[0] <= INT32_MAX && c.size[1] <= INT32_MAX && K <= INT32_MAX && tiles <= INT32_MAX) return MHA_OK;
    return mha_fail(ctx, MHA_UNSUPPORTED, "c: products of such sizes are not supported on cuda");
}

/* Scratch of a product: what is not needed is NULL. */
typedef struct room {
    float *sums; /* (M,N), before the activation */
    void *a, *b; /* dense copies (lines,K) with rows of whole 16 bytes */
} room;

static int64_t pitch_of(mha_tensor t) { return (t.size[1] + 7) / 8 * 8; }

static room lay_out(mha_arena *arena, mha_tensor c, factor a, factor b, bool engine, bool curved)
{
    room r = {NULL, NULL, NULL};
    if (curved) MHA_TAKE(arena, r.sums, mha_element_count(c));
    if (engine && !a.engine) r.a = mha_arena_take(arena, mha_arena_times(a.t.size[0], pitch_of(a.t)), sizeof(uint16_t));
    if (engine && !b.engine) r.b = mha_arena_take(arena, mha_arena_times(b.t.size[0], pitch_of(b.t)), sizeof(uint16_t));
    return r;
}

/* A factor that the copy engine can read: itself, or a copy. */
static mha_status repack(mha_context *ctx, factor *f, void *copy)
{
    if (!copy) return MHA_OK;
    mha_tensor from = f->t;
    f->t = mha_tensor_2d(copy, from.type, from.size[0], from.size[1]);
    f->t.stride[0] = pitch_of(from);
    f->along = true;
    return mha_cuda_copy_tensor(ctx, f->t, from, false);
}

static mha_status multiply(mha_context *ctx, mha_tensor c, factor a, factor b, const mha_matmul_options *o, bool engine,
                           const room *r)
{
    mha_tensor to = r->sums ? mha_tensor_2d(r->sums, MHA_FLOAT32, c.size[0], c.size[1]) : c, none = MHA_NO_TENSOR;
    TRY(repack(ctx, &a, r->a));
    TRY(repack(ctx, &b, r->b));
    mha_cuda_product p = {.a = mha_cuda_view_of(a.t),
                          .b = mha_cuda_view_of(mha_tensor_swap(b.t, 0, 1)),
                          .c = mha_cuda_view_of(to),
                          .old = mha_cuda_view_of(o->accumulate ? c : none),
                          .bias = mha_cuda_view_of(o->bias),
                          .alpha = o->alpha,
                          .M = (int32_t)c.size[0],
                          .N = (int32_t)c.size[1],
                          .K = (int32_t)a.t.size[1]};
    TRY(engine ? start_engine(ctx, &p, a, b) : start_plain(ctx, &p, a, b));
    if (!r->sums) return MHA_OK;
    mha_cuda_activation end = {
        .z = r->sums, .count = mha_element_count(c), .to = mha_cuda_view_of(c), .activation = (int32_t)o->activation};
    mha_cuda_run_each(ctx, MHA_CUDA_K_activate_result, &end, end.count);
    return mha_cuda_op_finish(ctx);
}

mha_status mha_cuda_op_matmul(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor b,
                              const mha_matmul_options *options)
{
    factor left = factor_of(a), right = factor_of(mha_tensor_swap(b, 0, 1));
    bool engine = a.type == b.type && a.type != MHA_FLOAT32 && a.size[1] > 0,
         curved = options->activation != MHA_LINEAR;
    mha_arena measure = {0}, arena = {0};
    if (!mha_element_count(c)) return MHA_OK;
    TRY(check_sizes(ctx, c, a.size[1]));
    lay_out(&measure, c, left, right, engine, curved);
    if (measure.too_large) return mha_fail(ctx, MHA_TOO_LARGE, "a, b: copies of them do not fit memory");
    TRY(mha_cuda_scratch_for(ctx, (int64_t)measure.used, 1, &arena.base));
    if (ctx->rehearsing) return MHA_OK;
    room r = lay_out(&arena, c, left, right, engine, curved);
    TRY(mha_cuda_enter(ctx));
    mha_status status = multiply(ctx, c, left, right, options, engine, &r);
    mha_cuda_leave(ctx);
    return status;
}
