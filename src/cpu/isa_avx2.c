#define ISA avx2
#include "cpu/vec_avx2.h"
#include "cpu/bodies.h"
