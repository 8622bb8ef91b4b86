/* Loops over rows, in chunks of fixed size that threads take from a queue. Each chunk of a sum over rows is computed by
 * one thread, and the chunks are added in order, so the bits do not depend on the number of threads. */
#ifndef NN_OPS_CHUNKS_H
#define NN_OPS_CHUNKS_H

#include <mha.h>

enum { NN_CHUNK = 64 }; /* rows */

static inline int64_t nn_chunks(int64_t rows) { return (rows + NN_CHUNK - 1) / NN_CHUNK; }

/* The number of rows of chunk n. */
static inline int64_t nn_chunk_rows(int64_t rows, int64_t n)
{
    int64_t left = rows - n * NN_CHUNK;
    return left < NN_CHUNK ? left : NN_CHUNK;
}

/* to (columns) += the sum of the rows of partials (chunks,columns), whose rows are `stride` floats apart; in float64,
 * in order. Does nothing if `to` is NULL. */
void nn_add_chunks(mha_context *ctx, float *to, const float *partials, int64_t chunks, int64_t stride, int64_t columns);

#endif
