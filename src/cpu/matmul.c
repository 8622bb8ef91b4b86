/* C = activation(C + alpha A B + bias), cut into pieces of rows and columns that tasks take from a queue.
 *
 * A piece goes through K in blocks of DEPTH, in order. For each block it packs its columns of b, unless they were
 * packed before, then ROWS rows of a at a time, and multiplies the two. So the packed rows stay in L2 while panels
 * of b stream past them, and an element of C is the sum of the blocks' sums, whatever the piece: its rounding error
 * grows with the number of blocks and the depth of one instead of their product.
 *
 * Between blocks the sums lie in C itself, or in a float32 tile where C is of another type or has gaps. Bias and
 * activation come with the last block.
 *
 * Pieces of the same rows follow one another, and a task keeps their packed rows, all of K, from one to the next.
 *
 * Where a and b are bfloat16 and there is a matrix engine, it multiplies: the same pieces and blocks, with factors of
 * UNIT columns packed as the engine wants them; bias and activation are then a sweep of their own. */
#include "cpu/kernels.h"
#include "core/tensor.h"
#include "cpu/engine.h"

enum {
    DEPTH = 256,         /* of a block. A constant, so that bits do not depend on how work is cut up */
    ROWS = 120,          /* of packed a; a multiple of every panel_rows */
    PIECE_ROWS = 480,    /* while b has to be packed for each piece */
    COLS = 768,          /* of a piece; a multiple of every panel_cols and of UNIT */
    TILE_COLS = 256,     /* of a piece that has a tile */
    LINES = 16,          /* of columns or rows that are widened at a time */
    STAGE = 16384,       /* floats: LINES of COLS, a panel of DEPTH, or ENGINE_ROWS x DEPTH numbers of two bytes */
    ENGINE_ROWS = 128,   /* of a in a factor */
    UNIT = 64,           /* columns of b in a factor */
    PIECES_PER_TASK = 4, /* so that tasks end at about the same time */
    KEPT = 128 * 1024,   /* floats of a that a task keeps */
    TASK_WORK = 1 << 17  /* multiply-adds that are worth a thread */
};

typedef mha_status status;
typedef long long ll;

#define FAIL(...) return mha_fail(j->ctx, __VA_ARGS__)

/* What opens a packed matrix; the panels follow, block by block. */
typedef struct header {
    const mha_kernels *kernels;
    const mha_engine *engine; /* NULL if the kernels multiply */
    mha_type a, b;            /* for an a of this type, from a b of that type */
    int64_t K, N;
} header;

enum { HEADER = MHA_ALIGNMENT };

typedef struct job {
    mha_context *ctx;
    const mha_kernels *kernels;
    const mha_engine *engine; /* multiplies instead of the kernels; or NULL */
    mha_tensor c, a, columns; /* (M,N), (M,K), and b as (N,K) */
    mha_matmul_options options;
    int64_t M, N, K;
    float *packed;      /* all of b, or NULL */
    int64_t tall;       /* rows of a that are packed at a time */
    int64_t rows, cols; /* of a piece */
    int64_t high;       /* rows of a that lie packed together: those of a piece, or `tall`, in whole panels */
    int64_t col_pieces;
    int tasks;
    bool in_place; /* sums lie in c */
    bool kept;     /* rows stay packed from piece to piece */
    size_t a_floats, b_floats, c_floats, task_floats;
    mha_queue queue;
} job;

/* The scratch of a task. */
typedef struct slice {
    float *stage; /* (STAGE) */
    float *bias;  /* (cols) */
    float *a;     /* panels of (ROWS,DEPTH), or of all of a; or factors of an engine, two numbers in a float's place */
    float *b;     /* panels of (DEPTH,cols); or factors */
    float *c;     /* (rows,cols) */
    int64_t row, k_kept; /* of kept a: its first row, and so much of it is there */
} slice;

static int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t ceiling(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
static int64_t round_up(int64_t n, int64_t unit) { return ceiling(n, unit) * unit; }

/* Who multiplies an a and a b of these types. */
static const mha_engine *choose_engine(const mha_context *ctx, mha_type a, mha_type b, int64_t K)
{
    return a == MHA_BFLOAT16 && b == MHA_BFLOAT16 && K ? ctx->engine : NULL;
}

/* The first cache line in memory of any alignment. */
static char *first_line(const void *memory)
{
    union {
        const void *in;
        char *out;
    } pointer = {memory};
    return pointer.out + (MHA_ALIGNMENT - (uintptr_t)memory % MHA_ALIGNMENT) % MHA_ALIGNMENT;
}

/* ---- Packing ---------------------------------------------------------------------------------------------------- */

static void *at(mha_tensor t, int64_t i, int64_t k)
{
    return (char *)t.data + (i * t.stride[0] + k * t.stride[1]) * (int64_t)mha_type_size(t.type);
}

/* The panels of n rows of t (*,K) from row `first` on, elements k to k + depth - 1 of each: rows of a if `left`, else
 * columns of b. float32 is packed as it lies if one of the strides is 1; all else is widened line by line before. */
static void pack(const mha_kernels *kernels, float *to, bool left, mha_tensor t, int64_t first, int64_t n, int64_t k,
                 int64_t depth, float *stage)
{
    int64_t width = left ? kernels->panel_rows : kernels->panel_cols, pitch = width * depth;
    bool along = t.stride[1] == 1 || t.stride[0] != 1;
    if (t.type == MHA_FLOAT32 && (t.stride[0] == 1 || t.stride[1] == 1)) {
        kernels->gemm_pack(to, left, pitch, at(t, first, k), t.stride[along ? 0 : 1], along, depth, n);
    } else if (along) {
        for (int64_t i = 0; i < n; i += width) {
            int64_t lines = smaller(width, n - i);
            for (int64_t u = 0; u < lines; u++)
                mha_row_load(kernels, stage + u * depth, at(t, first + i + u, k), t.type, t.stride[1], depth);
            kernels->gemm_pack(to + i * depth, left, pitch, stage, depth, true, depth, lines);
        }
    } else {
        for (int64_t i = 0; i < depth; i += LINES) {
            int64_t lines = smaller(LINES, depth - i);
            for (int64_t u = 0; u < lines; u++)
                mha_row_load(kernels, stage + u * n, at(t, first, k + i + u), t.type, 1, n);
            kernels->gemm_pack(to + i * width, left, pitch, stage, n, false, lines, n);
        }
    }
}

/* The same for an engine: one factor of n rows of a, or of n columns of b. */
static void pack_factor(const mha_engine *engine, uint16_t *to, bool left, mha_tensor t, int64_t first, int64_t n,
                        int64_t k, int64_t depth, float *stage)
{
    bool along = t.stride[1] == 1 || t.stride[0] != 1;
    const uint16_t *from = at(t, first, k);
    int64_t ldf = t.stride[along ? 0 : 1];
    if (t.stride[0] != 1 && t.stride[1] != 1) {
        uint16_t *room = (uint16_t *)stage;
        for (int64_t i = 0; i < n; i++)
            for (int64_t u = 0; u < depth; u++) room[i * depth + u] = *(const uint16_t *)at(t, first + i, k + u);
        from = room;
        ldf = depth;
    }
    (left ? engine->pack_left : engine->pack_right)(to, from, ldf, along, n, depth);
}

/* The factors of n columns of b from `first` on, UNIT columns each. */
static void pack_units(const mha_engine *engine, uint16_t *to, mha_tensor columns, int64_t first, int64_t n, int64_t k,
                       int64_t depth, float *stage)
{
    for (int64_t u = 0; u < n; u += UNIT, to += mha_engine_size(UNIT, depth))
        pack_factor(engine, to, false, columns, first + u, smaller(UNIT, n - u), k, depth, stage);
}

/* Numbers of two bytes in the factors of N columns, for k up to `k`. */
static int64_t units_size(int64_t N, int64_t k)
{
    return ceiling(N, UNIT) * (k / DEPTH * mha_engine_size(UNIT, DEPTH) + mha_engine_size(UNIT, k % DEPTH));
}

/* ---- One piece -------------------------------------------------------------------------------------------------- */

/* Panels of `rows` rows of a from `first` on, in the block at k. */
static const float *left_panels(const job *j, slice *s, int64_t first, int64_t rows, int64_t k, int64_t depth)
{
    float *to = j->kept ? s->a + k * j->high : s->a;
    if (!depth || (j->kept && k < s->k_kept)) return to;
    pack(j->kernels, to, true, j->a, first, rows, k, depth, s->stage);
    s->k_kept = k + depth;
    return to;
}

/* Panels of `cols` columns of b from `first` on, in the block at k. */
static const float *right_panels(const job *j, slice *s, int64_t first, int64_t cols, int64_t k, int64_t depth)
{
    if (j->packed) return j->packed + k * round_up(j->N, j->kernels->panel_cols) + first * depth;
    if (depth) pack(j->kernels, s->b, false, j->columns, first, cols, k, depth, s->stage);
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
        int64_t depth = smaller(DEPTH, j->K - k);
        const float *b = right_panels(j, s, col, cols, k, depth);
        if (k + depth == j->K) {
            finish.bias = o->bias.rank ? s->bias : NULL;
            finish.activation = o->activation;
        }
        for (int64_t r = 0; r < rows; r += ROWS) {
            int64_t high = smaller(ROWS, rows - r);
            j->kernels->gemm(c + r * ldc, ldc, left_panels(j, s, row + r, high, k, depth), b, high, cols, depth,
                             &finish);
        }
        finish.add = true;
        k += depth;
    } while (k < j->K);
}

static const uint16_t *left_factor(const job *j, slice *s, int64_t first, int64_t rows, int64_t k, int64_t depth)
{
    uint16_t *to = (uint16_t *)s->a + (j->kept ? k / DEPTH * mha_engine_size(j->high, DEPTH) : 0);
    if (j->kept && k < s->k_kept) return to;
    pack_factor(j->engine, to, true, j->a, first, rows, k, depth, s->stage);
    s->k_kept = k + depth;
    return to;
}

static const uint16_t *right_factors(const job *j, slice *s, int64_t first, int64_t cols, int64_t k, int64_t depth)
{
    if (j->packed)
        return (const uint16_t *)j->packed + units_size(j->N, k) + first / UNIT * mha_engine_size(UNIT, depth);
    pack_units(j->engine, (uint16_t *)s->b, j->columns, first, cols, k, depth, s->stage);
    return (const uint16_t *)s->b;
}

/* `multiply` with an engine. c has whole vectors of columns. */
static void multiply_factors(const job *j, slice *s, float *c, int64_t ldc, int64_t row, int64_t rows, int64_t col,
                             int64_t cols)
{
    const mha_matmul_options *o = &j->options;
    float ones[UNIT];
    for (int i = 0; i < UNIT; i++) ones[i] = 1.0f;
    for (int64_t k = 0; k < j->K; k += DEPTH) {
        int64_t depth = smaller(DEPTH, j->K - k);
        const uint16_t *b = right_factors(j, s, col, cols, k, depth);
        for (int64_t r = 0; r < rows; r += ENGINE_ROWS) {
            int64_t high = smaller(ENGINE_ROWS, rows - r);
            const uint16_t *a = left_factor(j, s, row + r, high, k, depth);
            for (int64_t u = 0; u < cols; u += UNIT)
                j->engine->product(&(mha_product){.c = c + r * ldc + u,
                                                  .ldc = ldc,
                                                  .fade = k || o->accumulate ? ones : NULL,
                                                  .scale = o->alpha,
                                                  .a = a,
                                                  .b = b + u / UNIT * mha_engine_size(UNIT, depth),
                                                  .m = high,
                                                  .n = round_up(smaller(UNIT, cols - u), j->kernels->lanes),
                                                  .k = depth});
        }
    }
    mha_finish finish = {1.0f, true, o->bias.rank ? s->bias : NULL, o->activation};
    if (finish.bias || finish.activation) j->kernels->gemm(c, ldc, s->a, s->a, rows, cols, 0, &finish);
}

static void work_piece(const job *j, slice *s, int64_t piece)
{
    int64_t row = piece / j->col_pieces * j->rows, col = piece % j->col_pieces * j->cols;
    int64_t rows = smaller(j->rows, j->M - row), cols = smaller(j->cols, j->N - col);
    mha_tensor c = j->c, bias = j->options.bias;
    if (row != s->row) s->k_kept = 0;
    s->row = row;
    if (bias.rank)
        mha_row_load(j->kernels, s->bias, (char *)bias.data + col * bias.stride[0] * (int64_t)mha_type_size(bias.type),
                     bias.type, bias.stride[0], cols);
    void (*all)(const job *, slice *, float *, int64_t, int64_t, int64_t, int64_t, int64_t) =
        j->engine ? multiply_factors : multiply;
    if (j->in_place) {
        all(j, s, at(c, row, col), c.stride[0], row, rows, col, cols);
        return;
    }
    for (int64_t r = 0; j->options.accumulate && r < rows; r++)
        mha_row_load(j->kernels, s->c + r * j->cols, at(c, row + r, col), c.type, c.stride[1], cols);
    all(j, s, s->c, j->cols, row, rows, col, cols);
    for (int64_t r = 0; r < rows; r++)
        mha_row_store(j->kernels, at(c, row + r, col), c.type, c.stride[1], s->c + r * j->cols, cols);
}

static void matmul_task(void *arg, int task)
{
    job *j = arg;
    float *start = (float *)j->ctx->scratch + (size_t)task * j->task_floats;
    slice s = {.stage = start, .bias = start + STAGE, .a = start + STAGE + COLS};
    s.b = s.a + j->a_floats;
    s.c = s.b + j->b_floats;
    if (j->engine) j->engine->open();
    for (int64_t piece; (piece = mha_queue_take(&j->queue)) >= 0;) work_piece(j, &s, piece);
    if (j->engine) j->engine->close();
}

/* ---- The plan --------------------------------------------------------------------------------------------------- */

/* Rows are cut before columns: rows of a are then packed once, and a row more or less is of no matter to b. */
static void cut(job *j)
{
    int64_t most = j->packed ? j->tall : PIECE_ROWS / ROWS * j->tall, wide = j->in_place ? COLS : TILE_COLS;
    int64_t row_cuts = ceiling(j->M, most), col_cuts = ceiling(j->N, wide);
    int64_t row_unit = j->engine ? 2 * MHA_ENGINE_ROWS : j->kernels->panel_rows;
    int64_t col_unit = j->engine ? UNIT : j->kernels->panel_cols;
    double work = (double)j->M * (double)j->N * (double)(j->K + 1) / TASK_WORK;
    j->tasks = work < (double)j->ctx->threads ? 1 + (int)work : j->ctx->threads;
    for (;;) {
        j->rows = round_up(ceiling(j->M, row_cuts), row_unit);
        j->cols = round_up(ceiling(j->N, col_cuts), col_unit);
        j->col_pieces = ceiling(j->N, j->cols);
        j->queue.count = ceiling(j->M, j->rows) * j->col_pieces;
        if (j->tasks == 1 || j->queue.count >= PIECES_PER_TASK * (int64_t)j->tasks) break;
        bool narrow = j->cols <= (j->packed ? UNIT : 2 * UNIT); /* packing columns asks for more of them */
        if (j->rows > (narrow ? 2 * LINES : j->tall)) row_cuts *= 2;
        else if (!narrow) col_cuts *= 2;
        else break;
    }
    j->tasks = (int)smaller(j->tasks, j->queue.count);
}

static void plan(job *j)
{
    j->tall = j->engine ? ENGINE_ROWS : ROWS;
    cut(j);
    int64_t unit = j->engine ? MHA_ENGINE_ROWS : j->kernels->panel_rows;
    int64_t deep = smaller(DEPTH, j->K);
    j->high = round_up(smaller(j->rows, j->tall), unit);
    j->kept = j->rows <= j->high && j->high * j->K <= KEPT && j->col_pieces > 1;
    int64_t a = j->high * (j->kept ? j->K : deep), b = deep * j->cols;
    if (j->engine) { /* a factor may be deeper than what it holds */
        a = mha_engine_size(j->high, DEPTH) * (j->kept ? ceiling(j->K, DEPTH) : 1) / 2;
        b = units_size(j->cols, deep) / 2;
    }
    j->a_floats = (size_t)mha_padded(a);
    j->b_floats = j->packed ? 0 : (size_t)mha_padded(b);
    j->c_floats = j->in_place ? 0 : (size_t)mha_padded(j->rows * j->cols);
    j->task_floats = STAGE + COLS + j->a_floats + j->b_floats + j->c_floats;
}

/* Everything has been checked. */
static status run(job *j)
{
    if (!j->M || !j->N) return MHA_OK;
    j->in_place = j->c.type == MHA_FLOAT32 && (j->c.stride[1] == 1 || j->N == 1);
    if (j->engine && j->N % j->kernels->lanes) j->in_place = false; /* it writes whole vectors */
    plan(j);
    TRY(mha_scratch_reserve(j->ctx, j->task_floats * sizeof(float) * (size_t)j->tasks + MHA_ALIGNMENT));
    if (!j->ctx->rehearsing) mha_parallel_run(j->ctx, j->tasks, matmul_task, j);
    return MHA_OK;
}

/* ---- The edge --------------------------------------------------------------------------------------------------- */

static status check_float(const job *j, mha_tensor *t, const char *name, int rank, const char *shape, mha_role role)
{
    TRY(mha_check_tensor(j->ctx, t, name, rank, shape, role));
    if (!mha_is_float(t->type))
        FAIL(MHA_BAD_TYPE, "%s: is %s, must be float32, bfloat16 or float16", name, mha_type_name(t->type));
    return MHA_OK;
}

static status check_size(const job *j, mha_tensor t, const char *name, int axis, int64_t want, const char *why)
{
    if (t.size[axis] != want)
        FAIL(MHA_BAD_SHAPE, "%s: axis %d is %lld, must be %lld (%s)", name, axis, (ll)t.size[axis], (ll)want, why);
    return MHA_OK;
}

/* All but b: its sizes K and N are in the job, and `right` is its memory. */
static status check(job *j, mha_tensor right)
{
    mha_matmul_options *o = &j->options;
    TRY(check_float(j, &j->c, "c", 2, "(M,N)", MHA_OUTPUT));
    TRY(check_float(j, &j->a, "a", 2, "(M,K)", MHA_INPUT));
    TRY(check_size(j, j->a, "a", 1, j->K, "K of b"));
    TRY(check_size(j, j->c, "c", 0, j->M, "M of a"));
    TRY(check_size(j, j->c, "c", 1, j->N, "N of b"));
    if (!isfinite(o->alpha)) FAIL(MHA_BAD_ARGUMENT, "alpha: must be finite");
    if ((unsigned)o->activation > MHA_SILU)
        FAIL(MHA_BAD_ARGUMENT, "activation: %d is not an activation", (int)o->activation);
    if (mha_is_given(o->bias)) {
        TRY(check_float(j, &o->bias, "bias", 1, "(N)", MHA_INPUT));
        TRY(check_size(j, o->bias, "bias", 0, j->N, "N of b"));
    }
    const mha_argument all[] = {
        {"c", j->c, MHA_OUTPUT}, {"a", j->a, MHA_INPUT}, {"b", right, MHA_INPUT}, {"bias", o->bias, MHA_INPUT}};
    return MHA_CHECK_APART(j->ctx, all);
}

static job job_make(mha_context *ctx, mha_tensor c, mha_tensor a, const mha_matmul_options *options)
{
    static const mha_matmul_options defaults = MHA_MATMUL_DEFAULTS;
    mha_succeed(ctx);
    return (job){
        .ctx = ctx, .kernels = ctx->kernels, .c = c, .a = a, .options = options ? *options : defaults, .M = a.size[0]};
}

/* What packed columns take, without the header; -1 if that is beyond all numbers. */
static int64_t packed_bytes(const mha_context *ctx, const mha_engine *engine, int64_t K, int64_t N)
{
    int64_t deep = engine ? round_up(K, MHA_ENGINE_DEEP) : K, bytes;
    int64_t line = engine ? round_up(N, UNIT) * (int64_t)sizeof(uint16_t)
                          : round_up(N, ctx->kernels->panel_cols) * (int64_t)sizeof(float);
    return __builtin_mul_overflow(deep, line, &bytes) ? -1 : bytes;
}

mha_status mha_matmul(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor b, const mha_matmul_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    job whole = job_make(ctx, c, a, options), *j = &whole;
    TRY(check_float(j, &b, "b", 2, "(K,N)", MHA_INPUT));
    j->K = b.size[0];
    j->N = b.size[1];
    j->columns = mha_tensor_swap(b, 0, 1);
    j->engine = choose_engine(ctx, a.type, b.type, j->K);
    TRY(check(j, b));
    return run(j);
}

mha_status mha_matmul_packed(mha_context *ctx, mha_tensor c, mha_tensor a, const void *packed,
                             const mha_matmul_options *options)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    job whole = job_make(ctx, c, a, options), *j = &whole;
    if (!packed) FAIL(MHA_BAD_ARGUMENT, "packed: is NULL");
    char *line = first_line(packed);
    const header *h = (const header *)line;
    if (h->kernels != ctx->kernels || h->engine != choose_engine(ctx, h->a, h->b, h->K))
        FAIL(MHA_BAD_ARGUMENT, "packed: was not packed for the instruction set of this context, %s", ctx->isa);
    j->K = h->K;
    j->N = h->N;
    j->engine = h->engine;
    j->packed = (float *)(line + HEADER);
    TRY(check(j, mha_tensor_1d(line, MHA_BOOL, HEADER + packed_bytes(ctx, h->engine, h->K, h->N))));
    if (a.type != h->a)
        FAIL(MHA_BAD_TYPE, "a: is %s, b was packed for one that is %s", mha_type_name(a.type), mha_type_name(h->a));
    return run(j);
}

/* ---- Packing once ----------------------------------------------------------------------------------------------- */

typedef struct pack_job {
    mha_context *ctx;
    const mha_engine *engine;
    mha_tensor columns;
    float *to;
    int64_t strips; /* of COLS columns */
    mha_queue queue;
} pack_job;

static void pack_task(void *arg, int task)
{
    pack_job *p = arg;
    const mha_kernels *kernels = p->ctx->kernels;
    int64_t N = p->columns.size[0], K = p->columns.size[1];
    float *stage = (float *)p->ctx->scratch + (size_t)task * STAGE;
    for (int64_t piece; (piece = mha_queue_take(&p->queue)) >= 0;) {
        int64_t k = piece / p->strips * DEPTH, col = piece % p->strips * COLS, depth = smaller(DEPTH, K - k);
        int64_t cols = smaller(COLS, N - col);
        if (p->engine) {
            uint16_t *to = (uint16_t *)p->to + units_size(N, k) + col / UNIT * mha_engine_size(UNIT, depth);
            pack_units(p->engine, to, p->columns, col, cols, k, depth, stage);
        } else {
            float *to = p->to + k * round_up(N, kernels->panel_cols) + col * depth;
            pack(kernels, to, false, p->columns, col, cols, k, depth, stage);
        }
    }
}

/* What packing b for an a of this type needs, header and alignment included. */
static status size_packed(const job *j, size_t *bytes, mha_tensor *b, mha_type a, mha_role role)
{
    TRY(check_float(j, b, "b", 2, "(K,N)", role));
    if (!mha_is_float(a)) FAIL(MHA_BAD_TYPE, "a: is to be %s, must be float32, bfloat16 or float16", mha_type_name(a));
    int64_t K = b->size[0], N = b->size[1];
    int64_t size = packed_bytes(j->ctx, choose_engine(j->ctx, a, b->type, K), K, N);
    if (size < 0 || size > PTRDIFF_MAX - HEADER - MHA_ALIGNMENT)
        FAIL(MHA_TOO_LARGE, "b: a matrix of %lld x %lld has no place in memory", (ll)K, (ll)N);
    *bytes = (size_t)size + HEADER + MHA_ALIGNMENT;
    return MHA_OK;
}

mha_status mha_matmul_pack_size(mha_context *ctx, size_t *bytes, mha_tensor b, mha_type a)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    job whole = {.ctx = ctx}, *j = &whole;
    mha_succeed(ctx);
    if (!bytes) FAIL(MHA_BAD_ARGUMENT, "bytes: is NULL");
    return size_packed(j, bytes, &b, a, MHA_SHAPE);
}

mha_status mha_matmul_pack(mha_context *ctx, void *packed, size_t bytes, mha_tensor b, mha_type a)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    job whole = {.ctx = ctx}, *j = &whole;
    size_t needed = 0;
    mha_succeed(ctx);
    TRY(size_packed(j, &needed, &b, a, MHA_INPUT));
    if (!packed) FAIL(MHA_BAD_ARGUMENT, "packed: is NULL");
    if (bytes < needed) FAIL(MHA_BAD_ARGUMENT, "packed: has %zu bytes, needs %zu", bytes, needed);
    char *line = first_line(packed);
    const mha_argument all[] = {{"packed", mha_tensor_1d(packed, MHA_BOOL, (int64_t)needed), MHA_OUTPUT},
                                {"b", b, MHA_INPUT}};
    TRY(MHA_CHECK_APART(ctx, all));
    const mha_engine *engine = choose_engine(ctx, a, b.type, b.size[0]);
    pack_job p = {.ctx = ctx, .engine = engine, .columns = mha_tensor_swap(b, 0, 1), .to = (float *)(line + HEADER)};
    p.strips = ceiling(b.size[1], COLS);
    p.queue.count = p.strips * ceiling(b.size[0], DEPTH);
    int tasks = (int)smaller(ctx->threads, p.queue.count);
    TRY(mha_scratch_reserve(ctx, (size_t)STAGE * sizeof(float) * (size_t)tasks + MHA_ALIGNMENT));
    *(header *)line = (header){ctx->kernels, engine, a, b.type, b.size[0], b.size[1]};
    if (tasks) mha_parallel_run(ctx, tasks, pack_task, &p);
    return MHA_OK;
}
