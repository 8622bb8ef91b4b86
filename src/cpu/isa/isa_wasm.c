#define ISA wasm
#include "cpu/isa/vec_wasm.h"
#include "cpu/isa/bodies.h"
