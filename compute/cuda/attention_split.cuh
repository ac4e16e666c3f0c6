/* attention_split: splits the tiles of attention_prompt.cu along their context. A batch of few
 * rows, for example the rest of a prompt after a long cached prefix, has too few tiles for the
 * device. So its tiles are split. The thread blocks of a tile write partial results to scratch
 * memory; the block that ends last joins them in order. Device code for attention_prompt.cu. The
 * template parameter S is a prompt_shape. attention_token splits contexts by itself. */
#ifndef COMPUTE_CUDA_ATTENTION_SPLIT_CUH
#define COMPUTE_CUDA_ATTENTION_SPLIT_CUH

#include "compute/cuda/attention_prompt.cuh"

/* Steps [begin, end) of a tile: part `part` of `parts`. A step is S::BC tokens of context
 * (attention_prompt.cuh). All parts except the first begin at a multiple of the size of a part. */
struct prompt_part {
    uint32_t begin, end, part, parts;
};

/* Finds part `part` of a tile. Returns false if the tile has fewer parts. The batch decides whether
 * tiles are split. How a tile is split depends only on its context. */
template <class S>
static __device__ __forceinline__ bool prompt_part_of(const struct prompt_tile *tile, uint32_t part,
                                                      struct prompt_part *out)
{
    const uint32_t steps = tile->steps;
    uint32_t each = ATTENTION_SPLIT_TOKENS / S::BC;
    while ((steps + each - 1) / each - tile->first_step / each > ATTENTION_SPLIT_MAX)
        each *= 2;
    const uint32_t before = tile->first_step / each;
    out->begin = max((before + part) * each, tile->first_step);
    out->end = min((before + part + 1) * each, steps);
    out->part = part;
    out->parts = (steps + each - 1) / each - before;
    return out->begin < steps;
}

/* Finds the index of part 0 of a tile's row in a->sums and a->parts. Returns false if the tile has
 * no such row. */
static __device__ __forceinline__ bool prompt_part_row(const struct attention *a,
                                                       const struct prompt_tile *tile,
                                                       uint32_t kv_head, uint32_t row, size_t *at)
{
    const uint32_t position = row / a->group, head = kv_head * a->group + row % a->group;
    const size_t global = a->s.first_row[tile->sequence] + tile->first + position;
    *at = (global * a->head_count + head) * ATTENTION_SPLIT_MAX;
    return position < tile->count;
}

/* Writes the block's partial result. */
template <class S>
static __device__ __forceinline__ void
prompt_part_write(const struct attention *a, const struct prompt_tile *tile, uint32_t kv_head,
                  uint32_t part, const prompt_rows<S> &r)
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = r.sum[m][h];
            sum += __shfl_xor_sync(ATTENTION_ALL_LANES, sum, 1);
            sum += __shfl_xor_sync(ATTENTION_ALL_LANES, sum, 2);
            size_t at;
            if (!prompt_part_row(a, tile, kv_head,
                                 threadIdx.x / 32 * 16 * S::MT + m * 16 + h * 8 + lane / 4, &at))
                continue;
            at += part;
            if (lane % 4 == 0)
                a->sums[at] = make_float2(r.most[m][h], sum);
#pragma unroll
            for (int n = 0; n < S::DIM / 8; n++)
                *(float2 *)(a->parts + at * S::DIM + n * 8 + lane % 4 * 2) =
                    make_float2(r.o[m][n][2 * h], r.o[m][n][2 * h + 1]);
        }
}

/* Joins all parts into the tile's result if this block is the last of them. weights: shared memory,
 * [ROWS][ATTENTION_SPLIT_MAX]. */
template <class S>
static __device__ void prompt_part_join(const struct attention *a, const struct prompt_tile *tile,
                                        uint32_t kv_head, uint32_t parts, uint32_t *parts_done,
                                        float *weights)
{
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(parts_done, 1u) == parts - 1;
        if (is_last)
            *parts_done = 0;
        __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    size_t at;
    for (uint32_t row = threadIdx.x; row < S::ROWS; row += PROMPT_THREADS) {
        if (!prompt_part_row(a, tile, kv_head, row, &at))
            continue;
        float most = -INFINITY, sum = 0;
        for (uint32_t p = 0; p < parts; p++)
            most = fmaxf(most, __ldcg(&a->sums[at + p].x));
        for (uint32_t p = 0; p < parts; p++) {
            const float weight = ptx_exp2(__ldcg(&a->sums[at + p].x) - most);
            sum = fmaf(__ldcg(&a->sums[at + p].y), weight, sum);
            weights[row * ATTENTION_SPLIT_MAX + p] = weight;
        }
        const uint32_t head = kv_head * a->group + row % a->group;
        const float of_sink = a->sinks != NULL ? attention_sink(a, head, most, &sum) : 1;
        for (uint32_t p = 0; p < parts; p++)
            weights[row * ATTENTION_SPLIT_MAX + p] *= of_sink / sum;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < S::ROWS * S::DIM; i += PROMPT_THREADS) {
        const uint32_t row = i / S::DIM, d = i % S::DIM;
        if (!prompt_part_row(a, tile, kv_head, row, &at))
            continue;
        float o = 0;
#pragma unroll 4
        for (uint32_t p = 0; p < parts; p++)
            o = fmaf(__ldcg(a->parts + (at + p) * S::DIM + d),
                     weights[row * ATTENTION_SPLIT_MAX + p], o);
        attention_write(a, at / ATTENTION_SPLIT_MAX * S::DIM + d, o);
    }
}

#endif
