/* What is done to rows one by one: gates, sums of columns. All of it reads and writes each number once
 * and is bound by memory, so it is written plainly; rows go through float32 on the stack, a piece at a time.
 *
 * Sums over rows are taken in chunks of a fixed number of rows, each by one task, and the chunks are added in order: the
 * same bits for any number of threads. */
#include "cpu/rows/rows.h"
#include "core/tensor.h"
#include "cpu/isa/kernels.h"
#include <string.h>

enum { CHUNK = MHA_CPU_CHUNK, PIECE = 256 }; /* rows of a partial sum; floats on the stack */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t row_count(mha_tensor x) { return x.size[0] * x.size[1] * x.size[2]; }
static int64_t chunk_count(int64_t rows) { return (rows + CHUNK - 1) / CHUNK; }

/* ---- Partial sums ----------------------------------------------------------------------------------------------- */

typedef struct addition {
    const mha_kernels *kernels;
    mha_tensor sum;
    const float *partials;
    int64_t chunks, pitch;
} addition;

static void add_piece(void *arg, int64_t n)
{
    const addition *a = arg;
    int64_t first = n * PIECE, count = smaller(PIECE, a->sum.size[0] - first), stride = a->sum.stride[0];
    float *to = (float *)a->sum.data + first * stride, total[PIECE] = {0};
    if (stride == 1) a->kernels->add_lines(to, a->partials + first, a->pitch, a->chunks, count);
    else {
        a->kernels->add_lines(total, a->partials + first, a->pitch, a->chunks, count);
        for (int64_t i = 0; i < count; i++) to[i * stride] += total[i];
    }
}

void mha_cpu_add_partials(mha_context *ctx, mha_tensor sum, const float *partials, int64_t chunks, int64_t pitch)
{
    addition a = {ctx->kernels, sum, partials, chunks, pitch};
    mha_parallel_each(ctx, (sum.size[0] + PIECE - 1) / PIECE, add_piece, &a);
}

size_t mha_cpu_partial_bytes(int64_t rows, int64_t columns)
{
    return (size_t)(chunk_count(rows) * columns) * sizeof(float);
}

/* ---- Rows that are not there ------------------------------------------------------------------------------------ */

typedef struct cleaning {
    const mha_kernels *kernels;
    mha_tensor to, x, dy;
    atomic_bool broken;
} cleaning;

/* Row n of a matrix, from column k on: at most PIECE numbers, of which there are so many. */
static int64_t load_piece(const mha_kernels *kernels, float *to, mha_tensor y, int64_t n, int64_t k)
{
    int64_t count = smaller(PIECE, y.size[1] - k), size = (int64_t)mha_type_size(y.type);
    const char *from = (const char *)y.data + (n * y.stride[0] + k * y.stride[1]) * size;
    mha_row_load(kernels, to, from, y.type, y.stride[1], count);
    return count;
}

/* x - x is 0 for finite numbers alone. */
static void judge_chunk(void *arg, int64_t chunk)
{
    cleaning *j = arg;
    int64_t end = smaller((chunk + 1) * CHUNK, j->x.size[0]);
    float x[PIECE], sum = 0;
    for (int64_t n = chunk * CHUNK; n < end; n++)
        for (int64_t k = 0; k < j->x.size[1]; k += PIECE) {
            int64_t count = load_piece(j->kernels, x, j->x, n, k);
            for (int64_t i = 0; i < count; i++) sum += x[i] - x[i];
        }
    if (sum != 0) atomic_store(&j->broken, true);
}

bool mha_cpu_finite(mha_context *ctx, mha_tensor x)
{
    cleaning j = {.kernels = ctx->kernels, .x = x};
    mha_parallel_each(ctx, chunk_count(x.size[0]), judge_chunk, &j);
    return !atomic_load(&j.broken);
}

static bool is_zero(const cleaning *j, int64_t n)
{
    float dy[PIECE];
    for (int64_t k = 0; k < j->dy.size[1]; k += PIECE) {
        int64_t count = load_piece(j->kernels, dy, j->dy, n, k);
        for (int64_t i = 0; i < count; i++)
            if (dy[i] != 0) return false;
    }
    return true;
}

static void clean_chunk(void *arg, int64_t chunk)
{
    const cleaning *j = arg;
    int64_t end = smaller((chunk + 1) * CHUNK, j->x.size[0]), size = (int64_t)mha_type_size(j->to.type);
    float x[PIECE];
    for (int64_t n = chunk * CHUNK; n < end; n++) {
        bool zero = is_zero(j, n);
        for (int64_t k = 0; k < j->x.size[1]; k += PIECE) {
            int64_t count = load_piece(j->kernels, x, j->x, n, k);
            if (zero) memset(x, 0, sizeof x);
            char *to = (char *)j->to.data + (n * j->to.stride[0] + k) * size;
            mha_row_store(j->kernels, to, j->to.type, 1, x, count);
        }
    }
}

void mha_cpu_clean(mha_context *ctx, mha_tensor to, mha_tensor x, mha_tensor dy)
{
    cleaning j = {.kernels = ctx->kernels, .to = to, .x = x, .dy = dy};
    mha_parallel_each(ctx, chunk_count(x.size[0]), clean_chunk, &j);
}

/* ---- Sums of columns -------------------------------------------------------------------------------------------- */

typedef struct column_sums {
    const mha_kernels *kernels;
    mha_tensor sum, y;
    float *partials;
} column_sums;

enum { COLUMNS = 64 };

/* Columns k to k + count - 1 of at most CHUNK rows: in place if they are float32 numbers side by side, else a copy. */
static const float *columns_in_float32(const column_sums *j, float room[CHUNK * COLUMNS], int64_t *ld, int64_t first,
                                       int64_t rows, int64_t k, int64_t count)
{
    int64_t size = (int64_t)mha_type_size(j->y.type);
    const char *from = (const char *)j->y.data + (first * j->y.stride[0] + k * j->y.stride[1]) * size;
    *ld = j->y.stride[0];
    if (j->y.type == MHA_FLOAT32 && j->y.stride[1] == 1) return (const float *)(const void *)from;
    *ld = COLUMNS;
    for (int64_t r = 0; r < rows; r++)
        mha_row_load(j->kernels, room + r * COLUMNS, from + r * j->y.stride[0] * size, j->y.type, j->y.stride[1],
                     count);
    return room;
}

static void sum_chunk(void *arg, int64_t chunk)
{
    const column_sums *j = arg;
    int64_t columns = j->y.size[1], first = chunk * CHUNK, rows = smaller(CHUNK, j->y.size[0] - first), ld;
    int64_t step = j->y.type == MHA_FLOAT32 && j->y.stride[1] == 1 ? columns : COLUMNS;
    float room[CHUNK * COLUMNS];
    for (int64_t k = 0; k < columns; k += step) {
        int64_t count = smaller(step, columns - k);
        const float *y = columns_in_float32(j, room, &ld, first, rows, k, count);
        j->kernels->sum_lines(j->partials + chunk * columns + k, y, ld, rows, count);
    }
}

/* COLUMNS columns of few rows. */
static void add_columns(void *arg, int64_t n)
{
    const column_sums *j = arg;
    int64_t k = n * COLUMNS, rows = j->y.size[0], count = smaller(COLUMNS, j->y.size[1] - k), ld;
    float room[CHUNK * COLUMNS], total[COLUMNS] = {0}, *to = (float *)j->sum.data + k * j->sum.stride[0];
    const float *y = columns_in_float32(j, room, &ld, 0, rows, k, count);
    j->kernels->add_lines(total, y, ld, rows, count);
    for (int64_t i = 0; i < count; i++) to[i * j->sum.stride[0]] += total[i];
}

/* A chunk of rows is added up in float32, the chunks in float64. Where there is but one, that is not worth a partial sum:
 * all is float64. */
void mha_cpu_sum_rows(mha_context *ctx, mha_tensor sum, mha_tensor y, float *partials)
{
    column_sums j = {.kernels = ctx->kernels, .sum = sum, .y = y, .partials = partials};
    int64_t chunks = chunk_count(y.size[0]);
    bool plain = y.type == MHA_FLOAT32 && y.stride[1] == 1;
    if (chunks <= 1 && plain) {
        mha_cpu_add_partials(ctx, sum, y.data, y.size[0], y.stride[0]);
        return;
    }
    if (chunks <= 1) {
        mha_parallel_each(ctx, (y.size[1] + COLUMNS - 1) / COLUMNS, add_columns, &j);
        return;
    }
    mha_parallel_each(ctx, chunks, sum_chunk, &j);
    mha_cpu_add_partials(ctx, sum, partials, chunks, sum.size[0]);
}

/* ---- Gates ------------------------------------------------------------------------------------------------------ */

typedef struct gating {
    const mha_kernels *kernels;
    mha_tensor to, from;
    const float *gates;
    float *dgates;
} gating;

/* A gate of 0 shuts out whatever the head says, NaN included. */
static void gate_chunk(void *arg, int64_t chunk)
{
    const gating *j = arg;
    float x[PIECE];
    int64_t E = j->from.size[3], end = smaller((chunk + 1) * CHUNK, row_count(j->from));
    for (int64_t n = chunk * CHUNK; n < end; n++) {
        float gate = j->gates[n % j->from.size[1]];
        for (int64_t k = 0; k < E; k += PIECE) {
            int64_t count = smaller(PIECE, E - k);
            mha_row_load(j->kernels, x, mha_cpu_row(j->from, n, k), j->from.type, j->from.stride[3], count);
            for (int64_t i = 0; i < count; i++) x[i] = gate == 0 ? 0.0f : x[i] * gate;
            mha_row_store(j->kernels, mha_cpu_row(j->to, n, k), j->to.type, j->to.stride[3], x, count);
        }
    }
}

void mha_cpu_gate(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor gates)
{
    gating j = {.kernels = ctx->kernels, .to = to, .from = from, .gates = gates.data};
    mha_parallel_each(ctx, chunk_count(row_count(from)), gate_chunk, &j);
}

/* One head: the sum of dgated * heads over all its rows. */
static void sum_head(void *arg, int64_t h)
{
    const gating *j = arg;
    float x[PIECE], dy[PIECE];
    double sum = 0;
    for (int64_t n = h; n < row_count(j->from); n += j->from.size[1])
        for (int64_t k = 0; k < j->from.size[3]; k += PIECE) {
            int64_t count = smaller(PIECE, j->from.size[3] - k);
            mha_row_load(j->kernels, x, mha_cpu_row(j->from, n, k), j->from.type, j->from.stride[3], count);
            mha_row_load(j->kernels, dy, mha_cpu_row(j->to, n, k), j->to.type, j->to.stride[3], count);
            for (int64_t i = 0; i < count; i++) sum += (double)x[i] * (double)dy[i];
        }
    j->dgates[h] += (float)sum;
}

void mha_cpu_gate_back(mha_context *ctx, mha_tensor dgated, mha_tensor heads, mha_tensor gates, mha_tensor dgates)
{
    gating j = {.kernels = ctx->kernels, .to = dgated, .from = heads, .gates = gates.data, .dgates = dgates.data};
    if (dgates.rank) mha_parallel_each(ctx, heads.size[1], sum_head, &j);
    mha_cpu_gate(ctx, dgated, dgated, gates);
}

/* ---- Means over heads ------------------------------------------------------------------------------------------- */

/* Row n of (B,H,Tq,Tk) maps becomes, in the place of its first head, the mean over heads. */
static void average_row(void *arg, int64_t n)
{
    const mha_tensor *maps = arg;
    int64_t H = maps->size[1], b = n / maps->size[2], i = n % maps->size[2];
    float *first = (float *)maps->data + b * maps->stride[0] + i * maps->stride[2];
    for (int64_t j = 0; j < maps->size[3]; j++) {
        double sum = 0;
        for (int64_t h = 0; h < H; h++) sum += (double)first[h * maps->stride[1] + j];
        first[j] = (float)(sum / (double)H);
    }
}

void mha_cpu_average_heads(mha_context *ctx, mha_tensor to, mha_tensor maps)
{
    mha_parallel_each(ctx, maps.size[0] * maps.size[2], average_row, &maps);
    maps = mha_tensor_swap(maps, 1, 2);
    maps.rank = 3;
    maps.size[2] = maps.size[3];
    maps.stride[2] = maps.stride[3];
    mha_cpu_copy(ctx, to, maps, false);
}
