#define ISA avx512
#include "cpu/vec_avx512.h"
#include "cpu/bodies.h"
