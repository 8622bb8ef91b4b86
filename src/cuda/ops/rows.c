/* Operations that are one or two launches of small kernels. */
#include "cuda/ops/ops.h"
#include "cuda/kernels/ops.h"
#include "cuda/kernels/rows.h"
#include <string.h>

/* ---- Launches --------------------------------------------------------------------------------------------------- */

bool mha_cuda_note(mha_context *ctx, mha_status status)
{
    mha_cuda_device *d = mha_cuda_of(ctx);
    if (!status) return true;
    if (!d->failed) {
        d->failed = status;
        memcpy(d->failure, ctx->error, sizeof d->failure);
        d->failure[sizeof d->failure - 1] = 0;
    }
    return false;
}

mha_status mha_cuda_op_finish(mha_context *ctx)
{
    mha_cuda_device *d = mha_cuda_of(ctx);
    mha_status status = d->failed;
    d->failed = MHA_OK;
    return status ? mha_fail(ctx, status, "%s", d->failure) : MHA_OK;
}

void mha_cuda_run(mha_context *ctx, mha_cuda_kernel kernel, const void *parameter, int64_t blocks)
{
    mha_cuda_device *d = mha_cuda_of(ctx);
    if (ctx->rehearsing || blocks <= 0 || d->failed || !mha_cuda_note(ctx, mha_cuda_enter(ctx))) return;
    mha_cuda_launch l = {kernel, blocks, MHA_CUDA_THREADS, 0};
    mha_cuda_note(ctx, mha_cuda_start(ctx, &l, parameter));
    mha_cuda_leave(ctx);
}

void mha_cuda_run_each(mha_context *ctx, mha_cuda_kernel kernel, const void *parameter, int64_t count)
{
    mha_cuda_run(ctx, kernel, parameter, mha_cuda_blocks_for(count));
}

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

void mha_cuda_op_copy(mha_context *ctx, mha_tensor to, mha_tensor from, bool add)
{
    if (ctx->rehearsing || mha_cuda_of(ctx)->failed || !mha_cuda_note(ctx, mha_cuda_enter(ctx))) return;
    mha_cuda_note(ctx, mha_cuda_copy_tensor(ctx, to, from, add));
    mha_cuda_leave(ctx);
}

void mha_cuda_op_fill(mha_context *ctx, mha_tensor to, float value)
{
    mha_cuda_fill c = {mha_cuda_view_of(to), value};
    mha_cuda_run_each(ctx, MHA_CUDA_K_fill, &c, mha_element_count(to));
}

/* Bytes travel as parameters of kernels: a graph then contains them, and the caller's memory is free at once. */
void mha_cuda_op_upload(mha_context *ctx, void *to, const void *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += MHA_CUDA_UPLOAD_BYTES) {
        size_t some = bytes - at < MHA_CUDA_UPLOAD_BYTES ? bytes - at : MHA_CUDA_UPLOAD_BYTES;
        mha_cuda_upload c = {(unsigned char *)to + at, (int32_t)some, {0}};
        memcpy(c.data, (const char *)from + at, some);
        mha_cuda_run(ctx, MHA_CUDA_K_upload, &c, 1);
    }
}

/* ---- Sequences -------------------------------------------------------------------------------------------------- */

void mha_cuda_op_clear(mha_context *ctx, mha_tensor x, int axis, mha_tensor lengths, mha_tensor starts)
{
    mha_cuda_sequences c = {.to = mha_cuda_view_of(x),
                            .lengths = mha_cuda_view_of(lengths),
                            .starts = mha_cuda_view_of(starts),
                            .axis = axis};
    if (mha_element_count(x)) mha_cuda_run(ctx, MHA_CUDA_K_clear, &c, x.size[0] * x.size[axis]);
}

void mha_cuda_op_places(mha_context *ctx, mha_tensor places, mha_tensor starts, mha_tensor ends)
{
    mha_cuda_sequences c = {
        .to = mha_cuda_view_of(places), .lengths = mha_cuda_view_of(ends), .starts = mha_cuda_view_of(starts)};
    mha_cuda_run_each(ctx, MHA_CUDA_K_places, &c, mha_element_count(places));
}

void mha_cuda_op_append(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor starts, mha_tensor ends)
{
    mha_cuda_sequences c = {.to = mha_cuda_view_of(to),
                            .from = mha_cuda_view_of(from),
                            .lengths = mha_cuda_view_of(ends),
                            .starts = mha_cuda_view_of(starts)};
    mha_cuda_run_each(ctx, MHA_CUDA_K_append, &c, mha_element_count(from));
}

/* ---- Heads and rows --------------------------------------------------------------------------------------------- */

void mha_cuda_op_gate(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor gates)
{
    mha_cuda_pair c = {.to = mha_cuda_view_of(to), .from = mha_cuda_view_of(from), .gates = gates.data};
    mha_cuda_run_each(ctx, MHA_CUDA_K_gate, &c, mha_element_count(to));
}

void mha_cuda_op_gate_back(mha_context *ctx, mha_tensor dgated, mha_tensor heads, mha_tensor gates, mha_tensor dgates)
{
    mha_cuda_pair c = {.to = mha_cuda_view_of(dgated), .from = mha_cuda_view_of(heads), .sums = dgates.data};
    if (dgates.rank) mha_cuda_run(ctx, MHA_CUDA_K_gate_sums, &c, heads.size[1]);
    mha_cuda_op_gate(ctx, dgated, dgated, gates);
}

static int64_t chunks_of(int64_t rows) { return (rows + MHA_CUDA_CHUNK - 1) / MHA_CUDA_CHUNK; }

void mha_cuda_add_partials(mha_context *ctx, mha_tensor to, const float *partials, int64_t chunks, int64_t pitch)
{
    enum { COLUMNS = 32 }; /* of a block */
    mha_cuda_add_sums c = {to.data, partials, to.stride[0], chunks, pitch, to.size[0]};
    mha_cuda_run(ctx, MHA_CUDA_K_add_sums, &c, (to.size[0] + COLUMNS - 1) / COLUMNS);
}

size_t mha_cuda_op_partial_bytes(int64_t rows, int64_t columns)
{
    return (size_t)(chunks_of(rows) * columns) * sizeof(float);
}

void mha_cuda_op_sum_rows(mha_context *ctx, mha_tensor sum, mha_tensor y, float *partials)
{
    mha_cuda_column_sums c = {mha_cuda_view_of(y), partials, chunks_of(y.size[0])};
    int64_t columns = (y.size[1] + MHA_CUDA_THREADS - 1) / MHA_CUDA_THREADS;
    mha_cuda_run(ctx, MHA_CUDA_K_column_sums, &c, c.chunks * columns);
    mha_cuda_add_partials(ctx, sum, partials, c.chunks, y.size[1]);
}

/* To know would mean to wait. */
bool mha_cuda_op_finite(mha_context *ctx, mha_tensor x)
{
    (void)ctx, (void)x;
    return false;
}

void mha_cuda_op_clean(mha_context *ctx, mha_tensor to, mha_tensor x, mha_tensor dy)
{
    mha_cuda_pair c = {.to = mha_cuda_view_of(to), .from = mha_cuda_view_of(x), .other = mha_cuda_view_of(dy)};
    mha_cuda_run(ctx, MHA_CUDA_K_clean, &c, x.size[0]);
}

void mha_cuda_op_average_heads(mha_context *ctx, mha_tensor to, mha_tensor maps)
{
    mha_cuda_pair c = {.to = mha_cuda_view_of(to), .from = mha_cuda_view_of(maps)};
    mha_cuda_run_each(ctx, MHA_CUDA_K_average_heads, &c, mha_element_count(to));
}
