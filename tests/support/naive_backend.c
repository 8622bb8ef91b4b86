/* The naive table. */
#include "support/naive_backend.h"
#include "support/naive/naive.h"

const mha_backend naive_backend = {
    .device = "naive",
    .attention_forward = naive_forward,
    .attention_explain = naive_explain,
    .attention_explain_backward = naive_explain_backward,
    .attention_explain_stats = naive_explain_stats,
    .attention_backward = naive_backward,
    .attention_stats = naive_stats,
    .rotate = naive_rotate,
    .rotary_tables = naive_rotary_tables,
    .matmul = naive_matmul,
    .pack_size = naive_pack_size,
    .pack = naive_pack,
    .packed_about = naive_packed_about,
    .matmul_packed = naive_matmul_packed,
    .copy = naive_copy,
    .fill = naive_fill,
    .upload = naive_upload,
    .normalize = naive_normalize,
    .normalize_back = naive_normalize_back,
    .gate = naive_gate,
    .gate_back = naive_gate_back,
    .sum_rows = naive_sum_rows,
    .partial_bytes = naive_partial_bytes,
    .finite = naive_finite,
    .clean = naive_clean,
    .average_heads = naive_average_heads,
    .extra_keys = naive_extra_keys,
    .extra_keys_back = naive_extra_keys_back,
};
