/* The vocabulary in plain C: a vector of one. It defines what every other vocabulary must mean, and runs anywhere.
 * Multiply-add rounds twice here: fmaf without the instruction is a slow call. */
#ifndef MHA_CPU_VEC_SCALAR_H
#define MHA_CPU_VEC_SCALAR_H

#include "core/half.h"
#include <math.h>

typedef float vf;
enum { VF = 1, BLOCK_ROWS = 4, BLOCK_VECTORS = 4 };

static inline vf vf_load(const float *p) { return *p; }
static inline void vf_store(float *p, vf x) { *p = x; }
/* The first n numbers of a vector, 1 <= n < VF: zeros behind those that are loaded, and no other is touched. A vector of
 * one has no such parts. */
static inline vf vf_load_part(const float *p, int64_t n) { return n > 0 ? *p : 0.0f; }
static inline void vf_store_part(float *p, vf x, int64_t n)
{
    if (n > 0) *p = x;
}
static inline vf vf_set1(float x) { return x; }
static inline vf vf_add(vf a, vf b) { return a + b; }
static inline vf vf_sub(vf a, vf b) { return a - b; }
static inline vf vf_mul(vf a, vf b) { return a * b; }
static inline vf vf_div(vf a, vf b) { return a / b; }
static inline vf vf_sqrt(vf a) { return sqrtf(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return a * b + c; } /* a*b + c */
static inline vf vf_max(vf a, vf b) { return a > b ? a : b; }   /* NaN if b is NaN */
/* The larger of a and |b|, for an a without sign; NaN is larger than everything, as bits compared as integers are. */
static inline vf vf_max_size(vf a, vf b)
{
    uint32_t x = mha_bits(a), y = mha_bits(b) & 0x7fffffff;
    return mha_from_bits(x > y ? x : y);
}
static inline vf vf_abs(vf a) { return mha_from_bits(mha_bits(a) & 0x7fffffff); }
static inline vf vf_copysign(vf a, vf sign)
{
    return mha_from_bits((mha_bits(a) & 0x7fffffff) | (mha_bits(sign) & 0x80000000));
}
static inline vf vf_where_less(vf a, vf b, vf yes, vf no) { return a < b ? yes : no; }   /* a < b ? yes : no */
static inline vf vf_where_equal(vf a, vf b, vf yes, vf no) { return a == b ? yes : no; } /* a == b ? yes : no */
static inline vf vf_where_set(const uint8_t *p, vf yes, vf no) { return *p ? yes : no; } /* a byte a lane */

/* 2^(i - 127) for the integer i in the low bits of z, from 0 (which gives 0) to 254. */
static inline vf vf_pow2(vf z) { return mha_from_bits(mha_bits(z) << 23); }

/* x = m * 2^e with 1 <= m < 2, for x > 0 that is not subnormal; 0 has e = -127 and m = 1. */
static inline vf vf_exponent(vf x) { return (float)(int32_t)(mha_bits(x) >> 23) - 127.0f; }
static inline vf vf_mantissa(vf x) { return mha_from_bits((mha_bits(x) & 0x7fffff) | 0x3f800000); }

static inline vf vf_load_bf16(const uint16_t *p) { return mha_bf16_to_f32(*p); }
static inline vf vf_load_f16(const uint16_t *p) { return mha_f16_to_f32(*p); }
static inline void vf_store_bf16(uint16_t *p, vf x) { *p = mha_f32_to_bf16(x); }
static inline void vf_store_f16(uint16_t *p, vf x) { *p = mha_f32_to_f16(x); }

/* VF pairs of 16 bits, and the numbers in their first or second halves. */
static inline vf vf_load_pairs(const uint16_t *p) { return mha_from_bits(p[0] | (uint32_t)p[1] << 16); }
static inline vf vf_half_bf16(vf pairs, bool second)
{
    return mha_bf16_to_f32((uint16_t)(mha_bits(pairs) >> 16 * second));
}
static inline vf vf_half_f16(vf pairs, bool second)
{
    return mha_f16_to_f32((uint16_t)(mha_bits(pairs) >> 16 * second));
}

/* The VF x VF matrix with its axes exchanged. */
static inline void vf_transpose(vf x[VF]) { (void)x; }

/* VA neighbours of the left factor of a product, which multiply-adds take one at a time. */
typedef float va;
enum { VA = 1 };
static inline va va_load(const float *p) { return *p; }
static inline vf vf_fma_lane(va a, int lane, vf b, vf c)
{
    (void)lane;
    return vf_fma(a, b, c);
}

#endif
