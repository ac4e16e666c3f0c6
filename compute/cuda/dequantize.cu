/* dequantize: converts weights to rows of bf16 (each rounded to nearest even) or of fp32 (the bits
 * of compute_dequantize, the plain reference), for products of many rows, which cuBLAS then
 * computes.
 *
 * A warp converts a step of 256 columns of one row, a lane 8 of them: neighbouring lanes read
 * neighbouring bytes, and write neighbouring results of 16 or 32 bytes. Bound: memory, bytes of the
 * weights + 2 (or 4) per weight: Q4_0 to bf16 2.6 bytes per weight, so 117 M weights (up and gate
 * of a layer of Llama 3 8B) take 63 µs at 4.8 TB/s. */
#include "compute/cuda/launch.cuh"
#include "compute/cuda/weights.cuh"

namespace
{
constexpr uint32_t THREADS = 256;

__device__ __forceinline__ void values_store(__nv_bfloat16 *to, const float *values)
{
    const __nv_bfloat162 a = __floats2bfloat162_rn(values[0], values[1]);
    const __nv_bfloat162 b = __floats2bfloat162_rn(values[2], values[3]);
    reinterpret_cast<__nv_bfloat162 *>(to)[0] = a;
    reinterpret_cast<__nv_bfloat162 *>(to)[1] = b;
}

__device__ __forceinline__ void values_store(float *to, const float *values)
{
    *reinterpret_cast<float4 *>(to) = make_float4(values[0], values[1], values[2], values[3]);
}

template <enum compute_type TYPE, class OUT>
__global__ void __launch_bounds__(THREADS) dequantize(const struct cuda_weights w, OUT *out)
{
    const uint32_t steps = weights_steps(w.cols), lane = threadIdx.x % 32;
    const size_t warps = (size_t)gridDim.x * (THREADS / 32), count = (size_t)w.rows * steps;
    for (size_t i = (size_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; i < count; i += warps) {
        const size_t row = i / steps;
        const uint32_t step = (uint32_t)(i % steps);
        float values[8];
        weights_chunk<TYPE>(w, row, step, lane, values);
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t col = step * WEIGHTS_STEP + weights_column(TYPE, lane, half);
            OUT *to = out + row * w.cols + col;
            if (w.cols % 4 == 0 && col < w.cols)
                values_store(to, values + 4 * half);
            else
                for (uint32_t e = 0; e < 4 && col + e < w.cols; e++)
                    to[e] = OUT(values[4 * half + e]);
        }
    }
}

template <class OUT> void launch(cudaStream_t stream, const struct cuda_weights *w, OUT *out)
{
    const size_t warps = (size_t)w->rows * weights_steps(w->cols);
    const size_t blocks = (warps + THREADS / 32 - 1) / (THREADS / 32);
    const dim3 grid((unsigned)(blocks < 65536 ? blocks : 65536)), block(THREADS);
#define DEQUANTIZE(type) CUDA_LAUNCH((dequantize<type, OUT>), grid, block, 0, stream, *w, out)
    WEIGHTS_EACH_TYPE(w->type, DEQUANTIZE)
#undef DEQUANTIZE
}
} // namespace

void cuda_dequantize(cudaStream_t stream, const struct cuda_weights *w, __nv_bfloat16 *out)
{
    launch(stream, w, out);
}

void cuda_dequantize_f32(cudaStream_t stream, const struct cuda_weights *w, float *out)
{
    launch(stream, w, out);
}
