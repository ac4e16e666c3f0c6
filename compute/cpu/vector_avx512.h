/* vector_avx512: vectors of 16 fp32 lanes in one AVX-512 register. vector_portable.h defines the
 * functions; v_mask is a helper. isa_avx512.c, isa_avx512_bf16.c and
 * gemm_avx512.c include this header before the code that calls the functions (rows.h, attention.h,
 * the GEMMs), for CPUs with AVX-512 F, BW, VL, DQ and VNNI. Any thread may call the functions. They
 * have no state, except that v_flush_begin changes the calling thread's floating-point mode until
 * v_flush_end. */
#ifndef COMPUTE_CPU_VECTOR_AVX512_H
#define COMPUTE_CPU_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 vec;
typedef __m512i ivec;

/* A vec is in registers, so rows.h unrolls its loops over vectors. */
#define VECTOR_REGISTERS

/* Tile sizes (see vector_portable.h) for 32 registers. */
#define QK_ROWS 6
/* In a dimension, a tile of q·K needs 6 × 4 = 24 fma and 6 + 4 = 10 loads: 2.4 fma per load. */
#define QK_VECTORS          4
#define PV_ROWS             6
#define PV_VECTORS          4
#define GEMM_ROWS           6
#define GEMM_TWO_PANEL_ROWS 6

/* Returns the mask of the first `lanes` lanes, at most 16. */
static inline __mmask16 v_mask(uint32_t lanes)
{
    return (__mmask16)((1u << lanes) - 1u);
}

static inline vec v_zero(void)
{
    return _mm512_setzero_ps();
}

static inline vec v_set(float value)
{
    return _mm512_set1_ps(value);
}

static inline vec v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline vec v_load_part(const float *p, uint32_t lanes)
{
    return _mm512_maskz_loadu_ps(v_mask(lanes), p);
}

static inline vec v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

static inline vec v_load_f16_part(const uint16_t *p, uint32_t lanes)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v_mask(lanes), p));
}

static inline vec v_load_bf16_high(const uint16_t *p)
{
    __m512i mask = _mm512_set1_epi32((int)0xffff0000);
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), mask));
}

static inline vec v_load_bf16_low(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}

static inline void v_store(float *p, vec a)
{
    _mm512_storeu_ps(p, a);
}

static inline void v_store_part(float *p, vec a, uint32_t lanes)
{
    _mm512_mask_storeu_ps(p, v_mask(lanes), a);
}

static inline void v_store_f16_part(uint16_t *p, vec a, uint32_t lanes)
{
    _mm256_mask_storeu_epi16(p, v_mask(lanes), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

static inline vec v_keep(vec a, uint32_t lanes)
{
    return _mm512_maskz_mov_ps(v_mask(lanes), a);
}

static inline vec v_drop(vec a, uint32_t lanes)
{
    return _mm512_maskz_mov_ps((__mmask16)~v_mask(lanes), a);
}

static inline vec v_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

static inline vec v_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}

static inline vec v_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

static inline vec v_div(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}

static inline vec v_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
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
    return _mm512_max_ps(a, b);
}

static inline vec v_min(vec a, vec b)
{
    return _mm512_min_ps(a, b);
}

static inline vec v_scale_exponent(vec a, vec rounded)
{
    __m512i shift = _mm512_slli_epi32(_mm512_castps_si512(rounded), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), shift));
}

static inline float v_fold_add(vec a)
{
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    quarter = _mm_add_ss(quarter, _mm_movehdup_ps(quarter));
    return _mm_cvtss_f32(quarter);
}

static inline float v_fold_max(vec a)
{
    return _mm512_reduce_max_ps(a);
}

static inline uint32_t v_magnitude_bits(vec a, vec b)
{
    __m512i mask = _mm512_set1_epi32(0x7fffffff);
    __m512i x = _mm512_and_si512(_mm512_castps_si512(a), mask);
    __m512i y = _mm512_and_si512(_mm512_castps_si512(b), mask);
    return (uint32_t)_mm512_reduce_max_epi32(_mm512_max_epi32(x, y));
}

static inline int32_t v_round_store(int8_t *p, vec a)
{
    __m512i rounded = _mm512_cvtps_epi32(a);
    _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(rounded));
    return _mm512_reduce_add_epi32(rounded);
}

static inline vec v_load_bf16_part(const uint16_t *p, uint32_t lanes)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(v_mask(lanes), p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline void v_round_store16(int16_t *p, vec a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(a)));
}

static inline void v_round_store16_every_second(int16_t *p, vec a, uint32_t lanes, uint32_t which)
{
    uint64_t mask = which == 0 ? 0x55555555u : 0xaaaaaaaau;
    __m512i value = _mm512_sll_epi32(_mm512_cvtps_epi32(a), _mm_cvtsi32_si128((int)which * 16));
    _mm512_mask_storeu_epi16(p, (__mmask32)(mask & ((UINT64_C(1) << 2 * lanes) - 1)), value);
}

static inline ivec v_int_zero(void)
{
    return _mm512_setzero_si512();
}

static inline ivec v_int_set(int32_t value)
{
    return _mm512_set1_epi32(value);
}

static inline vec v_int_float(ivec a)
{
    return _mm512_cvtepi32_ps(a);
}

static inline ivec v_load_pairs(const int16_t *p)
{
    return _mm512_loadu_si512(p);
}

static inline ivec v_load_pairs_part(const int16_t *p, uint32_t lanes)
{
    return _mm512_maskz_loadu_epi32(v_mask(lanes), p);
}

static inline ivec v_load_pairs8(const int8_t *p)
{
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p));
}

static inline ivec v_load_pairs8_part(const int8_t *p, uint32_t lanes)
{
    return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi16(v_mask(lanes), p));
}

/* Inline assembly: with the intrinsic, gcc 12 spills registers in large tiles. */
static inline ivec v_dot_pairs(ivec sum, ivec a, ivec b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
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
