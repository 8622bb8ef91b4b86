/* The kernels of statistics as plain loops, for the fake driver. */
#ifndef FAKE_STATS_H
#define FAKE_STATS_H

#include "cuda/fake/kernels.h"

const char *fake_stats(const fake_launch *launch);

#endif
