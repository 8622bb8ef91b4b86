/* bfloat16 and binary16 to float and back, one number at a time: rounding to nearest even, NaN stays NaN. The vector
 * versions of src/cpu give the same bits. */
#ifndef MHA_CORE_HALF_H
#define MHA_CORE_HALF_H

#include "mha.h"
#include <string.h>

static inline uint32_t mha_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float mha_from_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float mha_bf16_to_f32(uint16_t h) { return mha_from_bits((uint32_t)h << 16); }

static inline uint16_t mha_f32_to_bf16(float x)
{
    uint32_t u = mha_bits(x);
    if (x != x) return (uint16_t)(u >> 16 | 0x40); /* a NaN whose payload lies in the lower half must not become inf */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Both directions go through a multiplication by a power of two, which lets the float unit handle subnormals. */
static inline float mha_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    float x = mha_from_bits(rest << 13) * 0x1p112f;
    if (rest >= 0x7c00) x = mha_from_bits(0x7f800000 | rest << 13); /* inf and NaN keep their full exponent */
    return mha_from_bits(mha_bits(x) | sign | (rest > 0x7c00 ? 0x400000u : 0));
}

static inline uint16_t mha_f32_to_f16(float x)
{
    uint32_t u = mha_bits(x), sign = u >> 16 & 0x8000, rest = u & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x1ff));
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and beyond round to infinity */
    if (rest < 0x38800000) {                                  /* below 2^-14: let the adder round at 2^-24 */
        float y = mha_from_bits(rest) + 0.5f;
        return (uint16_t)(sign | (mha_bits(y) - 0x3f000000));
    }
    return (uint16_t)(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}

/* One element of a float tensor at `p`. */
static inline float mha_load(const void *p, mha_type type)
{
    if (type == MHA_FLOAT32) return *(const float *)p;
    return type == MHA_BFLOAT16 ? mha_bf16_to_f32(*(const uint16_t *)p) : mha_f16_to_f32(*(const uint16_t *)p);
}

static inline void mha_store(void *p, mha_type type, float x)
{
    if (type == MHA_FLOAT32) *(float *)p = x;
    else *(uint16_t *)p = type == MHA_BFLOAT16 ? mha_f32_to_bf16(x) : mha_f32_to_f16(x);
}

#endif
