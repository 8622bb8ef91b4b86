/* The one symbol that libmha-cuda.so exports, and the table behind it. */
#include "core/device.h"
#include "cuda/attention.h"
#include "cuda/table.h"
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
    .attention_explain_stats = mha_cuda_explain_stats,
    .attention_backward = mha_cuda_backward_call,
    .attention_stats = mha_cuda_stats_call,
    .check_memory = mha_cuda_check_memory,
    .finish = mha_cuda_finish,
    .is_recording = mha_cuda_is_recording,
    .write = mha_cuda_write,
    .read = mha_cuda_read,
    .wait = mha_cuda_wait,
    .rotate = mha_cuda_rotate,
    .rotary_tables = mha_cuda_rotary_tables,
    .matmul = mha_cuda_matmul,
    .copy = mha_cuda_copy_numbers,
    .fill = mha_cuda_fill_all,
    .upload = mha_cuda_upload_bytes,
    .clear = mha_cuda_clear_rows,
    .places = mha_cuda_places,
    .append = mha_cuda_append,
    .normalize = mha_cuda_normalize,
    .normalize_back = mha_cuda_normalize_back,
    .gate = mha_cuda_gate,
    .gate_back = mha_cuda_gate_back,
    .sum_rows = mha_cuda_sum_rows,
    .partial_bytes = mha_cuda_partial_bytes,
    .finite = mha_cuda_finite,
    .clean = mha_cuda_clean,
    .average_heads = mha_cuda_average_heads,
    .extra_keys = mha_cuda_mix_keys,
    .extra_keys_back = mha_cuda_mix_keys_back,
    .activate = mha_cuda_activate,
    .activate_back = mha_cuda_activate_back,
    .activate_gated = mha_cuda_activate_gated,
    .activate_gated_back = mha_cuda_activate_gated_back,
    .cross_entropy = mha_cuda_cross_entropy,
    .dropout = mha_cuda_drop,
    .embed = mha_cuda_embed,
    .embed_back = mha_cuda_embed_back,
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
