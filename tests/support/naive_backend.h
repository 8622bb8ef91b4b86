/* A second device beside the CPU: every operation of the library's table as plain loops in float64, attention by the
 * oracle. It has no scratch memory, no threads and no instruction sets, and shares no code with src/cpu. What holds for
 * a layer on this table as well depends on the table alone, not on how the CPU fills it. */
#ifndef NAIVE_BACKEND_H
#define NAIVE_BACKEND_H

#include "core/backend.h"

extern const mha_backend naive_backend;

#endif
