/* emulated_math: CUDA's device functions for numbers: intrinsics, bit casts, atomics, cached loads.
 * Part of cuda_runtime.h; kernels call them on the CPU thread that runs their block. Fast functions
 * (__expf) are as exact here as the plain ones, so tolerances must be chosen on a device. */
#ifndef TESTS_GPU_EMULATOR_EMULATED_MATH_H
#define TESTS_GPU_EMULATOR_EMULATED_MATH_H

#include "emulated_types.h"

#include <type_traits>

#define CUDART_INF_F __builtin_inff()

using std::isfinite;
using std::isinf;
using std::isnan;

/* On a device, the arguments may have different types. */
template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b)
{
    using T = std::common_type_t<A, B>;
    return (T)b < (T)a ? (T)b : (T)a;
}

template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b)
{
    using T = std::common_type_t<A, B>;
    return (T)a < (T)b ? (T)b : (T)a;
}

/* These are macros, because glibc has functions with these names. */
#define __expf   expf
#define __logf   logf
#define __log2f  log2f
#define __exp10f exp10f
#define __sinf   sinf
#define __cosf   cosf
#define __tanf   tanf
#define __powf   powf

#define EMULATED_MATH1(name, expression)                                                           \
    static inline float name(float x)                                                              \
    {                                                                                              \
        return expression;                                                                         \
    }
EMULATED_MATH1(rsqrtf, 1.0f / sqrtf(x))
EMULATED_MATH1(__frsqrt_rn, 1.0f / sqrtf(x))
EMULATED_MATH1(__frcp_rn, 1.0f / x)
EMULATED_MATH1(__fsqrt_rn, sqrtf(x))
EMULATED_MATH1(__saturatef, x<0 ? 0.0f : x> 1 ? 1.0f : x)
#undef EMULATED_MATH1

#define EMULATED_MATH2(name, expression)                                                           \
    static inline float name(float x, float y)                                                     \
    {                                                                                              \
        return expression;                                                                         \
    }
EMULATED_MATH2(__fdividef, x / y)
EMULATED_MATH2(__fdiv_rn, x / y)
#undef EMULATED_MATH2

/* These operations are never fused with the next one, as on a device. */
static inline __attribute__((noinline)) float __fmul_rn(float x, float y)
{
    return x * y;
}

static inline __attribute__((noinline)) float __fadd_rn(float x, float y)
{
    return x + y;
}

static inline float __fsub_rn(float x, float y)
{
    return __fadd_rn(x, -y);
}

static inline float __fmaf_rn(float x, float y, float z)
{
    return __builtin_fmaf(x, y, z);
}

static inline void sincospif(float x, float *sine, float *cosine)
{
    *sine = (float)sin((double)x * 3.14159265358979323846);
    *cosine = (float)cos((double)x * 3.14159265358979323846);
}

template <class To, class From> static inline To emulated_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "a cast of bits keeps the size");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

static inline int __float_as_int(float x)
{
    return emulated_bits<int>(x);
}

static inline unsigned __float_as_uint(float x)
{
    return emulated_bits<unsigned>(x);
}

static inline float __int_as_float(int x)
{
    return emulated_bits<float>(x);
}

static inline float __uint_as_float(unsigned x)
{
    return emulated_bits<float>(x);
}

static inline int __float2int_rn(float x)
{
    return (int)rintf(x);
}

static inline int __float2int_rz(float x)
{
    return (int)x;
}

static inline int __float2int_rd(float x)
{
    return (int)floorf(x);
}

static inline unsigned __float2uint_rn(float x)
{
    return (unsigned)rintf(x);
}

static inline float __int2float_rn(int x)
{
    return (float)x;
}

static inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}

static inline int __clzll(long long x)
{
    return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline unsigned __brev(unsigned x)
{
    unsigned y = 0;
    for (unsigned i = 0; i < 32; i++)
        y |= (x >> i & 1) << (31 - i);
    return y;
}

static inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)((uint64_t)x * y >> 32);
}

static inline int __mulhi(int x, int y)
{
    return (int)((int64_t)x * y >> 32);
}

static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}

static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)((((uint64_t)high << 32 | low) << (shift & 31)) >> 32);
}

static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}

/* Returns four bytes of y:x. The low three bits of each nibble of the selector choose a byte; bit 3
 * repeats the byte's sign bit instead. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned out = 0;
    for (unsigned i = 0; i < 4; i++) {
        unsigned pick = selector >> (4 * i) & 15;
        unsigned byte = (unsigned)(bytes >> (8 * (pick & 7))) & 255;
        if (pick & 8)
            byte = byte & 128 ? 255 : 0;
        out |= byte << (8 * i);
    }
    return out;
}

static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++)
        c += (int8_t)(a >> (8 * i)) * (int8_t)(b >> (8 * i));
    return c;
}

static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 4; i++)
        c += (uint8_t)(a >> (8 * i)) * (unsigned)(uint8_t)(b >> (8 * i));
    return c;
}

#define EMULATED_BYTES(name, expression)                                                           \
    static inline unsigned name(unsigned a, unsigned b)                                            \
    {                                                                                              \
        unsigned out = 0;                                                                          \
        for (int i = 0; i < 4; i++) {                                                              \
            int x = (int8_t)(a >> (8 * i)), y = (int8_t)(b >> (8 * i));                            \
            out |= (unsigned)(uint8_t)(expression) << (8 * i);                                     \
        }                                                                                          \
        return out;                                                                                \
    }
EMULATED_BYTES(__vsub4, x - y)
EMULATED_BYTES(__vadd4, x + y)
EMULATED_BYTES(__vsubss4, x - y < -128 ? -128 : x - y > 127 ? 127 : x - y)
#undef EMULATED_BYTES

template <class T> static inline T __ldg(const T *pointer)
{
    return *pointer;
}

template <class T> static inline T __ldcg(const T *pointer)
{
    return *pointer;
}

template <class T> static inline T __ldcs(const T *pointer)
{
    return *pointer;
}

template <class T> static inline T __ldca(const T *pointer)
{
    return *pointer;
}

template <class T> static inline void __stcg(T *pointer, std::common_type_t<T> value)
{
    *pointer = value;
}

template <class T> static inline void __stcs(T *pointer, std::common_type_t<T> value)
{
    *pointer = value;
}

/* Atomic operations return the old value at the address. Blocks may run on several CPU threads. */
template <class T, class F> static inline T emulated_atomic(T *address, F change)
{
    T old, next;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    do {
        next = change(old);
    } while (!__atomic_compare_exchange(address, &old, &next, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST));
    return old;
}

#define EMULATED_ATOMIC(name, expression)                                                          \
    template <class T> static inline T name(T *address, std::common_type_t<T> y)                   \
    {                                                                                              \
        return emulated_atomic(address, [=](T x) { return (T)(expression); });                     \
    }
EMULATED_ATOMIC(atomicAdd, x + y)
EMULATED_ATOMIC(atomicSub, x - y)
EMULATED_ATOMIC(atomicMax, x < y ? y : x)
EMULATED_ATOMIC(atomicMin, y < x ? y : x)
EMULATED_ATOMIC(atomicExch, ((void)x, y))
EMULATED_ATOMIC(atomicAnd, x &y)
EMULATED_ATOMIC(atomicOr, x | y)
EMULATED_ATOMIC(atomicXor, x ^ y)
EMULATED_ATOMIC(atomicInc, x >= y ? 0 : x + 1)
#undef EMULATED_ATOMIC

template <class T>
static inline T atomicCAS(T *address, std::common_type_t<T> compare, std::common_type_t<T> value)
{
    return emulated_atomic(address, [=](T x) { return x == compare ? value : x; });
}

#endif
