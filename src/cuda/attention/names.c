/* Names of the kernels of attention. */
#include "cuda/plan.h"

enum { TYPES = 2 };

const char *mha_cuda_forward_name(int type, int width, mha_cuda_kind kind, bool few)
{
#define WIDE(kernel) kernel, kernel "_window", kernel "_options", kernel "_maps", kernel "_bits"
#define NAMES(kernel)                \
    {                                \
        WIDE(kernel), kernel "_bias" \
    }
    static const char *const names[TYPES][MHA_CUDA_SHORT][MHA_CUDA_KINDS] = {{NAMES("forward_bf16_64"),
                                                                              NAMES("forward_bf16_128"),
                                                                              NAMES("forward_bf16_96"),
                                                                              {WIDE("forward_bf16_192")},
                                                                              {WIDE("forward_bf16_256")}},
                                                                             {NAMES("forward_f16_64"),
                                                                              NAMES("forward_f16_128"),
                                                                              NAMES("forward_f16_96"),
                                                                              {WIDE("forward_f16_192")},
                                                                              {WIDE("forward_f16_256")}}};
#undef NAMES
#undef WIDE
#define FEW(kernel)                                                                \
    {                                                                              \
        [MHA_CUDA_FULL] = kernel "_few", [MHA_CUDA_WINDOW] = kernel "_window_few", \
        [MHA_CUDA_BIASED] = kernel "_bias_few"                                     \
    }
    static const char *const of_few[TYPES][MHA_CUDA_KINDS] = {FEW("forward_bf16_64"), FEW("forward_f16_64")};
#undef FEW
    static const char *const of_short[TYPES][2] = {{"forward_bf16_64_short", "forward_bf16_64_short_few"},
                                                   {"forward_f16_64_short", "forward_f16_64_short_few"}};
    static const char *const short_options[TYPES] = {"forward_bf16_64_short_options", "forward_f16_64_short_options"};
    if (width == MHA_CUDA_SHORT && kind == MHA_CUDA_OPTIONS) return short_options[type];
    if (width == MHA_CUDA_SHORT) return kind == MHA_CUDA_FULL ? of_short[type][few] : NULL;
    return few && !width && of_few[type][kind] ? of_few[type][kind] : names[type][width][kind];
}

const char *mha_cuda_decode_name(int type, int width)
{
    static const char *const names[TYPES][MHA_CUDA_DECODE_WIDTHS] = {
        {"decode_bf16_64", "decode_bf16_128", "decode_bf16_256"},
        {"decode_f16_64", "decode_f16_128", "decode_f16_256"}};
    return names[type][width];
}

const char *mha_cuda_many_name(int type, int width, bool wide)
{
#define NAMES(kernel)                                                                                 \
    {                                                                                                 \
        {kernel "_64", kernel "_64_128_rows"}, {kernel "_128", kernel "_128_128_rows"},               \
            {kernel "_192_128", kernel "_192_128_128_rows"}, {kernel "_192", kernel "_192_128_rows"}, \
            {kernel "_256", kernel "_256_128_rows"},                                                  \
    }
    static const char *const names[TYPES][MHA_CUDA_MANY_WIDTHS][2] = {NAMES("decode_many_bf16"),
                                                                      NAMES("decode_many_f16")};
#undef NAMES
    return names[type][width][wide];
}

const char *mha_cuda_merge_name(int columns)
{
    static const char *const names[MHA_CUDA_MERGE_WIDTHS] = {"decode_merge_64", "decode_merge_128", "decode_merge_192",
                                                             "decode_merge_256"};
    return names[columns / 64 - 1];
}

const char *const mha_cuda_general_names[MHA_CUDA_GENERAL_KERNELS] = {[MHA_CUDA_FORWARD] = "general_forward_64",
                                                                      [MHA_CUDA_FORWARD_WIDE] = "general_forward_128",
                                                                      [MHA_CUDA_REPAIR] = "general_repair_64",
                                                                      [MHA_CUDA_REPAIR_WIDE] = "general_repair_128",
                                                                      [MHA_CUDA_MAP] = "general_map",
                                                                      [MHA_CUDA_GENERAL_PREPARE] = "general_prepare",
                                                                      [MHA_CUDA_ROWS] = "general_rows_64",
                                                                      [MHA_CUDA_ROWS_WIDE] = "general_rows_128",
                                                                      [MHA_CUDA_KEYS] = "general_keys_64",
                                                                      [MHA_CUDA_KEYS_WIDE] = "general_keys_128",
                                                                      [MHA_CUDA_BIAS] = "general_bias",
                                                                      [MHA_CUDA_HEADS] = "general_heads"};

const char *mha_cuda_backward_name(int type, int width, mha_cuda_kind kind, mha_cuda_step step)
{
#define STEPS(kernel, shared)                        \
    {                                                \
        shared "_prepare", kernel, shared "_convert" \
    }
#define NAMES(kernel)                                                                               \
    {                                                                                               \
        STEPS(kernel, kernel), STEPS(kernel "_window", kernel), STEPS(kernel "_options", kernel),   \
            STEPS(kernel "_maps", kernel "_maps"), STEPS(kernel "_sequences", kernel "_sequences"), \
            STEPS(kernel "_sequences_options", kernel "_sequences")                                 \
    }
    static const char *const names[TYPES][MHA_CUDA_BACKWARD_WIDTHS][MHA_CUDA_BACKWARD_KINDS][MHA_CUDA_STEPS] = {
        {NAMES("backward_bf16_64"), NAMES("backward_bf16_128"), NAMES("backward_bf16_256")},
        {NAMES("backward_f16_64"), NAMES("backward_f16_128"), NAMES("backward_f16_256")}};
#undef NAMES
#undef STEPS
    return names[type][width][kind][step];
}

const char *mha_cuda_shared_name(int type, int width, mha_cuda_kind kind)
{
    static const char *const names[TYPES][MHA_CUDA_WIDTHS][2] = {
        {{"backward_bf16_64_shared", "backward_bf16_64_window_shared"},
         {"backward_bf16_128_shared", "backward_bf16_128_window_shared"}},
        {{"backward_f16_64_shared", "backward_f16_64_window_shared"},
         {"backward_f16_128_shared", "backward_f16_128_window_shared"}}};
    return names[type][width][kind];
}

const char *mha_cuda_brief_name(int type, int width, mha_cuda_kind kind, mha_cuda_step step)
{
#define STEPS(main, kernel)                        \
    {                                              \
        kernel "_prepare", main, kernel "_convert" \
    }
#define NAMES(kernel)                                                                                \
    {                                                                                                \
        [MHA_CUDA_FULL] = STEPS(kernel "_brief", kernel "_brief"),                                   \
        [MHA_CUDA_WINDOW] = STEPS(kernel "_brief_window", kernel "_brief"), [MHA_CUDA_SEQUENCES] = { \
            kernel "_brief_sequences_prepare",                                                       \
            kernel "_brief_sequences",                                                               \
            kernel "_sequences_convert"                                                              \
        }                                                                                            \
    }
    static const char *const names[TYPES][MHA_CUDA_WIDTHS][MHA_CUDA_BACKWARD_KINDS][MHA_CUDA_STEPS] = {
        {NAMES("backward_bf16_64"), NAMES("backward_bf16_128")}, {NAMES("backward_f16_64"), NAMES("backward_f16_128")}};
#undef NAMES
#undef STEPS
    return names[type][width][kind][step];
}
