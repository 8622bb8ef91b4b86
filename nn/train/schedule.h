/* The learning rate of each step of a training run whose length is known:
 *
 *     nn_schedule plan = {NN_SCHEDULE_COSINE, .peak = 1e-3, .floor = 1e-5, .warmup = 100, .steps = 2000};
 *     for (int64_t step = 0; step < plan.steps; step++) ... nn_schedule_rate(&plan, step) ...
 *
 * Steps count from 0. All kinds rise to the peak in the first `warmup` steps and reach it at the last of these (at step
 * 0 if `warmup` is 0):
 *
 *     CONSTANT     linear, from peak / warmup; then constant at the peak
 *     COSINE       linear as above; then half a cosine down to the floor at step steps - 1
 *     ONE_CYCLE    half a cosine up from `start` at step 0; down as above. PyTorch's OneCycleLR is
 *                  warmup = pct_start * total_steps, start = peak / 25, floor = start / 10000
 *
 * Steps below 0 or beyond the last have the rate of the nearest step of the run. */
#ifndef NN_TRAIN_SCHEDULE_H
#define NN_TRAIN_SCHEDULE_H

#include <stdint.h>

typedef enum nn_schedule_kind { NN_SCHEDULE_CONSTANT, NN_SCHEDULE_COSINE, NN_SCHEDULE_ONE_CYCLE } nn_schedule_kind;

typedef struct nn_schedule {
    nn_schedule_kind kind;
    double peak;
    double start;   /* ONE_CYCLE only */
    double floor;   /* not used by CONSTANT */
    int64_t warmup; /* steps */
    int64_t steps;  /* total; not used by CONSTANT */
} nn_schedule;

/* Bitwise identical on every machine: the cosine is a polynomial in float64, not the C library's. */
float nn_schedule_rate(const nn_schedule *plan, int64_t step);

#endif
