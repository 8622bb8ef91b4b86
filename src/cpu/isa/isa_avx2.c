#define ISA avx2
#include "cpu/isa/vec_avx2.h"
#include "cpu/isa/bodies.h"
