/* elementwise: operations on the numbers of a row: RMSNorm in its three forms, gated activations,
 * scale, gather, embedding rows, bias. References: compute/cpu/rows.h (norm, gate_mul) and,
 * for embed, compute_dequantize.
 *
 * A norm is a block per row (a warp per head), which adds up the squares of its elements in an
 * order that depends only on the number of columns, and then reads the row again, from L1. The
 * other operations process 4 elements per thread, 16 bytes in and out, where shapes allow,
 * otherwise one.
 *
 * Bound: memory, each input read and each output written once: norm 6 bytes per element (bf16 out),
 * gated 10, scale 8. A prompt of 8192 × 4096 in bf16: norm 42 µs; 8192 × 14336: gated 245 µs at 4.8
 * TB/s. With one row, latency limits all of them: a few reads one after the other. */
#include "compute/cuda/launch.cuh"
#include "compute/cuda/ptx.cuh"
#include "compute/cuda/weights.cuh"

namespace
{
constexpr uint32_t THREADS = 256;
constexpr uint32_t NORM_THREADS_MAX = 1024;
constexpr uint32_t GRID_MAX = 16384; /* For kernels whose threads process elements in strides. */

/* The kernels of a decode step's layer are launched early. They take little time beyond the gap
 * between kernels, and the kernels after them can load their weights meanwhile. */
__device__ __forceinline__ void early_begin()
{
    ptx_launch_dependents();
    ptx_wait_dependency();
}

__device__ __forceinline__ float warp_sum(float value)
{
#pragma unroll
    for (int width = 16; width > 0; width /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, width);
    return value;
}

/* Sum over all threads of the block; every thread gets it. */
__device__ __forceinline__ float block_sum(float value)
{
    __shared__ float sums[32];
    const uint32_t warps = blockDim.x / 32, lane = threadIdx.x % 32;
    value = warp_sum(value);
    if (lane == 0)
        sums[threadIdx.x / 32] = value;
    __syncthreads();
    return warp_sum(lane < warps ? sums[lane] : 0.0f);
}

__device__ __forceinline__ float square(float sum, float4 x)
{
    return sum + (x.x * x.x + x.y * x.y) + (x.z * x.z + x.w * x.w);
}

/* 1 / sqrt(mean(x²) + epsilon) of a row, computed by a block. wide: the row is whole vectors of 4.
 */
__device__ __forceinline__ float norm_factor(const float *x, uint32_t cols, bool wide,
                                             float epsilon)
{
    float sum = 0;
    if (wide)
        for (uint32_t i = threadIdx.x * 4; i < cols; i += blockDim.x * 4)
            sum = square(sum, *reinterpret_cast<const float4 *>(x + i));
    else
        for (uint32_t i = threadIdx.x; i < cols; i += blockDim.x)
            sum += x[i] * x[i];
    return 1.0f / sqrtf(block_sum(sum) / (float)cols + epsilon);
}

__device__ __forceinline__ float4 scaled(float4 x, float factor, float4 weight)
{
    return make_float4(x.x * factor * weight.x, x.y * factor * weight.y, x.z * factor * weight.z,
                       x.w * factor * weight.w);
}

__device__ __forceinline__ void put4(__nv_bfloat16 *out, float *out_f32, size_t at, float4 value)
{
    if (out != nullptr) {
        __nv_bfloat162 *to = reinterpret_cast<__nv_bfloat162 *>(out + at);
        to[0] = __floats2bfloat162_rn(value.x, value.y);
        to[1] = __floats2bfloat162_rn(value.z, value.w);
    }
    if (out_f32 != nullptr)
        *reinterpret_cast<float4 *>(out_f32 + at) = value;
}

__device__ __forceinline__ void value_store(__nv_bfloat16 *out, float *out_f32, size_t at,
                                            float value)
{
    if (out != nullptr)
        out[at] = __float2bfloat16_rn(value);
    if (out_f32 != nullptr)
        out_f32[at] = value;
}

__global__ void __launch_bounds__(NORM_THREADS_MAX)
    norm(const float *x, const uint32_t *rows_in, uint32_t cols, const float *weight, float epsilon,
         __nv_bfloat16 *out, float *out_f32)
{
    early_begin();
    const size_t row = blockIdx.x;
    const float *from = x + (rows_in != nullptr ? rows_in[row] : row) * cols;
    const bool wide = cols % 4 == 0;
    if (weight == nullptr) {
        for (uint32_t i = threadIdx.x; i < cols; i += blockDim.x)
            value_store(out, out_f32, row * cols + i, from[i]);
        return;
    }
    const float factor = norm_factor(from, cols, wide, epsilon);
    if (wide)
        for (uint32_t i = threadIdx.x * 4; i < cols; i += blockDim.x * 4)
            put4(out, out_f32, row * cols + i,
                 scaled(*reinterpret_cast<const float4 *>(from + i), factor,
                        *reinterpret_cast<const float4 *>(weight + i)));
    else
        for (uint32_t i = threadIdx.x; i < cols; i += blockDim.x)
            value_store(out, out_f32, row * cols + i, from[i] * factor * weight[i]);
}

/* Three passes over the row, of which the last two read L1. */
__global__ void __launch_bounds__(NORM_THREADS_MAX)
    layer_norm(const float *x, const uint32_t *rows_in, uint32_t cols, const float *weight,
               const float *bias, float epsilon, __nv_bfloat16 *out, float *out_f32)
{
    early_begin();
    const size_t row = blockIdx.x;
    const float *from = x + (rows_in != nullptr ? rows_in[row] : row) * cols;
    float sum = 0, squares = 0;
    for (uint32_t i = threadIdx.x; i < cols; i += blockDim.x)
        sum += from[i];
    const float mean = block_sum(sum) / (float)cols;
    for (uint32_t i = threadIdx.x; i < cols; i += blockDim.x)
        squares += (from[i] - mean) * (from[i] - mean);
    __syncthreads(); /* block_sum's array is written again. */
    const float factor = 1.0f / sqrtf(block_sum(squares) / (float)cols + epsilon);
    for (uint32_t i = threadIdx.x; i < cols; i += blockDim.x)
        value_store(out, out_f32, row * cols + i,
                    (from[i] - mean) * factor * weight[i] + (bias != nullptr ? bias[i] : 0.0f));
}

__global__ void __launch_bounds__(NORM_THREADS_MAX)
    norm_add(const float *y, uint32_t cols, const float *weight, float epsilon, float *x)
{
    early_begin();
    const float *from = y + (size_t)blockIdx.x * cols;
    float *to = x + (size_t)blockIdx.x * cols;
    const float factor = norm_factor(from, cols, cols % 4 == 0, epsilon);
    for (uint32_t i = threadIdx.x; i < cols; i += blockDim.x)
        to[i] += __fmul_rn(from[i] * factor, weight[i]);
}

/* One warp per head. */
__global__ void __launch_bounds__(THREADS)
    head_norm(const float *weight, float epsilon, size_t heads, uint32_t head_dim, float *x)
{
    early_begin();
    const size_t head = (size_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (head >= heads)
        return;
    float *values = x + head * head_dim, sum = 0;
    for (uint32_t i = threadIdx.x % 32; i < head_dim; i += 32)
        sum += values[i] * values[i];
    const float factor = 1.0f / sqrtf(warp_sum(sum) / (float)head_dim + epsilon);
    for (uint32_t i = threadIdx.x % 32; i < head_dim; i += 32)
        values[i] = values[i] * factor * weight[i];
}

/* GELU's tanh form: (1 + tanh(u)) / 2 = 1 / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x³). */
template <enum compute_activation A> __device__ __forceinline__ float gate_by(float gate, float up)
{
    if (A == COMPUTE_GELU_ERF)
        return 0.5f * gate * erfcf(gate * -0x1.6a09e6p-1f) * up;
    const float exponent =
        A == COMPUTE_GELU ? fmaf(-0x1.2444f2p-4f, gate * gate, -0x1.988454p+0f) * gate : -gate;
    return gate / (1.0f + expf(exponent)) * up;
}

/* up NULL = all ones. */
template <enum compute_activation A>
__global__ void __launch_bounds__(THREADS)
    gated(const float *gate, const float *up, size_t count, __nv_bfloat16 *out, float *out_f32)
{
    early_begin();
    const size_t stride = (size_t)gridDim.x * THREADS, fours = count / 4;
    const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x;
    for (size_t i = first; i < fours; i += stride) {
        const float4 g = reinterpret_cast<const float4 *>(gate)[i];
        const float4 u = up != nullptr ? reinterpret_cast<const float4 *>(up)[i]
                                       : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
        put4(out, out_f32, 4 * i,
             make_float4(gate_by<A>(g.x, u.x), gate_by<A>(g.y, u.y), gate_by<A>(g.z, u.z),
                         gate_by<A>(g.w, u.w)));
    }
    if (first < count % 4) {
        const size_t i = 4 * fours + first;
        value_store(out, out_f32, i, gate_by<A>(gate[i], up != nullptr ? up[i] : 1.0f));
    }
}

__global__ void __launch_bounds__(THREADS) scale(float factor, size_t count, float *x)
{
    const size_t stride = (size_t)gridDim.x * THREADS, fours = count / 4;
    const size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x;
    for (size_t i = first; i < fours; i += stride) {
        float4 *at = reinterpret_cast<float4 *>(x) + i;
        const float4 v = *at;
        *at = make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
    }
    if (first < count % 4)
        x[4 * fours + first] *= factor;
}

__global__ void __launch_bounds__(THREADS)
    scale_add(float factor, size_t count, const float *y, float *x)
{
    const size_t stride = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride)
        x[i] = fmaf(factor, y[i], x[i]);
}

/* tanh(u) = (e^2u - 1) / (e^2u + 1). */
__global__ void __launch_bounds__(THREADS) capped(float cap, size_t count, float *x)
{
    const size_t stride = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride) {
        const float e = expf(fminf(fmaxf(2 * x[i] / cap, -44.0f), 44.0f));
        x[i] = cap * ((e - 1) / (e + 1));
    }
}

/* One block per row and THREADS * 4 columns. */
__global__ void __launch_bounds__(THREADS)
    gather(const float *x, const uint32_t *rows, uint32_t cols, float *y)
{
    const float *from = x + (size_t)rows[blockIdx.x] * cols;
    float *to = y + (size_t)blockIdx.x * cols;
    const uint32_t i = (blockIdx.y * THREADS + threadIdx.x) * 4;
    if (cols % 4 == 0) {
        if (i < cols)
            *reinterpret_cast<float4 *>(to + i) = *reinterpret_cast<const float4 *>(from + i);
        return;
    }
    for (uint32_t e = i; e < i + 4 && e < cols; e++)
        to[e] = from[e];
}

/* One block per id and 8 steps of 256 columns. Writes zeros for an id that is not a row of w. */
template <enum compute_type TYPE>
__global__ void __launch_bounds__(THREADS)
    embed(const struct cuda_weights w, const uint32_t *ids, float *y)
{
    const uint32_t step = blockIdx.y * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (step >= weights_steps(w.cols))
        return;
    float values[8] = {};
    if (ids[blockIdx.x] < w.rows)
        weights_chunk<TYPE>(w, ids[blockIdx.x], step, lane, values);
    float *to = y + (size_t)blockIdx.x * w.cols;
#pragma unroll
    for (uint32_t e = 0; e < 8; e++) {
        const uint32_t col = step * WEIGHTS_STEP + weights_column(TYPE, lane, e / 4) + e % 4;
        if (col < w.cols)
            to[col] = values[e];
    }
}

__global__ void __launch_bounds__(THREADS)
    bias_add(const float *bias, uint32_t cols, size_t count, float *y)
{
    const size_t stride = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += stride)
        y[i] += bias[i % cols];
}

unsigned grid_of(size_t threads)
{
    const size_t blocks = (threads + THREADS - 1) / THREADS;
    return (unsigned)(blocks == 0 ? 1 : blocks < GRID_MAX ? blocks : GRID_MAX);
}

/* Four elements per thread, in whole warps. */
unsigned norm_threads(uint32_t cols)
{
    const uint32_t threads = (cols + 127) / 128 * 32;
    return threads < NORM_THREADS_MAX ? threads : NORM_THREADS_MAX;
}
} // namespace

void cuda_norm(cudaStream_t stream, const float *x, const uint32_t *rows_in, uint32_t rows,
               uint32_t cols, const float *weight, float epsilon, __nv_bfloat16 *out,
               float *out_f32)
{
    CUDA_LAUNCH_EARLY(norm, dim3(rows), dim3(norm_threads(cols)), 0, stream, x, rows_in, cols,
                      weight, epsilon, out, out_f32);
}

void cuda_layer_norm(cudaStream_t stream, const float *x, const uint32_t *rows_in, uint32_t rows,
                     uint32_t cols, const float *weight, const float *bias, float epsilon,
                     __nv_bfloat16 *out, float *out_f32)
{
    CUDA_LAUNCH_EARLY(layer_norm, dim3(rows), dim3(norm_threads(cols)), 0, stream, x, rows_in, cols,
                      weight, bias, epsilon, out, out_f32);
}

void cuda_norm_add(cudaStream_t stream, const float *y, uint32_t rows, uint32_t cols,
                   const float *weight, float epsilon, float *x)
{
    CUDA_LAUNCH_EARLY(norm_add, dim3(rows), dim3(norm_threads(cols)), 0, stream, y, cols, weight,
                      epsilon, x);
}

void cuda_head_norm(cudaStream_t stream, const float *weight, float epsilon, uint32_t rows,
                    uint32_t heads, uint32_t head_dim, float *x)
{
    const size_t count = (size_t)rows * heads;
    CUDA_LAUNCH_EARLY(head_norm, dim3((unsigned)((count + THREADS / 32 - 1) / (THREADS / 32))),
                      dim3(THREADS), 0, stream, weight, epsilon, count, head_dim, x);
}

void cuda_gated(cudaStream_t stream, enum compute_activation activation, const float *gate,
                const float *up, uint32_t rows, uint32_t cols, __nv_bfloat16 *out, float *out_f32)
{
    const size_t count = (size_t)rows * cols;
#define GATED(kind)                                                                                \
    CUDA_LAUNCH_EARLY(gated<kind>, dim3(grid_of(count / 4)), dim3(THREADS), 0, stream, gate, up,   \
                      count, out, out_f32)
    if (activation == COMPUTE_SILU)
        GATED(COMPUTE_SILU);
    else if (activation == COMPUTE_GELU)
        GATED(COMPUTE_GELU);
    else
        GATED(COMPUTE_GELU_ERF);
#undef GATED
}

void cuda_cap(cudaStream_t stream, float cap, size_t count, float *x)
{
    CUDA_LAUNCH(capped, dim3(grid_of(count)), dim3(THREADS), 0, stream, cap, count, x);
}

void cuda_scale(cudaStream_t stream, float factor, size_t count, float *x)
{
    CUDA_LAUNCH(scale, dim3(grid_of(count / 4)), dim3(THREADS), 0, stream, factor, count, x);
}

void cuda_scale_add(cudaStream_t stream, float factor, size_t count, const float *y, float *x)
{
    CUDA_LAUNCH(scale_add, dim3(grid_of(count)), dim3(THREADS), 0, stream, factor, count, y, x);
}

void cuda_gather(cudaStream_t stream, const float *x, const uint32_t *rows, uint32_t count,
                 uint32_t cols, float *y)
{
    CUDA_LAUNCH(gather, dim3(count, (cols + THREADS * 4 - 1) / (THREADS * 4)), dim3(THREADS), 0,
                stream, x, rows, cols, y);
}

void cuda_embed(cudaStream_t stream, const struct cuda_weights *w, const uint32_t *ids,
                uint32_t count, float *y)
{
    const uint32_t warps = THREADS / 32;
    const dim3 grid(count, (weights_steps(w->cols) + warps - 1) / warps);
#define EMBED(type) CUDA_LAUNCH(embed<type>, grid, dim3(THREADS), 0, stream, *w, ids, y)
    WEIGHTS_EACH_TYPE(w->type, EMBED)
#undef EMBED
}

void cuda_bias_add(cudaStream_t stream, const float *bias, uint32_t rows, uint32_t cols, float *y)
{
    const size_t count = (size_t)rows * cols;
    CUDA_LAUNCH(bias_add, dim3(grid_of(count)), dim3(THREADS), 0, stream, bias, cols, count, y);
}
