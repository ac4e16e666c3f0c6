/* cuda_fp8: the emulator's own version of CUDA's header of this name: E4M3, the 8-bit float of
 * weights, as far as the kernels use it. The functions have no state; any thread may call. */
#ifndef TESTS_GPU_EMULATOR_CUDA_FP8_H
#define TESTS_GPU_EMULATOR_CUDA_FP8_H

#include "cuda_runtime.h"

using __nv_fp8_storage_t = unsigned char;

/* Returns the value of an E4M3 number: bias 7, no infinity, all ones = NaN, 448 = the largest
 * number. */
static inline float emulated_from_e4m3(unsigned char x)
{
    int exponent = x >> 3 & 15, mantissa = x & 7;
    float magnitude =
        exponent == 0 ? ldexpf((float)mantissa, -9) : ldexpf((float)(8 + mantissa), exponent - 10);
    if ((x & 127) == 127)
        magnitude = __builtin_nanf("");
    return x & 128 ? -magnitude : magnitude;
}

/* Rounds to nearest, ties to even. A number above 448 becomes 448. */
static inline unsigned char emulated_to_e4m3(float value)
{
    unsigned char sign = std::signbit(value) ? 128 : 0;
    float magnitude = fabsf(value);
    if (std::isnan(value))
        return (unsigned char)(sign | 127);
    if (magnitude >= 464.0f)
        return (unsigned char)(sign | 126);
    int exponent;
    frexpf(magnitude, &exponent);
    exponent = exponent < -5 ? -5 : exponent; /* 2^-6 is the smallest normal number */
    int steps = (int)rintf(ldexpf(magnitude, 4 - exponent)); /* 8 … 16, less when subnormal */
    if (steps == 16) {
        steps = 8;
        exponent++;
    }
    int code = steps < 8 ? steps : (exponent + 6) << 3 | (steps - 8);
    return (unsigned char)(sign | (code > 126 ? 126 : code));
}

struct __nv_fp8_e4m3 {
    __nv_fp8_storage_t __x;
    __nv_fp8_e4m3() = default;
    explicit __nv_fp8_e4m3(float value) : __x(emulated_to_e4m3(value))
    {
    }
    explicit operator float() const
    {
        return emulated_from_e4m3(__x);
    }
};

#endif
