/* Laying out several arrays in one block of memory.
 *
 * A layout is a function that takes its arrays from an arena, one after another. It runs twice: on an arena without a
 * base it only counts bytes, which tells how much to reserve; on an arena with a base it sets the pointers. Both runs
 * are the same code, so that what is reserved is what is used. */
#ifndef MHA_CORE_ARENA_H
#define MHA_CORE_ARENA_H

#include "core/tensor.h"

/* Starts as {0}, which measures, or as {.base = memory}, with `memory` aligned to MHA_ALIGNMENT. */
typedef struct mha_arena {
    char *base;
    size_t used;    /* bytes taken so far: whole cache lines */
    bool too_large; /* something taken does not fit memory; `used` means nothing then */
} mha_arena;

/* `count` elements of `size` bytes, on cache lines of their own. NULL while the arena measures. Inline, because a small
 * attention call takes some sixty arrays. */
static inline void *mha_arena_take(mha_arena *arena, int64_t count, size_t size)
{
    int64_t bytes;
    if (__builtin_mul_overflow(count, (int64_t)size, &bytes) || (uint64_t)bytes > PTRDIFF_MAX / 64) {
        arena->too_large = true;
        return NULL;
    }
    size_t at = arena->used;
    arena->used += mha_align_up((size_t)bytes);
    arena->too_large |= arena->used > PTRDIFF_MAX / 2;
    return arena->base ? arena->base + at : NULL;
}

/* A dense matrix. */
mha_tensor mha_arena_matrix(mha_arena *arena, mha_type type, int64_t rows, int64_t columns);

/* Sets `pointer` to `count` elements of the type that it points to. */
#define MHA_TAKE(arena, pointer, count) ((pointer) = mha_arena_take((arena), (count), sizeof *(pointer)))

/* a * b for counts, INT64_MAX if it is more: an arena refuses that many. */
static inline int64_t mha_arena_times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

#endif
