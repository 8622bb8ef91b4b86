/* Conversion of a tensor of any float type to float32. */
#ifndef NN_IO_SAFETENSORS_FLOATS_H
#define NN_IO_SAFETENSORS_FLOATS_H

#include "io/safetensors.h"

/* float16, bfloat16, float32 and float64. */
bool nn_safetensors_is_float(nn_safetensors_dtype dtype);

/* The elements of a float tensor, widened or rounded to nearest even: tensor->count numbers, to be freed by the caller.
 * NULL if out of memory. */
float *nn_safetensors_floats(mha_context *ctx, const nn_safetensors_tensor *tensor);

#endif
