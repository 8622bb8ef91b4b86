/* Loops over rows, in chunks of a fixed number of them that threads take from a queue. A sum over rows is taken chunk by
 * chunk, each by one thread, and the chunks are added in order: the same bits for any number of threads. */
#ifndef NN_OPS_CHUNKS_H
#define NN_OPS_CHUNKS_H

#include <mha.h>

enum { NN_CHUNK = 64 }; /* rows */

static inline int64_t nn_chunks(int64_t rows) { return (rows + NN_CHUNK - 1) / NN_CHUNK; }

/* How many rows chunk n has. */
static inline int64_t nn_chunk_rows(int64_t rows, int64_t n)
{
    int64_t left = rows - n * NN_CHUNK;
    return left < NN_CHUNK ? left : NN_CHUNK;
}

/* to (columns) += the sum of the rows of partials (chunks,columns), of which one begins `stride` floats after the other;
 * in float64, in order. Nothing if `to` is NULL. */
void nn_add_chunks(mha_context *ctx, float *to, const float *partials, int64_t chunks, int64_t stride, int64_t columns);

#endif
