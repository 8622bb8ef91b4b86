/* Conversion to float32 by mha_tensor_copy, except for float64, which the library does not support. */
#include "io/safetensors_floats.h"

#include <stdlib.h>

bool nn_safetensors_is_float(nn_safetensors_dtype dtype)
{
    return dtype == NN_SAFETENSORS_F16 || dtype == NN_SAFETENSORS_BF16 || dtype == NN_SAFETENSORS_F32 ||
           dtype == NN_SAFETENSORS_F64;
}

float *nn_safetensors_floats(mha_context *ctx, const nn_safetensors_tensor *tensor)
{
    mha_type type = tensor->dtype == NN_SAFETENSORS_F16    ? MHA_FLOAT16
                    : tensor->dtype == NN_SAFETENSORS_BF16 ? MHA_BFLOAT16
                                                           : MHA_FLOAT32;
    int64_t count = tensor->count;
    if ((uint64_t)count > SIZE_MAX / sizeof(float) - 1) return NULL;
    float *numbers = calloc((size_t)count + 1, sizeof *numbers);
    if (!numbers) return NULL;
    if (tensor->dtype == NN_SAFETENSORS_F64) {
        for (int64_t i = 0; i < count; i++) numbers[i] = (float)((const double *)tensor->data)[i];
        return numbers;
    }
    if (mha_tensor_copy(ctx, mha_tensor_1d(numbers, MHA_FLOAT32, count), mha_tensor_1d(tensor->data, type, count)) ==
        MHA_OK)
        return numbers;
    free(numbers);
    return NULL;
}
