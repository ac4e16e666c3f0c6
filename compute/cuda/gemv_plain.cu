/* gemv_plain: y = W · a with fp32 multiply-adds, for fp32 weights and activations (options.exact,
 * which rounds nothing), for devices without bf16 tensor cores (7.5), and wherever gemv_mma.cu does
 * not apply. Reference: compute_dequantize and a plain double loop.
 *
 * There is a warp for each row of W, and a lane for each 8 columns of a step of 256. A lane adds up
 * its products in the order of the columns, then the lanes are folded 16, 8, 4, 2, 1 apart: one
 * order for any number of rows, of which up to 4 share what was loaded. Bound: memory. With one row
 * a lane has 16 bytes of bf16 in flight in each of 4 steps, which is 64 KiB per multiprocessor with
 * 32 warps; a T4 (320 GB/s over 40 multiprocessors) needs 5 KiB. */
#include "compute/cuda/gemv.cuh"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/weights.cuh"

namespace
{
constexpr uint32_t THREADS = 256;
constexpr uint32_t ROWS = 4; /* Rows of activations that share a load. */

/* Loads four columns from `col` on; `col` is less than cols. */
__device__ __forceinline__ void input_load(const struct gemv_input &input, uint32_t row,
                                           uint32_t cols, uint32_t col, float out[4])
{
    const size_t at = (size_t)row * cols + col;
    if (cols % 4 == 0 && input.f32 != nullptr) {
        const float4 four = *reinterpret_cast<const float4 *>(input.f32 + at);
        out[0] = four.x, out[1] = four.y, out[2] = four.z, out[3] = four.w;
    } else if (cols % 4 == 0) {
        const uint2 four = *reinterpret_cast<const uint2 *>(input.a + at);
        out[0] = weights_bf16(four.x), out[1] = weights_bf16(four.x >> 16);
        out[2] = weights_bf16(four.y), out[3] = weights_bf16(four.y >> 16);
    } else {
#pragma unroll
        for (uint32_t e = 0; e < 4; e++)
            out[e] = col + e >= cols        ? 0.0f
                     : input.f32 != nullptr ? input.f32[at + e]
                                            : __bfloat162float(input.a[at + e]);
    }
}

template <enum compute_type TYPE, uint32_t COUNT>
__global__ void __launch_bounds__(THREADS)
    multiply(const struct gemv_set set, uint32_t matrix, const struct gemv_input input)
{
    const struct cuda_weights w = set.w[matrix];
    const uint32_t row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t first = blockIdx.y * COUNT, steps = weights_steps(w.cols);
    if (row >= w.rows)
        return;
    float sums[COUNT] = {};
#pragma unroll(COUNT == 1 ? 4 : 1)
    for (uint32_t step = 0; step < steps; step++) {
        float weights[8];
        weights_chunk<TYPE>(w, row, step, lane, weights);
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t col = step * WEIGHTS_STEP + weights_column(TYPE, lane, half);
#pragma unroll
            for (uint32_t r = 0; r < COUNT; r++) {
                float values[4];
                if (col >= w.cols || first + r >= input.rows)
                    continue;
                input_load(input, first + r, w.cols, col, values);
#pragma unroll
                for (uint32_t e = 0; e < 4; e++)
                    sums[r] = fmaf(weights[4 * half + e], values[e], sums[r]);
            }
        }
    }
#pragma unroll
    for (uint32_t r = 0; r < COUNT; r++) {
#pragma unroll
        for (int width = 16; width > 0; width /= 2)
            sums[r] += __shfl_xor_sync(0xffffffffu, sums[r], width);
        if (lane == 0 && first + r < input.rows)
            gemv_put(set, matrix, first + r, row, sums[r]);
    }
}
} // namespace

void gemv_plain(cudaStream_t stream, const struct gemv_set &set, const struct gemv_input &input)
{
    const uint32_t count = input.rows == 1 ? 1 : ROWS;
    for (uint32_t i = 0; i < set.count; i++) {
        const dim3 grid((set.w[i].rows + THREADS / 32 - 1) / (THREADS / 32),
                        (input.rows + count - 1) / count);
#define MULTIPLY(type)                                                                             \
    if (count == 1)                                                                                \
        CUDA_LAUNCH((multiply<type, 1>), grid, dim3(THREADS), 0, stream, set, i, input);           \
    else                                                                                           \
        CUDA_LAUNCH((multiply<type, ROWS>), grid, dim3(THREADS), 0, stream, set, i, input)
        WEIGHTS_EACH_TYPE(set.w[i].type, MULTIPLY)
#undef MULTIPLY
    }
}
