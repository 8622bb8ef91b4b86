/* Rows of tensors in and out of scratch: the place where types and strides end. */
#include "cpu/isa/kernels.h"
#include "core/half.h"

void mha_row_load(const mha_kernels *kernels, float *to, const void *from, mha_type type, int64_t stride, int64_t n)
{
    if (stride != 1) {
        int64_t step = stride * (int64_t)mha_type_size(type);
        for (int64_t i = 0; i < n; i++) to[i] = mha_load((const char *)from + i * step, type);
    } else if (type == MHA_FLOAT32) {
        memcpy(to, from, (size_t)n * sizeof *to);
    } else if (type == MHA_BFLOAT16) {
        kernels->widen_bf16(to, from, n);
    } else {
        kernels->widen_f16(to, from, n);
    }
}

void mha_row_store(const mha_kernels *kernels, void *to, mha_type type, int64_t stride, const float *from, int64_t n)
{
    if (stride != 1) {
        int64_t step = stride * (int64_t)mha_type_size(type);
        for (int64_t i = 0; i < n; i++) mha_store((char *)to + i * step, type, from[i]);
    } else if (type == MHA_FLOAT32) {
        memcpy(to, from, (size_t)n * sizeof *from);
    } else if (type == MHA_BFLOAT16) {
        kernels->narrow_bf16(to, from, n);
    } else {
        kernels->narrow_f16(to, from, n);
    }
}
