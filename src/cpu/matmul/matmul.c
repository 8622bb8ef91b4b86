/* C = activation(C + alpha A B + bias), cut into pieces of rows and columns that tasks take from a queue.
 *
 * A piece goes through K in blocks of MHA_MATMUL_DEPTH, in order. For each block it packs its columns of b, unless they were
 * packed before, then ROWS rows of a at a time, and multiplies the two. So the packed rows stay in L2 while panels
 * of b stream past them, and an element of C is the sum of the blocks' sums, whatever the piece: its rounding error
 * grows with the number of blocks and the depth of one instead of their product.
 *
 * Between blocks the sums lie in C itself, or in a float32 tile where C is of another type or has gaps. Bias and
 * activation come with the last block.
 *
 * Pieces of the same rows follow one another, and a task keeps their packed rows, all of K, from one to the next.
 *
 * Where a and b are bfloat16 and there is a matrix engine, it multiplies: the same pieces, blocks of its own depth, factors of
 * MHA_MATMUL_UNIT columns packed as the engine wants them; bias and activation are then a sweep of their own. Packing a number
 * takes as long as dozens of its products, so unless a has few rows all threads pack b once, before the first piece. */
#include "cpu/matmul/matmul.h"
#include "core/arena.h"

enum {
    ROWS = 120,          /* of packed a; a multiple of every panel_rows */
    PIECE_ROWS = 480,    /* while b has to be packed for each piece */
    TILE_COLS = 256,     /* of a piece that has a tile */
    FEW_ROWS = 32,       /* of a piece: fewer are not worth a cut */
    PIECES_PER_TASK = 4, /* so that tasks end at about the same time */
    KEPT = 128 * 1024,   /* floats of a that a task keeps, or twice as many numbers of 16 bits */
    TASK_WORK = 1 << 17, /* multiply-adds that are worth a thread */
    PACKING = 32,        /* multiply-adds that packing a number of b is worth */
    /* b is packed once for all tasks from so many numbers on, up to so many bytes. */
    SHARED_LEAST = 1 << 17,
    SHARED_MOST = 64 << 20
};

typedef struct job {
    mha_context *ctx;
    const mha_kernels *kernels;
    const mha_engine *engine; /* multiplies instead of the kernels; or NULL */
    mha_tensor c, a, columns; /* (M,N), (M,K), and b as (N,K) */
    mha_matmul_options options;
    int64_t M, N, K;
    bool once;          /* all of b is packed before the first piece */
    float *packed;      /* where it then lies */
    mha_type narrow;    /* the type of its numbers, if it is not float32 */
    int64_t tall;       /* rows of a that are packed at a time */
    int64_t rows, cols; /* of a piece */
    int64_t high;       /* rows of a that lie packed together: those of a piece, or `tall`, in whole panels */
    int64_t col_pieces;
    int64_t together; /* pieces that a task takes at once: one, or all of the same rows, which it then packs once */
    int tasks;
    bool in_place;                        /* sums lie in c */
    bool kept;                            /* rows stay packed from piece to piece */
    int64_t a_floats, b_floats, c_floats; /* of the scratch of a task */
    size_t task_bytes;
    char *scratch; /* of the tasks */
    mha_queue queue;
} job;

/* The scratch of a task. */
typedef struct slice {
    float *stage;        /* (MHA_MATMUL_STAGE) */
    float *bias;         /* (cols) */
    float *a;            /* panels of ROWS rows and a block of K, or of all of a; or factors of an engine */
    float *b;            /* panels of a block of K and the columns; or factors */
    float *c;            /* (rows,cols) */
    int64_t row, k_kept; /* of kept a: its first row, and so much of it is there */
} slice;

static void lay_out(slice *s, mha_arena *arena, const job *j)
{
    MHA_TAKE(arena, s->stage, mha_matmul_stage(j->engine));
    MHA_TAKE(arena, s->bias, MHA_MATMUL_COLS);
    MHA_TAKE(arena, s->a, j->a_floats);
    MHA_TAKE(arena, s->b, j->b_floats);
    MHA_TAKE(arena, s->c, j->c_floats);
}

/* ---- One piece -------------------------------------------------------------------------------------------------- */

/* Panels of `rows` rows of a from `first` on, in the block at k. */
static const float *left_panels(const job *j, slice *s, int64_t first, int64_t rows, int64_t k, int64_t depth)
{
    float *to = j->kept ? s->a + k * j->high : s->a;
    if (!depth || (j->kept && k < s->k_kept)) return to;
    mha_panels_pack(j->kernels, to, true, j->a, first, rows, k, depth, s->stage);
    s->k_kept = k + depth;
    return to;
}

/* Panels of `cols` columns of b from `first` on, in the block at k. */
static const float *right_panels(const job *j, slice *s, int64_t first, int64_t cols, int64_t k, int64_t depth)
{
    if (j->once) return j->packed + k * mha_round_up(j->N, j->kernels->panel_cols) + first * depth;
    if (depth) mha_panels_pack(j->kernels, s->b, false, j->columns, first, cols, k, depth, s->stage);
    return s->b;
}

/* c (rows,cols) of the piece whose first element is (row,col), in float32. */
static void multiply(const job *j, slice *s, float *c, int64_t ldc, int64_t row, int64_t rows, int64_t col,
                     int64_t cols)
{
    const mha_matmul_options *o = &j->options;
    mha_finish finish = {.alpha = o->alpha, .add = o->accumulate};
    int64_t k = 0;
    do {
        int64_t depth = mha_smaller(MHA_MATMUL_DEPTH, j->K - k);
        const float *b = right_panels(j, s, col, cols, k, depth);
        if (k + depth == j->K) {
            finish.bias = o->bias.rank ? s->bias : NULL;
            finish.activation = o->activation;
        }
        for (int64_t r = 0; r < rows; r += ROWS) {
            int64_t high = mha_smaller(ROWS, rows - r);
            j->kernels->gemm(c + r * ldc, ldc, left_panels(j, s, row + r, high, k, depth), b, high, cols, depth,
                             &finish);
        }
        finish.add = true;
        k += depth;
    } while (k < j->K);
}

/* `multiply` with a packed b of 16 bits. A piece has no more rows than are packed at a time. */
static void multiply_narrow(const job *j, slice *s, float *c, int64_t ldc, int64_t row, int64_t rows, int64_t col,
                            int64_t cols)
{
    const mha_matmul_options *o = &j->options;
    mha_finish finish = {.alpha = o->alpha, .add = o->accumulate};
    int64_t group = mha_panels_group(j->kernels), panel = j->kernels->panel_cols, k = 0;
    do {
        int64_t depth = mha_smaller(MHA_MATMUL_DEPTH, j->K - k);
        const uint16_t *b = (const uint16_t *)j->packed + k * mha_round_up(j->N, panel) + col * depth;
        const float *a = left_panels(j, s, row, rows, k, depth);
        if (k + depth == j->K) finish.activation = o->activation;
        for (int64_t u = 0; u < cols; u += group) {
            int64_t wide = mha_smaller(group, cols - u);
            mha_row_load(j->kernels, s->b, b + u * depth, j->narrow, 1, mha_round_up(wide, panel) * depth);
            if (k + depth == j->K && o->bias.rank) finish.bias = s->bias + u;
            j->kernels->gemm(c + u, ldc, a, s->b, rows, wide, depth, &finish);
        }
        finish.add = true;
        k += depth;
    } while (k < j->K);
}

static const uint16_t *left_factor(const job *j, slice *s, int64_t first, int64_t rows, int64_t k, int64_t depth)
{
    uint16_t *to = (uint16_t *)s->a + (j->kept ? k / j->engine->depth * mha_engine_size(j->high, j->engine->depth) : 0);
    if (j->kept && k < s->k_kept) return to;
    mha_factor_pack(j->engine, to, true, j->a, first, rows, k, depth, s->stage);
    s->k_kept = k + depth;
    return to;
}

static const uint16_t *right_factors(const job *j, slice *s, int64_t first, int64_t cols, int64_t k, int64_t depth)
{
    if (j->once)
        return (const uint16_t *)j->packed + mha_units_size(j->engine, j->N, k) +
               first / MHA_MATMUL_UNIT * mha_engine_size(MHA_MATMUL_UNIT, depth);
    mha_units_pack(j->engine, (uint16_t *)s->b, j->columns, first, cols, k, depth, s->stage);
    return (const uint16_t *)s->b;
}

/* `multiply` with an engine. c has whole vectors of columns. */
static void multiply_factors(const job *j, slice *s, float *c, int64_t ldc, int64_t row, int64_t rows, int64_t col,
                             int64_t cols)
{
    const mha_matmul_options *o = &j->options;
    float ones[MHA_MATMUL_UNIT];
    for (int i = 0; i < MHA_MATMUL_UNIT; i++) ones[i] = 1.0f;
    for (int64_t k = 0; k < j->K; k += j->engine->depth) {
        int64_t depth = mha_smaller(j->engine->depth, j->K - k);
        const uint16_t *b = right_factors(j, s, col, cols, k, depth);
        for (int64_t r = 0; r < rows; r += MHA_MATMUL_ROWS) {
            int64_t high = mha_smaller(MHA_MATMUL_ROWS, rows - r);
            const uint16_t *a = left_factor(j, s, row + r, high, k, depth);
            for (int64_t u = 0; u < cols; u += MHA_MATMUL_UNIT)
                j->engine->product(
                    &(mha_product){.c = c + r * ldc + u,
                                   .ldc = ldc,
                                   .fade = k || o->accumulate ? ones : NULL,
                                   .scale = o->alpha,
                                   .a = a,
                                   .b = b + u / MHA_MATMUL_UNIT * mha_engine_size(MHA_MATMUL_UNIT, depth),
                                   .m = high,
                                   .n = mha_round_up(mha_smaller(MHA_MATMUL_UNIT, cols - u), j->kernels->lanes),
                                   .k = depth});
        }
    }
    mha_finish finish = {1.0f, true, o->bias.rank ? s->bias : NULL, o->activation};
    if (finish.bias || finish.activation) j->kernels->gemm(c, ldc, s->a, s->a, rows, cols, 0, &finish);
}

static void work_piece(const job *j, slice *s, int64_t piece)
{
    int64_t row = piece / j->col_pieces * j->rows, col = piece % j->col_pieces * j->cols;
    int64_t rows = mha_smaller(j->rows, j->M - row), cols = mha_smaller(j->cols, j->N - col);
    mha_tensor c = j->c, bias = j->options.bias;
    if (row != s->row) s->k_kept = 0;
    s->row = row;
    if (bias.rank)
        mha_row_load(j->kernels, s->bias, (char *)bias.data + col * bias.stride[0] * (int64_t)mha_type_size(bias.type),
                     bias.type, bias.stride[0], cols);
    void (*all)(const job *, slice *, float *, int64_t, int64_t, int64_t, int64_t, int64_t) =
        j->engine   ? multiply_factors
        : j->narrow ? multiply_narrow
                    : multiply;
    if (j->in_place) {
        all(j, s, mha_cell(c, row, col), c.stride[0], row, rows, col, cols);
        return;
    }
    for (int64_t r = 0; j->options.accumulate && r < rows; r++)
        mha_row_load(j->kernels, s->c + r * j->cols, mha_cell(c, row + r, col), c.type, c.stride[1], cols);
    all(j, s, s->c, j->cols, row, rows, col, cols);
    for (int64_t r = 0; r < rows; r++)
        mha_row_store(j->kernels, mha_cell(c, row + r, col), c.type, c.stride[1], s->c + r * j->cols, cols);
}

static void matmul_task(void *arg, int task)
{
    job *j = arg;
    mha_arena arena = {.base = j->scratch + (size_t)task * j->task_bytes};
    slice s = {0};
    lay_out(&s, &arena, j);
    if (j->engine) j->engine->open();
    for (int64_t n; (n = mha_queue_take(&j->queue)) >= 0;)
        for (int64_t i = 0; i < j->together; i++) work_piece(j, &s, n * j->together + i);
    if (j->engine) j->engine->close();
}

/* ---- The plan --------------------------------------------------------------------------------------------------- */

/* Rows are cut before columns: rows of a are then packed once, and a row more or less is of no matter to b. */
static void cut(job *j)
{
    int64_t most = j->once ? j->tall : PIECE_ROWS / ROWS * j->tall, wide = j->in_place ? MHA_MATMUL_COLS : TILE_COLS;
    int64_t row_cuts = mha_ceiling(j->M, most), col_cuts = mha_ceiling(j->N, wide);
    int64_t row_unit = j->engine ? 2 * MHA_ENGINE_ROWS : j->kernels->panel_rows;
    int64_t col_unit = j->engine ? MHA_MATMUL_UNIT : j->kernels->panel_cols;
    bool few_rows = !j->once && j->M <= FEW_ROWS; /* packing is most of the work then, and a piece has all rows */
    double work = (double)(j->M + (few_rows ? PACKING : 0)) * (double)j->N * (double)(j->K + 1) / TASK_WORK;
    j->tasks = work < (double)j->ctx->threads ? 1 + (int)work : j->ctx->threads;
    bool many = j->engine && j->once && j->M >= PIECES_PER_TASK * j->tasks * j->tall / 2; /* rows without columns do */
    for (;;) {
        j->rows = mha_round_up(mha_ceiling(j->M, row_cuts), row_unit);
        j->cols = mha_round_up(mha_ceiling(j->N, col_cuts), col_unit);
        j->col_pieces = mha_ceiling(j->N, j->cols);
        j->together = many ? j->col_pieces : 1;
        j->queue.count = mha_ceiling(j->M, j->rows) * (j->col_pieces / j->together);
        if (j->tasks == 1 || j->queue.count >= PIECES_PER_TASK * (int64_t)j->tasks) break;
        bool narrow =
            j->cols <= (j->once || few_rows ? MHA_MATMUL_UNIT : 2 * MHA_MATMUL_UNIT); /* to pack is worth more */
        if (j->rows > (narrow ? FEW_ROWS : many ? j->tall / 2 : j->tall)) row_cuts *= 2;
        else if (!narrow) col_cuts *= 2;
        else break;
    }
    j->tasks = (int)mha_smaller(j->tasks, j->queue.count);
}

static void plan(job *j)
{
    j->tall = j->engine ? MHA_MATMUL_ROWS : ROWS;
    cut(j);
    int64_t unit = j->engine ? MHA_ENGINE_ROWS : j->kernels->panel_rows;
    int64_t deep = mha_smaller(mha_matmul_depth(j->engine), j->K);
    j->high = mha_round_up(mha_smaller(j->rows, j->tall), unit);
    j->kept = j->rows <= j->high && j->high * j->K <= KEPT * (j->engine ? 2 : 1) && j->col_pieces > 1;
    int64_t a = j->high * (j->kept ? j->K : deep), b = deep * j->cols;
    if (j->engine) { /* a factor may be deeper than what it holds */
        a = mha_engine_size(j->high, deep) * (j->kept ? mha_ceiling(j->K, j->engine->depth) : 1) / 2;
        b = mha_units_size(j->engine, j->cols, deep) / 2;
    }
    if (j->narrow) b = deep * mha_panels_group(j->kernels);
    j->a_floats = a;
    j->b_floats = j->once && !j->narrow ? 0 : b;
    j->c_floats = j->in_place ? 0 : j->rows * j->cols;
    mha_arena measure = {0};
    slice s;
    lay_out(&s, &measure, j);
    j->task_bytes = measure.used;
}

/* Everything has been checked. */
static mha_status run_product(job *j)
{
    if (!j->M || !j->N) return MHA_OK;
    j->in_place = j->c.type == MHA_FLOAT32 && (j->c.stride[1] == 1 || j->N == 1);
    if (j->engine && j->N % j->kernels->lanes) j->in_place = false; /* it writes whole vectors */
    size_t shared = 0, stages = 0;
    if (j->engine && !j->once && j->M > FEW_ROWS && j->N >= SHARED_LEAST / j->K)
        shared = mha_units_room(j->ctx, j->engine, j->columns, &stages);
    if (shared > SHARED_MOST) shared = 0;
    j->once |= shared > 0;
    plan(j);
    size_t tasks = j->task_bytes * (size_t)j->tasks;
    TRY(mha_scratch_reserve(j->ctx, shared + (shared && stages > tasks ? stages : tasks) + MHA_ALIGNMENT));
    if (j->ctx->rehearsing) return MHA_OK;
    j->scratch = j->ctx->scratch + shared;
    if (shared) {
        j->packed = (float *)(void *)j->ctx->scratch;
        mha_units_pack_all(j->ctx, j->engine, j->packed, j->columns, j->scratch);
    }
    mha_parallel_run(j->ctx, j->tasks, matmul_task, j);
    return MHA_OK;
}

static job job_make(mha_context *ctx, mha_tensor c, mha_tensor a, int64_t K, int64_t N,
                    const mha_matmul_options *options)
{
    return (job){
        .ctx = ctx, .kernels = ctx->kernels, .c = c, .a = a, .options = *options, .M = a.size[0], .K = K, .N = N};
}

mha_status mha_cpu_matmul(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor b, const mha_matmul_options *options)
{
    job j = job_make(ctx, c, a, b.size[0], b.size[1], options);
    j.columns = mha_tensor_swap(b, 0, 1);
    j.engine = mha_matmul_engine(ctx, a.type, b.type, j.K);
    if (!j.engine && mha_matmul_is_thin(a, j.columns)) return mha_matmul_thin(ctx, c, a, j.columns, options);
    return run_product(&j);
}

mha_status mha_cpu_matmul_packed(mha_context *ctx, mha_tensor c, mha_tensor a, const void *packed,
                                 const mha_matmul_options *options)
{
    float *panels;
    const mha_packed_header *h = mha_packed_open(packed, &panels);
    job j = job_make(ctx, c, a, h->K, h->N, options);
    j.engine = h->engine;
    j.once = true;
    j.packed = panels;
    if (!j.engine) j.narrow = mha_panels_type(h->a, h->b);
    return run_product(&j);
}
