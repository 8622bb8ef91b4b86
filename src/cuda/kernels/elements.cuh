/* Numbers of tensors of any float type. */
#ifndef MHA_CUDA_ELEMENTS_CUH
#define MHA_CUDA_ELEMENTS_CUH

#include "inline.cuh"
#include "view.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef mha_cuda_view view;

enum { FLOAT32, BFLOAT16, FLOAT16, BOOL, INT64, INT32 }; /* mha_type */

MHA_DEVICE int64_t place(const view &t, int64_t i, int64_t j, int64_t k, int64_t l)
{
    return i * t.stride[0] + j * t.stride[1] + k * t.stride[2] + l * t.stride[3];
}

MHA_DEVICE float load(const view &t, int64_t at)
{
    if (t.type == FLOAT32) return ((const float *)t.data)[at];
    if (t.type == BFLOAT16) return __bfloat162float(((const __nv_bfloat16 *)t.data)[at]);
    return __half2float(((const __half *)t.data)[at]);
}

MHA_DEVICE void store(const view &t, int64_t at, double x)
{
    if (t.type == FLOAT32) ((float *)t.data)[at] = (float)x;
    else if (t.type == BFLOAT16) ((__nv_bfloat16 *)t.data)[at] = __double2bfloat16(x);
    else ((__half *)t.data)[at] = __double2half(x);
}

MHA_DEVICE void store(const view &t, int64_t at, float x)
{
    if (t.type == FLOAT32) ((float *)t.data)[at] = x;
    else if (t.type == BFLOAT16) ((__nv_bfloat16 *)t.data)[at] = __float2bfloat16_rn(x);
    else ((__half *)t.data)[at] = __float2half_rn(x);
}

#endif
