/* The backward kernels of general attention by the naive device, and what kernels are told as calls. */
#ifndef FAKE_BACKWARD_H
#define FAKE_BACKWARD_H

#include "attention/problem.h"
#include "cuda/general.h"

/* A view as a tensor of four axes, or of one; none if it is none. */
mha_tensor fake_tensor(const mha_cuda_view *view);
mha_tensor fake_integers(const mha_cuda_view *view);

/* The problem that a kernel works on. */
mha_problem fake_problem(const mha_cuda_general *c, mha_context *ctx);

/* One of the backward kernels, by name. */
void fake_general_backward(const char *name, const mha_cuda_general *c);

#endif
