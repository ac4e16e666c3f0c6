/* sample: the sampler on the device. Plain reference: model/forward/sampler.c, which describes each
 * step; tests/gpu/test_sample compares. Ids are the same, bit for bit: weights come from the same
 * operations, none of them fused; blocks of 256 weights are summed in the same 16 lanes; and sums
 * in double run in the same order. The only exception is top_p, which adds weights in another
 * order. With at most 4096 weights of at least 2^-18 of the largest, sums in double are exact in
 * any order; otherwise the limit may fall between other tokens if it is within 1e-16 of a sum.
 *
 * There is one thread block per row. Candidates, at most 4096, are found by a threshold, sorted in
 * shared memory by likelihood to be cut off, then by id to be drawn from. Rows in which more tokens
 * could matter (nearly flat distributions) are returned as undecided.
 *
 * Bound: a row of 128 k logits is 512 KB, which one multiprocessor reads from the L2 cache at about
 * 64 bytes per cycle: 8 k cycles, 4 us per pass. Greedy is one pass; top_k and min_p are two or
 * three. What needs the sum of all weights (top_p alone, temperature alone, log-probabilities)
 * takes 25 to 40 operations per weight, 25 to 40 k cycles, and 500 dependent additions in double.
 * That is 20 us in a step of milliseconds; if it mattered, several blocks could share a row's sums.
 * Nothing here was measured. */
#include "compute/cuda/sample.cuh"

/* Returns how many of the sorted candidates top_k and top_p keep; called by thread 0. `total`: the
 * sum of all weights; 0 = top_p is a share of the candidates that are left. */
static __device__ void sample_cut(struct sample_shared *shared, double total)
{
    const struct compute_sample *row = &shared->row;
    uint32_t kept = shared->count;
    if (row->sampling.top_k > 0 && row->sampling.top_k < kept)
        kept = row->sampling.top_k;
    if (row->sampling.top_p < 1.0f) {
        double above = 0, mass = total;
        if (!(total > 0)) {
            mass = 0;
            for (uint32_t i = 0; i < kept; i++)
                mass += (double)shared->weights[i];
        }
        const double limit = (double)row->sampling.top_p * mass;
        uint32_t i = 0;
        for (; i < kept && above < limit; i++)
            above += (double)shared->weights[i];
        kept = i;
    }
    shared->kept = kept;
}

/* Draws one of the kept candidates: their keys become id and weight, in ascending order of ids. */
static __device__ void sample_pick(struct sample_shared *shared, float unit)
{
    const uint32_t kept = shared->kept;
    for (uint32_t i = threadIdx.x; i < kept; i += SAMPLE_THREADS)
        shared->keys[i] = shared->keys[i] << 32 | __float_as_uint(shared->weights[i]);
    __syncthreads();
    sample_sort(shared->keys, kept);
    if (threadIdx.x == 0) {
        auto weight = [&](uint32_t i) {
            return (double)__uint_as_float((uint32_t)shared->keys[i]);
        };
        double mass = 0, done = 0;
        for (uint32_t i = 0; i < kept; i++)
            mass += weight(i);
        const double target = mass * (double)unit;
        uint32_t i = 0;
        for (; i + 1 < kept; i++) {
            done += weight(i);
            if (done > target)
                break;
        }
        shared->id = (uint32_t)(shared->keys[i] >> 32);
    }
    __syncthreads();
}

/* False: undecided. sums: sums of all blocks' weights, if they were computed. */
static __device__ bool sample_filtered(const float *logits, uint32_t vocab, float top, float unit,
                                       double total, struct sample_shared *shared)
{
    static const float cuts[] = {0x1p-10f, 0x1p-18f, 0x1p-30f, 0x1p-50f, 0x1p-80f, 0x1p-149f};
    const struct compute_sample *row = &shared->row;
    for (uint32_t i = 0;; i++) {
        const float least = fmaxf(cuts[i], row->sampling.min_p);
        /* Far from the limit, comparing the logit is enough. */
        const float logit = top + row->sampling.temperature * (logf(least) * 1.001f - 0.01f);
        sample_gather(logits, vocab, top, i < 5 && logit > -FLT_MAX ? logit : -FLT_MAX, least, true,
                      shared);
        if (shared->count > SAMPLE_MAX)
            return false;
        sample_sort(shared->keys, shared->count);
        for (uint32_t k = threadIdx.x; k < shared->count; k += SAMPLE_THREADS)
            shared->weights[k] = sample_weight(sample_logit(~(uint32_t)(shared->keys[k] >> 32)),
                                               top, row->sampling.temperature);
        __syncthreads();
        if (threadIdx.x == 0) {
            double mass = 0;
            for (uint32_t k = 0; k < shared->count && total > 0; k++)
                mass += (double)shared->weights[k];
            const bool enough = cuts[i] <= row->sampling.min_p || i == 5 ||
                                (row->sampling.top_k > 0 && shared->count >= row->sampling.top_k) ||
                                (total > 0 && mass >= (double)row->sampling.top_p * total);
            shared->kept = 0;
            if (enough)
                sample_cut(shared, total);
        }
        __syncthreads();
        if (shared->kept > 0)
            break;
    }
    sample_pick(shared, unit);
    return true;
}

/* Draws once over all weights: first the block, then the token in it. Called by one warp; all lanes
 * do the same. */
static __device__ void sample_from_all(const float *logits, uint32_t vocab, float top, float unit,
                                       struct sample_shared *shared, const float *sums)
{
    const struct compute_sample *row = &shared->row;
    auto weight = [&](uint32_t i) {
        return sample_masked(row, i) ? 0 : sample_weight(logits[i], top, row->sampling.temperature);
    };
    const double target = shared->total * (double)unit;
    const bool first_counts = weight(0) > 0;
    double done = 0;
    uint32_t last = 0;
    for (uint32_t begin = 0; begin < vocab; begin += SAMPLE_BLOCK) {
        const uint32_t count = min((uint32_t)SAMPLE_BLOCK, vocab - begin);
        const double block = (double)sums[begin / SAMPLE_BLOCK];
        if (done + block <= target && begin + count < vocab) {
            done += block;
            continue;
        }
        __syncwarp();
        for (uint32_t k = threadIdx.x; k < count; k += 32)
            shared->block[k] = weight(begin + k);
        __syncwarp();
        uint32_t k = 0;
        for (; k < count; k++) {
            if (!(shared->block[k] > 0))
                continue;
            done += (double)shared->block[k];
            last = begin + k;
            if (done > target)
                break;
        }
        if (k < count || last != 0 || first_counts)
            break;
    }
    if (threadIdx.x == 0)
        shared->id = last;
}

/* ---- log-probabilities ---- */

/* Computes the log-probabilities of the id and of the most likely ids. False: undecided. */
static __device__ bool sample_score(const float *logits, uint32_t vocab, uint32_t id,
                                    struct sample_shared *shared, struct compute_sampled *out)
{
    static const float depths[] = {1, 4, 10, 25, 60, FLT_MAX};
    const float top = shared->best[0].raw;
    const double base = (double)top + log(shared->total);
    const uint32_t wanted = min((uint32_t)max(shared->row.sampling.logprobs, 0), vocab);
    if (threadIdx.x == 0) {
        out->sampled.logprob = (float)((double)sample_clean(logits[id]) - base);
        out->sampled.top_count = wanted;
    }
    if (wanted == 0)
        return true;
    for (uint32_t i = 0;; i++) {
        const float least = top - depths[i];
        sample_gather(logits, vocab, top, i < 5 && least > -FLT_MAX ? least : -FLT_MAX, 0, false,
                      shared);
        if (shared->count >= wanted)
            break;
        __syncthreads();
    }
    if (shared->count > SAMPLE_MAX)
        return false;
    sample_sort(shared->keys, shared->count);
    if (threadIdx.x < wanted) {
        const uint64_t key = shared->keys[threadIdx.x];
        out->sampled.top_ids[threadIdx.x] = (uint32_t)key;
        out->sampled.top_logprobs[threadIdx.x] =
            (float)((double)sample_logit(~(uint32_t)(key >> 32)) - base);
    }
    return true;
}

/* ---- the kernel ---- */

static __global__ void __launch_bounds__(SAMPLE_THREADS)
    sample_kernel(float *logits, uint32_t vocab, const struct compute_sample *rows,
                  const struct compute_edit *edits, float *saved, struct compute_sampled *out)
{
    CUDA_SHARED(struct sample_shared, shared);
    float *sums = (float *)(shared + 1);
    logits += (size_t)blockIdx.x * vocab;
    out += blockIdx.x;
    const uint32_t *words = (const uint32_t *)&rows[blockIdx.x];
    for (uint32_t i = threadIdx.x; i < sizeof(*rows) / 4; i += SAMPLE_THREADS)
        ((uint32_t *)&shared->row)[i] = words[i];
    __syncthreads();
    const struct compute_sample *row = &shared->row;
    sample_edit(logits, row, edits, saved);
    sample_greatest(logits, vocab, shared);
    const float top = shared->best[0].value, temperature = row->sampling.temperature;
    uint32_t id = row->forced_token != COMPUTE_SAMPLE_DRAW ? row->forced_token : shared->best[0].id;
    bool decided = true, summed = false;
    if (row->forced_token == COMPUTE_SAMPLE_DRAW && temperature > 0 && !sample_masked(row, id)) {
        const bool filters =
            row->sampling.top_k > 0 || row->sampling.top_p < 1.0f || row->sampling.min_p > 0;
        const float unit = sample_unit(row->sampling.seed, row->position);
        if (!filters || (row->sampling.top_k == 0 && !(row->sampling.min_p > 0))) {
            sample_sums(logits, vocab, top, temperature, true, shared, sums);
            summed = temperature == 1.0f && row->masked_count == 0 && row->edit_count == 0;
        }
        if (filters) {
            const bool share_of_all = row->sampling.top_k == 0 && !(row->sampling.min_p > 0);
            decided =
                sample_filtered(logits, vocab, top, unit, share_of_all ? shared->total : 0, shared);
        } else if (threadIdx.x < 32) {
            sample_from_all(logits, vocab, top, unit, shared, sums);
        }
        __syncthreads();
        if (decided)
            id = shared->id;
    }
    if (threadIdx.x == 0) {
        out->sampled.id = id;
        out->sampled.logprob = 0;
        out->sampled.top_count = 0;
    }
    __syncthreads();
    sample_restore(logits, row, edits, saved);
    if (decided && row->sampling.logprobs >= 0) {
        if (row->edit_count > 0) /* Needed for the greatest logit before the edits. */
            sample_greatest(logits, vocab, shared);
        if (!summed)
            sample_sums(logits, vocab, shared->best[0].raw, 1, false, shared, sums);
        decided = sample_score(logits, vocab, id, shared, out);
    }
    if (threadIdx.x == 0)
        out->undecided = !decided;
}

void cuda_sample(cudaStream_t stream, float *logits, uint32_t vocab,
                 const struct compute_sample *rows, uint32_t count,
                 const struct compute_edit *edits, float *saved, struct compute_sampled *out)
{
    const uint32_t blocks = (vocab + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
    const size_t bytes = sizeof(struct sample_shared) + blocks * sizeof(float);
    static const cudaError_t once =
        cudaFuncSetAttribute(sample_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024);
    (void)once; /* An error is reported at the launch. */
    if (count > 0)
        CUDA_LAUNCH(sample_kernel, dim3(count), dim3(SAMPLE_THREADS), bytes, stream, logits, vocab,
                    rows, edits, saved, out);
}
