/* The public edge of a device's memory: allocating it, copying it from and to the host, waiting. On the CPU, whose memory is
 * the host's, copies are memcpy and nothing has to be waited for. */
#include "core/context.h"
#include <string.h>

static mha_status begin_call(mha_context *ctx)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    return MHA_OK;
}

mha_status mha_device_allocate(mha_context *ctx, void **memory, size_t bytes)
{
    TRY(begin_call(ctx));
    if (!memory) return mha_fail(ctx, MHA_BAD_ARGUMENT, "memory: is NULL");
    *memory = ctx->memory.allocate(ctx->memory.user, bytes ? bytes : 1);
    if (*memory) return MHA_OK;
    return mha_fail(ctx, MHA_NO_MEMORY, "memory: %s has no %zu bytes", ctx->backend->device, bytes);
}

void mha_device_release(mha_context *ctx, void *memory)
{
    if (ctx && memory) ctx->memory.release(ctx->memory.user, memory);
}

/* The device's side of a copy is checked, so that a mistake is a status and not a crash. */
static mha_status check(mha_context *ctx, const void *there, const char *name, const void *here, const char *other,
                        size_t bytes)
{
    TRY(begin_call(ctx));
    if (!bytes) return MHA_OK;
    if (!there || !here) return mha_fail(ctx, MHA_BAD_ARGUMENT, "%s: is NULL", there ? other : name);
    if (bytes > PTRDIFF_MAX) return mha_fail(ctx, MHA_TOO_LARGE, "bytes: are more than memory has");
    return mha_check_memory(ctx, mha_tensor_1d(there, MHA_BOOL, (int64_t)bytes), name);
}

mha_status mha_device_write(mha_context *ctx, void *to, const void *from, size_t bytes)
{
    TRY(check(ctx, to, "to", from, "from", bytes));
    if (bytes && ctx->backend->write) return ctx->backend->write(ctx, to, from, bytes);
    if (bytes) memmove(to, from, bytes);
    return MHA_OK;
}

mha_status mha_device_read(mha_context *ctx, void *to, const void *from, size_t bytes)
{
    TRY(check(ctx, from, "from", to, "to", bytes));
    if (bytes && ctx->backend->read) return ctx->backend->read(ctx, to, from, bytes);
    if (bytes) memmove(to, from, bytes);
    return MHA_OK;
}

mha_status mha_device_wait(mha_context *ctx)
{
    TRY(begin_call(ctx));
    return ctx->backend->wait ? ctx->backend->wait(ctx) : MHA_OK;
}
