/* The forward pass of the general kernels as plain loops in float64. */
#ifndef FAKE_GENERAL_H
#define FAKE_GENERAL_H

#include "cuda/general.h"
#include "cuda/schedule.h"

/* All rows of a call; and a map of weights or scores. */
/* Of all sequences; of those that go one way. */
void fake_general_forward(const mha_cuda_general *c);
void fake_general_forward_of(const mha_cuda_general *c, mha_cuda_ways ways, mha_cuda_way way);
void fake_general_map(const mha_cuda_general *c);

#endif
