/* attention_prompt: attention for the rows of prompts. Plain reference: attention_typed of
 * compute/cpu/attention.h; tests/gpu/test_attention compares.
 *
 * A thread block of 4 warps computes one KV head of one tile: ROWS query rows, which are the heads
 * that share the KV head times as many positions as fit (128 / group), against the tile's context
 * in steps of BC tokens (FlashAttention-2, Dao 2023: online softmax, S and P stay in registers). A
 * warp has 16 * MT rows, so that each fragment of K and V that it reads from shared memory is used
 * MT times. Products are mma.sync m16n8k16 (Turing: two m16n8k8), f16 in, fp32 out. K is stored
 * with a token per column, so both K and V are B operands that ldmatrix transposes while loading.
 * Rows in shared memory are padded by 16 bytes: every 8 rows of an ldmatrix, and every 8 lanes of a
 * copy, use all 32 banks once.
 *
 *                 head_dim   ROWS  BC  stages  shared memory  blocks per multiprocessor
 *   Hopper        64 … 128    128  64       2  105 KiB (128)  2
 *                      256     64  32       2  107 KiB        2
 *   Ampere (8.0)  64 … 128    128  64       1   70 KiB (128)  2
 *   small         64 … 128     64  32       1   36 KiB (128)  1 or 2
 *                      256     64  32       1   70 KiB        1 (not on Turing)
 *
 * A cache of integers is copied unchanged and converted to f16 in place: two 16-byte pieces of
 * pairs have the same size as the two rows of f16 that they become, and are copied to where those
 * will be.
 *
 * Bound, head_dim 128 on an H200, estimated: per step and block 128 * 64 * 128 * 2 multiply-adds,
 * 256 mma per warp, and 40 KiB read from shared memory per warp (K 16, V 16, Q 8). mma.sync is
 * reported to reach about 0.62 of the 2048 fma per cycle that wgmma reaches on Hopper: 1.6 k cycles
 * per step; shared memory at 128 bytes per cycle: 1.25 k + 0.26 k for the copies; issue slots:
 * about 700 of 1.6 k per scheduler and warp. So the tensor cores are the limit, at about 600
 * TFLOP/s at 1.85 GHz; since shared memory is nearly a limit too, 400 is realistic. wgmma would
 * read K and V once for 64 rows, directly from shared memory, and issue one instruction instead of
 * 16: FlashAttention-3 (Shah et al. 2024) is 1.5 to 1.75 times as fast as this kind of kernel with
 * wgmma, TMA and two alternating warp groups. Nothing here was measured.
 *
 * A batch of few rows is also split along its context (attention_split.cuh).
 *
 * Blocks start in the order of their work, longest first: block i finds the i-th longest tile of
 * the batch itself, by bisection over the number of steps (prompt_find). */
#include "compute/cuda/attention_split.cuh"

/* The shape for an architecture (900: 9.0). The code of each architecture also has ATTENTION_SMALL,
 * for a device that runs the PTX of another architecture. */
static constexpr __host__ __device__ enum attention_shape prompt_shape_of(int architecture)
{
    return architecture / 100 == 9 || architecture / 100 == 10 ? ATTENTION_HOPPER
           : architecture == 800 || architecture == 870        ? ATTENTION_AMPERE
                                                               : ATTENTION_SMALL;
}

#if defined(CUDA_EMULATED)
#define PROMPT_COMPILED(shape) true
#elif defined(__CUDA_ARCH__)
#define PROMPT_COMPILED(shape)                                                                     \
    ((shape) == ATTENTION_SMALL || (shape) == prompt_shape_of(__CUDA_ARCH__))
#else
#define PROMPT_COMPILED(shape) false
#endif

/* ---- products ---- */

/* s = Q · K of 16 * MT rows and BC tokens. */
template <class S>
static __device__ __forceinline__ void prompt_scores(const __half *q, const __half *k,
                                                     float s[S::MT][S::BC / 8][4])
{
    const uint32_t lane = threadIdx.x % 32;
    q += (threadIdx.x / 32 * 16 * S::MT + lane % 16) * S::V_STRIDE + lane / 16 * 8;
    k += lane % 16 * S::K_STRIDE + lane / 16 * 8;
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int n = 0; n < S::BC / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] = 0;
#pragma unroll
    for (int d = 0; d < S::DIM; d += 16) {
        uint32_t a[S::MT][4];
#pragma unroll
        for (int m = 0; m < S::MT; m++)
            ptx_ldmatrix_x4(a[m], q + m * 16 * S::V_STRIDE + d);
#pragma unroll
        for (int t = 0; t < S::BC; t += 16) {
            uint32_t b[4];
            ptx_ldmatrix_x4_trans(b, k + d * S::K_STRIDE + t);
#pragma unroll
            for (int m = 0; m < S::MT; m++) {
                ptx_mma_f16_16816(s[m][t / 8], a[m], {b[0], b[1]});
                ptx_mma_f16_16816(s[m][t / 8 + 1], a[m], {b[2], b[3]});
            }
        }
    }
}

/* Caps the scores. */
template <class S>
static __device__ __forceinline__ void prompt_cap(const struct attention *a,
                                                  float s[S::MT][S::BC / 8][4])
{
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int n = 0; n < S::BC / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] = attention_capped(a, s[m][n][i]);
}

/* Tokens after a row's own position, and before its window, do not count. */
template <class S>
static __device__ __forceinline__ void prompt_mask(const struct attention *a,
                                                   const prompt_rows<S> &r, uint32_t begin,
                                                   float s[S::MT][S::BC / 8][4])
{
    const uint32_t column = begin + threadIdx.x % 4 * 2;
#pragma unroll
    for (int m = 0; m < S::MT; m++)
#pragma unroll
        for (int n = 0; n < S::BC / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (column + n * 8 + i % 2 > r.position[m][i / 2] ||
                    column + n * 8 + i % 2 < attention_first(a, r.position[m][i / 2]))
                    s[m][n][i] = -INFINITY;
}

/* Turns scores into weights, and rescales o and the sum to the new greatest score. A row whose
 * greatest score stays is not touched, so a row's bits do not depend on the other rows. */
template <class S>
static __device__ __forceinline__ void prompt_weigh(prompt_rows<S> &r, float s[S::MT][S::BC / 8][4])
{
#pragma unroll
    for (int m = 0; m < S::MT; m++) {
        float factor[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float most = r.most[m][h];
#pragma unroll
            for (int n = 0; n < S::BC / 8; n++)
                most = fmaxf(most, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            most = fmaxf(most, __shfl_xor_sync(ATTENTION_ALL_LANES, most, 1));
            most = fmaxf(most, __shfl_xor_sync(ATTENTION_ALL_LANES, most, 2));
            /* All tokens of the step may be before the row's window, or after the row. */
            const float from = most == -INFINITY ? 0 : most;
            factor[h] = ptx_exp2(r.most[m][h] - from);
            r.most[m][h] = most;
            float sum = 0;
#pragma unroll
            for (int n = 0; n < S::BC / 8; n++)
#pragma unroll
                for (int i = 2 * h; i < 2 * h + 2; i++) {
                    s[m][n][i] = ptx_exp2(s[m][n][i] - from);
                    sum += s[m][n][i];
                }
            r.sum[m][h] = r.sum[m][h] * factor[h] + sum;
        }
        if (__any_sync(ATTENTION_ALL_LANES, factor[0] != 1 || factor[1] != 1)) {
#pragma unroll
            for (int n = 0; n < S::DIM / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    r.o[m][n][i] *= factor[i / 2];
        }
    }
}

/* o += P · V. */
template <class S>
static __device__ __forceinline__ void prompt_values(const float s[S::MT][S::BC / 8][4],
                                                     const __half *v, prompt_rows<S> &r)
{
    const uint32_t lane = threadIdx.x % 32;
    v += lane % 16 * S::V_STRIDE + lane / 16 * 8;
#pragma unroll
    for (int t = 0; t < S::BC; t += 16) {
        uint32_t a[S::MT][4];
#pragma unroll
        for (int m = 0; m < S::MT; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float *pair = &s[m][t / 8 + i / 2][i % 2 * 2];
                a[m][i] = attention_pack(pair[0], pair[1]);
            }
#pragma unroll
        for (int d = 0; d < S::DIM; d += 16) {
            uint32_t b[4];
            ptx_ldmatrix_x4_trans(b, v + t * S::V_STRIDE + d);
#pragma unroll
            for (int m = 0; m < S::MT; m++) {
                ptx_mma_f16_16816(r.o[m][d / 8], a[m], {b[0], b[1]});
                ptx_mma_f16_16816(r.o[m][d / 8 + 1], a[m], {b[2], b[3]});
            }
        }
    }
}

/* ---- the kernel ---- */

template <int SHAPE, int DIM, int DTYPE, bool SPLIT>
static __global__ void __launch_bounds__(PROMPT_THREADS, 2)
    prompt_kernel(const __grid_constant__ struct attention a)
{
    if constexpr (PROMPT_COMPILED(SHAPE)) {
        using S = prompt_shape<SHAPE, DIM, DTYPE, SPLIT>;
        CUDA_SHARED(uint8_t, shared);
        __half *q = (__half *)shared;
        uint8_t *stages = shared + S::Q_BYTES;
        struct prompt_place *places =
            (struct prompt_place *)(stages + S::STAGES * S::STAGE_BYTES); /* For two steps. */
        const uint32_t kv_head = blockIdx.x, tid = threadIdx.x;
        struct prompt_tile tile;
        if (!prompt_find(&a, blockIdx.y, S::ROWS / a.group, S::BC, &tile))
            return;
        struct prompt_part part = {tile.first_step, tile.steps, 0, 1};
        if (SPLIT && !prompt_part_of<S>(&tile, blockIdx.z, &part))
            return;
        const uint32_t table = a.s.table_begin[tile.sequence];
        const uint32_t end = a.s.first_position[tile.sequence] + tile.first + tile.count;
        /* Loaded early and used late, so that no thread waits for the block table. */
        auto block_of = [&](uint32_t step) {
            uint32_t token = max(min(step * S::BC + tid % S::GROUPS * 8, end - 1), tile.begin);
            return a.s.blocks[table + token / a.block_tokens];
        };
        auto place = [&](uint32_t step, uint32_t block) {
            uint32_t token = max(min(step * S::BC + tid * 8, (end - 1) & ~7u), tile.begin);
            if (tid < S::GROUPS)
                places[step % 2 * S::GROUPS + tid] = prompt_place_at<S>(&a, block, kv_head, token);
        };
        auto copy = [&](uint32_t step) {
            if (step < part.end)
                prompt_copy<S>(&a, places + step % 2 * S::GROUPS,
                               stages + step % S::STAGES * S::STAGE_BYTES, step * S::BC, tile.begin,
                               end);
            ptx_cp_async_commit();
        };
        place(part.begin, block_of(part.begin));
        place(part.begin + 1, block_of(part.begin + 1));
        __syncthreads();
        if (S::STAGES == 2)
            copy(part.begin);
        prompt_queries<S>(&a, &tile, kv_head, q);
        prompt_rows<S> r;
        prompt_begin<S>(&a, &tile, r);
#pragma unroll 1
        for (uint32_t step = part.begin; step < part.end; step++) {
            uint8_t *stage = stages + step % S::STAGES * S::STAGE_BYTES;
            if (S::STAGES == 2)
                ptx_cp_async_wait<0>();
            __syncthreads(); /* The step has arrived, and no thread still reads the one before. */
            copy(step + S::STAGES - 1);
            if (S::STAGES == 1) {
                ptx_cp_async_wait<0>();
                __syncthreads();
            }
            if (S::FIXED) {
                prompt_convert<S>(stage, step * S::BC, end);
                __syncthreads();
            }
            const uint32_t block = block_of(step + 2);
            if (step * S::BC <= r.last && step * S::BC + S::BC > attention_first(&a, r.first)) {
                float s[S::MT][S::BC / 8][4];
                prompt_scores<S>(q, (const __half *)stage, s);
                if (a.cap != 0)
                    prompt_cap<S>(&a, s);
                if (step * S::BC + S::BC - 1 > r.first ||
                    step * S::BC < attention_first(&a, r.last))
                    prompt_mask<S>(&a, r, step * S::BC, s);
                prompt_weigh<S>(r, s);
                prompt_values<S>(s, (const __half *)(stage + S::K_BYTES), r);
            }
            place(step + 2, block);
        }
        if (part.parts == 1) {
            prompt_write<S>(&a, &tile, kv_head, r);
            return;
        }
        prompt_part_write<S>(&a, &tile, kv_head, part.part, r);
        prompt_part_join<S>(&a, &tile, kv_head, part.parts,
                            &a.parts_done[blockIdx.y * a.kv_heads + kv_head], (float *)shared);
    }
}

template <int SHAPE, int DIM, int DTYPE, bool SPLIT>
static void prompt_launch_split(cudaStream_t stream, const struct attention *a)
{
    using S = prompt_shape<SHAPE, DIM, DTYPE, SPLIT>;
    static const cudaError_t once =
        attention_shared(prompt_kernel<SHAPE, DIM, DTYPE, SPLIT>, S::SHARED);
    (void)once; /* An error is reported at the launch. */
    const uint32_t per_tile = S::ROWS / a->group;
    const uint32_t tiles = (a->s.rows + a->s.sequences * (per_tile - 1)) / per_tile;
    CUDA_LAUNCH((prompt_kernel<SHAPE, DIM, DTYPE, SPLIT>),
                dim3(a->kv_heads, tiles, SPLIT ? a->splits : 1), dim3(PROMPT_THREADS), S::SHARED,
                stream, *a);
}

template <int SHAPE, int DIM, int DTYPE>
static void prompt_launch(cudaStream_t stream, const struct attention *a)
{
    if (a->splits > 1)
        prompt_launch_split<SHAPE, DIM, DTYPE, true>(stream, a);
    else
        prompt_launch_split<SHAPE, DIM, DTYPE, false>(stream, a);
}

template <int SHAPE, int DIM>
static void prompt_launch_dtype(cudaStream_t stream, const struct attention *a)
{
    switch (a->dtype) {
    case COMPUTE_KV_I16:
        return prompt_launch<SHAPE, DIM, COMPUTE_KV_I16>(stream, a);
    case COMPUTE_KV_I8:
        return prompt_launch<SHAPE, DIM, COMPUTE_KV_I8>(stream, a);
    default:
        return prompt_launch<SHAPE, DIM, COMPUTE_KV_F16>(stream, a);
    }
}

template <int SHAPE>
static void prompt_launch_dim(cudaStream_t stream, const struct attention *a, uint32_t head_dim)
{
    switch (head_dim) {
    case 64:
        return prompt_launch_dtype<SHAPE, 64>(stream, a);
    case 80:
        return prompt_launch_dtype<SHAPE, 80>(stream, a);
    case 96:
        return prompt_launch_dtype<SHAPE, 96>(stream, a);
    case 128:
        return prompt_launch_dtype<SHAPE, 128>(stream, a);
    default:
        return prompt_launch_dtype<SHAPE, 256>(stream, a);
    }
}

/* Shared memory that a block can have. */
static int prompt_shared_max()
{
    static const int most = [] {
        int device = 0, bytes = 0;
        cudaGetDevice(&device);
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        return bytes;
    }();
    return most;
}

enum attention_shape attention_prompt_shape()
{
    static const enum attention_shape shape = [] {
        struct cudaFuncAttributes attributes = {};
        cudaFuncGetAttributes(&attributes,
                              prompt_kernel<ATTENTION_SMALL, 64, COMPUTE_KV_F16, false>);
        return prompt_shape_of(attributes.ptxVersion * 10);
    }();
    return prompt_shape<ATTENTION_HOPPER, 256, COMPUTE_KV_F16, false>::SHARED <= prompt_shared_max()
               ? shape
               : ATTENTION_SMALL;
}

bool attention_prompt_takes(enum attention_shape shape, uint32_t head_dim, uint32_t dtype)
{
    return dtype != COMPUTE_KV_F32 &&
           (shape != ATTENTION_SMALL || head_dim <= 128 ||
            prompt_shape<ATTENTION_SMALL, 256, COMPUTE_KV_F16, false>::SHARED <=
                prompt_shared_max());
}

void attention_prompt(cudaStream_t stream, const struct attention *a, uint32_t head_dim,
                      enum attention_shape shape)
{
    switch (shape) {
    case ATTENTION_HOPPER:
        return prompt_launch_dim<ATTENTION_HOPPER>(stream, a, head_dim);
    case ATTENTION_AMPERE:
        return prompt_launch_dim<ATTENTION_AMPERE>(stream, a, head_dim);
    default:
        return prompt_launch_dim<ATTENTION_SMALL>(stream, a, head_dim);
    }
}
