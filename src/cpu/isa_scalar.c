#define ISA scalar
#include "cpu/vec_scalar.h"
#include "cpu/bodies.h"
