/* The operations of mha_ops.h, of checked arguments: tensors are float32 and dense. */
#include "cuda/kernels/ops.h"
#include "cuda/ops/ops.h"

/* ---- Activations ------------------------------------------------------------------------------------------------ */

void mha_cuda_op_activate(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation)
{
    mha_cuda_activation c = {.h = h.data,
                             .slope = slope.data,
                             .z = z.data,
                             .count = mha_element_count(z),
                             .activation = (int32_t)activation};
    mha_cuda_run_each(ctx, MHA_CUDA_K_activate, &c, c.count);
}

void mha_cuda_op_activate_back(mha_context *ctx, mha_tensor dh, mha_tensor slope)
{
    mha_cuda_activation c = {.h = dh.data, .slope = slope.data, .count = mha_element_count(dh)};
    mha_cuda_run_each(ctx, MHA_CUDA_K_activate_back, &c, c.count);
}

void mha_cuda_op_activate_gated(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z,
                                mha_activation activation)
{
    mha_cuda_activation c = {.h = h.data,
                             .slope = slope.data,
                             .z = z.data,
                             .count = mha_element_count(h),
                             .width = h.size[1],
                             .activation = (int32_t)activation};
    mha_cuda_run_each(ctx, MHA_CUDA_K_activate_gated, &c, c.count);
}

void mha_cuda_op_activate_gated_back(mha_context *ctx, mha_tensor slope, mha_tensor dh)
{
    mha_cuda_activation c = {.h = dh.data, .slope = slope.data, .count = mha_element_count(dh), .width = dh.size[1]};
    mha_cuda_run_each(ctx, MHA_CUDA_K_activate_gated_back, &c, c.count);
}

/* ---- Dropout ---------------------------------------------------------------------------------------------------- */

void mha_cuda_op_dropout(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_dropout_options *o)
{
    mha_cuda_dropout c = {.to = to.data,
                          .from = from.data,
                          .sequences = to.size[0],
                          .size = to.size[1] * to.size[2],
                          .seed = o->seed,
                          .stream = o->stream,
                          .path = (uint64_t)((double)o->path * 0x1p32),
                          .below = (uint32_t)((double)o->drop * 0x1p16 + 0.5),
                          .kept = (float)(1 / ((1 - (double)o->drop) * (1 - (double)o->path)))};
    if (to.data == from.data && !(o->drop > 0) && !(o->path > 0)) return;
    mha_cuda_run_each(ctx, MHA_CUDA_K_dropout, &c, c.sequences * ((c.size + 255) / 256 * 32));
}

/* ---- Embeddings ------------------------------------------------------------------------------------------------- */

mha_status mha_cuda_op_embed(mha_context *ctx, mha_tensor y, mha_tensor table, mha_tensor ids,
                             const mha_embedding_options *options)
{
    mha_cuda_embedding c = {.y = y.data,
                            .table = table.data,
                            .positions = options->positions.data,
                            .ids = mha_cuda_view_of(ids),
                            .words = table.size[0],
                            .width = table.size[1],
                            .scale = options->scale,
                            .add = options->accumulate};
    if (!table.size[0] && mha_element_count(ids))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "ids: number 0 is given, but the table has no words");
    mha_cuda_run_each(ctx, MHA_CUDA_K_embed, &c, mha_element_count(y));
    return mha_cuda_op_finish(ctx);
}

mha_status mha_cuda_op_embed_back(mha_context *ctx, mha_tensor dtable, mha_tensor dpositions, mha_tensor dy,
                                  mha_tensor ids, float scale)
{
    int64_t T = dy.size[1], width = dy.size[2];
    mha_cuda_embedding c = {.y = dtable.data,
                            .table = dy.data,
                            .ids = mha_cuda_view_of(ids),
                            .words = dtable.rank ? dtable.size[0] : 0,
                            .width = width,
                            .scale = scale};
    if (dtable.rank && !dtable.size[0] && mha_element_count(ids))
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "ids: number 0 is given, but the table has no words");
    if (dtable.rank && width) mha_cuda_run(ctx, MHA_CUDA_K_embed_back, &c, mha_element_count(ids));
    if (dpositions.rank)
        mha_cuda_add_partials(ctx, mha_tensor_1d(dpositions.data, MHA_FLOAT32, T * width), dy.data, dy.size[0],
                              T * width);
    return mha_cuda_op_finish(ctx);
}

/* ---- Loss ------------------------------------------------------------------------------------------------------- */

/* The result is the host's, so the call waits for it: the only one that does. */
static mha_status read_sums(mha_context *ctx, mha_cuda_loss_sums *to, const mha_cuda_loss *c)
{
    mha_cuda_device *d = mha_cuda_of(ctx);
    TRY(mha_cuda_op_finish(ctx));
    TRY(mha_cuda_enter(ctx));
    CUdeviceptr from = (CUdeviceptr)(uintptr_t)c->sums;
    mha_status status = mha_cuda_check(ctx, d->driver.cuMemcpyDtoHAsync(to, from, sizeof *to, d->stream), "loss");
    if (!status) status = mha_cuda_check(ctx, d->driver.cuStreamSynchronize(d->stream), "loss");
    mha_cuda_leave(ctx);
    return status;
}

static void lay_loss(mha_cuda_loss *c, mha_arena *arena)
{
    MHA_TAKE(arena, c->sums, 1);
    MHA_TAKE(arena, c->losses, c->rows);
    MHA_TAKE(arena, c->right, c->rows);
}

mha_status mha_cuda_op_cross_entropy(mha_context *ctx, mha_loss *loss, mha_tensor dlogits, mha_tensor logits,
                                     mha_tensor labels, float smoothing)
{
    mha_cuda_loss c = {.dlogits = dlogits.data,
                       .logits = logits.data,
                       .labels = mha_cuda_view_of(labels),
                       .rows = logits.size[0],
                       .classes = logits.size[1],
                       .smoothing = smoothing};
    mha_cuda_loss_sums sums;
    mha_arena measure = {0}, arena = {0};
    bool captured;
    TRY(mha_cuda_captures(ctx, &captured));
    if (captured) return mha_fail(ctx, MHA_UNSUPPORTED, "loss: waits for the GPU, so it cannot be captured in a graph");
    lay_loss(&c, &measure);
    TRY(mha_cuda_scratch_for(ctx, (int64_t)measure.used, 1, &arena.base));
    lay_loss(&c, &arena);
    mha_cuda_run(ctx, MHA_CUDA_K_loss_labels, &c, 1);
    TRY(read_sums(ctx, &sums, &c));
    if (sums.bad)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "labels: number %lld is outside its range, from -1 to %lld",
                        (long long)sums.bad - 1, (long long)c.classes - 1);
    mha_cuda_run(ctx, MHA_CUDA_K_loss_rows, &c, c.rows);
    mha_cuda_run(ctx, MHA_CUDA_K_loss_sums, &c, 1);
    TRY(read_sums(ctx, &sums, &c));
    *loss = (mha_loss){sums.counted ? sums.loss / (double)sums.counted : 0, sums.counted, sums.correct};
    return MHA_OK;
}
