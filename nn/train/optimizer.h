/* AdamW over one block of float32 parameters, with gradient clipping by norm and weight averaging:
 *
 *     nn_optimizer_group weights[] = {{first, count, 0.05f}};               biases, norms and embeddings: no group
 *     nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
 *     options.groups = weights, options.group_count = 1, options.clip = 1, options.average = 0.999;
 *     nn_optimizer *adam = nn_optimizer_create(parameters, gradient, count, &options, error, sizeof error);
 *     ... fill the gradient ...
 *     if (!nn_optimizer_step(adam, ctx, rate, &norm)) printf("the gradient's norm is %g\n", norm);
 *     nn_optimizer_free(adam);
 *
 * Step t = 1, 2, ... with gradient g and learning rate r computes, for each parameter w with moments m and v, average a
 * and decay d,
 *
 *     g = g * min(1, clip / (norm + 1e-6))                  norm: of the whole gradient, before clipping
 *     m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2
 *     w = w - r d w - r m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)
 *     a = s a + (1 - s) w                                   s = average, or less in the first steps
 *
 * like torch.optim.AdamW after torch.nn.utils.clip_grad_norm_. Bitwise identical for any number of threads and on every
 * machine: the norm is summed in float64, in pieces of a fixed size that are added in order. A step makes two passes
 * over memory: one for the norm and one for everything else.
 *
 * To resume later with the same bits, save the parameters, `steps`, `moment1`, `moment2` and `average`, and restore
 * them into an optimizer created with the same options. */
#ifndef NN_TRAIN_OPTIMIZER_H
#define NN_TRAIN_OPTIMIZER_H

#include <mha.h>

/* Weight decay of the parameters [first, first + count). Parameters outside all groups have none. */
typedef struct nn_optimizer_group {
    int64_t first, count;
    float decay;
} nn_optimizer_group;

typedef struct nn_optimizer_options {
    double beta1, beta2; /* in [0,1) */
    double epsilon;      /* > 0 */
    double clip;         /* the largest norm that is not clipped; 0: no clipping */
    double average;      /* s, in [0,1); 0: no averaging */
    bool
        average_ramp; /* s of step t is at most t / (t + 9), to reduce the weight of the initial values in short runs */
    bool clear;       /* a step zeroes the gradient, for backward passes that add to it */
    const nn_optimizer_group *groups; /* in order, without overlap; copied */
    int64_t group_count;
} nn_optimizer_options;

/* clang-format off */
#define NN_OPTIMIZER_DEFAULTS {0.9, 0.999, 1e-8, 0, 0, true, false, NULL, 0}
/* clang-format on */

/* All blocks have `count` numbers in the layout of the parameters and may not overlap. */
typedef struct nn_optimizer {
    float *parameters, *gradient; /* owned by the caller */
    int64_t count;
    int64_t steps; /* taken so far */
    float *moment1, *moment2;
    float *average;                      /* NULL without averaging */
    const nn_optimizer_options *options; /* its own copy */
    double *partials;                    /* sums of squares, one per piece */
} nn_optimizer;

/* Both blocks must outlive the optimizer. Moments start at zero, the average at the current parameters; `options` NULL
 * means NN_OPTIMIZER_DEFAULTS. Returns NULL on error, with one line in `error`, of `error_size` bytes. */
nn_optimizer *nn_optimizer_create(float *parameters, float *gradient, int64_t count,
                                  const nn_optimizer_options *options, char *error, size_t error_size);

/* NULL is legal. */
void nn_optimizer_free(nn_optimizer *o);

/* One step with this learning rate. Writes the norm of the gradient, before clipping, to *norm, unless NULL. Returns
 * false and changes nothing else if the norm or the rate is NaN or infinite, or the norm is still above
 * NN_OPTIMIZER_NORM_MAX after clipping: squares would overflow float32 and ruin their parameters permanently. */
#define NN_OPTIMIZER_NORM_MAX 1.8e19
bool nn_optimizer_step(nn_optimizer *o, mha_context *ctx, double rate, double *norm);

#endif
