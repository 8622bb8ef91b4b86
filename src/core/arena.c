#include "core/arena.h"

void *mha_arena_take(mha_arena *arena, int64_t count, size_t size)
{
    int64_t bytes;
    if (__builtin_mul_overflow(count, (int64_t)size, &bytes) || bytes > PTRDIFF_MAX / 64) {
        arena->too_large = true;
        return NULL;
    }
    size_t at = arena->used;
    arena->used += mha_align_up((size_t)bytes);
    arena->too_large |= arena->used > PTRDIFF_MAX / 2;
    return arena->base ? arena->base + at : NULL;
}

mha_tensor mha_arena_matrix(mha_arena *arena, mha_type type, int64_t rows, int64_t columns)
{
    int64_t count;
    if (rows < 0 || __builtin_mul_overflow(rows, columns, &count)) arena->too_large = true, count = 0;
    return mha_tensor_2d(mha_arena_take(arena, count, mha_type_size(type)), type, rows, columns);
}
