#define ISA neon
#include "cpu/vec_neon.h"
#include "cpu/bodies.h"
