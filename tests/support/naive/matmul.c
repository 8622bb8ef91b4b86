/* The matrix product on the naive table. A packed matrix is a header and the numbers as float64.
 *
 * The header lies where the CPU's would, at the first address that is aligned to MHA_ALIGNMENT, and there are at least
 * MHA_ALIGNMENT bytes of it. So each of the two devices finds its own header or that of the other one there, never the
 * rest of an older matrix, and reads nothing that was not packed. */
#include "support/naive/naive.h"

#include <stdlib.h>
#include <string.h>

static const char maker[16] = "naive, float64"; /* its address is in every header */

typedef struct header {
    const char *maker;
    int64_t K, N;
    mha_type a;
} header;

static double activate(mha_activation activation, double x)
{
    if (x == -INFINITY && activation != MHA_LINEAR && activation != MHA_TANH) return 0; /* the formulas give -inf * 0 */
    switch (activation) {
    case MHA_LINEAR:
        return x;
    case MHA_RELU:
        return x < 0 ? 0 : x;
    case MHA_GELU:
        return x / 2 * erfc(-x / sqrt(2));
    case MHA_GELU_TANH:
        return x / (1 + exp(-2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case MHA_SILU:
        return x / (1 + exp(-x));
    case MHA_TANH:
        return tanh(x);
    case MHA_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    case MHA_RELU_SQUARED:
        return x < 0 ? 0 : x * x;
    }
    return NAN;
}

/* A matrix as a dense array of its own. */
static double *dense(mha_tensor t)
{
    double *numbers = array(t.size[0] * t.size[1], sizeof *numbers);
    for (int64_t i = 0; i < t.size[0]; i++)
        for (int64_t j = 0; j < t.size[1]; j++) numbers[i * t.size[1] + j] = naive_get(t, i, j, 0, 0);
    return numbers;
}

/* b (K,N) */
static mha_status multiply(mha_context *ctx, mha_tensor c, mha_tensor a, const double *b, const mha_matmul_options *o)
{
    int64_t N = c.size[1], K = a.size[1];
    if (ctx->rehearsing) return MHA_OK;
    double *left = dense(a), *sums = array(N, sizeof *sums);
    for (int64_t i = 0; i < c.size[0]; i++) {
        memset(sums, 0, (size_t)N * sizeof *sums);
        for (int64_t k = 0; k < K; k++)
            for (int64_t j = 0; j < N; j++) sums[j] += left[i * K + k] * b[k * N + j];
        for (int64_t j = 0; j < N; j++) {
            double x = (double)o->alpha * sums[j];
            if (o->accumulate) x += naive_get(c, i, j, 0, 0);
            if (o->bias.rank) x += naive_get(o->bias, j, 0, 0, 0);
            naive_set(c, i, j, 0, 0, activate(o->activation, x));
        }
    }
    free(left);
    free(sums);
    return MHA_OK;
}

mha_status naive_matmul(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor b, const mha_matmul_options *options)
{
    if (ctx->rehearsing) return MHA_OK;
    double *right = dense(b);
    mha_status status = multiply(ctx, c, a, right, options);
    free(right);
    return status;
}

/* ---- Packed matrices -------------------------------------------------------------------------------------------- */

static int64_t packed_bytes(int64_t K, int64_t N) { return MHA_ALIGNMENT + K * N * (int64_t)sizeof(double); }

/* Where the header of packed memory lies; the numbers follow MHA_ALIGNMENT bytes later. */
static char *open(const void *packed)
{
    uintptr_t at = (uintptr_t)packed;
    return (char *)(at + (MHA_ALIGNMENT - at % MHA_ALIGNMENT) % MHA_ALIGNMENT);
}

mha_status naive_pack_size(mha_context *ctx, size_t *bytes, mha_tensor b, mha_type a)
{
    int64_t numbers;
    (void)a;
    if (__builtin_mul_overflow(b.size[0], b.size[1], &numbers) || numbers > PTRDIFF_MAX / 16)
        return mha_fail(ctx, MHA_TOO_LARGE, "b: a matrix of %lld x %lld has no place in memory", (long long)b.size[0],
                        (long long)b.size[1]);
    *bytes = (size_t)packed_bytes(b.size[0], b.size[1]) + MHA_ALIGNMENT;
    return MHA_OK;
}

mha_status naive_pack(mha_context *ctx, void *packed, mha_tensor b, mha_type a)
{
    header h = {maker, b.size[0], b.size[1], a};
    if (ctx->rehearsing) return MHA_OK;
    double *numbers = dense(b);
    char *to = open(packed);
    memset(to, 0, MHA_ALIGNMENT);
    memcpy(to, &h, sizeof h);
    memcpy(to + MHA_ALIGNMENT, numbers, (size_t)(h.K * h.N) * sizeof *numbers);
    free(numbers);
    return MHA_OK;
}

mha_status naive_packed_about(mha_context *ctx, mha_packed_about *about, const void *packed)
{
    header h;
    memcpy(&h, open(packed), sizeof h);
    if (h.maker != maker) return mha_fail(ctx, MHA_BAD_ARGUMENT, "packed: was not packed for the naive device");
    *about = (mha_packed_about){h.K, h.N, h.a, mha_tensor_1d(open(packed), MHA_BOOL, packed_bytes(h.K, h.N))};
    return MHA_OK;
}

mha_status naive_matmul_packed(mha_context *ctx, mha_tensor c, mha_tensor a, const void *packed,
                               const mha_matmul_options *options)
{
    return multiply(ctx, c, a, (const double *)(open(packed) + MHA_ALIGNMENT), options);
}
