/* quantize_f8: converts activations to E4M3 with fp32 scales, for products on 8-bit tensor cores:
 * one scale per row, or per 128 columns of a row. Also scales such products where cuBLASLt does
 * not. Plain reference: tests/gpu/test_f8.cu. scale = amax / 448, and an element becomes the
 * nearest E4M3 of x · (448 / amax). A row (or group) of zeros has scale 0. A row (or group) with
 * NaN or infinity has that as its scale, so all its results are NaN.
 *
 * Bound: memory, 3 bytes per activation: 2048 × 4096 in 5 µs at 4.8 TB/s. A row's numbers do not
 * depend on other rows. */
#include "compute/cuda/kernels.cuh"
#include "compute/cuda/launch.cuh"

#include <cuda_fp8.h>

namespace
{
constexpr uint32_t THREADS = 256;
constexpr float MOST = 448.0f; /* The greatest E4M3 number. */

/* Greatest magnitude of two numbers and `most`. As integers, magnitudes have the same order, and
 * NaN is above all. */
__device__ __forceinline__ uint32_t amax_of(uint32_t pair, uint32_t most)
{
    const uint32_t low = (pair & 0x7fffu) << 16, high = pair & 0x7fff0000u;
    return max(most, max(low, high));
}

__device__ __forceinline__ uint32_t amax_warp(uint32_t most)
{
#pragma unroll
    for (int width = 16; width > 0; width /= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, width));
    return most;
}

__device__ __forceinline__ float inverse_of(uint32_t amax)
{
    return amax != 0 ? MOST / __uint_as_float(amax) : 0.0f;
}

__device__ __forceinline__ uint32_t f8_of(uint32_t half, float inverse)
{
    return __nv_fp8_e4m3(__uint_as_float(half << 16) * inverse).__x;
}

__device__ __forceinline__ uint32_t f8_of_four(uint2 four, float inverse)
{
    return f8_of(four.x & 0xffffu, inverse) | f8_of(four.x >> 16, inverse) << 8 |
           f8_of(four.y & 0xffffu, inverse) << 16 | f8_of(four.y >> 16, inverse) << 24;
}

/* One block per row; cols is a multiple of 4. */
__global__ void __launch_bounds__(THREADS)
    quantize_rows(const __nv_bfloat16 *a, uint32_t cols, uint8_t *out, float *scales)
{
    __shared__ uint32_t parts[THREADS / 32];
    const uint2 *from = reinterpret_cast<const uint2 *>(a + (size_t)blockIdx.x * cols);
    uint32_t *to = reinterpret_cast<uint32_t *>(out + (size_t)blockIdx.x * cols);
    uint32_t most = 0;
    for (uint32_t i = threadIdx.x; i < cols / 4; i += THREADS)
        most = amax_of(from[i].x, amax_of(from[i].y, most));
    most = amax_warp(most);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = most;
    __syncthreads();
    for (uint32_t i = 0; i < THREADS / 32; i++)
        most = max(most, parts[i]);
    const float inverse = inverse_of(most);
    for (uint32_t i = threadIdx.x; i < cols / 4; i += THREADS)
        to[i] = f8_of_four(from[i], inverse);
    if (threadIdx.x == 0)
        scales[blockIdx.x] = __uint_as_float(most) / MOST;
}

/* One warp per 128 columns of a row, one lane per 4 columns. scales[group][row], stride apart. */
__global__ void __launch_bounds__(THREADS)
    quantize_groups(const __nv_bfloat16 *a, uint32_t rows, uint32_t cols, uint32_t stride,
                    uint8_t *out, float *scales)
{
    const uint32_t groups = cols / 128, lane = threadIdx.x % 32;
    const uint32_t i = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (i >= rows * groups)
        return;
    const uint32_t row = i / groups, group = i % groups;
    const size_t at = (size_t)row * cols + group * 128 + lane * 4;
    const uint2 four = *reinterpret_cast<const uint2 *>(a + at);
    const uint32_t most = amax_warp(amax_of(four.x, amax_of(four.y, 0)));
    *reinterpret_cast<uint32_t *>(out + at) = f8_of_four(four, inverse_of(most));
    if (lane == 0)
        scales[(size_t)group * stride + row] = __uint_as_float(most) / MOST;
}

__global__ void __launch_bounds__(THREADS)
    scale_product(const float *product, const float *a_scales, const float *w_scales, uint32_t cols,
                  size_t count, bool add, float *y)
{
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count;
         i += (size_t)gridDim.x * THREADS) {
        const float value = product[i] * a_scales[i / cols] * w_scales[i % cols];
        y[i] = add ? y[i] + value : value;
    }
}
} // namespace

void cuda_quantize_rows(cudaStream_t stream, const __nv_bfloat16 *a, uint32_t rows, uint32_t cols,
                        uint8_t *out, float *scales)
{
    CUDA_LAUNCH(quantize_rows, dim3(rows), dim3(THREADS), 0, stream, a, cols, out, scales);
}

void cuda_quantize_groups(cudaStream_t stream, const __nv_bfloat16 *a, uint32_t rows, uint32_t cols,
                          uint32_t stride, uint8_t *out, float *scales)
{
    const uint32_t warps = THREADS / 32, count = rows * (cols / 128);
    CUDA_LAUNCH(quantize_groups, dim3((count + warps - 1) / warps), dim3(THREADS), 0, stream, a,
                rows, cols, stride, out, scales);
}

void cuda_scale_product(cudaStream_t stream, const float *product, const float *a_scales,
                        const float *w_scales, uint32_t rows, uint32_t cols, bool add, float *y)
{
    const size_t count = (size_t)rows * cols, blocks = (count + THREADS - 1) / THREADS;
    CUDA_LAUNCH(scale_product, dim3((unsigned)(blocks < 4096 ? blocks : 4096)), dim3(THREADS), 0,
                stream, product, a_scales, w_scales, cols, count, add, y);
}
