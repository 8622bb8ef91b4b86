/* The kernels of narrow heads and short sequences. */
#ifndef FAKE_SMALL_H
#define FAKE_SMALL_H

#include "cuda/fake/kernels.h"

/* The bytes of such a kernel's parameter; 0 if it is another kernel. */
size_t fake_small_bytes(const char *name);

/* Runs it. Returns NULL, or what is wrong with the way it was started. */
const char *fake_small(const fake_launch *launch);

#endif
