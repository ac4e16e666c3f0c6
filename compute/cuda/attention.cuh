/* attention: what the attention kernels share: their arguments, and the f16 pairs that tensor cores
 * read. Internal to the attention_*.cu files: attention.cu chooses the kernel for each row and
 * launches it, on the thread that computes (compute.h); attention_prompt.cu, attention_token.cu and
 * attention_latent.cu have the kernels. These files do not allocate scratch memory, and do not
 * write K and V (rope_store.cu does).
 *
 * All kernels compute o = softmax(scale * q·K) · V, causal, with grouped heads; softmax is in fp32
 * with powers of 2. The plain reference is compute/cpu/attention.h. For F16, I16 and I8 caches, q *
 * scale, K, V and the weights p are rounded to f16 and sums are fp32; an F32 cache is computed in
 * fp32 throughout. A row's result depends on its own position and tokens. The bits of the result
 * also depend on the kernel, and on how the kernel splits the context. The number of rows of the
 * sequence, and of the batch, decides both. */
#ifndef COMPUTE_CUDA_ATTENTION_CUH
#define COMPUTE_CUDA_ATTENTION_CUH

#include "compute/cuda/kernels.cuh"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/ptx.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* Most rows of a sequence that attention_token computes instead of attention_prompt. */
#define ATTENTION_TOKEN_ROWS 4

/* attention_token splits a context into chunks. */
#define ATTENTION_CHUNK      256 /* Tokens of a chunk; more if there would be too many chunks. */
#define ATTENTION_CHUNKS_MAX 128 /* Most chunks. */
/* Heads of one KV head that attention_token computes together, as the columns of an mma. */
#define ATTENTION_HEADS 8

/* attention_prompt splits a context into parts, in batches of at most ATTENTION_SPLIT_ROWS rows. */
#define ATTENTION_SPLIT_ROWS   256
#define ATTENTION_SPLIT_TOKENS 512 /* Tokens of a part; more if there would be too many parts. */
#define ATTENTION_SPLIT_MAX    16  /* Most parts. */

#define ATTENTION_ALL_LANES 0xffffffffu
#define ATTENTION_LOG2_E    1.44269504f

/* Arguments of every attention kernel, passed by value. */
struct attention {
    struct cuda_sequences s; /* The batch. */
    const uint8_t *base;     /* KV of the layer; see struct compute_kv. */
    size_t block_bytes;
    size_t head_bytes; /* Bytes of one KV head in a block. */
    uint32_t block_tokens;
    uint32_t kv_heads;
    uint32_t head_count;
    uint32_t group;     /* Heads that share a KV head. */
    uint32_t dtype;     /* enum compute_kv_dtype. */
    float scale;        /* Scale of attention times log2 e, because weights are powers of 2. */
    uint32_t window;    /* As in struct compute_attention. */
    float cap;          /* The cap of struct compute_attention times log2 e. */
    const float *sinks; /* As in struct compute_attention. */
    const float *q;
    __nv_bfloat16 *out; /* NULL = only out_f32 is written. */
    float *out_f32;     /* NULL = only `out` is written. */
    /* Scratch memory of attention_token. A slot is the part for one row. The batch has a slot for
     * every row or, if this is fewer, ATTENTION_TOKEN_ROWS slots for every sequence. */
    /* [slot][head tile]: chunks that are done; 0 before and after a launch. */
    uint32_t *parts_done;
    float2 *sums;        /* [slot][head][chunk]: greatest score, sum of weights. */
    float *parts;        /* [slot][head][chunk][head_dim] */
    uint32_t slots;      /* Number of slots. */
    uint32_t chunks_max; /* Chunks of the longest context. */
    /* Most parts that attention_prompt splits a tile into; 1 = tiles are not split. If tiles are
     * split, `parts_done` is [tile][KV head], `sums` is [row][head][ATTENTION_SPLIT_MAX], and
     * `parts` is [row][head][ATTENTION_SPLIT_MAX][head_dim]. */
    uint32_t splits;
};

/* attention_latent splits contexts into chunks in batches of at most ATTENTION_LATENT_ROWS rows. */
#define ATTENTION_LATENT_ROWS  64
#define ATTENTION_LATENT_CHUNK 256 /* Tokens of a chunk; more if there would be too many chunks. */
#define ATTENTION_LATENT_PARTS 32  /* Most chunks. */

/* attention_latent.cu: cuda_attention_takes (kernels.cuh) for a latent cache (struct compute_kv).
 */
bool attention_latent_takes(const struct compute_kv *kv, uint32_t head_count);
/* cuda_attention_scratch for a latent cache. */
size_t attention_latent_scratch(const struct cuda_sequences *s, const struct compute_kv *kv,
                                uint32_t head_count);
/* cuda_attention for a latent cache. Requires that `a` has everything except scratch memory. */
void attention_latent(cudaStream_t stream, const struct attention *a, const struct compute_kv *kv,
                      void *scratch);

/* Number of groups of ATTENTION_HEADS heads per KV head. */
static __host__ __device__ inline uint32_t attention_tiles_per_kv(uint32_t group)
{
    return (group + ATTENTION_HEADS - 1) / ATTENTION_HEADS;
}

/* Shapes of attention_prompt's tiles, by the shared memory of a multiprocessor. */
enum attention_shape { ATTENTION_HOPPER, ATTENTION_AMPERE, ATTENTION_SMALL };

/* Returns the shape for the current device. */
enum attention_shape attention_prompt_shape();
/* Returns false for an F32 cache, and if this head_dim needs more shared memory than a thread block
 * of the current device can have. attention_token then computes all rows. */
bool attention_prompt_takes(enum attention_shape shape, uint32_t head_dim, uint32_t dtype);
/* Queues the rows of sequences with more than ATTENTION_TOKEN_ROWS rows. */
void attention_prompt(cudaStream_t stream, const struct attention *a, uint32_t head_dim,
                      enum attention_shape shape);
/* Queues the rows of sequences with up to ATTENTION_TOKEN_ROWS rows; all = true: every row of the
 * batch. */
void attention_token(cudaStream_t stream, const struct attention *a, uint32_t head_dim, bool all);

/* Allows a kernel `bytes` of dynamic shared memory, and as many blocks per multiprocessor as fit.
 */
template <class K> static inline cudaError_t attention_shared(K kernel, int bytes)
{
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

/* Writes x to element `at` of `out` and of `out_f32`, except where these are NULL. */
static __device__ __forceinline__ void attention_write(const struct attention *a, size_t at,
                                                       float x)
{
    if (a->out != NULL)
        a->out[at] = __float2bfloat16_rn(x);
    if (a->out_f32 != NULL)
        a->out_f32[at] = x;
}

/* Returns the first token that a row at `position` sees. */
static __device__ __forceinline__ uint32_t attention_first(const struct attention *a,
                                                           uint32_t position)
{
    return a->window != 0 && position >= a->window ? position + 1 - a->window : 0;
}

/* Caps a score. Requires a->cap != 0. */
static __device__ __forceinline__ float attention_capped(const struct attention *a, float score)
{
    const float x = score * (2 * ATTENTION_LOG2_E / a->cap);
    const float e = ptx_exp2(fminf(fmaxf(x, -64.0f), 64.0f));
    return a->cap * ((e - 1) / (e + 1));
}

/* Adds a head's sink to the greatest score and the sum of weights of a row. Returns the factor of
 * the row's other sums. */
static __device__ __forceinline__ float attention_sink(const struct attention *a, uint32_t head,
                                                       float most, float *sum)
{
    const float sink = a->sinks[head] * ATTENTION_LOG2_E, greatest = fmaxf(most, sink);
    const float factor = ptx_exp2(most - greatest);
    *sum = fmaf(*sum, factor, ptx_exp2(sink - greatest));
    return factor;
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

/* Limits x to the range of f16, so that no outlier becomes an infinity. NaN stays NaN. */
static __device__ __forceinline__ float attention_clamp(float x)
{
    x = x > 65504.0f ? 65504.0f : x;
    return x < -65504.0f ? -65504.0f : x;
}

/* Converts two 16-bit integers to f16, rounded once. Each integer is 128 * high + low, where high
 * has 9 bits and low has 7; each part is made exact by the bits of 1024 + n. `unit`: multiplied by
 * 2^-13. */
static __device__ __forceinline__ uint32_t attention_pair16(uint32_t word, bool unit)
{
    const uint32_t low = (word & 0x007f007f) | 0x64006400;
    const uint32_t high = ((word >> 7 & 0x01ff01ff) ^ 0x01000100) | 0x64006400;
    const __half2 upper = __hsub2(attention_pair(high), __float2half2_rn(1280));
    const __half2 lower =
        unit ? __hfma2(attention_pair(low), __float2half2_rn(0x1p-13f), __float2half2_rn(-0.125f))
             : __hsub2(attention_pair(low), __float2half2_rn(1024));
    return attention_word(__hfma2(upper, __float2half2_rn(unit ? 0x1p-6f : 128), lower));
}

/* Converts two 8-bit integers to f16 exactly: bytes 0 and 1 of a word or, with `upper`, bytes 2 and
 * 3. `unit`: multiplied by 2^-7. */
static __device__ __forceinline__ uint32_t attention_pair8(uint32_t word, bool upper, bool unit)
{
    const uint32_t bits = __byte_perm(word ^ 0x80808080, 0x64646464, upper ? 0x4342 : 0x4140);
    return attention_word(
        unit ? __hfma2(attention_pair(bits), __float2half2_rn(0x1p-7f), __float2half2_rn(-9))
             : __hsub2(attention_pair(bits), __float2half2_rn(1152)));
}

/* Returns the float whose bfloat16 bits are `bf16`. */
static __device__ __forceinline__ float attention_bf16(uint32_t bf16)
{
    return __uint_as_float(bf16 << 16);
}

#endif
