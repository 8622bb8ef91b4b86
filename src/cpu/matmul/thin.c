/* The product of few rows: pieces of columns, whose part of b is read once as it lies. */
#include "core/arena.h"
#include "cpu/matmul/matmul.h"

enum {
    ALONG = 16,          /* columns of a piece: a multiple of this where b lies along k, */
    ACROSS = 64,         /* and of this where it lies across, so that runs of memory are not too short */
    PIECES_PER_TASK = 2, /* so that tasks end at about the same time; the beginning of a piece has not been asked for */
    TASK_WORK = 1 << 16  /* numbers of b that are worth a thread */
};

typedef struct job {
    mha_context *ctx;
    mha_tensor c, a, columns; /* (M,N), (M,K), and b as (N,K) */
    const mha_matmul_options *options;
    int64_t cols; /* of a piece */
    bool along, in_place;
    size_t task_bytes;
    mha_queue queue;
} job;

typedef struct slice {
    float *a;    /* (M,K) */
    float *bias; /* (cols) */
    float *c;    /* (M,cols), unless sums lie in c itself */
} slice;

static void lay_out(slice *s, mha_arena *arena, const job *j)
{
    MHA_TAKE(arena, s->a, j->a.size[0] * j->a.size[1]);
    MHA_TAKE(arena, s->bias, j->cols);
    MHA_TAKE(arena, s->c, j->in_place ? 0 : j->a.size[0] * j->cols);
}

static void work_piece(const job *j, slice *s, int64_t piece)
{
    const mha_kernels *kernels = j->ctx->kernels;
    const mha_matmul_options *o = j->options;
    int64_t M = j->a.size[0], K = j->a.size[1], N = j->c.size[1], col = piece * j->cols;
    int64_t cols = mha_smaller(j->cols, N - col), ldc = j->in_place ? j->c.stride[0] : j->cols;
    float *c = j->in_place ? mha_cell(j->c, 0, col) : s->c;
    mha_finish finish = {.alpha = o->alpha, .add = o->accumulate, .activation = o->activation};
    if (o->bias.rank) {
        mha_row_load(kernels, s->bias,
                     (char *)o->bias.data + col * o->bias.stride[0] * (int64_t)mha_type_size(o->bias.type),
                     o->bias.type, o->bias.stride[0], cols);
        finish.bias = s->bias;
    }
    for (int64_t r = 0; !j->in_place && o->accumulate && r < M; r++)
        mha_row_load(kernels, c + r * ldc, mha_cell(j->c, r, col), j->c.type, j->c.stride[1], cols);
    kernels->thin(c, ldc, s->a, K, M, mha_cell(j->columns, col, 0), j->columns.type,
                  j->columns.stride[j->along ? 0 : 1], j->along, cols, K, MHA_MATMUL_DEPTH, &finish);
    for (int64_t r = 0; !j->in_place && r < M; r++)
        mha_row_store(kernels, mha_cell(j->c, r, col), j->c.type, j->c.stride[1], c + r * ldc, cols);
}

static void thin_task(void *arg, int task)
{
    job *j = arg;
    mha_arena arena = {.base = j->ctx->scratch + (size_t)task * j->task_bytes};
    slice s = {0};
    lay_out(&s, &arena, j);
    for (int64_t r = 0; r < j->a.size[0]; r++)
        mha_row_load(j->ctx->kernels, s.a + r * j->a.size[1], mha_cell(j->a, r, 0), j->a.type, j->a.stride[1],
                     j->a.size[1]);
    for (int64_t piece; (piece = mha_queue_take(&j->queue)) >= 0;) work_piece(j, &s, piece);
}

bool mha_matmul_is_thin(mha_tensor a, mha_tensor columns)
{
    return a.size[0] <= MHA_NARROW && a.size[1] > 0 && (columns.stride[0] == 1 || columns.stride[1] == 1);
}

mha_status mha_matmul_thin(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor columns,
                           const mha_matmul_options *options)
{
    int64_t N = c.size[1], K = a.size[1];
    job j = {.ctx = ctx, .c = c, .a = a, .columns = columns, .options = options};
    if (!a.size[0] || !N) return MHA_OK;
    j.along = columns.stride[1] == 1;
    j.in_place = c.type == MHA_FLOAT32 && (c.stride[1] == 1 || N == 1);
    int64_t tasks = mha_smaller(ctx->threads, 1 + N * K / TASK_WORK), cuts = tasks == 1 ? 1 : tasks * PIECES_PER_TASK;
    j.cols = mha_smaller(mha_round_up(mha_ceiling(N, cuts), j.along ? ALONG : ACROSS), MHA_MATMUL_COLS);
    j.queue.count = mha_ceiling(N, j.cols);
    tasks = mha_smaller(tasks, j.queue.count);
    mha_arena measure = {0};
    slice s;
    lay_out(&s, &measure, &j);
    j.task_bytes = measure.used;
    TRY(mha_scratch_reserve(ctx, j.task_bytes * (size_t)tasks + MHA_ALIGNMENT));
    if (!ctx->rehearsing) mha_parallel_run(ctx, (int)tasks, thin_task, &j);
    return MHA_OK;
}
