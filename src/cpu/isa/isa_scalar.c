#define ISA scalar
#include "cpu/isa/vec_scalar.h"
#include "cpu/isa/bodies.h"
