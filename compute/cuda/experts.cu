/* experts: the kernels of layers with experts (compute/experts.h), for any type of weights, any
 * device and any number of rows; a step with them can be recorded as a graph, because every launch
 * has the shape of the batch, not of what the rows choose.
 *
 * 1. choose: a warp per row. A lane has every 32nd score; the greatest score is found `used` times.
 * 2. gate_up: a warp per expert of a row and row of the expert's gate and up.
 * 3. down: a warp per row and column of the result, which adds the row's experts in the order of
 *    their numbers. So the bits of a row do not depend on the batch.
 *
 * The products have the order of gemv_plain.cu. Reference: compute/cpu/experts.c. Bound: memory.
 * The weights of an expert are read once for each row that chose it: good for decode steps; prompts
 * get them from the L2 cache at best. No figure was measured on a device. */
#include "compute/cuda/launch.cuh"
#include "compute/cuda/weights.cuh"

namespace
{
constexpr uint32_t THREADS = 256;
constexpr uint32_t WARPS = THREADS / 32;
constexpr uint32_t ALL = 0xffffffffu;

/* Returns the index of the greatest of values[0..count), of equal ones the lowest index. NaN
 * counts as -infinity: if nothing else is left, an index may come again. Every lane of the warp
 * gets it. */
__device__ uint32_t greatest(const float *values, uint32_t count, uint32_t lane)
{
    float most = -INFINITY;
    uint32_t at = UINT32_MAX;
    for (uint32_t i = lane; i < count; i += 32)
        if (at == UINT32_MAX || values[i] > most) {
            most = values[i] > -INFINITY ? values[i] : -INFINITY;
            at = i;
        }
#pragma unroll
    for (int width = 16; width > 0; width /= 2) {
        const float other = __shfl_xor_sync(ALL, most, width);
        const uint32_t index = __shfl_xor_sync(ALL, at, width);
        if (other > most || (other == most && index < at)) {
            most = other;
            at = index;
        }
    }
    return at;
}

__device__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* The sum of a group's `best` greatest scores. */
__device__ float group_score(const float *scores, uint32_t size, uint32_t best)
{
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < size; i++) {
        if (scores[i] > first) {
            second = first;
            first = scores[i];
        } else if (scores[i] > second) {
            second = scores[i];
        }
    }
    return best > 1 && size > 1 ? first + second : first;
}

/* Sets the scores of all groups except the best ones to -infinity. */
__device__ void groups_limit(const struct compute_routing &r, float *scores, float *totals,
                             uint32_t lane)
{
    const uint32_t size = r.experts / r.groups;
    for (uint32_t g = lane; g < r.groups; g += 32)
        totals[g] = group_score(scores + g * size, size, r.group_best);
    __syncwarp();
    for (uint32_t i = 0; i < r.groups_used; i++) {
        const uint32_t g = greatest(totals, r.groups, lane);
        __syncwarp();
        if (lane == 0)
            totals[g] = NAN; /* Chosen. */
        __syncwarp();
    }
    for (uint32_t i = lane; i < r.experts; i += 32)
        if (!isnan(totals[i / size]))
            scores[i] = -INFINITY;
    __syncwarp();
}

/* Sorts ids[0..count) and writes their weights. */
__device__ void weigh(const struct compute_routing &r, const float *product, float most, float all,
                      uint32_t *ids, float *weights)
{
    float chosen = 0;
    for (uint32_t i = 1; i < r.used; i++)
        for (uint32_t k = i; k > 0 && ids[k - 1] > ids[k]; k--) {
            const uint32_t id = ids[k];
            ids[k] = ids[k - 1];
            ids[k - 1] = id;
        }
    for (uint32_t i = 0; i < r.used; i++) {
        const float x = product[ids[i]];
        weights[i] = r.sigmoid ? sigmoid(x) : expf(x - most);
        chosen += weights[i];
    }
    const float divisor = r.normalise ? (r.sigmoid ? chosen + 1e-20f : chosen) : all;
    for (uint32_t i = 0; i < r.used; i++)
        weights[i] = weights[i] / divisor * r.scale;
}

__global__ void __launch_bounds__(32)
    choose(const struct compute_routing r, const float *products, uint32_t *ids, float *weights)
{
    CUDA_SHARED(float, scores); /* [experts], then [groups] */
    const uint32_t row = blockIdx.x, lane = threadIdx.x;
    const float *product = products + (size_t)row * r.experts;
    float most = -INFINITY, all = 0;
    for (uint32_t i = lane; i < r.experts; i += 32) {
        scores[i] = r.sigmoid ? sigmoid(product[i]) : product[i];
        if (r.choice_bias != nullptr)
            scores[i] += r.choice_bias[i];
        most = fmaxf(most, product[i]);
    }
#pragma unroll
    for (int width = 16; width > 0; width /= 2)
        most = fmaxf(most, __shfl_xor_sync(ALL, most, width));
    for (uint32_t i = lane; i < r.experts; i += 32)
        all += expf(product[i] - most);
#pragma unroll
    for (int width = 16; width > 0; width /= 2)
        all += __shfl_xor_sync(ALL, all, width);
    __syncwarp();
    if (r.groups > 1)
        groups_limit(r, scores, scores + r.experts, lane);
    ids += (size_t)row * r.used;
    for (uint32_t i = 0; i < r.used; i++) {
        uint32_t id = greatest(scores, r.experts, lane);
        __syncwarp();
        if (lane == 0) {
            scores[id] = NAN; /* Chosen. */
            ids[i] = id;
        }
        __syncwarp();
    }
    if (lane == 0)
        weigh(r, product, most, r.sigmoid ? 1.0f : all, ids, weights + (size_t)row * r.used);
}

/* Four inputs from column `col` on; those beyond the row are 0. */
__device__ __forceinline__ void load4(const __nv_bfloat16 *a, const float *f32, size_t row,
                                      uint32_t cols, uint32_t col, float out[4])
{
#pragma unroll
    for (uint32_t e = 0; e < 4; e++)
        out[e] = col + e >= cols  ? 0.0f
                 : f32 != nullptr ? f32[row * cols + col + e]
                                  : __bfloat162float(a[row * cols + col + e]);
}

/* The product of row `row` of w and row `input` of a or f32; every lane of the warp gets it. */
template <enum compute_type TYPE>
__device__ float product_of(const struct cuda_weights &w, uint32_t row, const __nv_bfloat16 *a,
                            const float *f32, size_t input, uint32_t lane)
{
    const uint32_t steps = weights_steps(w.cols);
    float sum = 0;
    for (uint32_t step = 0; step < steps; step++) {
        float weights[8], values[4];
        weights_chunk<TYPE>(w, row, step, lane, weights);
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t col = step * WEIGHTS_STEP + weights_column(TYPE, lane, half);
            if (col >= w.cols)
                continue;
            load4(a, f32, input, w.cols, col, values);
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                sum = fmaf(weights[4 * half + e], values[e], sum);
        }
    }
#pragma unroll
    for (int width = 16; width > 0; width /= 2)
        sum += __shfl_xor_sync(ALL, sum, width);
    return sum;
}

__device__ float gated(const struct compute_gate &kind, float gate, float up)
{
    if (kind.limit > 0) {
        const float g = fminf(gate, kind.limit);
        return g * sigmoid(kind.alpha * g) * (fmaxf(-kind.limit, fminf(up, kind.limit)) + 1.0f);
    }
    if (kind.activation == COMPUTE_GELU_ERF)
        return 0.5f * gate * erfcf(gate * -0.7071067812f) * up;
    if (kind.activation == COMPUTE_GELU)
        return 0.5f * gate *
               (1.0f + tanhf(0.7978845608f * (gate + 0.044715f * gate * gate * gate))) * up;
    return gate * sigmoid(gate) * up;
}

template <enum compute_type TYPE>
__global__ void __launch_bounds__(THREADS)
    gate_up(const struct cuda_experts e, const __nv_bfloat16 *a, const float *f32)
{
    const uint32_t pair = blockIdx.y, lane = threadIdx.x % 32;
    const uint32_t n = blockIdx.x * WARPS + threadIdx.x / 32;
    const uint32_t expert = e.ids[pair] - e.first;
    if (n >= e.ffn || expert >= e.count)
        return;
    float gate = product_of<TYPE>(e.gate[expert], n, a, f32, pair / e.used, lane);
    float up = product_of<TYPE>(e.up[expert], n, a, f32, pair / e.used, lane);
    if (lane != 0)
        return;
    gate += e.gate_bias != nullptr ? e.gate_bias[(size_t)expert * e.ffn + n] : 0.0f;
    up += e.up_bias != nullptr ? e.up_bias[(size_t)expert * e.ffn + n] : 0.0f;
    const float value = gated(e.kind, gate, up);
    if (e.activated_f32 != nullptr)
        e.activated_f32[(size_t)pair * e.ffn + n] = value;
    else
        e.activated[(size_t)pair * e.ffn + n] = __float2bfloat16_rn(value);
}

template <enum compute_type TYPE>
__global__ void __launch_bounds__(THREADS) down(const struct cuda_experts e, bool add, float *y)
{
    const uint32_t row = blockIdx.y, lane = threadIdx.x % 32;
    const uint32_t n = blockIdx.x * WARPS + threadIdx.x / 32;
    float sum = 0;
    if (n >= e.hidden)
        return;
    for (uint32_t i = 0; i < e.used; i++) {
        const size_t pair = (size_t)row * e.used + i;
        const uint32_t expert = e.ids[pair] - e.first;
        if (expert >= e.count)
            continue; /* Another rank has it. */
        float part = product_of<TYPE>(e.down[expert], n, e.activated, e.activated_f32, pair, lane);
        part += e.down_bias != nullptr ? e.down_bias[(size_t)expert * e.hidden + n] : 0.0f;
        sum = fmaf(e.weights[pair], part, sum);
    }
    if (lane != 0)
        return;
    float *to = y + (size_t)row * e.hidden + n;
    *to = add ? *to + sum : sum;
}

__global__ void __launch_bounds__(THREADS) row_gate(const float *gates, uint32_t cols, float *x)
{
    const float factor = sigmoid(gates[blockIdx.x]);
    for (uint32_t i = threadIdx.x; i < cols; i += THREADS)
        x[(size_t)blockIdx.x * cols + i] *= factor;
}
} // namespace

void cuda_experts_choose(cudaStream_t stream, const struct compute_routing *routing,
                         const float *product, uint32_t rows, uint32_t *ids, float *weights)
{
    const size_t shared = (routing->experts + (size_t)routing->groups) * sizeof(float);
    CUDA_LAUNCH(choose, dim3(rows), dim3(32), shared, stream, *routing, product, ids, weights);
}

void cuda_experts_run(cudaStream_t stream, const struct cuda_experts *e, enum compute_type type,
                      enum compute_type down_type, const __nv_bfloat16 *a, const float *a_f32,
                      uint32_t rows, bool add, float *y)
{
    const dim3 first((e->ffn + WARPS - 1) / WARPS, rows * e->used);
    const dim3 last((e->hidden + WARPS - 1) / WARPS, rows);
#define GATE_UP(t) CUDA_LAUNCH(gate_up<t>, first, dim3(THREADS), 0, stream, *e, a, a_f32)
    WEIGHTS_EACH_TYPE(type, GATE_UP)
#undef GATE_UP
#define DOWN(t) CUDA_LAUNCH(down<t>, last, dim3(THREADS), 0, stream, *e, add, y)
    WEIGHTS_EACH_TYPE(down_type, DOWN)
#undef DOWN
}

void cuda_row_gate(cudaStream_t stream, const float *gates, uint32_t rows, uint32_t cols, float *x)
{
    CUDA_LAUNCH(row_gate, dim3(rows), dim3(THREADS), 0, stream, gates, cols, x);
}
