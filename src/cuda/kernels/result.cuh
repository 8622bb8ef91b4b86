/* What becomes of a sum of products: alpha times it, plus what was there, plus a bias. Roundings are those of each of these
 * operations, in every kernel. */
#ifndef MHA_CUDA_RESULT_CUH
#define MHA_CUDA_RESULT_CUH

#include "elements.cuh"
#include "product.h"

typedef mha_cuda_product product;

MHA_DEVICE void put_number(const product &c, int64_t row, int64_t column, float x)
{
    x = __fmul_rn(x, c.alpha);
    if (c.old.data) x = __fadd_rn(x, load(c.old, place(c.old, row, column, 0, 0)));
    if (c.bias.data) x = __fadd_rn(x, load(c.bias, column * c.bias.stride[0]));
    store(c.c, place(c.c, row, column, 0, 0), x);
}

#endif
