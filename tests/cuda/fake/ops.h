/* The kernels of operations other than attention as plain loops, for the fake driver. */
#ifndef FAKE_OPS_H
#define FAKE_OPS_H

#include "cuda/fake/kernels.h"

/* The bytes of such a kernel's parameter; 0 if there is none of that name. */
size_t fake_ops_bytes(const char *name);

/* Runs it. Returns NULL, or what is wrong with the way it was started. */
const char *fake_ops_run(const fake_launch *launch);

#endif
