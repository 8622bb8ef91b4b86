/* A context of the CPU and one of a GPU, and numbers in the memory of both: included by test programs, as compare.h. */
#ifndef CUDA_BOTH_H
#define CUDA_BOTH_H

#include "cuda/compare.h"

typedef struct both {
    mha_context *cpu, *gpu;
} both;

typedef struct numbers {
    int64_t count;
    float *host, *device;
} numbers;

/* False, after saying why, where there is no GPU. */
static inline bool both_start(both *c, void *stream)
{
    *c = (both){NULL, make_context(stream)};
    return c->gpu && expect(mha_context_create(&c->cpu, NULL) == MHA_OK, "no context of the CPU");
}

static inline void both_stop(both *c)
{
    mha_context_free(c->cpu);
    mha_context_free(c->gpu);
}

static inline bool both_fine(mha_context *ctx, mha_status status, const char *what)
{
    return expect(status == MHA_OK, "%s on %s: %s: %s", what, mha_context_device(ctx), mha_status_name(status),
                  mha_context_error(ctx));
}

/* Random ones from -1 to 1, or with r NULL zeros on the host and NaN on the device. */
static inline numbers numbers_make(int64_t count, rng *r)
{
    numbers n = {count, array(count + 1, sizeof(float)), gpu_make((size_t)(count + 1) * sizeof(float))};
    for (int64_t i = 0; i < count; i++) n.host[i] = r ? (float)(2 * rng_uniform(r) - 1) : 0;
    if (r) gpu_write(n.device, n.host, (size_t)count * sizeof(float));
    return n;
}

/* As (B,T,*). */
static inline mha_tensor numbers_view(const numbers *n, bool device, int64_t B, int64_t T)
{
    return mha_tensor_3d(device ? n->device : n->host, MHA_FLOAT32, B, T, n->count / (B * T));
}

static inline void numbers_free(numbers *n)
{
    expect(gpu_free(n->device), "something was written behind its memory");
    free(n->host);
}

/* How far the device's numbers are from the host's, relative to the largest. */
static inline double numbers_distance(const float *host, const void *device, int64_t count)
{
    float *read = array(count + 1, sizeof *read);
    double most = 1e-30, error = 0;
    gpu_read(read, device, (size_t)count * sizeof *read);
    for (int64_t n = 0; n < count; n++) {
        most = fmax(most, fabs((double)host[n]));
        error = fmax(error, fabs((double)host[n] - (double)read[n]));
        if (!isfinite((double)read[n])) error = INFINITY;
    }
    free(read);
    return error / most;
}

static inline void numbers_check(const numbers *n, double bound, const char *what, const char *name)
{
    double error = numbers_distance(n->host, n->device, n->count);
    expect(error <= bound, "%s: %s is off by %.3g, more than %.3g", name, what, error, bound);
}

/* Integers in the memory of the GPU. */
static inline void *both_upload(const int64_t *from, int64_t count)
{
    void *to = gpu_make((size_t)count * sizeof *from);
    gpu_write(to, from, (size_t)count * sizeof *from);
    return to;
}

#endif
