/* The naive table. */
#include "support/naive_backend.h"
#include "support/naive/naive.h"

const mha_backend naive_backend = {.device = "naive",
#define OP(name) .name = naive_##name,
                                   MHA_COMMON_OPS(OP) MHA_PACKING_OPS(OP)
#undef OP
};
