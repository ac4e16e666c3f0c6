/* vector_avx2: vectors of 16 fp32 lanes in two AVX registers. vector_portable.h defines the
 * functions. Functions that vector_portable.h does not have are helpers. isa_avx2.c and
 * gemm_avx2.c include this header before the code that calls the functions (rows.h, attention.h,
 * the GEMMs), for CPUs with AVX2, FMA and F16C. Any thread may call the functions. They have no
 * state, except that v_flush_begin changes the calling thread's floating-point mode until
 * v_flush_end. */
#ifndef COMPUTE_CPU_VECTOR_AVX2_H
#define COMPUTE_CPU_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    __m256 low, high;
} vec;

typedef struct {
    __m256i low, high;
} ivec;

/* A vec is in registers, so rows.h unrolls its loops over vectors. */
#define VECTOR_REGISTERS

/* Tile sizes (see vector_portable.h) for 16 registers. */
#define QK_ROWS             3
#define QK_VECTORS          1
#define PV_ROWS             3
#define PV_VECTORS          1
#define GEMM_ROWS           6
#define GEMM_TWO_PANEL_ROWS 2

static inline vec v_pair(__m256 low, __m256 high)
{
    vec v = {low, high};
    return v;
}

static inline vec v_zero(void)
{
    return v_pair(_mm256_setzero_ps(), _mm256_setzero_ps());
}

static inline vec v_set(float value)
{
    return v_pair(_mm256_set1_ps(value), _mm256_set1_ps(value));
}

static inline vec v_load(const float *p)
{
    return v_pair(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}

static inline vec v_load_part(const float *p, uint32_t lanes)
{
    float padded[16] = {0};
    memcpy(padded, p, lanes * sizeof(float));
    return v_load(padded);
}

static inline vec v_load_f16(const uint16_t *p)
{
    return v_pair(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8))));
}

static inline vec v_load_f16_part(const uint16_t *p, uint32_t lanes)
{
    uint16_t padded[16] = {0};
    memcpy(padded, p, lanes * sizeof(uint16_t));
    return v_load_f16(padded);
}

static inline vec v_load_bf16_high(const uint16_t *p)
{
    __m256i mask = _mm256_set1_epi32((int)0xffff0000);
    __m256i first = _mm256_loadu_si256((const __m256i *)p);
    __m256i last = _mm256_loadu_si256((const __m256i *)(p + 16));
    return v_pair(_mm256_castsi256_ps(_mm256_and_si256(first, mask)),
                  _mm256_castsi256_ps(_mm256_and_si256(last, mask)));
}

static inline vec v_load_bf16_low(const uint16_t *p)
{
    __m256i first = _mm256_loadu_si256((const __m256i *)p);
    __m256i last = _mm256_loadu_si256((const __m256i *)(p + 16));
    return v_pair(_mm256_castsi256_ps(_mm256_slli_epi32(first, 16)),
                  _mm256_castsi256_ps(_mm256_slli_epi32(last, 16)));
}

static inline void v_store(float *p, vec a)
{
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
}

static inline void v_store_part(float *p, vec a, uint32_t lanes)
{
    float padded[16];
    v_store(padded, a);
    memcpy(p, padded, lanes * sizeof(float));
}

static inline void v_store_f16_part(uint16_t *p, vec a, uint32_t lanes)
{
    uint16_t padded[16];
    _mm_storeu_si128((__m128i *)padded, _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(padded + 8), _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT));
    memcpy(p, padded, lanes * sizeof(uint16_t));
}

static inline vec v_keep(vec a, uint32_t lanes)
{
    float padded[16] = {0};
    v_store_part(padded, a, lanes);
    return v_load(padded);
}

static inline vec v_drop(vec a, uint32_t lanes)
{
    float padded[16];
    v_store(padded, a);
    memset(padded, 0, lanes * sizeof(float));
    return v_load(padded);
}

static inline vec v_add(vec a, vec b)
{
    return v_pair(_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high));
}

static inline vec v_sub(vec a, vec b)
{
    return v_pair(_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high));
}

static inline vec v_mul(vec a, vec b)
{
    return v_pair(_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high));
}

static inline vec v_div(vec a, vec b)
{
    return v_pair(_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high));
}

static inline vec v_fma(vec a, vec b, vec c)
{
    return v_pair(_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high));
}

static inline vec v_fma_flush(vec a, vec b, vec c)
{
    return v_fma(a, b, c);
}

/* Sets FTZ and DAZ in MXCSR. Returns the old MXCSR for v_flush_end. */
static inline uint32_t v_flush_begin(void)
{
    uint32_t mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040);
    return mode;
}

static inline void v_flush_end(uint32_t mode)
{
    _mm_setcsr(mode);
}

static inline vec v_max(vec a, vec b)
{
    return v_pair(_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high));
}

static inline vec v_min(vec a, vec b)
{
    return v_pair(_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high));
}

static inline __m256 v_scale_exponent_half(__m256 a, __m256 rounded)
{
    __m256i shift = _mm256_slli_epi32(_mm256_castps_si256(rounded), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), shift));
}

static inline vec v_scale_exponent(vec a, vec rounded)
{
    return v_pair(v_scale_exponent_half(a.low, rounded.low),
                  v_scale_exponent_half(a.high, rounded.high));
}

static inline float v_fold_add(vec a)
{
    __m256 half = _mm256_add_ps(a.low, a.high);
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    quarter = _mm_add_ss(quarter, _mm_movehdup_ps(quarter));
    return _mm_cvtss_f32(quarter);
}

static inline float v_fold_max(vec a)
{
    __m256 half = _mm256_max_ps(a.low, a.high);
    __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    quarter = _mm_max_ss(quarter, _mm_movehdup_ps(quarter));
    return _mm_cvtss_f32(quarter);
}

static inline __m256i v_magnitudes(__m256 a)
{
    return _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff));
}

static inline uint32_t v_magnitude_bits(vec a, vec b)
{
    __m256i x = _mm256_max_epi32(v_magnitudes(a.low), v_magnitudes(a.high));
    __m256i y = _mm256_max_epi32(v_magnitudes(b.low), v_magnitudes(b.high));
    x = _mm256_max_epi32(x, y);
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

static inline int32_t v_round_store(int8_t *p, vec a)
{
    __m256i low = _mm256_cvtps_epi32(a.low), high = _mm256_cvtps_epi32(a.high);
    __m128i a16 = _mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    __m128i b16 = _mm_packs_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(a16, b16));
    __m256i sum = _mm256_add_epi32(low, high);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

static inline __m256 v_widen_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline vec v_load_bf16_part(const uint16_t *p, uint32_t lanes)
{
    uint16_t padded[16] = {0};
    memcpy(padded, p, lanes * sizeof(uint16_t));
    return v_pair(v_widen_bf16(padded), v_widen_bf16(padded + 8));
}

static inline void v_round_store16(int16_t *p, vec a)
{
    __m256i low = _mm256_cvtps_epi32(a.low), high = _mm256_cvtps_epi32(a.high);
    __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    _mm256_storeu_si256((__m256i *)p, both);
}

static inline void v_round_store16_every_second(int16_t *p, vec a, uint32_t lanes, uint32_t which)
{
    int16_t rounded[16];
    v_round_store16(rounded, a);
    for (uint32_t i = 0; i < lanes; i++)
        p[2 * i + which] = rounded[i];
}

static inline ivec v_int_pair(__m256i low, __m256i high)
{
    ivec v = {low, high};
    return v;
}

static inline ivec v_int_zero(void)
{
    return v_int_pair(_mm256_setzero_si256(), _mm256_setzero_si256());
}

static inline ivec v_int_set(int32_t value)
{
    return v_int_pair(_mm256_set1_epi32(value), _mm256_set1_epi32(value));
}

static inline vec v_int_float(ivec a)
{
    return v_pair(_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high));
}

static inline ivec v_load_pairs(const int16_t *p)
{
    return v_int_pair(_mm256_loadu_si256((const __m256i *)p),
                      _mm256_loadu_si256((const __m256i *)(p + 16)));
}

static inline ivec v_load_pairs_part(const int16_t *p, uint32_t lanes)
{
    int16_t padded[32] = {0};
    memcpy(padded, p, 2 * lanes * sizeof(int16_t));
    return v_load_pairs(padded);
}

static inline ivec v_load_pairs8(const int8_t *p)
{
    return v_int_pair(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)),
                      _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(p + 16))));
}

static inline ivec v_load_pairs8_part(const int8_t *p, uint32_t lanes)
{
    int8_t padded[32] = {0};
    memcpy(padded, p, 2 * lanes);
    return v_load_pairs8(padded);
}

static inline ivec v_dot_pairs(ivec sum, ivec a, ivec b)
{
    return v_int_pair(_mm256_add_epi32(sum.low, _mm256_madd_epi16(a.low, b.low)),
                      _mm256_add_epi32(sum.high, _mm256_madd_epi16(a.high, b.high)));
}

/* Always inlined: see vector_portable.h. */
static inline __attribute__((always_inline)) void v_prefetch(const void *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T0);
}

static inline __attribute__((always_inline)) void v_prefetch_l2(const void *p)
{
    _mm_prefetch((const char *)p, _MM_HINT_T1);
}

#endif
