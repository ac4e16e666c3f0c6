/* attention_plain: attention_token over an F32 cache, in fp32 throughout, without tensor cores.
 * Device code for attention_token.cu; simple rather than fast, because F32 caches serve
 * comparisons. Caches of other types: attention_token.cuh. */
#ifndef COMPUTE_CUDA_ATTENTION_PLAIN_CUH
#define COMPUTE_CUDA_ATTENTION_PLAIN_CUH

#include "compute/cuda/attention_token.cuh"

/* Writes the item's queries, multiplied by the scale, to q[DIM][TOKEN_HEADS]. All threads of the
 * block call the function; a barrier must follow. */
template <class S>
static __device__ void token_plain_query(const struct attention *a, const struct token_item *item,
                                         float *q)
{
    for (uint32_t at = threadIdx.x; at < TOKEN_HEADS * S::DIM; at += TOKEN_THREADS) {
        const uint32_t head = at / S::DIM, d = at % S::DIM;
        const size_t row = (size_t)item->row * a->head_count + item->first_head;
        q[d * TOKEN_HEADS + head] =
            head < item->heads ? a->q[(row + head) * S::DIM + d] * a->scale : 0;
    }
}

/* Computes the warp's part of an item. A lane has one token for the scores, and every 32nd
 * dimension for the values. memory: the warp's shared memory, S::WARP_BYTES bytes; the weighted
 * sums of V are written to it, from byte S::RESULT on. sums[head]: the greatest score and the sum
 * of the weights. */
template <class S>
static __device__ __forceinline__ void token_plain(const struct attention *a,
                                                   const struct token_item *item, const float *q,
                                                   uint8_t *memory, struct token_sums *sums)
{
    constexpr int WIDE = (S::DIM + 31) / 32;
    const uint32_t lane = threadIdx.x % 32, tokens = a->block_tokens;
    float *weights = (float *)memory; /* [token][head] */
    float *out = (float *)(memory + S::RESULT);
    float o[TOKEN_HEADS][WIDE], most[TOKEN_HEADS], sum[TOKEN_HEADS];
#pragma unroll
    for (int h = 0; h < TOKEN_HEADS; h++) {
        most[h] = -INFINITY;
        sum[h] = 0;
#pragma unroll
        for (int i = 0; i < WIDE; i++)
            o[h][i] = 0;
    }
#pragma unroll 1
    for (uint32_t begin = item->begin + threadIdx.x / 32 * 32; begin < item->end;
         begin += TOKEN_THREADS) {
        const uint32_t token = min(begin + lane, item->end - 1);
        const uint8_t *head = a->base + a->s.blocks[item->table + token / tokens] * a->block_bytes +
                              item->kv_head * a->head_bytes;
        const float *k = (const float *)head + token % tokens;
        float s[TOKEN_HEADS] = {0};
#pragma unroll 4
        for (uint32_t d = 0; d < S::DIM; d++)
#pragma unroll
            for (int h = 0; h < TOKEN_HEADS; h++)
                s[h] = fmaf(q[d * TOKEN_HEADS + h], k[d * tokens], s[h]);
#pragma unroll
        for (int h = 0; h < TOKEN_HEADS; h++) {
            if (a->cap != 0)
                s[h] = attention_capped(a, s[h]);
            s[h] = begin + lane < item->end && begin + lane >= item->first ? s[h] : -INFINITY;
            float greatest = fmaxf(most[h], s[h]);
#pragma unroll
            for (int i = 1; i < 32; i *= 2)
                greatest = fmaxf(greatest, __shfl_xor_sync(ATTENTION_ALL_LANES, greatest, i));
            const float factor = ptx_exp2(most[h] - greatest), p = ptx_exp2(s[h] - greatest);
            most[h] = greatest;
            sum[h] = fmaf(sum[h], factor, p);
            weights[lane * TOKEN_HEADS + h] = p;
#pragma unroll
            for (int i = 0; i < WIDE; i++)
                o[h][i] *= factor;
        }
        __syncwarp();
        const float *mine = (const float *)head + (size_t)S::DIM * tokens + token % tokens * S::DIM;
#pragma unroll 1
        for (uint32_t i = 0; i < min(32, item->end - begin); i++) {
            const float *v =
                (const float *)__shfl_sync(ATTENTION_ALL_LANES, (unsigned long long)mine, i);
#pragma unroll
            for (int w = 0; w < WIDE; w++) {
                const uint32_t d = w * 32 + lane;
                const float x = d < S::DIM ? v[d] : 0;
#pragma unroll
                for (int h = 0; h < TOKEN_HEADS; h++)
                    o[h][w] = fmaf(weights[i * TOKEN_HEADS + h], x, o[h][w]);
            }
        }
        __syncwarp();
    }
#pragma unroll
    for (int h = 0; h < TOKEN_HEADS; h++) {
#pragma unroll
        for (int i = 1; i < 32; i *= 2)
            sum[h] += __shfl_xor_sync(ATTENTION_ALL_LANES, sum[h], i);
        if (lane == 0)
            sums[h] = {most[h], sum[h]};
#pragma unroll
        for (int w = 0; w < WIDE; w++)
            if (w * 32 + lane < S::DIM)
                out[h * S::DIM + w * 32 + lane] = o[h][w];
    }
}

#endif
