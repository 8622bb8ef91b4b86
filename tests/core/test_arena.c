/* Arenas: measuring and laying out agree, arrays lie apart on cache lines, and what cannot fit is refused. */
#include "core/arena.h"
#include "support/harness.h"

typedef struct parts {
    char *bytes;
    double *numbers;
    float *none;
    int64_t *last;
} parts;

static void lay_out(parts *p, mha_arena *arena, int64_t n)
{
    MHA_TAKE(arena, p->bytes, n);
    MHA_TAKE(arena, p->numbers, n);
    MHA_TAKE(arena, p->none, 0);
    MHA_TAKE(arena, p->last, n);
}

TEST(layouts_are_as_large_as_measured)
{
    static _Alignas(MHA_ALIGNMENT) char memory[4096];
    const int64_t sizes[] = {0, 1, 7, 8, 9, 64, 65};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t n = sizes[i];
        size_t bytes = mha_align_up((size_t)n), words = mha_align_up((size_t)n * 8);
        mha_arena measure = {0}, arena = {.base = memory};
        parts p = {.bytes = memory};
        lay_out(&p, &measure, n);
        expect(!p.bytes && !p.numbers && !p.none && !p.last, "%d: measuring gave memory", (int)n);
        expect(measure.used == bytes + 2 * words && !measure.too_large, "%d: %zu bytes", (int)n, measure.used);
        lay_out(&p, &arena, n);
        expect(arena.used == measure.used, "%d: %zu bytes, measured %zu", (int)n, arena.used, measure.used);
        expect(p.bytes == memory && (char *)p.numbers == memory + bytes && (char *)p.last == memory + bytes + words,
               "%d: arrays do not follow one another", (int)n);
    }
}

TEST(what_does_not_fit_memory_is_refused)
{
    const int64_t counts[] = {-1,
                              INT64_MAX,
                              INT64_MAX / 8,
                              INT64_MAX / 8 + 2,
                              INT64_MIN,
                              mha_arena_times(INT64_C(1) << 40, INT64_C(1) << 40)};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        mha_arena arena = {0};
        double *numbers;
        MHA_TAKE(&arena, numbers, counts[i]);
        expect(arena.too_large && !numbers, "%lld numbers are not refused", (long long)counts[i]);
        MHA_TAKE(&arena, numbers, 1);
        expect(arena.too_large, "%lld numbers are forgotten", (long long)counts[i]);
    }
    mha_arena sum = {0};
    for (int i = 0; i < 64; i++) mha_arena_take(&sum, INT64_MAX / 64, 1);
    expect(sum.too_large, "a sum beyond memory is not refused");
}

TEST(products_of_counts_saturate)
{
    expect(mha_arena_times(3, 5) == 15 && mha_arena_times(0, INT64_MAX) == 0, "small products");
    expect(mha_arena_times(INT64_MAX, 2) == INT64_MAX, "a large product");
    expect(mha_arena_times(mha_arena_times(INT64_C(1) << 40, INT64_C(1) << 40), 3) == INT64_MAX, "a product of three");
}
