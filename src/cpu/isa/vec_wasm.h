/* The vocabulary in the 128-bit SIMD of WebAssembly: four floats. Meanings as in vec_scalar.h.
 *
 * There is no fused multiply-add: products are rounded before they are added, as in plain C. The block of products has
 * eight sums, which fit into the sixteen registers of an x86-64 beside their factors. */
#ifndef MHA_CPU_VEC_WASM_H
#define MHA_CPU_VEC_WASM_H

#include "core/half.h"
#include <stdbool.h>
#include <wasm_simd128.h>

typedef v128_t vf;
enum { VF = 4, BLOCK_ROWS = 4, BLOCK_VECTORS = 2 };

static inline vf vf_load(const float *p) { return wasm_v128_load(p); }
static inline void vf_store(float *p, vf x) { wasm_v128_store(p, x); }
static inline vf vf_load_part(const float *p, int64_t n)
{
    vf x = n > 1 ? wasm_v128_load64_zero(p) : wasm_v128_load32_zero(p);
    return n > 2 ? wasm_v128_load32_lane(p + 2, x, 2) : x;
}
static inline void vf_store_part(float *p, vf x, int64_t n)
{
    wasm_v128_store32_lane(p, x, 0);
    if (n > 1) wasm_v128_store32_lane(p + 1, x, 1);
    if (n > 2) wasm_v128_store32_lane(p + 2, x, 2);
}
static inline vf vf_set1(float x) { return wasm_f32x4_splat(x); }
static inline vf vf_add(vf a, vf b) { return wasm_f32x4_add(a, b); }
static inline vf vf_sub(vf a, vf b) { return wasm_f32x4_sub(a, b); }
static inline vf vf_mul(vf a, vf b) { return wasm_f32x4_mul(a, b); }
static inline vf vf_div(vf a, vf b) { return wasm_f32x4_div(a, b); }
static inline vf vf_sqrt(vf a) { return wasm_f32x4_sqrt(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return wasm_f32x4_add(wasm_f32x4_mul(a, b), c); } /* a*b + c */
/* NaN if b is NaN. One instruction on x86-64, where wasm_f32x4_max takes seven. */
static inline vf vf_max(vf a, vf b) { return wasm_f32x4_pmax(b, a); }
static inline vf vf_abs(vf a) { return wasm_f32x4_abs(a); }
static inline vf vf_max_size(vf a, vf b) { return wasm_i32x4_max(a, wasm_f32x4_abs(b)); }
static inline vf vf_copysign(vf a, vf sign) { return wasm_v128_bitselect(sign, a, wasm_i32x4_splat(INT32_MIN)); }
static inline vf vf_where_less(vf a, vf b, vf yes, vf no) { return wasm_v128_bitselect(yes, no, wasm_f32x4_lt(a, b)); }
static inline vf vf_where_equal(vf a, vf b, vf yes, vf no) { return wasm_v128_bitselect(yes, no, wasm_f32x4_eq(a, b)); }
static inline vf vf_where_set(const uint8_t *p, vf yes, vf no)
{
    vf wide = wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(p)));
    return wasm_v128_bitselect(no, yes, wasm_i32x4_eq(wide, wasm_i32x4_splat(0)));
}

static inline vf vf_pow2(vf z) { return wasm_i32x4_shl(z, 23); }

static inline vf vf_exponent(vf x)
{
    return wasm_f32x4_sub(wasm_f32x4_convert_i32x4(wasm_u32x4_shr(x, 23)), wasm_f32x4_splat(127.0f));
}
static inline vf vf_mantissa(vf x)
{
    return wasm_v128_or(wasm_v128_and(x, wasm_i32x4_splat(0x7fffff)), wasm_i32x4_splat(0x3f800000));
}

/* Float32 from bits of float16 in the lower halves of lanes, and zeros above. What is left of the sign goes 13 bits up,
 * where its exponent is too small by 112, which a product mends, subnormal numbers included; infinities and NaN get the
 * exponent that they need, NaN as a quiet one. */
static inline vf vf_from_f16(vf half)
{
    vf size = wasm_v128_and(half, wasm_i32x4_splat(0x7fff)), up = wasm_i32x4_shl(size, 13);
    vf finite = wasm_f32x4_mul(up, wasm_f32x4_splat(0x1p112f));
    vf quiet = wasm_v128_and(wasm_i32x4_gt(size, wasm_i32x4_splat(0x7c00)), wasm_i32x4_splat(0x400000));
    vf other = wasm_v128_or(wasm_v128_or(up, wasm_i32x4_splat(0x7f800000)), quiet);
    vf x = wasm_v128_bitselect(other, finite, wasm_i32x4_ge(size, wasm_i32x4_splat(0x7c00)));
    return wasm_v128_or(x, wasm_i32x4_shl(wasm_v128_and(half, wasm_i32x4_splat(0x8000)), 16));
}

static inline vf vf_load_bf16(const uint16_t *p) { return wasm_i32x4_shl(wasm_u32x4_load16x4(p), 16); }
static inline vf vf_load_f16(const uint16_t *p) { return vf_from_f16(wasm_u32x4_load16x4(p)); }

static inline void vf_store_bf16(uint16_t *p, vf x)
{
    vf odd = wasm_v128_and(wasm_u32x4_shr(x, 16), wasm_i32x4_splat(1));
    vf even = wasm_i32x4_add(wasm_i32x4_add(x, odd), wasm_i32x4_splat(0x7fff));
    vf quiet = wasm_v128_or(x, wasm_i32x4_splat(0x400000));
    vf half = wasm_u32x4_shr(wasm_v128_bitselect(even, quiet, wasm_f32x4_eq(x, x)), 16);
    wasm_v128_store64_lane(p, wasm_u16x8_narrow_i32x4(half, half), 0);
}

/* One by one: nothing in a hot loop is stored as float16. */
static inline void vf_store_f16(uint16_t *p, vf x)
{
    p[0] = mha_f32_to_f16(wasm_f32x4_extract_lane(x, 0));
    p[1] = mha_f32_to_f16(wasm_f32x4_extract_lane(x, 1));
    p[2] = mha_f32_to_f16(wasm_f32x4_extract_lane(x, 2));
    p[3] = mha_f32_to_f16(wasm_f32x4_extract_lane(x, 3));
}

static inline vf vf_load_pairs(const uint16_t *p) { return wasm_v128_load(p); }
static inline vf vf_half_bf16(vf pairs, bool second)
{
    return second ? wasm_v128_and(pairs, wasm_i32x4_splat(-65536)) : wasm_i32x4_shl(pairs, 16);
}
static inline vf vf_half_f16(vf pairs, bool second)
{
    return vf_from_f16(second ? wasm_u32x4_shr(pairs, 16) : wasm_v128_and(pairs, wasm_i32x4_splat(65535)));
}

static inline void vf_transpose(vf x[VF])
{
    vf a = wasm_i32x4_shuffle(x[0], x[1], 0, 4, 1, 5), b = wasm_i32x4_shuffle(x[0], x[1], 2, 6, 3, 7);
    vf c = wasm_i32x4_shuffle(x[2], x[3], 0, 4, 1, 5), d = wasm_i32x4_shuffle(x[2], x[3], 2, 6, 3, 7);
    x[0] = wasm_i64x2_shuffle(a, c, 0, 2);
    x[1] = wasm_i64x2_shuffle(a, c, 1, 3);
    x[2] = wasm_i64x2_shuffle(b, d, 0, 2);
    x[3] = wasm_i64x2_shuffle(b, d, 1, 3);
}

/* One element, broadcast by its load. */
typedef v128_t va;
enum { VA = 1 };
static inline va va_load(const float *p) { return wasm_v128_load32_splat(p); }
static inline vf vf_fma_lane(va a, int lane, vf b, vf c)
{
    (void)lane;
    return vf_fma(a, b, c);
}

#endif
