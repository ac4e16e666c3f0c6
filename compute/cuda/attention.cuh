/* attention: what the attention kernels share: their arguments, and the f16 pairs that tensor cores
 * read.
 *
 * All of them: o = softmax(scale * q·K) · V, causal, grouped heads, softmax in fp32 by powers of 2.
 * The plain reference is compute/cpu/attention.h. Numbers: q * scale, K, V and the weights p are
 * rounded to f16 for F16, I16 and I8 caches, sums are fp32; an F32 cache is computed in fp32
 * throughout. A row's result depends on its own position and tokens only, and on which kernel takes
 * it: attention_prompt for sequences of more than ATTENTION_TOKEN_ROWS rows, attention_token for
 * the others; of attention_prompt also on whether the batch has more than ATTENTION_SPLIT_ROWS
 * rows (so do products by cuBLASLt, which picks kernels by the number of rows). */
#ifndef COMPUTE_CUDA_ATTENTION_CUH
#define COMPUTE_CUDA_ATTENTION_CUH

#include "compute/cuda/kernels.cuh"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/ptx.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* Sequences with so few rows in a batch go to attention_token, row by row. */
#define ATTENTION_TOKEN_ROWS 4

/* attention_token cuts a context into chunks of so many tokens, or more where there would be too
 * many chunks; and takes so many heads of a KV head together: columns of an mma. */
#define ATTENTION_CHUNK      256
#define ATTENTION_CHUNKS_MAX 128
#define ATTENTION_HEADS      8

/* attention_prompt cuts a context likewise in batches of few rows. */
#define ATTENTION_SPLIT_ROWS   256
#define ATTENTION_SPLIT_TOKENS 512
#define ATTENTION_SPLIT_MAX    16

#define ATTENTION_ALL_LANES 0xffffffffu

/* An argument of every kernel, by value. */
struct attention {
    struct cuda_sequences s;
    const uint8_t *base;
    size_t block_bytes;
    size_t head_bytes; /* of one KV head in a block */
    uint32_t block_tokens;
    uint32_t kv_heads;
    uint32_t head_count;
    uint32_t group; /* heads that share a KV head */
    uint32_t dtype; /* enum compute_kv_dtype */
    float scale;    /* times log2 e: weights are powers of 2 */
    const float *q;
    __nv_bfloat16 *out; /* either may be NULL */
    float *out_f32;
    /* Of attention_token, in scratch, by slot: a row, or where most rows are of long sequences a
     * sequence's i-th row. */
    uint32_t *joined; /* [slot][head tile]: chunks that are done; 0 before and after a launch */
    float2 *sums;     /* [slot][head][chunk]: greatest score, sum of weights */
    float *parts;     /* [slot][head][chunk][head_dim] */
    uint32_t slots;
    uint32_t chunks_max;
    /* attention_prompt: up to so many parts of a tile; 1: none is cut. Then joined is [tile][KV
     * head], and sums and parts are [row][head][ATTENTION_SPLIT_MAX]. */
    uint32_t splits;
};

/* How often a KV head's heads are taken ATTENTION_HEADS at a time. */
static __host__ __device__ inline uint32_t attention_tiles_per_kv(uint32_t group)
{
    return (group + ATTENTION_HEADS - 1) / ATTENTION_HEADS;
}

/* Shapes of attention_prompt, by the shared memory that a multiprocessor has. Each GPU architecture
 * is compiled for one of them. */
enum attention_shape { ATTENTION_HOPPER, ATTENTION_AMPERE, ATTENTION_SMALL };

enum attention_shape attention_prompt_shape();
#ifdef CUDA_EMULATED
extern enum attention_shape attention_emulated_shape; /* tests try each */
#endif
/* False: this head_dim needs more shared memory than the shape has; attention_token takes all rows.
 */
bool attention_prompt_takes(enum attention_shape shape, uint32_t head_dim, uint32_t dtype);
void attention_prompt(cudaStream_t stream, const struct attention *a, uint32_t head_dim,
                      enum attention_shape shape);
/* all: rows of sequences that attention_prompt would take as well. */
void attention_token(cudaStream_t stream, const struct attention *a, uint32_t head_dim, bool all);

/* Lets a kernel have so much dynamic shared memory, and as many blocks of it as fit. */
template <class K> static inline cudaError_t attention_shared(K kernel, int bytes)
{
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

static __device__ __forceinline__ void attention_write(const struct attention *a, size_t at,
                                                       float x)
{
    if (a->out != NULL)
        a->out[at] = __float2bfloat16_rn(x);
    if (a->out_f32 != NULL)
        a->out_f32[at] = x;
}

/* ---- pairs of f16 in a word ---- */

static __device__ __forceinline__ uint32_t attention_word(__half2 pair)
{
    uint32_t word;
    memcpy(&word, &pair, sizeof(word));
    return word;
}

static __device__ __forceinline__ __half2 attention_pair(uint32_t word)
{
    __half2 pair;
    memcpy(&pair, &word, sizeof(pair));
    return pair;
}

static __device__ __forceinline__ uint32_t attention_pack(float low, float high)
{
    return attention_word(__floats2half2_rn(low, high));
}

/* Clamped, so that no outlier becomes an infinity. NaN stays. */
static __device__ __forceinline__ float attention_clamp(float x)
{
    x = x > 65504.0f ? 65504.0f : x;
    return x < -65504.0f ? -65504.0f : x;
}

static __device__ __forceinline__ float attention_scale(uint32_t bf16)
{
    return __uint_as_float(bf16 << 16);
}

#endif
