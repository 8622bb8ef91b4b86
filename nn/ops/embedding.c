/* Embeddings. In the backward pass, rows with the same id are added to one row of the table, and the order of such a
 * sum affects its rounding. So a task processes a strip of columns of all rows, in order: every number of the gradient
 * is summed by one thread, in the order of the batch, without locks, sorting or extra memory. There is one strip per
 * thread, at least one cache line wide; its width does not affect the result. */
#include "ops/chunks.h"
#include "ops/clones.h"
#include "ops/ops.h"
#include <string.h>

enum { LINE = 16 }; /* floats of a cache line */

typedef struct embedding {
    float *to;
    const float *from, *positions; /* positions: may be NULL */
    const int32_t *ids;
    int64_t rows, T, width, strip; /* strip: columns of one task of the backward pass */
} embedding;

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

NN_CLONES static void add(float *restrict y, const float *restrict a, const float *restrict b, int64_t width)
{
    for (int64_t i = 0; i < width; i++) y[i] = a[i] + b[i];
}

static void look_up_chunk(void *arg, int64_t n)
{
    const embedding *e = arg;
    const int64_t width = e->width, first = n * NN_CHUNK, end = first + nn_chunk_rows(e->rows, n);
    for (int64_t r = first; r < end; r++) {
        const float *from = e->from + e->ids[r] * width;
        if (e->positions) add(e->to + r * width, from, e->positions + r % e->T * width, width);
        else memcpy(e->to + r * width, from, (size_t)width * sizeof *from);
    }
}

void nn_embedding_forward(mha_context *ctx, float *y, const float *table, const float *positions, const int32_t *ids,
                          int64_t rows, int64_t T, int64_t width)
{
    embedding e = {y, table, positions, ids, rows, T, width, 0};
    mha_context_each(ctx, nn_chunks(rows), look_up_chunk, &e);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* `columns` columns of every row. */
NN_CLONES static void add_columns(float *restrict dtable, const float *restrict dy, const int32_t *restrict ids,
                                  int64_t rows, int64_t width, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++) {
        float *to = dtable + ids[r] * width;
        for (int64_t i = 0; i < columns; i++) to[i] += dy[r * width + i];
    }
}

static void sum_strip(void *arg, int64_t n)
{
    const embedding *e = arg;
    const int64_t first = n * e->strip, left = e->width - first;
    add_columns(e->to + first, e->from + first, e->ids, e->rows, e->width, left < e->strip ? left : e->strip);
}

/* Positions are a sum over sequences, each a chunk of T rows. */
void nn_embedding_backward(mha_context *ctx, float *dtable, float *dpositions, const float *dy, const int32_t *ids,
                           int64_t rows, int64_t T, int64_t width)
{
    const int64_t lines = (width + LINE - 1) / LINE, threads = mha_context_threads(ctx);
    embedding e = {.to = dtable, .from = dy, .ids = ids, .rows = rows, .T = T, .width = width};
    e.strip = (lines + threads - 1) / threads * LINE;
    if (dtable && width > 0) mha_context_each(ctx, (width + e.strip - 1) / e.strip, sum_strip, &e);
    nn_add_chunks(ctx, dpositions, dy, rows / T, T * width, T * width);
}
