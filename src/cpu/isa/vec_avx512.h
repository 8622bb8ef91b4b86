/* The vocabulary in AVX-512 (F, BW, DQ, VL): sixteen floats. Meanings as in vec_scalar.h. */
#ifndef MHA_CPU_VEC_AVX512_H
#define MHA_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

typedef __m512 vf;
enum { VF = 16, BLOCK_ROWS = 8, BLOCK_VECTORS = 2 };

static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
static inline __mmask16 vf_first(int64_t n) { return (__mmask16)((1u << n) - 1); }
static inline vf vf_load_part(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(vf_first(n), p); }
static inline void vf_store_part(float *p, vf x, int64_t n) { _mm512_mask_storeu_ps(p, vf_first(n), x); }
static inline vf vf_set1(float x) { return _mm512_set1_ps(x); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); } /* a*b + c */
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }            /* NaN if b is NaN */
static inline vf vf_abs(vf a) { return _mm512_abs_ps(a); }
static inline vf vf_max_size(vf a, vf b)
{
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a), _mm512_castps_si512(vf_abs(b))));
}
static inline vf vf_copysign(vf a, vf sign)
{
    return _mm512_or_ps(vf_abs(a), _mm512_and_ps(_mm512_set1_ps(-0.0f), sign));
}
static inline vf vf_where_less(vf a, vf b, vf yes, vf no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
static inline vf vf_where_equal(vf a, vf b, vf yes, vf no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), no, yes);
}
static inline vf vf_where_set(const uint8_t *p, vf yes, vf no)
{
    __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm512_mask_blend_ps(_mm512_test_epi32_mask(wide, wide), no, yes);
}

static inline vf vf_pow2(vf z) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(z), 23)); }

static inline vf vf_exponent(vf x)
{
    return _mm512_sub_ps(_mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_castps_si512(x), 23)), _mm512_set1_ps(127.0f));
}
static inline vf vf_mantissa(vf x)
{
    __m512i bits = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffff));
    return _mm512_castsi512_ps(_mm512_or_si512(bits, _mm512_set1_epi32(0x3f800000)));
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
static inline vf vf_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }

static inline void vf_store_bf16(uint16_t *p, vf x)
{
    __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i even = _mm512_add_epi32(_mm512_add_epi32(u, odd), _mm512_set1_epi32(0x7fff));
    __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
    __m512i half = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), quiet, even);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(half, 16)));
}

static inline void vf_store_f16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline vf vf_load_pairs(const uint16_t *p) { return _mm512_castsi512_ps(_mm512_loadu_si512(p)); }
static inline vf vf_half_bf16(vf pairs, bool second)
{
    __m512i u = _mm512_castps_si512(pairs);
    return _mm512_castsi512_ps(second ? _mm512_and_si512(u, _mm512_set1_epi32(-65536)) : _mm512_slli_epi32(u, 16));
}
static inline vf vf_half_f16(vf pairs, bool second)
{
    __m512i u = _mm512_castps_si512(pairs);
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(second ? _mm512_srli_epi32(u, 16) : u));
}

static inline void vf_transpose(vf x[VF])
{
    vf pair[VF], quad[VF], half[VF];
    for (int i = 0; i < VF; i += 2) {
        pair[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        pair[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < VF; i += 4)
        for (int j = 0; j < 2; j++) {
            quad[i + 2 * j] = _mm512_shuffle_ps(pair[i + j], pair[i + 2 + j], 0x44);
            quad[i + 2 * j + 1] = _mm512_shuffle_ps(pair[i + j], pair[i + 2 + j], 0xee);
        }
    for (int i = 0; i < 4; i++) { /* quad[4a + i] holds column i, i + 4, i + 8, i + 12 of rows 4a to 4a + 3 */
        half[i] = _mm512_shuffle_f32x4(quad[i], quad[i + 4], 0x88);
        half[i + 4] = _mm512_shuffle_f32x4(quad[i], quad[i + 4], 0xdd);
        half[i + 8] = _mm512_shuffle_f32x4(quad[i + 8], quad[i + 12], 0x88);
        half[i + 12] = _mm512_shuffle_f32x4(quad[i + 8], quad[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        x[i] = _mm512_shuffle_f32x4(half[i], half[i + 8], 0x88);
        x[i + 8] = _mm512_shuffle_f32x4(half[i], half[i + 8], 0xdd);
    }
}

/* One element, broadcast by its load. */
typedef __m512 va;
enum { VA = 1 };
static inline va va_load(const float *p) { return _mm512_set1_ps(*p); }
static inline vf vf_fma_lane(va a, int lane, vf b, vf c)
{
    (void)lane;
    return _mm512_fmadd_ps(a, b, c);
}

#endif
