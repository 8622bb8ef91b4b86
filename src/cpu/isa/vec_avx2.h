/* The vocabulary in AVX2 with FMA and F16C: eight floats. Meanings as in vec_scalar.h. */
#ifndef MHA_CPU_VEC_AVX2_H
#define MHA_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

typedef __m256 vf;
enum { VF = 8, BLOCK_ROWS = 6, BLOCK_VECTORS = 2 };

static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
static inline __m256i vf_first(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf vf_load_part(const float *p, int64_t n) { return _mm256_maskload_ps(p, vf_first(n)); }
static inline void vf_store_part(float *p, vf x, int64_t n) { _mm256_maskstore_ps(p, vf_first(n), x); }
static inline vf vf_set1(float x) { return _mm256_set1_ps(x); }
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_sqrt(vf a) { return _mm256_sqrt_ps(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); } /* a*b + c */
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }            /* NaN if b is NaN */
static inline vf vf_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline vf vf_max_size(vf a, vf b)
{
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), _mm256_castps_si256(vf_abs(b))));
}
static inline vf vf_copysign(vf a, vf sign)
{
    return _mm256_or_ps(vf_abs(a), _mm256_and_ps(_mm256_set1_ps(-0.0f), sign));
}
static inline vf vf_where_less(vf a, vf b, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
static inline vf vf_where_equal(vf a, vf b, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}
static inline vf vf_where_set(const uint8_t *p, vf yes, vf no)
{
    __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_blendv_ps(yes, no, _mm256_castsi256_ps(_mm256_cmpeq_epi32(wide, _mm256_setzero_si256())));
}

static inline vf vf_pow2(vf z) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(z), 23)); }

static inline vf vf_exponent(vf x)
{
    return _mm256_sub_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(_mm256_castps_si256(x), 23)), _mm256_set1_ps(127.0f));
}
static inline vf vf_mantissa(vf x)
{
    __m256i bits = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffff));
    return _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_set1_epi32(0x3f800000)));
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
static inline vf vf_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }

static inline void vf_store_bf16(uint16_t *p, vf x)
{
    __m256i u = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i even = _mm256_add_epi32(_mm256_add_epi32(u, odd), _mm256_set1_epi32(0x7fff));
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256i ordered = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_ORD_Q));
    __m256i half = _mm256_srli_epi32(_mm256_blendv_epi8(quiet, even, ordered), 16);
    __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    _mm_storeu_si128((__m128i *)p, packed);
}

static inline void vf_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline vf vf_load_pairs(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline vf vf_half_bf16(vf pairs, bool second)
{
    __m256i u = _mm256_castps_si256(pairs);
    return _mm256_castsi256_ps(second ? _mm256_and_si256(u, _mm256_set1_epi32(-65536)) : _mm256_slli_epi32(u, 16));
}
static inline vf vf_half_f16(vf pairs, bool second)
{
    __m256i u = _mm256_castps_si256(pairs),
            one = second ? _mm256_srli_epi32(u, 16) : _mm256_and_si256(u, _mm256_set1_epi32(65535));
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(one), _mm256_extracti128_si256(one, 1)));
}

static inline void vf_transpose(vf x[VF])
{
    vf pair[VF], quad[VF];
    for (int i = 0; i < VF; i += 2) {
        pair[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        pair[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < VF; i += 4)
        for (int j = 0; j < 2; j++) {
            quad[i + 2 * j] = _mm256_shuffle_ps(pair[i + j], pair[i + 2 + j], 0x44);
            quad[i + 2 * j + 1] = _mm256_shuffle_ps(pair[i + j], pair[i + 2 + j], 0xee);
        }
    for (int i = 0; i < 4; i++) {
        x[i] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20);
        x[i + 4] = _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31);
    }
}

/* One element, broadcast by its load. */
typedef __m256 va;
enum { VA = 1 };
static inline va va_load(const float *p) { return _mm256_broadcast_ss(p); }
static inline vf vf_fma_lane(va a, int lane, vf b, vf c)
{
    (void)lane;
    return _mm256_fmadd_ps(a, b, c);
}

#endif
