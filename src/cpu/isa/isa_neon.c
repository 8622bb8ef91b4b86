#define ISA neon
#include "cpu/isa/vec_neon.h"
#include "cpu/isa/bodies.h"
