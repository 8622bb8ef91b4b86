/* The learning rate of each step of a training run whose length is known:
 *
 *     nn_schedule plan = {NN_SCHEDULE_COSINE, .peak = 1e-3, .floor = 1e-5, .warmup = 100, .steps = 2000};
 *     for (int64_t step = 0; step < plan.steps; step++) ... nn_schedule_rate(&plan, step) ...
 *
 * Steps count from 0. All kinds rise to the peak in the first `warmup` steps, and have it at the last of those (at
 * step 0 if there are none):
 *
 *     CONSTANT     up in equal steps, from peak / warmup; then the peak, for ever
 *     COSINE       up as above; then down by half a cosine, to the floor at step steps - 1
 *     ONE_CYCLE    up by half a cosine from `start`, which step 0 has; down as above. PyTorch's OneCycleLR is
 *                  warmup = pct_start * total_steps, start = peak / 25, floor = start / 10000
 *
 * What is below 0 or beyond the last step is as the nearest step of the run. */
#ifndef NN_TRAIN_SCHEDULE_H
#define NN_TRAIN_SCHEDULE_H

#include <stdint.h>

typedef enum nn_schedule_kind { NN_SCHEDULE_CONSTANT, NN_SCHEDULE_COSINE, NN_SCHEDULE_ONE_CYCLE } nn_schedule_kind;

typedef struct nn_schedule {
    nn_schedule_kind kind;
    double peak;
    double start;   /* of ONE_CYCLE alone */
    double floor;   /* not of CONSTANT */
    int64_t warmup; /* steps */
    int64_t steps;  /* in all; CONSTANT needs none */
} nn_schedule;

/* The same bits on every machine: the cosine is made of sums and products in float64, without the C library's. */
float nn_schedule_rate(const nn_schedule *plan, int64_t step);

#endif
