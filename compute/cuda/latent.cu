/* latent: what latent attention does before and after attention itself (compute/latent.h): the
 * vectors that are cached, and products of each head with a matrix of its own. Reference:
 * compute/cpu/latent.c. fp32 throughout, as on the CPU.
 *
 * Products of up to CUDA_GEMV_ROWS rows (few): a warp per row of a head's matrix, which 8 rows of x
 * share. Bound: reading the matrices, 2 * 4 bytes a weight; for DeepSeek-V3 134 MB a layer, 28 µs at
 * 4.8 TB/s. More rows (tiles): 64 rows and 64 outputs of a head in a thread block, 4 × 4 of them in
 * a thread. Bound: fp32 multiply-adds; a prompt of 2048 tokens of DeepSeek-V3 takes 69 GFLOP a layer,
 * 1.2 ms at 60 TFLOP/s, about as long as its attention on tensor cores. Nothing here was measured.
 */
#include "compute/cuda/kernels.cuh"
#include "compute/cuda/launch.cuh"

namespace
{
constexpr uint32_t THREADS = 256;
constexpr uint32_t WARPS = THREADS / 32;
constexpr uint32_t FEW = 8;   /* Rows of x that share a row of a matrix. */
constexpr uint32_t TILE = 64; /* Rows, and outputs, of a tile. */
constexpr uint32_t STEP = 16; /* Columns that a tile has in shared memory at a time. */

__device__ __forceinline__ float warp_sum(float value)
{
#pragma unroll
    for (int width = 16; width > 0; width /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, width);
    return value;
}

/* ---- the vectors that are cached ---- */

/* A block per row. */
__global__ void __launch_bounds__(THREADS)
    join(const float *weight, float epsilon, uint32_t own_cols, uint32_t cols, const float *own,
         const float *latent, float *k)
{
    __shared__ float sums[WARPS];
    const float *from = latent + (size_t)blockIdx.x * cols;
    float *to = k + (size_t)blockIdx.x * (own_cols + cols), sum = 0;
    for (uint32_t i = threadIdx.x; i < own_cols; i += THREADS)
        to[i] = own[(size_t)blockIdx.x * own_cols + i];
    for (uint32_t i = threadIdx.x; i < cols; i += THREADS)
        sum += from[i] * from[i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = warp_sum(threadIdx.x % 32 < WARPS ? sums[threadIdx.x % 32] : 0.0f);
    const float factor = 1.0f / sqrtf(sum / (float)cols + epsilon);
    for (uint32_t i = threadIdx.x; i < cols; i += THREADS)
        to[own_cols + i] = from[i] * factor * weight[i];
}

/* ---- products of heads ---- */

/* Index of value `i` of a head's result. */
__device__ __forceinline__ size_t result_at(const struct cuda_latent_product &p, uint32_t row,
                                            uint32_t head, uint32_t i)
{
    return ((size_t)row * p.heads + head) * (p.x_width - p.cols + p.outputs) + i;
}

__device__ __forceinline__ const float *input_of(const struct cuda_latent_product &p, uint32_t row,
                                                 uint32_t head)
{
    return p.x + ((size_t)row * p.heads + head) * p.x_width;
}

__device__ __forceinline__ void result_put(const struct cuda_latent_product &p, size_t at,
                                           float value)
{
    if (p.out != nullptr)
        p.out[at] = __float2bfloat16_rn(value);
    if (p.out_f32 != nullptr)
        p.out_f32[at] = value;
}

/* Copies the values of a head that are not multiplied, by `threads` threads. */
__device__ __forceinline__ void carry(const struct cuda_latent_product &p, uint32_t row,
                                      uint32_t head, uint32_t thread, uint32_t threads)
{
    for (uint32_t i = thread; i < p.x_width - p.cols; i += threads)
        result_put(p, result_at(p, row, head, i), input_of(p, row, head)[p.cols + i]);
}

__global__ void __launch_bounds__(THREADS) few(const struct cuda_latent_product p)
{
    const uint32_t n = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t head = n / p.outputs, output = n % p.outputs;
    const uint32_t first = blockIdx.y * FEW, count = min(FEW, p.rows - first);
    if (head >= p.heads)
        return;
    const float *w = p.w + n * p.w_row;
    float sums[FEW] = {};
    for (uint32_t i = lane; i < p.cols; i += 32) {
        const float weight = w[i];
#pragma unroll
        for (uint32_t r = 0; r < FEW; r++)
            if (r < count)
                sums[r] = fmaf(weight, input_of(p, first + r, head)[i], sums[r]);
    }
#pragma unroll
    for (uint32_t r = 0; r < FEW; r++) {
        if (r >= count)
            break;
        const float sum = warp_sum(sums[r]);
        if (lane == 0)
            result_put(p, result_at(p, first + r, head, p.x_width - p.cols + output), sum);
        if (output == 0)
            carry(p, first + r, head, lane, 32);
    }
}

__global__ void __launch_bounds__(THREADS) tiles(const struct cuda_latent_product p)
{
    __shared__ __align__(16) float x[STEP][TILE + 4], w[STEP][TILE + 4];
    const uint32_t output = blockIdx.x * TILE, head = blockIdx.y, row = blockIdx.z * TILE;
    const uint32_t i = threadIdx.x / 16 * 4, k = threadIdx.x % 16 * 4; /* In the tile. */
    const uint32_t loaded = threadIdx.x / 4, from = threadIdx.x % 4 * 4;
    float sums[4][4] = {};
    for (uint32_t col = 0; col < p.cols; col += STEP) {
#pragma unroll
        for (uint32_t e = from; e < from + 4; e++) {
            const bool there = col + e < p.cols;
            x[e][loaded] =
                there && row + loaded < p.rows ? input_of(p, row + loaded, head)[col + e] : 0.0f;
            w[e][loaded] = there && output + loaded < p.outputs
                               ? p.w[(head * p.outputs + output + loaded) * p.w_row + col + e]
                               : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (uint32_t c = 0; c < STEP; c++) {
            const float4 a = *reinterpret_cast<const float4 *>(&x[c][i]);
            const float4 b = *reinterpret_cast<const float4 *>(&w[c][k]);
            const float as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (uint32_t r = 0; r < 4; r++)
#pragma unroll
                for (uint32_t o = 0; o < 4; o++)
                    sums[r][o] = fmaf(as[r], bs[o], sums[r][o]);
        }
        __syncthreads();
    }
    for (uint32_t r = 0; r < 4 && row + i + r < p.rows; r++)
        for (uint32_t o = 0; o < 4 && output + k + o < p.outputs; o++)
            result_put(p, result_at(p, row + i + r, head, p.x_width - p.cols + output + k + o),
                       sums[r][o]);
    if (output == 0)
        for (uint32_t r = threadIdx.x / 32; r < TILE && row + r < p.rows; r += WARPS)
            carry(p, row + r, head, threadIdx.x % 32, 32);
}
} // namespace

void cuda_latent_join(cudaStream_t stream, const float *weight, float epsilon, uint32_t rows,
                      uint32_t own_cols, uint32_t cols, const float *own, const float *latent,
                      float *k)
{
    CUDA_LAUNCH(join, dim3(rows), dim3(THREADS), 0, stream, weight, epsilon, own_cols, cols, own,
                latent, k);
}

void cuda_latent_multiply(cudaStream_t stream, const struct cuda_latent_product *p)
{
    if (p->rows <= CUDA_GEMV_ROWS) {
        const dim3 grid((p->heads * p->outputs + WARPS - 1) / WARPS, (p->rows + FEW - 1) / FEW);
        CUDA_LAUNCH(few, grid, dim3(THREADS), 0, stream, *p);
        return;
    }
    const dim3 grid((p->outputs + TILE - 1) / TILE, p->heads, (p->rows + TILE - 1) / TILE);
    CUDA_LAUNCH(tiles, grid, dim3(THREADS), 0, stream, *p);
}
