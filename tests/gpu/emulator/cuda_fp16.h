/* cuda_fp16: the emulator's own version of CUDA's header of this name: binary16, as far as the
 * kernels use it. The functions have no state; any thread may call. */
#ifndef TESTS_GPU_EMULATOR_CUDA_FP16_H
#define TESTS_GPU_EMULATOR_CUDA_FP16_H

#include "compute/half.h"
#include "cuda_runtime.h"

struct __half {
    unsigned short bits;
    __half() = default;
    __half(float value)
    {
        bits = half_to_f16(value);
    }
    operator float() const
    {
        return half_from_f16(bits);
    }
};

struct alignas(4) __half2 {
    __half x, y;
};

using half = __half;
using half2 = __half2;

static inline __half __ushort_as_half(unsigned short bits)
{
    __half x;
    x.bits = bits;
    return x;
}

static inline unsigned short __half_as_ushort(__half x)
{
    return x.bits;
}

static inline __half __float2half_rn(float value)
{
    return __half(value);
}

static inline __half __float2half(float value)
{
    return __half(value);
}

static inline float __half2float(__half x)
{
    return x;
}

static inline __half2 __floats2half2_rn(float x, float y)
{
    return __half2{__half(x), __half(y)};
}

static inline __half2 __float22half2_rn(float2 v)
{
    return __floats2half2_rn(v.x, v.y);
}

static inline float2 __half22float2(__half2 v)
{
    return float2{v.x, v.y};
}

static inline __half2 __halves2half2(__half x, __half y)
{
    return __half2{x, y};
}

static inline __half2 __half2half2(__half x)
{
    return __half2{x, x};
}

static inline __half2 __float2half2_rn(float x)
{
    return __floats2half2_rn(x, x);
}

static inline __half2 make_half2(__half x, __half y)
{
    return __half2{x, y};
}

static inline float __low2float(__half2 v)
{
    return v.x;
}

static inline float __high2float(__half2 v)
{
    return v.y;
}

static inline __half __low2half(__half2 v)
{
    return v.x;
}

static inline __half __high2half(__half2 v)
{
    return v.y;
}

/* Each of these functions rounds once. */
static inline __half2 __hmul2(__half2 a, __half2 b)
{
    return __floats2half2_rn((float)a.x * b.x, (float)a.y * b.y);
}

static inline __half2 __hadd2(__half2 a, __half2 b)
{
    return __floats2half2_rn((float)a.x + b.x, (float)a.y + b.y);
}

static inline __half2 __hsub2(__half2 a, __half2 b)
{
    return __floats2half2_rn((float)a.x - b.x, (float)a.y - b.y);
}

static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c)
{
    return __floats2half2_rn(__builtin_fmaf(a.x, b.x, c.x), __builtin_fmaf(a.y, b.y, c.y));
}

#endif
