/* Angles of the rotary embedding: position p and pair i of n turn by p * base^(-i/n), or by p times a frequency that is
 * given.
 *
 * In float64 alone that product is off by up to some 1e-15 p, which is 1e-3 at position 2^40. So base^(-i/n) is kept as
 * the sum of two numbers, and cosines and sines are within 1e-14 of the exact ones, before they are rounded, for all
 * positions up to 2^40 and bases from 1 to 1e200. */
#ifndef MHA_ATTENTION_ANGLES_H
#define MHA_ATTENTION_ANGLES_H

#include "core/context.h"

/* high + low, with |low| at most half a unit of high. */
typedef struct mha_step {
    double high, low;
} mha_step;

/* base^(-1/n), by which the step of each pair follows from that of the pair before it; the first is {1, 0}. */
mha_step mha_step_ratio(double base, int64_t n);
mha_step mha_step_multiply(mha_step a, mha_step b);

typedef struct mha_angle {
    float cos, sin;
} mha_angle;

/* Times the multiplier. */
mha_angle mha_angle_get(mha_step step, int64_t position, double multiplier);

#endif
