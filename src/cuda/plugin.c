/* The one symbol that libmha-cuda.so exports, and the table behind it. */
#include "core/device.h"
#include "cuda/attention.h"
#include "cuda/device.h"
#include <string.h>

static const mha_backend backend = {
    .device = "cuda",
    .remote = true,
    .close = mha_cuda_device_close,
    .scratch = mha_cuda_device_scratch,
    .attention_forward = mha_cuda_forward_call,
    .attention_explain = mha_cuda_explain,
    .attention_explain_backward = mha_cuda_explain_backward,
    .attention_backward = mha_cuda_backward_call,
};

static mha_status describe(int ordinal, char *text, size_t size)
{
    mha_cuda_driver driver;
    mha_status status = mha_cuda_driver_open(&driver, text, size);
    return status ? status : mha_cuda_describe(&driver, ordinal, text, size);
}

static const mha_plugin plugin = {&backend, "sm_90a", describe, mha_cuda_device_open};

MHA_API mha_plugin_open mha_cuda_open;

const mha_plugin *mha_cuda_open(const mha_plugin_key *key)
{
    static const mha_plugin_key own = MHA_PLUGIN_KEY;
    return key && memcmp(key, &own, sizeof own) == 0 ? &plugin : NULL;
}
