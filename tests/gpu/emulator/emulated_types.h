/* emulated_types: the qualifiers and plain types that CUDA C++ adds to C++, for g++: qualifiers
 * that mean nothing on a CPU, dim3 and the short vectors. Part of cuda_runtime.h. It has types
 * only, no functions of CUDA. */
#ifndef TESTS_GPU_EMULATOR_EMULATED_TYPES_H
#define TESTS_GPU_EMULATOR_EMULATED_TYPES_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __managed__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
/* Shared memory of a block: the thread-local memory of the one CPU thread that runs the block, so
 * that block.cc can find it and fill it with a pattern between blocks. */
#define __shared__ static thread_local

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
    constexpr operator uint3() const
    {
        return uint3{x, y, z};
    }
};

/* Vectors of two and four elements are aligned as on a device. The compiler loads a vector as a
 * whole, so most misaligned accesses fault here too. */
#define EMULATED_VECTORS(name, type, align2, align4)                                               \
    struct name##1                                                                                 \
    {                                                                                              \
        type x;                                                                                    \
    };                                                                                             \
    struct alignas(align2) name##2                                                                 \
    {                                                                                              \
        type x, y;                                                                                 \
    };                                                                                             \
    struct alignas(align4) name##4                                                                 \
    {                                                                                              \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    static inline name##2 make_##name##2(type x, type y)                                           \
    {                                                                                              \
        return name##2 {x, y};                                                                     \
    }                                                                                              \
    static inline name##4 make_##name##4(type x, type y, type z, type w)                           \
    {                                                                                              \
        return name##4 {x, y, z, w};                                                               \
    }

EMULATED_VECTORS(char, signed char, 2, 4)
EMULATED_VECTORS(uchar, unsigned char, 2, 4)
EMULATED_VECTORS(short, short, 4, 8)
EMULATED_VECTORS(ushort, unsigned short, 4, 8)
EMULATED_VECTORS(int, int, 8, 16)
EMULATED_VECTORS(uint, unsigned, 8, 16)
EMULATED_VECTORS(float, float, 8, 16)
EMULATED_VECTORS(longlong, long long, 16, 16)
EMULATED_VECTORS(ulonglong, unsigned long long, 16, 16)
EMULATED_VECTORS(double, double, 16, 16)
#undef EMULATED_VECTORS

struct float3 {
    float x, y, z;
};

struct int3 {
    int x, y, z;
};

static inline float3 make_float3(float x, float y, float z)
{
    return float3{x, y, z};
}

#endif
