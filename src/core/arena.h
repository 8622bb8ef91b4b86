/* Memory that is cut up. */
#ifndef MHA_CORE_ARENA_H
#define MHA_CORE_ARENA_H

#include "core/tensor.h"

/* Memory that is cut up twice: first to learn how much, with no base; then in earnest. */
typedef struct mha_arena {
    char *base;
    size_t used;
    bool too_large;
} mha_arena;

void *mha_arena_take(mha_arena *arena, int64_t count, size_t size);
mha_tensor mha_arena_matrix(mha_arena *arena, mha_type type, int64_t rows, int64_t columns);

#endif
