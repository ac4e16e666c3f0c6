/* sample: building blocks of sample.cu: a row's state in shared memory, the sampler's arithmetic,
 * passes over the logits, sorting of candidates. Device code for sample.cu, which chooses the
 * tokens: one thread block computes one row, and all of its threads call each pass.
 * model/forward/sampler.c has the same arithmetic. */
#ifndef COMPUTE_CUDA_SAMPLE_CUH
#define COMPUTE_CUDA_SAMPLE_CUH

#include "compute/cuda/kernels.cuh"
#include "compute/cuda/launch.cuh"

#include <cfloat>

#define SAMPLE_THREADS 512  /* Threads of a block. */
#define SAMPLE_MAX     4096 /* Most candidates; a power of 2. */
#define SAMPLE_LANES   16   /* Threads that sum one block of weights. */
#define SAMPLE_BLOCK   256  /* Weights of a block; each block of a row has a sum of its own. */

#define SAMPLE_ALL_LANES 0xffffffffu

/* State of a row in shared memory; the sums of blocks follow it. */
struct sample_shared {
    uint64_t keys[SAMPLE_MAX]; /* Candidates, as sample_gather writes them. */
    float weights[SAMPLE_MAX]; /* Weights of the candidates. */
    float block[SAMPLE_BLOCK]; /* Weights of one block of the row. */
    struct compute_sample row; /* What to choose. */
    struct {                   /* Greatest logit that is not masked, for each warp. */
        float value;
        uint32_t id;
        float raw; /* Greatest of all logits, including masked ones. */
    } best[SAMPLE_THREADS / 32];
    uint32_t count; /* Number of candidates. */
    uint32_t kept;  /* Candidates from which the token is drawn. */
    uint32_t id;    /* The token. */
    double total;   /* Sum of the weights of the row. */
};

/* ---- numbers ---- */

/* random_mix of common/random.h. */
static __device__ uint64_t sample_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* random_unit_at of common/random.h. */
static __device__ float sample_unit(uint64_t key, uint64_t counter)
{
    const uint64_t bits = sample_mix(sample_mix(key) ^ sample_mix(counter ^ 0x6a09e667f3bcc909u));
    return (float)(bits >> 40) * 0x1p-24f;
}

static __device__ __forceinline__ float sample_clean(float logit)
{
    const float low = logit > -FLT_MAX ? logit : -FLT_MAX; /* The comparison is false for NaN. */
    return low < FLT_MAX ? low : FLT_MAX;
}

static __device__ __forceinline__ float sample_exp(float x)
{
    const float bounded = x > -87.0f ? x : -87.0f;
    const float n = __fsub_rn(__fadd_rn(__fmul_rn(bounded, 1.44269504f), 12582912.0f), 12582912.0f);
    float r = __fsub_rn(bounded, __fmul_rn(n, 0.693359375f));
    r = __fadd_rn(r, __fmul_rn(n, 2.12194440e-4f));
    float e = 1.0f / 5040.0f;
    e = __fadd_rn(__fmul_rn(e, r), 1.0f / 720.0f);
    e = __fadd_rn(__fmul_rn(e, r), 1.0f / 120.0f);
    e = __fadd_rn(__fmul_rn(e, r), 1.0f / 24.0f);
    e = __fadd_rn(__fmul_rn(e, r), 1.0f / 6.0f);
    e = __fadd_rn(__fmul_rn(e, r), 0.5f);
    e = __fadd_rn(__fmul_rn(e, r), 1.0f);
    e = __fadd_rn(__fmul_rn(e, r), 1.0f);
    const float scale = __uint_as_float((uint32_t)((int32_t)n + 127) << 23);
    return x > -87.0f ? __fmul_rn(e, scale) : 0.0f;
}

static __device__ __forceinline__ float sample_weight(float logit, float top, float temperature)
{
    const float x = __fsub_rn(sample_clean(logit), top);
    return sample_exp(temperature == 1.0f ? x : __fdiv_rn(x, temperature));
}

/* Maps a logit to an unsigned number: a greater logit has a greater number. */
static __device__ __forceinline__ uint32_t sample_order(float logit)
{
    const uint32_t bits = __float_as_uint(sample_clean(logit) + 0.0f);
    return bits ^ ((0u - (bits >> 31)) | 0x80000000u);
}

/* Returns the logit that sample_order has mapped to this number. */
static __device__ __forceinline__ float sample_logit(uint32_t order)
{
    return __uint_as_float(order >> 31 != 0 ? order ^ 0x80000000u : ~order);
}

/* Returns true if the row's rules forbid the token. */
static __device__ __forceinline__ bool sample_masked(const struct compute_sample *row, uint32_t id)
{
    bool masked = false;
    for (uint32_t i = 0; i < row->masked_count; i++)
        masked = masked || row->masked[i] == id;
    return masked;
}

/* ---- edits ---- */

/* edited() of model/forward/logit_edits.c. */
static __device__ __forceinline__ float sample_edited(float logit, const struct compute_edit *edit)
{
    const float sum = __fadd_rn(sample_clean(logit), edit->add);
    const float scaled = sum > 0 ? __fdiv_rn(sum, edit->divide) : __fmul_rn(sum, edit->divide);
    return __fsub_rn(scaled, edit->subtract);
}

/* Changes the row's logits by its edits, and saves the old values. The ids of the edits differ. */
static __device__ void sample_edit(float *logits, const struct compute_sample *row,
                                   const struct compute_edit *edits, float *saved)
{
    const uint32_t end = row->edit_first + row->edit_count;
    for (uint32_t i = row->edit_first + threadIdx.x; i < end; i += SAMPLE_THREADS) {
        saved[i] = logits[edits[i].id];
        logits[edits[i].id] = sample_edited(saved[i], &edits[i]);
    }
    __syncthreads();
}

/* Undoes sample_edit. */
static __device__ void sample_restore(float *logits, const struct compute_sample *row,
                                      const struct compute_edit *edits, const float *saved)
{
    const uint32_t end = row->edit_first + row->edit_count;
    for (uint32_t i = row->edit_first + threadIdx.x; i < end; i += SAMPLE_THREADS)
        logits[edits[i].id] = saved[i];
    __syncthreads();
}

/* ---- passes over the row ---- */

/* Writes to shared->best[0] the greatest logit that is not masked and its lowest id (0 if all are
 * masked), and the greatest of all logits. */
static __device__ void sample_greatest(const float *logits, uint32_t vocab,
                                       struct sample_shared *shared)
{
    float value = -FLT_MAX, raw = -FLT_MAX;
    uint32_t id = COMPUTE_SAMPLE_DRAW;
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < vocab; i += SAMPLE_THREADS) {
        const float logit = sample_clean(logits[i]);
        raw = fmaxf(raw, logit);
        if ((logit > value || id == COMPUTE_SAMPLE_DRAW) && !sample_masked(&shared->row, i)) {
            value = logit;
            id = i;
        }
    }
    auto join = [&](float other_value, uint32_t other, float other_raw) {
        raw = fmaxf(raw, other_raw);
        if (other_value > value || (other_value == value && other < id)) {
            value = other_value;
            id = other;
        }
    };
    for (uint32_t step = 16; step > 0; step /= 2) {
        const float other_value = __shfl_xor_sync(SAMPLE_ALL_LANES, value, step);
        const uint32_t other = __shfl_xor_sync(SAMPLE_ALL_LANES, id, step);
        const float other_raw = __shfl_xor_sync(SAMPLE_ALL_LANES, raw, step);
        join(other_value, other, other_raw);
    }
    if (threadIdx.x % 32 == 0)
        shared->best[threadIdx.x / 32] = {value, id, raw};
    __syncthreads();
    if (threadIdx.x == 0) {
        for (uint32_t w = 1; w < SAMPLE_THREADS / 32; w++)
            join(shared->best[w].value, shared->best[w].id, shared->best[w].raw);
        shared->best[0] = {value, id == COMPUTE_SAMPLE_DRAW ? 0 : id, raw};
    }
    __syncthreads();
}

/* Writes the sum of each block's weights to sums[block], added in the order of sampler.c, and the
 * sum of all weights to shared->total. masked: masked tokens have weight 0. */
static __device__ void sample_sums(const float *logits, uint32_t vocab, float top,
                                   float temperature, bool masked, struct sample_shared *shared,
                                   float *sums)
{
    const uint32_t lane = threadIdx.x % SAMPLE_LANES;
    const uint32_t blocks = (vocab + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
    const uint32_t rounds =
        (blocks + SAMPLE_THREADS / SAMPLE_LANES - 1) / (SAMPLE_THREADS / SAMPLE_LANES);
    auto weight = [&](uint32_t i) {
        return masked && sample_masked(&shared->row, i)
                   ? 0
                   : sample_weight(logits[i], top, temperature);
    };
    for (uint32_t round = 0; round < rounds; round++) { /* All lanes take part in the shuffles. */
        const uint32_t block = (round * SAMPLE_THREADS + threadIdx.x) / SAMPLE_LANES;
        const uint32_t begin = min(block * SAMPLE_BLOCK, vocab);
        const uint32_t count = min((uint32_t)SAMPLE_BLOCK, vocab - begin);
        float sum = 0;
#pragma unroll 4
        for (uint32_t i = 0; i + SAMPLE_LANES <= count; i += SAMPLE_LANES)
            sum = __fadd_rn(sum, weight(begin + i + lane));
        if (lane == 0)
            for (uint32_t i = count / SAMPLE_LANES * SAMPLE_LANES; i < count; i++)
                sum = __fadd_rn(sum, weight(begin + i));
        for (uint32_t width = SAMPLE_LANES / 2; width > 0; width /= 2)
            sum = __fadd_rn(sum, __shfl_down_sync(SAMPLE_ALL_LANES, sum, width, SAMPLE_LANES));
        if (lane == 0 && block < blocks)
            sums[block] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        double total = 0;
        for (uint32_t i = 0; i < blocks; i++)
            total += (double)sums[i];
        shared->total = total;
    }
    __syncthreads();
}

/* Gathers the candidates whose logit is at least `least_logit` and, if `least_weight` is above 0,
 * whose weight is at least `least_weight`. Their keys are ordered by likelihood (logit descending,
 * id ascending) but not sorted yet. masked: masked tokens are no candidates. If shared->count
 * exceeds SAMPLE_MAX, some candidates are missing. */
static __device__ void sample_gather(const float *logits, uint32_t vocab, float top,
                                     float least_logit, float least_weight, bool masked,
                                     struct sample_shared *shared)
{
    if (threadIdx.x == 0)
        shared->count = 0;
    __syncthreads();
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < vocab; i += SAMPLE_THREADS) {
        const float logit = logits[i];
        if (!(sample_clean(logit) >= least_logit))
            continue;
        if (least_weight > 0 &&
            sample_weight(logit, top, shared->row.sampling.temperature) < least_weight)
            continue;
        if (masked && sample_masked(&shared->row, i))
            continue;
        const uint32_t at = atomicAdd(&shared->count, 1u);
        if (at < SAMPLE_MAX)
            shared->keys[at] = (uint64_t)~sample_order(logit) << 32 | i;
    }
    __syncthreads();
}

/* ---- candidates ---- */

/* Sorts keys[0..count) in ascending order (Batcher 1968). */
static __device__ void sample_sort(uint64_t *keys, uint32_t count)
{
    uint32_t size = 1;
    while (size < count)
        size *= 2;
    for (uint32_t i = count + threadIdx.x; i < size; i += SAMPLE_THREADS)
        keys[i] = UINT64_MAX;
    __syncthreads();
    for (uint32_t run = 2; run <= size; run *= 2)
        for (uint32_t step = run / 2; step > 0; step /= 2) {
            for (uint32_t i = threadIdx.x; i < size; i += SAMPLE_THREADS) {
                const uint32_t other = i ^ step;
                const uint64_t a = keys[i], b = keys[other];
                if (other > i && (a > b) == ((i & run) == 0)) {
                    keys[i] = b;
                    keys[other] = a;
                }
            }
            __syncthreads();
        }
}

#endif
