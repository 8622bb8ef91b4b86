/* The vocabulary in NEON, as every 64-bit Arm has it: four floats. Meanings as in vec_scalar.h. */
#ifndef MHA_CPU_VEC_NEON_H
#define MHA_CPU_VEC_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <string.h>

typedef float32x4_t vf;
enum { VF = 4, BLOCK_ROWS = 8, BLOCK_VECTORS = 2 };

static inline vf vf_load(const float *p) { return vld1q_f32(p); }
static inline void vf_store(float *p, vf x) { vst1q_f32(p, x); }
static inline vf vf_load_part(const float *p, int64_t n)
{
    vf x = vsetq_lane_f32(p[0], vdupq_n_f32(0.0f), 0);
    if (n > 1) x = vsetq_lane_f32(p[1], x, 1);
    return n > 2 ? vsetq_lane_f32(p[2], x, 2) : x;
}
static inline void vf_store_part(float *p, vf x, int64_t n)
{
    p[0] = vgetq_lane_f32(x, 0);
    if (n > 1) p[1] = vgetq_lane_f32(x, 1);
    if (n > 2) p[2] = vgetq_lane_f32(x, 2);
}
static inline vf vf_set1(float x) { return vdupq_n_f32(x); }
static inline vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
static inline vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
static inline vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
static inline vf vf_sqrt(vf a) { return vsqrtq_f32(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); } /* a*b + c */
static inline vf vf_max(vf a, vf b) { return vmaxq_f32(a, b); }          /* NaN if either is NaN */
static inline vf vf_abs(vf a) { return vabsq_f32(a); }
static inline vf vf_max_size(vf a, vf b)
{
    return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(vabsq_f32(b))));
}
static inline vf vf_copysign(vf a, vf sign) { return vbslq_f32(vdupq_n_u32(0x80000000), sign, a); }
static inline vf vf_where_less(vf a, vf b, vf yes, vf no) { return vbslq_f32(vcltq_f32(a, b), yes, no); }
static inline vf vf_where_equal(vf a, vf b, vf yes, vf no) { return vbslq_f32(vceqq_f32(a, b), yes, no); }
static inline vf vf_where_set(const uint8_t *p, vf yes, vf no)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    uint16x4_t wide = vget_low_u16(vmovl_u8(vcreate_u8(four)));
    return vbslq_f32(vceqzq_u32(vmovl_u16(wide)), no, yes);
}

static inline vf vf_pow2(vf z) { return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(z), 23)); }

static inline vf vf_exponent(vf x)
{
    return vsubq_f32(vcvtq_f32_u32(vshrq_n_u32(vreinterpretq_u32_f32(x), 23)), vdupq_n_f32(127.0f));
}
static inline vf vf_mantissa(vf x)
{
    return vreinterpretq_f32_u32(vbslq_u32(vdupq_n_u32(0x7fffff), vreinterpretq_u32_f32(x), vdupq_n_u32(0x3f800000)));
}

static inline vf vf_load_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
static inline vf vf_load_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }

static inline void vf_store_bf16(uint16_t *p, vf x)
{
    uint32x4_t u = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    uint32x4_t even = vaddq_u32(vaddq_u32(u, odd), vdupq_n_u32(0x7fff));
    uint32x4_t quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
    vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), even, quiet), 16));
}

static inline void vf_store_f16(uint16_t *p, vf x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }

static inline vf vf_load_pairs(const uint16_t *p) { return vreinterpretq_f32_u16(vld1q_u16(p)); }
static inline vf vf_half_bf16(vf pairs, bool second)
{
    uint32x4_t u = vreinterpretq_u32_f32(pairs);
    return vreinterpretq_f32_u32(second ? vandq_u32(u, vdupq_n_u32(0xffff0000)) : vshlq_n_u32(u, 16));
}
static inline vf vf_half_f16(vf pairs, bool second)
{
    uint32x4_t u = vreinterpretq_u32_f32(pairs);
    return vcvt_f32_f16(vreinterpret_f16_u16(second ? vshrn_n_u32(u, 16) : vmovn_u32(u)));
}

/* Two halves of two vectors as one: low with low, high with high. */
static inline vf vf_lows(vf a, vf b)
{
    return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
static inline vf vf_highs(vf a, vf b)
{
    return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

static inline void vf_transpose(vf x[VF])
{
    vf a = vtrn1q_f32(x[0], x[1]), b = vtrn2q_f32(x[0], x[1]);
    vf c = vtrn1q_f32(x[2], x[3]), d = vtrn2q_f32(x[2], x[3]);
    x[0] = vf_lows(a, c);
    x[1] = vf_lows(b, d);
    x[2] = vf_highs(a, c);
    x[3] = vf_highs(b, d);
}

/* Four elements in one register: the multiply-add by lane spares four broadcasting loads. */
typedef float32x4_t va;
enum { VA = 4 };
static inline va va_load(const float *p) { return vld1q_f32(p); }
static inline vf vf_fma_lane(va a, int lane, vf b, vf c)
{
    switch (lane) { /* the lane must be a literal; the switch folds away once the loop around it is unrolled */
    case 0:
        return vfmaq_laneq_f32(c, b, a, 0);
    case 1:
        return vfmaq_laneq_f32(c, b, a, 1);
    case 2:
        return vfmaq_laneq_f32(c, b, a, 2);
    default:
        return vfmaq_laneq_f32(c, b, a, 3);
    }
}

#endif
