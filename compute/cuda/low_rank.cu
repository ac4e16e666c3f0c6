/* low_rank: y += B · A · x for the rows whose sequence has a low-rank adapter (compute/low_rank.h).
 * Reference: compute/cpu/low_rank.c. fp32 throughout: what an adapter adds is small, and so are its
 * matrices.
 *
 * The batch has a list of these rows, ordered by adapter (struct cuda_sequences). A tile is 8 rows
 * of the list; the rows of a tile that have one adapter, a run, are computed together, so its
 * matrices are read once for up to 8 rows. The shape of a launch depends only on the number of rows
 * in the batch, not on which rows have which adapter: a recorded step is right for any of them.
 *
 * 1. down: a warp per rank and tile: A · x into scratch memory.
 * 2. up: a thread per element of y and tile, which adds all ranks in order.
 * A row's bits do not depend on the other rows. Bound: memory, with few rows that of the adapters'
 * matrices, 4 bytes a number. No figure was measured on a device. */
#include "compute/cuda/kernels.cuh"
#include "compute/cuda/launch.cuh"

namespace
{
constexpr uint32_t THREADS = 256;
constexpr uint32_t WARPS = THREADS / 32;
constexpr uint32_t TILE = 8; /* Rows of a tile. */

/* The rows of the batch's list from `at` on, in a tile that ends at `end`, which have the same
 * adapter. */
struct run {
    uint32_t adapter; /* 0 = the list has no more rows. */
    uint32_t at, count;
};

__device__ __forceinline__ struct run run_at(const struct cuda_sequences &s, uint32_t at,
                                             uint32_t end)
{
    struct run run = {at < end ? s.adapters[at] : 0, at, 1};
    while (run.adapter != 0 && at + run.count < end && s.adapters[at + run.count] == run.adapter)
        run.count++;
    return run;
}

__device__ __forceinline__ float warp_sum(float value)
{
#pragma unroll
    for (int width = 16; width > 0; width /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, width);
    return value;
}

/* The products of one row of A with the rows of x that `rows` names. */
__device__ void multiply(const float *a, const float *x, uint32_t cols, const uint32_t *rows,
                         uint32_t count, float (&sums)[TILE])
{
    const uint32_t lane = threadIdx.x % 32, fours = cols % 4 == 0 ? cols / 4 : 0;
#pragma unroll
    for (uint32_t k = 0; k < TILE; k++)
        sums[k] = 0;
    for (uint32_t i = lane; i < fours; i += 32) {
        const float4 w = reinterpret_cast<const float4 *>(a)[i];
#pragma unroll
        for (uint32_t k = 0; k < TILE; k++)
            if (k < count) {
                const float4 v = reinterpret_cast<const float4 *>(x + (size_t)rows[k] * cols)[i];
                sums[k] = fmaf(w.w, v.w, fmaf(w.z, v.z, fmaf(w.y, v.y, fmaf(w.x, v.x, sums[k]))));
            }
    }
    for (uint32_t i = 4 * fours + lane; i < cols; i += 32)
#pragma unroll
        for (uint32_t k = 0; k < TILE; k++)
            if (k < count)
                sums[k] = fmaf(a[i], x[(size_t)rows[k] * cols + i], sums[k]);
#pragma unroll
    for (uint32_t k = 0; k < TILE; k++)
        sums[k] = warp_sum(sums[k]);
}

__global__ void __launch_bounds__(THREADS)
    down(const struct cuda_sequences s, const struct compute_low_rank *each, uint32_t rank_max,
         const float *x, uint32_t cols, float *factors)
{
    const uint32_t first = blockIdx.y * TILE, end = min(first + TILE, s.rows);
    const uint32_t r = blockIdx.x * WARPS + threadIdx.x / 32;
    for (struct run run = run_at(s, first, end); run.adapter != 0;
         run = run_at(s, run.at + run.count, end)) {
        const struct compute_low_rank l = each[run.adapter - 1];
        float sums[TILE];
        if (r >= l.rank)
            continue;
        multiply(l.down + (size_t)r * cols, x, cols, s.adapted_rows + run.at, run.count, sums);
        if (threadIdx.x % 32 != 0)
            continue;
#pragma unroll
        for (uint32_t k = 0; k < TILE; k++)
            if (k < run.count)
                factors[(size_t)(run.at + k) * rank_max + r] = sums[k];
    }
}

__global__ void __launch_bounds__(THREADS)
    up(const struct cuda_sequences s, const struct compute_low_rank *each, uint32_t rank_max,
       const float *factors, uint32_t rows, float *y)
{
    __shared__ float of_run[TILE][COMPUTE_LOW_RANK_MAX];
    const uint32_t first = blockIdx.y * TILE, end = min(first + TILE, s.rows);
    const uint32_t n = blockIdx.x * THREADS + threadIdx.x;
    for (struct run run = run_at(s, first, end); run.adapter != 0;
         run = run_at(s, run.at + run.count, end)) {
        const struct compute_low_rank l = each[run.adapter - 1];
        float sums[TILE];
        __syncthreads(); /* The factors of the run before have been read. */
        for (uint32_t i = threadIdx.x; i < run.count * l.rank; i += THREADS)
            of_run[i / l.rank][i % l.rank] =
                factors[(size_t)(run.at + i / l.rank) * rank_max + i % l.rank];
        __syncthreads();
        if (n >= rows || l.rank == 0)
            continue;
#pragma unroll
        for (uint32_t k = 0; k < TILE; k++)
            sums[k] = k < run.count ? y[(size_t)s.adapted_rows[run.at + k] * rows + n] : 0;
        for (uint32_t r = 0; r < l.rank; r++) {
            const float w = l.up[(size_t)r * rows + n];
#pragma unroll
            for (uint32_t k = 0; k < TILE; k++)
                if (k < run.count)
                    sums[k] = fmaf(of_run[k][r], w, sums[k]);
        }
#pragma unroll
        for (uint32_t k = 0; k < TILE; k++)
            if (k < run.count)
                y[(size_t)s.adapted_rows[run.at + k] * rows + n] = sums[k];
    }
}
} // namespace

void cuda_low_rank(cudaStream_t stream, const struct cuda_sequences *s,
                   const struct compute_low_ranks *ranks, const float *x, uint32_t cols,
                   float *factors, float *y)
{
    const uint32_t tiles = (s->rows + TILE - 1) / TILE;
    const dim3 by_rank((ranks->rank_max + WARPS - 1) / WARPS, tiles);
    const dim3 by_row((ranks->rows + THREADS - 1) / THREADS, tiles);
    CUDA_LAUNCH(down, by_rank, dim3(THREADS), 0, stream, *s, ranks->by_adapter, ranks->rank_max, x,
                cols, factors);
    CUDA_LAUNCH(up, by_row, dim3(THREADS), 0, stream, *s, ranks->by_adapter, ranks->rank_max,
                factors, ranks->rows, y);
}
