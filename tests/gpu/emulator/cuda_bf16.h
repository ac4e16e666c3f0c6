/* cuda_bf16: the emulator's own version of CUDA's header of this name: bfloat16, as far as the
 * kernels use it. The functions have no state; any thread may call. */
#ifndef TESTS_GPU_EMULATOR_CUDA_BF16_H
#define TESTS_GPU_EMULATOR_CUDA_BF16_H

#include "cuda_runtime.h"

struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float value);
    operator float() const
    {
        return emulated_bits<float>((unsigned)bits << 16);
    }
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    __nv_bfloat16 x;
    x.bits = bits;
    return x;
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}

/* Rounds to nearest, ties to even. Subnormal numbers are kept. A NaN becomes the NaN that a device
 * returns. */
static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    unsigned bits = emulated_bits<unsigned>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return __ushort_as_bfloat16(0x7fff);
    return __ushort_as_bfloat16((unsigned short)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16));
}

static inline __nv_bfloat16 __float2bfloat16(float value)
{
    return __float2bfloat16_rn(value);
}

inline __nv_bfloat16::__nv_bfloat16(float value)
{
    bits = __float2bfloat16_rn(value).bits;
}

static inline float __bfloat162float(__nv_bfloat16 x)
{
    return x;
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return __nv_bfloat162{__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}

static inline __nv_bfloat162 __float22bfloat162_rn(float2 v)
{
    return __floats2bfloat162_rn(v.x, v.y);
}

static inline float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return float2{v.x, v.y};
}

static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return __nv_bfloat162{x, y};
}

static inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x)
{
    return __nv_bfloat162{x, x};
}

static inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return __nv_bfloat162{x, y};
}

static inline float __low2float(__nv_bfloat162 v)
{
    return v.x;
}

static inline float __high2float(__nv_bfloat162 v)
{
    return v.y;
}

static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v)
{
    return v.x;
}

static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v)
{
    return v.y;
}

/* Each of these functions rounds once. */
static inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return __floats2bfloat162_rn((float)a.x * b.x, (float)a.y * b.y);
}

static inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return __floats2bfloat162_rn((float)a.x + b.x, (float)a.y + b.y);
}

static inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b)
{
    return __floats2bfloat162_rn((float)a.x - b.x, (float)a.y - b.y);
}

static inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c)
{
    return __floats2bfloat162_rn(__builtin_fmaf(a.x, b.x, c.x), __builtin_fmaf(a.y, b.y, c.y));
}

#endif
