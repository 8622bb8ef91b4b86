#include "ops/chunks.h"
#include "ops/clones.h"

enum { PIECE = 256 }; /* columns of one task: their sums stay in L1 */

typedef struct addition {
    float *to;
    const float *partials;
    int64_t chunks, stride, columns;
} addition;

NN_CLONES static void add_columns(float *restrict to, const float *restrict partials, int64_t chunks, int64_t stride,
                                  int64_t columns)
{
    double sum[PIECE] = {0};
    for (int64_t chunk = 0; chunk < chunks; chunk++, partials += stride)
        for (int64_t i = 0; i < columns; i++) sum[i] += (double)partials[i];
    for (int64_t i = 0; i < columns; i++) to[i] += (float)sum[i];
}

static void add_piece(void *arg, int64_t n)
{
    const addition *a = arg;
    int64_t left = a->columns - n * PIECE;
    add_columns(a->to + n * PIECE, a->partials + n * PIECE, a->chunks, a->stride, left < PIECE ? left : PIECE);
}

void nn_add_chunks(mha_context *ctx, float *to, const float *partials, int64_t chunks, int64_t stride, int64_t columns)
{
    addition a = {to, partials, chunks, stride, columns};
    if (to) mha_context_each(ctx, (columns + PIECE - 1) / PIECE, add_piece, &a);
}
