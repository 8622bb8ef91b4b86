/* Activations. A task takes a piece that fits L1; each number is read once and written once. Forward stores the derivative
 * for backward, which is then one product: forward has already computed the exponential, and the derivative replaces z, so
 * it needs no extra memory. */
#include "cpu/isa/kernels.h"
#include "cpu/ops/ops.h"
#include "cpu/rows/rows.h"

enum { PIECE = 4096 }; /* numbers of a task */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

typedef struct job {
    const mha_kernels *kernels;
    mha_activation activation;
    float *h, *slope; /* slope may be NULL */
    const float *z;
    int64_t count; /* numbers; of gates rows */
    int64_t width;
} job;

/* ---- One number in ---------------------------------------------------------------------------------------------- */

static void activate_piece(void *arg, int64_t n)
{
    const job *j = arg;
    int64_t first = n * PIECE;
    j->kernels->activate(j->h + first, j->slope ? j->slope + first : NULL, j->z + first,
                         smaller(PIECE, j->count - first), j->activation);
}

void mha_cpu_activate(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation)
{
    job j = {ctx->kernels, activation, h.data, slope.data, z.data, z.size[0] * z.size[1], 0};
    mha_parallel_each(ctx, (j.count + PIECE - 1) / PIECE, activate_piece, &j);
}

static void multiply_piece(void *arg, int64_t n)
{
    const job *j = arg;
    int64_t first = n * PIECE;
    j->kernels->multiply(j->h + first, j->z + first, smaller(PIECE, j->count - first));
}

void mha_cpu_activate_back(mha_context *ctx, mha_tensor dh, mha_tensor slope)
{
    job j = {.kernels = ctx->kernels, .h = dh.data, .z = slope.data, .count = dh.size[0] * dh.size[1]};
    mha_parallel_each(ctx, (j.count + PIECE - 1) / PIECE, multiply_piece, &j);
}

/* ---- Gates: two numbers in -------------------------------------------------------------------------------------- */

static void gate_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t width = j->width, end = smaller((chunk + 1) * MHA_CPU_CHUNK, j->count);
    for (int64_t r = chunk * MHA_CPU_CHUNK; r < end; r++) {
        const float *a = j->z + 2 * r * width;
        float *da = j->slope ? j->slope + 2 * r * width : NULL;
        j->kernels->activate_gated(j->h + r * width, da, da ? da + width : NULL, a, a + width, width, j->activation);
    }
}

void mha_cpu_activate_gated(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation)
{
    job j = {ctx->kernels, activation, h.data, slope.data, z.data, h.size[0], h.size[1]};
    mha_parallel_each(ctx, (j.count + MHA_CPU_CHUNK - 1) / MHA_CPU_CHUNK, gate_chunk, &j);
}

static void gate_chunk_back(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t width = j->width, end = smaller((chunk + 1) * MHA_CPU_CHUNK, j->count);
    for (int64_t r = chunk * MHA_CPU_CHUNK; r < end; r++) {
        j->kernels->multiply(j->slope + 2 * r * width, j->z + r * width, width);
        j->kernels->multiply(j->slope + (2 * r + 1) * width, j->z + r * width, width);
    }
}

void mha_cpu_activate_gated_back(mha_context *ctx, mha_tensor slope, mha_tensor dh)
{
    job j = {.kernels = ctx->kernels, .slope = slope.data, .z = dh.data, .count = dh.size[0], .width = dh.size[1]};
    mha_parallel_each(ctx, (j.count + MHA_CPU_CHUNK - 1) / MHA_CPU_CHUNK, gate_chunk_back, &j);
}
