#define ISA avx512
#include "cpu/isa/vec_avx512.h"
#include "cpu/isa/bodies.h"
