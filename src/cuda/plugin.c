/* The one symbol that libmha-cuda.so exports, and the table behind it. */
#include "core/device.h"
#include "cuda/attention/attention.h"
#include "cuda/ops/ops.h"
#include <string.h>

static const mha_backend backend = {.device = "cuda",
                                    .remote = true,
#define OP(name) .name = mha_cuda_op_##name,
                                    MHA_COMMON_OPS(OP) MHA_REMOTE_OPS(OP)
#undef OP
};

static mha_status describe(int ordinal, char *text, size_t size)
{
    mha_cuda_driver driver;
    mha_status status = mha_cuda_driver_open(&driver, text, size);
    return status ? status : mha_cuda_describe(&driver, ordinal, text, size);
}

static size_t shared_memory(mha_cuda_kernel kernel)
{
    const size_t attention = mha_cuda_attention_shared(kernel);
    return attention ? attention : mha_cuda_product_shared(kernel);
}

static mha_status open_device(mha_context *ctx, int ordinal, void *stream)
{
    return mha_cuda_device_open(ctx, ordinal, stream, shared_memory);
}

static const mha_plugin plugin = {&backend, "sm_90a", describe, open_device};

MHA_API mha_plugin_open mha_cuda_open;

const mha_plugin *mha_cuda_open(const mha_plugin_key *key)
{
    static const mha_plugin_key own = MHA_PLUGIN_KEY;
    return key && memcmp(key, &own, sizeof own) == 0 ? &plugin : NULL;
}
