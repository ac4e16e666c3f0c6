/* vector_portable: vectors of 16 fp32 lanes in plain C: the type vec, the type ivec of 16 integers,
 * and functions on them. This header is the definition of the functions: vector_avx2.h and
 * vector_avx512.h have the same functions, which give the same bits for every finite input
 * (v_fold_max: except the sign of a zero). isa_portable.c includes this header before attention.h
 * and gemm_float.h, which call these functions. Any thread may call the functions, which have no
 * state. */
#ifndef COMPUTE_CPU_VECTOR_PORTABLE_H
#define COMPUTE_CPU_VECTOR_PORTABLE_H

#include "compute/half.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    float lane[16];
} vec;

typedef struct {
    int32_t lane[16];
} ivec;

/* Largest tiles that are computed in registers. In attention (attention.h), a tile has up to
 * QK_ROWS queries and QK_VECTORS vectors in q·K, and up to PV_ROWS queries and PV_VECTORS vectors
 * in p·V. In the float products (gemm_float.h), a tile has up to GEMM_ROWS rows and one panel, or
 * up to GEMM_TWO_PANEL_ROWS rows and two panels. */
#define QK_ROWS             1
#define QK_VECTORS          1
#define PV_ROWS             1
#define PV_VECTORS          1
#define GEMM_ROWS           1
#define GEMM_TWO_PANEL_ROWS 0

/* Returns a vector with `value` in all lanes. */
static inline vec v_set(float value)
{
    vec v;
    for (int i = 0; i < 16; i++)
        v.lane[i] = value;
    return v;
}

static inline vec v_zero(void)
{
    return v_set(0);
}

static inline vec v_load(const float *p)
{
    vec v;
    memcpy(v.lane, p, sizeof(v.lane));
    return v;
}

/* Loads the first `lanes` lanes; the others are 0. */
static inline vec v_load_part(const float *p, uint32_t lanes)
{
    vec v = v_zero();
    memcpy(v.lane, p, lanes * sizeof(float));
    return v;
}

/* Loads the first `lanes` lanes from f16; the others are 0. */
static inline vec v_load_f16_part(const uint16_t *p, uint32_t lanes)
{
    vec v = v_zero();
    for (uint32_t i = 0; i < lanes; i++)
        v.lane[i] = half_from_f16(p[i]);
    return v;
}

static inline vec v_load_f16(const uint16_t *p)
{
    return v_load_f16_part(p, 16);
}

/* Loads the second number of each of 16 pairs of bfloat16. */
static inline vec v_load_bf16_high(const uint16_t *p)
{
    vec v;
    for (int i = 0; i < 16; i++)
        v.lane[i] = half_from_bf16(p[2 * i + 1]);
    return v;
}

/* Loads the first number of each of 16 pairs of bfloat16. */
static inline vec v_load_bf16_low(const uint16_t *p)
{
    vec v;
    for (int i = 0; i < 16; i++)
        v.lane[i] = half_from_bf16(p[2 * i]);
    return v;
}

/* Stores the first `lanes` lanes. */
static inline void v_store_part(float *p, vec a, uint32_t lanes)
{
    memcpy(p, a.lane, lanes * sizeof(float));
}

static inline void v_store(float *p, vec a)
{
    v_store_part(p, a, 16);
}

/* Stores the first `lanes` lanes, rounded to f16. */
static inline void v_store_f16_part(uint16_t *p, vec a, uint32_t lanes)
{
    for (uint32_t i = 0; i < lanes; i++)
        p[i] = half_to_f16(a.lane[i]);
}

/* Returns `a` with 0 in all lanes except the first `lanes`. */
static inline vec v_keep(vec a, uint32_t lanes)
{
    return v_load_part(a.lane, lanes);
}

/* Returns `a` with 0 in the first `lanes` lanes. */
static inline vec v_drop(vec a, uint32_t lanes)
{
    memset(a.lane, 0, lanes * sizeof(float));
    return a;
}

#define VECTOR_BINARY(name, expression)                                                            \
    static inline vec name(vec a, vec b)                                                           \
    {                                                                                              \
        for (int i = 0; i < 16; i++) {                                                             \
            float x = a.lane[i], y = b.lane[i];                                                    \
            a.lane[i] = (expression);                                                              \
        }                                                                                          \
        return a;                                                                                  \
    }

VECTOR_BINARY(v_add, x + y)
VECTOR_BINARY(v_sub, x - y)
VECTOR_BINARY(v_mul, x *y)
VECTOR_BINARY(v_div, x / y)
/* v_max and v_min give the second operand if either operand is NaN, as on x86. */
VECTOR_BINARY(v_max, x > y ? x : y)
VECTOR_BINARY(v_min, x < y ? x : y)

/* Returns a * b + c, rounded once. */
static inline vec v_fma(vec a, vec b, vec c)
{
    for (int i = 0; i < 16; i++)
        a.lane[i] = fmaf(a.lane[i], b.lane[i], c.lane[i]);
    return a;
}

/* Returns a * b + c, rounded once, where subnormal numbers count as 0 (kernels.h, "BF16 weights").
 * Requires that b and c are not subnormal, and that a and b are bfloat16 values, so that the
 * product is exact. Call it between v_flush_begin and v_flush_end. */
static inline vec v_fma_flush(vec a, vec b, vec c)
{
    for (int i = 0; i < 16; i++) {
        float x = fabsf(a.lane[i]) < 0x1p-126f ? copysignf(0.0f, a.lane[i]) : a.lane[i];
        float f = fmaf(x, b.lane[i], c.lane[i]);
        /* The result becomes 0 if its magnitude, rounded to 24 bits with an unlimited exponent, is
         * below 2^-126. This holds if the exact magnitude is below 2^-126 - 2^-151. fp64 is exact
         * near this limit. */
        if (fabsf(f) <= 0x1p-126f &&
            fabs(fma((double)x, (double)b.lane[i], (double)c.lane[i])) < 0x1p-126 - 0x1p-151)
            f = copysignf(0.0f, f);
        a.lane[i] = f;
    }
    return a;
}

/* Begins a piece of code that calls v_fma_flush. Returns the argument for v_flush_end. May change
 * the thread's floating-point mode until v_flush_end. */
static inline uint32_t v_flush_begin(void)
{
    return 0;
}

static inline void v_flush_end(uint32_t mode)
{
    (void)mode;
}

/* Returns a * 2^n, where n is in the low bits of `rounded` (see v_exp_each in rows.h). Requires
 * that a and the result are normal numbers. */
static inline vec v_scale_exponent(vec a, vec rounded)
{
    for (int i = 0; i < 16; i++)
        a.lane[i] =
            half_bits_float(half_float_bits(a.lane[i]) + (half_float_bits(rounded.lane[i]) << 23));
    return a;
}

/* Returns the sum of the lanes: lanes that are 8 apart are added first, then lanes that are 4, 2
 * and 1 apart. */
static inline float v_fold_add(vec a)
{
    for (int width = 8; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            a.lane[i] += a.lane[i + width];
    return a.lane[0];
}

/* Returns the greatest lane. */
static inline float v_fold_max(vec a)
{
    float result = a.lane[0];
    for (int i = 1; i < 16; i++)
        result = a.lane[i] > result ? a.lane[i] : result;
    return result;
}

/* Returns the bits of the greatest |lane| of both vectors; NaN is above infinity. */
static inline uint32_t v_magnitude_bits(vec a, vec b)
{
    uint32_t result = 0;
    for (int i = 0; i < 16; i++) {
        uint32_t x = half_float_bits(a.lane[i]) & 0x7fffffffu;
        uint32_t y = half_float_bits(b.lane[i]) & 0x7fffffffu;
        x = x > y ? x : y;
        result = x > result ? x : result;
    }
    return result;
}

/* Rounds the lanes to integers (ties to even), stores the integers, and returns their sum. Requires
 * |lane| < 127.5. */
static inline int32_t v_round_store(int8_t *p, vec a)
{
    int32_t sum = 0;
    for (int i = 0; i < 16; i++) {
        float shifted =
            a.lane[i] + 0x1.8p23f; /* The integer is now in the low bits of the mantissa. */
        int32_t value = (int32_t)(half_float_bits(shifted) - 0x4b400000u);
        p[i] = (int8_t)value;
        sum += value;
    }
    return sum;
}

/* Loads the first `lanes` lanes from bfloat16; the others are 0. */
static inline vec v_load_bf16_part(const uint16_t *p, uint32_t lanes)
{
    vec v = v_zero();
    for (uint32_t i = 0; i < lanes; i++)
        v.lane[i] = half_from_bf16(p[i]);
    return v;
}

/* Rounds the lanes to integers (ties to even) and stores them. Requires |lane| < 32767.5. */
static inline void v_round_store16(int16_t *p, vec a)
{
    for (int i = 0; i < 16; i++)
        p[i] = (int16_t)(half_float_bits(a.lane[i] + 0x1.8p23f) - 0x4b400000u);
}

/* Rounds the first `lanes` lanes to integers (ties to even), and stores the integers at p[which],
 * p[2 + which], … `which` is 0 or 1. Does not write the elements in between: another thread may
 * write them. Requires |lane| < 32767.5. */
static inline void v_round_store16_every_second(int16_t *p, vec a, uint32_t lanes, uint32_t which)
{
    int16_t rounded[16];
    v_round_store16(rounded, a);
    for (uint32_t i = 0; i < lanes; i++)
        p[2 * i + which] = rounded[i];
}

static inline ivec v_int_set(int32_t value)
{
    ivec v;
    for (int i = 0; i < 16; i++)
        v.lane[i] = value;
    return v;
}

static inline ivec v_int_zero(void)
{
    return v_int_set(0);
}

/* Converts the lanes to fp32, rounded to nearest even. */
static inline vec v_int_float(ivec a)
{
    vec v;
    for (int i = 0; i < 16; i++)
        v.lane[i] = (float)a.lane[i];
    return v;
}

/* Loads pairs of neighbouring 16-bit integers, one pair into each of the first `lanes` lanes; the
 * other lanes are 0. */
static inline ivec v_load_pairs_part(const int16_t *p, uint32_t lanes)
{
    ivec v = v_int_zero();
    memcpy(v.lane, p, lanes * sizeof(int32_t));
    return v;
}

static inline ivec v_load_pairs(const int16_t *p)
{
    return v_load_pairs_part(p, 16);
}

/* Does what v_load_pairs_part does, for 8-bit integers, which are widened to 16 bits. */
static inline ivec v_load_pairs8_part(const int8_t *p, uint32_t lanes)
{
    int16_t wide[32] = {0};
    for (uint32_t i = 0; i < 2 * lanes; i++)
        wide[i] = p[i];
    return v_load_pairs(wide);
}

static inline ivec v_load_pairs8(const int8_t *p)
{
    return v_load_pairs8_part(p, 16);
}

/* Multiplies the two 16-bit integers of each lane of a by the two integers of this lane of b, and
 * adds both products to the lane of `sum`. Requires that the sums fit in 32 bits. */
static inline ivec v_dot_pairs(ivec sum, ivec a, ivec b)
{
    for (int i = 0; i < 16; i++) {
        int16_t x[2], y[2];
        memcpy(x, &a.lane[i], sizeof(x));
        memcpy(y, &b.lane[i], sizeof(y));
        sum.lane[i] += (int32_t)x[0] * y[0] + (int32_t)x[1] * y[1];
    }
    return sum;
}

/* Prefetches a cache line into the L1 cache. Always inlined: gcc removes the call of a function
 * that only prefetches, unless the function is inlined. */
static inline __attribute__((always_inline)) void v_prefetch(const void *p)
{
    __builtin_prefetch(p, 0, 3);
}

/* Prefetches a cache line into the L2 cache. */
static inline __attribute__((always_inline)) void v_prefetch_l2(const void *p)
{
    __builtin_prefetch(p, 0, 2);
}

#endif
