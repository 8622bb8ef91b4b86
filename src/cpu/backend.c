/* The table of the CPU. */
#include "cpu/attention/backward/backward.h"
#include "cpu/attention/forward.h"
#include "cpu/attention/stats/stats.h"
#include "cpu/matmul/matmul.h"
#include "cpu/ops/ops.h"
#include "cpu/rows/rows.h"

const mha_backend mha_backend_cpu = {.device = "cpu",
#define OP(name) .name = mha_cpu_##name,
                                     MHA_COMMON_OPS(OP) MHA_PACKING_OPS(OP)
#undef OP
};
