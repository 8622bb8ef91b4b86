/* Packing: rows of a and columns of b as the kernels or an engine want them, for a piece at work or once for many calls. */
#include "cpu/matmul/matmul.h"

enum { LINES = 16 }; /* of columns or rows that are widened at a time */

enum { HEADER = MHA_ALIGNMENT };

const mha_engine *mha_matmul_engine(const mha_context *ctx, mha_type a, mha_type b, int64_t K)
{
    return a == MHA_BFLOAT16 && b == MHA_BFLOAT16 && K ? ctx->engine : NULL;
}

/* float32 is packed as it lies if one of the strides is 1; all else is widened line by line before. */
void mha_panels_pack(const mha_kernels *kernels, float *to, bool left, mha_tensor t, int64_t first, int64_t n,
                     int64_t k, int64_t depth, float *stage)
{
    int64_t width = left ? kernels->panel_rows : kernels->panel_cols, pitch = width * depth;
    bool along = t.stride[1] == 1 || t.stride[0] != 1;
    if (t.type == MHA_FLOAT32 && (t.stride[0] == 1 || t.stride[1] == 1)) {
        kernels->gemm_pack(to, left, pitch, mha_cell(t, first, k), t.stride[along ? 0 : 1], along, depth, n);
    } else if (along) {
        for (int64_t i = 0; i < n; i += width) {
            int64_t lines = mha_smaller(width, n - i);
            for (int64_t u = 0; u < lines; u++)
                mha_row_load(kernels, stage + u * depth, mha_cell(t, first + i + u, k), t.type, t.stride[1], depth);
            kernels->gemm_pack(to + i * depth, left, pitch, stage, depth, true, depth, lines);
        }
    } else {
        for (int64_t i = 0; i < depth; i += LINES) {
            int64_t lines = mha_smaller(LINES, depth - i);
            for (int64_t u = 0; u < lines; u++)
                mha_row_load(kernels, stage + u * n, mha_cell(t, first, k + i + u), t.type, 1, n);
            kernels->gemm_pack(to + i * width, left, pitch, stage, n, false, lines, n);
        }
    }
}

void mha_factor_pack(const mha_engine *engine, uint16_t *to, bool left, mha_tensor t, int64_t first, int64_t n,
                     int64_t k, int64_t depth, float *stage)
{
    bool along = t.stride[1] == 1 || t.stride[0] != 1;
    const uint16_t *from = mha_cell(t, first, k);
    int64_t ldf = t.stride[along ? 0 : 1];
    if (t.stride[0] != 1 && t.stride[1] != 1) {
        uint16_t *room = (uint16_t *)stage;
        for (int64_t i = 0; i < n; i++)
            for (int64_t u = 0; u < depth; u++) room[i * depth + u] = *(const uint16_t *)mha_cell(t, first + i, k + u);
        from = room;
        ldf = depth;
    }
    (left ? engine->pack_left : engine->pack_right)(to, from, ldf, along, n, depth);
}

void mha_units_pack(const mha_engine *engine, uint16_t *to, mha_tensor columns, int64_t first, int64_t n, int64_t k,
                    int64_t depth, float *stage)
{
    for (int64_t u = 0; u < n; u += MHA_MATMUL_UNIT, to += mha_engine_size(MHA_MATMUL_UNIT, depth))
        mha_factor_pack(engine, to, false, columns, first + u, mha_smaller(MHA_MATMUL_UNIT, n - u), k, depth, stage);
}

int64_t mha_units_size(const mha_engine *engine, int64_t N, int64_t k)
{
    return mha_ceiling(N, MHA_MATMUL_UNIT) * (k / engine->depth * mha_engine_size(MHA_MATMUL_UNIT, engine->depth) +
                                              mha_engine_size(MHA_MATMUL_UNIT, k % engine->depth));
}

/* ---- Packing once ----------------------------------------------------------------------------------------------- */

typedef struct pack_job {
    mha_context *ctx;
    const mha_engine *engine;
    mha_tensor columns;
    float *to;
    mha_type type;        /* of the numbers in panels */
    int64_t wide, strips; /* strips of `wide` columns */
    float *stages;
    size_t task_floats; /* of a stage */
    mha_queue queue;
} pack_job;

/* Panels of 16 bits, one after another by way of float32. */
static void narrow_pack(const mha_kernels *kernels, uint16_t *to, mha_type type, mha_tensor columns, int64_t first,
                        int64_t n, int64_t k, int64_t depth, float *stage)
{
    float *panel = stage + MHA_MATMUL_STAGE;
    for (int64_t u = 0; u < n; u += kernels->panel_cols) {
        mha_panels_pack(kernels, panel, false, columns, first + u, mha_smaller(kernels->panel_cols, n - u), k, depth,
                        stage);
        mha_row_store(kernels, to + u * depth, type, 1, panel, kernels->panel_cols * depth);
    }
}

static void pack_task(void *arg, int task)
{
    pack_job *p = arg;
    const mha_kernels *kernels = p->ctx->kernels;
    int64_t N = p->columns.size[0], K = p->columns.size[1];
    float *stage = p->stages + (size_t)task * p->task_floats;
    for (int64_t piece; (piece = mha_queue_take(&p->queue)) >= 0;) {
        int64_t deep = mha_matmul_depth(p->engine), k = piece / p->strips * deep, col = piece % p->strips * p->wide,
                depth = mha_smaller(deep, K - k);
        int64_t cols = mha_smaller(p->wide, N - col);
        if (p->engine) {
            uint16_t *to = (uint16_t *)p->to + mha_units_size(p->engine, N, k) +
                           col / MHA_MATMUL_UNIT * mha_engine_size(MHA_MATMUL_UNIT, depth);
            mha_units_pack(p->engine, to, p->columns, col, cols, k, depth, stage);
            continue;
        }
        int64_t at = k * mha_round_up(N, kernels->panel_cols) + col * depth;
        if (p->type == MHA_FLOAT32) mha_panels_pack(kernels, p->to + at, false, p->columns, col, cols, k, depth, stage);
        else narrow_pack(kernels, (uint16_t *)p->to + at, p->type, p->columns, col, cols, k, depth, stage);
    }
}

/* What packed columns take, without the header; -1 if that is beyond all numbers. */
static int64_t packed_bytes(const mha_context *ctx, const mha_engine *engine, mha_type type, int64_t K, int64_t N)
{
    int64_t deep = engine ? mha_round_up(K, MHA_ENGINE_DEEP) : K, bytes;
    int64_t line = engine ? mha_round_up(N, MHA_MATMUL_UNIT) * (int64_t)sizeof(uint16_t)
                          : mha_round_up(N, ctx->kernels->panel_cols) * (int64_t)mha_type_size(type);
    return __builtin_mul_overflow(deep, line, &bytes) ? -1 : bytes;
}

mha_status mha_cpu_pack_size(mha_context *ctx, size_t *bytes, mha_tensor b, mha_type a)
{
    int64_t K = b.size[0], N = b.size[1];
    int64_t size = packed_bytes(ctx, mha_matmul_engine(ctx, a, b.type, K), mha_panels_type(a, b.type), K, N);
    if (size < 0 || size > PTRDIFF_MAX - HEADER - MHA_ALIGNMENT)
        return mha_fail(ctx, MHA_TOO_LARGE, "b: a matrix of %lld x %lld has no place in memory", (long long)K,
                        (long long)N);
    *bytes = (size_t)size + HEADER + MHA_ALIGNMENT;
    return MHA_OK;
}

mha_packed_header *mha_packed_open(const void *packed, float **panels)
{
    union {
        const void *in;
        char *out;
    } pointer = {packed};
    char *line = pointer.out + (MHA_ALIGNMENT - (uintptr_t)packed % MHA_ALIGNMENT) % MHA_ALIGNMENT;
    *panels = (float *)(line + HEADER);
    return (mha_packed_header *)line;
}

mha_status mha_cpu_packed_about(mha_context *ctx, mha_packed_about *about, const void *packed)
{
    float *panels;
    const mha_packed_header *h = mha_packed_open(packed, &panels);
    if (h->kernels != ctx->kernels || h->engine != mha_matmul_engine(ctx, h->a, h->b, h->K))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "packed: was not packed for the instruction set of this context, %s",
                        ctx->isa);
    int64_t bytes = packed_bytes(ctx, h->engine, mha_panels_type(h->a, h->b), h->K, h->N);
    *about = (mha_packed_about){h->K, h->N, h->a, mha_tensor_1d(h, MHA_BOOL, HEADER + bytes)};
    return MHA_OK;
}

/* The work, but for `to` and `stages`, and how many tasks it is for. */
static int plan(pack_job *p, mha_context *ctx, const mha_engine *engine, mha_tensor columns, mha_type a)
{
    int64_t N = columns.size[0], K = columns.size[1];
    *p = (pack_job){.ctx = ctx, .engine = engine, .columns = columns, .type = mha_panels_type(a, columns.type)};
    p->task_floats = (size_t)mha_matmul_stage(engine);
    if (p->type != MHA_FLOAT32) p->task_floats += (size_t)ctx->kernels->panel_cols * MHA_MATMUL_DEPTH;
    p->wide = engine ? MHA_MATMUL_UNIT : MHA_MATMUL_COLS;
    p->strips = mha_ceiling(N, p->wide);
    p->queue.count = p->strips * mha_ceiling(K, mha_matmul_depth(engine));
    return (int)mha_smaller(ctx->threads, p->queue.count);
}

mha_status mha_cpu_pack(mha_context *ctx, void *packed, mha_tensor b, mha_type a)
{
    pack_job p;
    float *panels;
    mha_packed_header *h = mha_packed_open(packed, &panels);
    int tasks = plan(&p, ctx, mha_matmul_engine(ctx, a, b.type, b.size[0]), mha_tensor_swap(b, 0, 1), a);
    TRY(mha_scratch_reserve(ctx, p.task_floats * sizeof(float) * (size_t)tasks + MHA_ALIGNMENT));
    *h = (mha_packed_header){ctx->kernels, p.engine, a, b.type, b.size[0], b.size[1]};
    p.to = panels, p.stages = (float *)ctx->scratch;
    if (tasks) mha_parallel_run(ctx, tasks, pack_task, &p);
    return MHA_OK;
}

size_t mha_units_room(mha_context *ctx, const mha_engine *engine, mha_tensor columns, size_t *stages)
{
    pack_job p;
    *stages = (size_t)plan(&p, ctx, engine, columns, MHA_BFLOAT16) * p.task_floats * sizeof(float);
    return (size_t)mha_units_size(engine, columns.size[0], columns.size[1]) * sizeof(uint16_t);
}

void mha_units_pack_all(mha_context *ctx, const mha_engine *engine, void *to, mha_tensor columns, void *stages)
{
    pack_job p;
    int tasks = plan(&p, ctx, engine, columns, MHA_BFLOAT16);
    p.to = to, p.stages = stages;
    mha_parallel_run(ctx, tasks, pack_task, &p);
}
