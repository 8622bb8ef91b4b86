/* The table of the CPU. */
#include "cpu/attention/backward/backward.h"
#include "cpu/attention/forward.h"
#include "cpu/attention/stats/stats.h"
#include "cpu/matmul/matmul.h"
#include "cpu/ops/ops.h"
#include "cpu/rows/rows.h"

const mha_backend mha_backend_cpu = {
    .device = "cpu",
    .attention_forward = mha_cpu_forward,
    .attention_explain = mha_cpu_explain,
    .attention_explain_backward = mha_cpu_explain_backward,
    .attention_explain_stats = mha_cpu_explain_stats,
    .attention_backward = mha_cpu_backward,
    .attention_stats = mha_cpu_stats,
    .rotate = mha_cpu_rotate,
    .rotary_tables = mha_cpu_rotary_tables,
    .matmul = mha_cpu_matmul,
    .pack_size = mha_cpu_pack_size,
    .pack = mha_cpu_pack,
    .packed_about = mha_cpu_packed_about,
    .matmul_packed = mha_cpu_matmul_packed,
    .copy = mha_cpu_copy,
    .fill = mha_cpu_fill,
    .upload = mha_cpu_upload,
    .clear = mha_cpu_clear,
    .places = mha_cpu_places,
    .append = mha_cpu_append,
    .normalize = mha_cpu_normalize,
    .normalize_back = mha_cpu_normalize_back,
    .gate = mha_cpu_gate,
    .gate_back = mha_cpu_gate_back,
    .sum_rows = mha_cpu_sum_rows,
    .partial_bytes = mha_cpu_partial_bytes,
    .finite = mha_cpu_finite,
    .clean = mha_cpu_clean,
    .average_heads = mha_cpu_average_heads,
    .extra_keys = mha_cpu_extra_keys,
    .extra_keys_back = mha_cpu_extra_keys_back,
    .activate = mha_cpu_activate,
    .activate_back = mha_cpu_activate_back,
    .activate_gated = mha_cpu_activate_gated,
    .activate_gated_back = mha_cpu_activate_gated_back,
    .cross_entropy = mha_cpu_cross_entropy,
    .dropout = mha_cpu_dropout,
    .embed = mha_cpu_embed,
    .embed_back = mha_cpu_embed_back,
};
