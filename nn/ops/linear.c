/* A linear layer: three products, all by mha_matmul, and a sum of rows. */
#include "ops/chunks.h"
#include "ops/clones.h"
#include "ops/ops.h"

mha_status nn_linear_forward(mha_context *ctx, mha_tensor y, mha_tensor x, mha_tensor w, mha_tensor b,
                             mha_activation activation, bool add)
{
    mha_matmul_options options = {sizeof options, 1.0f, add, b, activation};
    return mha_matmul(ctx, y, x, mha_tensor_swap(w, 0, 1), &options);
}

/* ---- Sums of rows ----------------------------------------------------------------------------------------------- */

typedef struct row_sums {
    float *partials; /* (chunks,N) */
    const float *dy;
    int64_t rows, stride, N;
} row_sums;

/* Four rows at a time, so that the sums are loaded and stored once per four numbers. */
NN_CLONES static void sum_rows(float *restrict sum, const float *restrict y, int64_t rows, int64_t stride, int64_t N)
{
    for (int64_t i = 0; i < N; i++) sum[i] = 0;
    for (; rows >= 4; rows -= 4, y += 4 * stride)
        for (int64_t i = 0; i < N; i++) sum[i] += (y[i] + y[i + stride]) + (y[i + 2 * stride] + y[i + 3 * stride]);
    for (; rows > 0; rows--, y += stride)
        for (int64_t i = 0; i < N; i++) sum[i] += y[i];
}

static void sum_chunk(void *arg, int64_t n)
{
    const row_sums *s = arg;
    sum_rows(s->partials + n * s->N, s->dy + n * NN_CHUNK * s->stride, nn_chunk_rows(s->rows, n), s->stride, s->N);
}

static mha_status add_rows(mha_context *ctx, nn_workspace *workspace, float *db, mha_tensor dy)
{
    int64_t rows = dy.size[0], N = dy.size[1], chunks = nn_chunks(rows);
    float *partials = nn_workspace_take(workspace, (size_t)(chunks * N) * sizeof(float));
    if (!partials) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for partial sums");
    row_sums s = {partials, dy.data, rows, dy.stride[0], N};
    mha_context_each(ctx, chunks, sum_chunk, &s);
    nn_add_chunks(ctx, db, partials, chunks, N, N);
    return MHA_OK;
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

mha_status nn_linear_backward(mha_context *ctx, nn_workspace *workspace, const nn_linear_gradients *gradients,
                              mha_tensor dy, mha_tensor x, mha_tensor w)
{
    mha_matmul_options add = MHA_MATMUL_DEFAULTS;
    mha_status status = MHA_OK;
    add.accumulate = true;
    if (gradients->dx.rank) status = mha_matmul(ctx, gradients->dx, dy, w, gradients->add ? &add : NULL);
    if (!status && gradients->dw.rank) status = mha_matmul(ctx, gradients->dw, mha_tensor_swap(dy, 0, 1), x, &add);
    if (!status && gradients->db) status = add_rows(ctx, workspace, gradients->db, dy);
    return status;
}
