#include "core/arena.h"

mha_tensor mha_arena_matrix(mha_arena *arena, mha_type type, int64_t rows, int64_t columns)
{
    int64_t count;
    if (rows < 0 || __builtin_mul_overflow(rows, columns, &count)) arena->too_large = true, count = 0;
    return mha_tensor_2d(mha_arena_take(arena, count, mha_type_size(type)), type, rows, columns);
}
