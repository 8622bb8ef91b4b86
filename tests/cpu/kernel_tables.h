/* What the tests of kernels share: each table of the machine, tiles and numbers to fill them with. */
#ifndef KERNEL_TABLES_H
#define KERNEL_TABLES_H

#include "support/harness.h"
#include "core/context.h"
#include "cpu/isa/kernels.h"

#define UNIT 0x1p-24 /* half the distance from 1 to the next float */

static unsigned state = 1;

/* A number from -1 to 1, the same ones in every run. */
static inline float some(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) * 0x1p-23f - 1.0f;
}

/* Runs a check on each table that the machine has, and makes sure that it is the one it was meant to be. */
static inline void each_table(void (*check)(const mha_kernels *kernels))
{
    for (int i = 0; i < mha_isa_count(); i++) {
        mha_isa isa = mha_isa_get(i);
        if (!isa.available) continue;
        mha_context_options options = MHA_CONTEXT_DEFAULTS;
        options.isa = isa.name;
        mha_context *ctx = NULL;
        if (!expect(mha_context_create(&ctx, &options) == MHA_OK, "no context for %s", isa.name)) continue;
        bool engine = ctx->engine != NULL; /* which stands beside the kernels of another set */
        expect(engine || strcmp(ctx->kernels->name, isa.name) == 0, "asked for %s, got %s", isa.name,
               ctx->kernels->name);
        if (!engine) check(ctx->kernels);
        mha_context_free(ctx);
    }
}

enum { WIDE = MHA_BLOCK, DEEP = 67, HIGH = 64, KEYS = 50, VALUES = 352 };

/* A tile of numbers, and the same with room beside it that nobody may touch. */
typedef float tile[HIGH * (WIDE + 16)];
enum { LD = WIDE + 16 };

static inline void fill(float *x, int64_t n, float size)
{
    for (int64_t i = 0; i < n; i++) x[i] = size * some();
}

#endif
