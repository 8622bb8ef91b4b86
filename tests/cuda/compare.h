/* The device's results beside the oracle's: included by test programs, because it notes failures with `expect`. */
#ifndef CUDA_COMPARE_H
#define CUDA_COMPARE_H

#include "cuda/calls.h"
#include "cuda/gpu.h"
#include "support/harness.h"
#include <time.h>

static inline uint64_t seed(void)
{
    static uint64_t chosen;
    if (!chosen) {
        chosen = (uint64_t)number_from("MHA_SEED", (long long)time(NULL));
        printf("MHA_SEED=%llu\n", (unsigned long long)chosen);
    }
    return chosen;
}

/* A context for a stream; NULL, with the reason as that of the test, if there is no GPU. */
static inline mha_context *make_context(void *stream)
{
    char why[200] = "";
    mha_context *ctx = NULL;
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    if (!gpu_open(why, sizeof why)) {
        not_given(why);
        return NULL;
    }
    options.device = "cuda";
    options.stream = stream;
    options.error = why;
    options.error_size = sizeof why;
    expect(mha_context_create(&ctx, &options) == MHA_OK, "%s", why);
    return ctx;
}

static inline bool works(mha_context *ctx, mha_status status, shape s)
{
    return expect(status == MHA_OK, "%s: %s: %s", shape_text(s), mha_status_name(status), mha_context_error(ctx));
}

typedef struct errors {
    double error, size; /* norms */
    bool finite;
} errors;

static inline errors compare(const call *c, int tensor)
{
    errors e = {0, 0, true};
    mha_tensor t = c->view[tensor];
    uint16_t *numbers = array(c->count[tensor] + 1, sizeof *numbers);
    gpu_read(numbers, c->device[tensor], (size_t)c->count[tensor] * sizeof *numbers);
    for (int64_t n = 0; n < c->count[tensor]; n++) {
        int64_t at = 0, rest = n;
        for (int axis = 3; axis >= 0; rest /= t.size[axis], axis--) at += rest % t.size[axis] * t.stride[axis];
        double got = element_get(&numbers[at], c->shape.type), want = c->exact[tensor][n];
        e.finite &= isfinite(got);
        e.error += (got - want) * (got - want);
        e.size += want * want;
    }
    free(numbers);
    e.error = sqrt(e.error), e.size = sqrt(e.size);
    return e;
}

static inline void check_forward(const call *c)
{
    int64_t rows = c->shape.B * c->shape.H * c->shape.Tq;
    errors e = compare(c, OUT);
    expect(e.finite && e.error <= 5e-3 * e.size, "%s: out has a relative error of %.2e", shape_text(c->shape),
           e.error / e.size);
    float *lse = array(rows + 1, sizeof *lse), *softmax = array(2 * rows + 1, sizeof *softmax);
    gpu_read(lse, c->lse, (size_t)rows * sizeof *lse);
    gpu_read(softmax, c->softmax, (size_t)rows * 2 * sizeof *softmax);
    for (int64_t n = 0; n < rows; n++) {
        double want = c->lse_exact[n], joined = (double)softmax[2 * n] + log((double)softmax[2 * n + 1]);
        bool sees = !isinf(want);
        if (!expect(sees ? fabs((double)lse[n] - want) < 2e-4 && fabs(joined - want) < 2e-4
                         : isinf(lse[n]) && lse[n] < 0 && softmax[2 * n] == lse[n] && softmax[2 * n + 1] == 0,
                    "%s: row %lld: lse is %g, softmax (%g, %g), must be %g", shape_text(c->shape), (long long)n,
                    (double)lse[n], (double)softmax[2 * n], (double)softmax[2 * n + 1], want))
            break;
    }
    free(lse);
    free(softmax);
}

/* Gradients by q and k of a row that sees one key are zero, and rounding of `out` is all there is: the bound has a part
 * that does not shrink with them. */
static inline void check_backward(const call *c)
{
    static const char *const names[] = {"dq", "dk", "dv"};
    bool first_keys = c->shape.causal && c->shape.align == MHA_ALIGN_TOP_LEFT && c->shape.Tq < c->shape.Tk;
    double seen = (double)(first_keys ? c->shape.Tq : c->shape.Tk); /* keys of a row, at most */
    for (int n = DQ; n <= DV; n++) {
        errors e = compare(c, n);
        double least = 1e-2 * sqrt((double)c->count[n]) / (seen + 1);
        expect(e.finite && e.error <= 1e-2 * e.size + least, "%s: %s has an error of %.2e, and a size of %.2e",
               shape_text(c->shape), names[n - DQ], e.error, e.size);
    }
}

/* Whether gradients are twice what call_bits returned before; its numbers of 16 bits end with them. */
static inline void check_doubled(const call *c, const uint16_t *before)
{
    size_t bytes;
    uint16_t *after = call_bits(c, &bytes);
    int64_t count = c->count[DQ] + c->count[DK] + c->count[DV], end = (int64_t)(bytes / sizeof *after);
    for (int64_t n = end - count; n < end; n++)
        if (!expect(element_get(&after[n], c->shape.type) == 2 * element_get(&before[n], c->shape.type),
                    "%s: number %lld of the gradients is not added", shape_text(c->shape),
                    (long long)(n - end + count)))
            break;
    free(after);
}

#endif
