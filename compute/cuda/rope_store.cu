/* rope_store: rotates q and k in place (RoPE), and writes K and V of each row into the paged cache,
 * in all four forms of compute/kv.h. References: rows_rope, rows_store (compute/cpu/rows.h) and
 * store_fixed (compute/cpu/store_fixed.h). The bits are the same, because each product is rounded
 * at the same place.
 *
 * There is a warp for each head of each row: the query heads first, then the KV heads, whose warp
 * rotates k, computes the scales if the form has any, and writes K and V. Bound: memory, 8 bytes
 * per element of q and k, 4 of v, and the bytes written to the cache, which are few. With one row,
 * only the latency of four reads one after the other counts. K has a token per column, so its
 * elements are written one by one; those of neighbouring tokens are combined in L2. A latent cache
 * has one KV head, whose vector is written instead of K and V. */
#include "compute/cuda/kernels.cuh"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/ptx.cuh"

namespace
{
constexpr uint32_t THREADS = 128;

struct rope {
    const float *table; /* [positions][cos of dim/2, sin of dim/2] */
    uint32_t dim;
    bool neox;
};

/* Rotates one head, by a warp, which sees the result afterwards. */
__device__ __forceinline__ void rotate(const struct rope &rope, uint32_t position, float *head)
{
    const uint32_t half = rope.dim / 2;
    const float *cosines = rope.table + (size_t)position * rope.dim, *sines = cosines + half;
    for (uint32_t i = threadIdx.x % 32; i < half; i += 32) {
        float *first = head + (rope.neox ? i : 2 * i);
        float *second = head + (rope.neox ? i + half : 2 * i + 1);
        const float a = *first, b = *second, c = cosines[i], s = sines[i];
        *first = __fmaf_rn(a, c, -__fmul_rn(b, s));
        *second = __fmaf_rn(b, c, __fmul_rn(a, s));
    }
    __syncwarp();
}

/* Clamped, because an infinity in the cache would spread through 0 · infinity to rows that mask it.
 * NaN stays NaN. */
__device__ __forceinline__ __half to_f16(float value)
{
    return __float2half_rn(value > 65504.0f ? 65504.0f : value < -65504.0f ? -65504.0f : value);
}

template <class ELEMENT> __device__ __forceinline__ ELEMENT element(float value)
{
    if constexpr (sizeof(ELEMENT) == 2)
        return to_f16(value);
    else
        return value;
}

/* Writes K as [head_dim][block_tokens], V as [block_tokens][head_dim]. */
template <class ELEMENT>
__device__ __forceinline__ void store_plain(const struct compute_kv &kv, uint8_t *head_block,
                                            uint32_t token, const float *k, const float *v)
{
    ELEMENT *keys = reinterpret_cast<ELEMENT *>(head_block);
    ELEMENT *values = keys + (size_t)kv.head_dim * kv.block_tokens + (size_t)token * kv.head_dim;
    for (uint32_t d = threadIdx.x % 32; d < kv.head_dim; d += 32) {
        keys[(size_t)d * kv.block_tokens + token] = element<ELEMENT>(k[d]);
        values[d] = element<ELEMENT>(v[d]);
    }
}

/* Returns the scale of a head's values as bfloat16, rounded up so that no integer exceeds the
 * limit. *inverse is 0 if all values are, or count as, 0, or if one is not finite. */
__device__ __forceinline__ uint16_t fixed_scale(const float *x, uint32_t count, float limit,
                                                float *inverse)
{
    uint32_t most = 0; /* Bits of |x|; NaN is above infinity. */
    for (uint32_t d = threadIdx.x % 32; d < count; d += 32)
        most = max(most, __float_as_uint(x[d]) & 0x7fffffffu);
#pragma unroll
    for (int width = 16; width > 0; width /= 2)
        most = max(most, __shfl_xor_sync(0xffffffffu, most, width));
    *inverse = 0;
    if (most >= 0x7f800000u)
        return 0x7fc0;
    if (__uint_as_float(most) < 0x1p-96f) /* So that quotients are normal numbers. */
        return 0;
    const float scale = __uint_as_float(most) / limit;
    const uint32_t bits = (__float_as_uint(scale) + 0xffffu) & 0xffff0000u;
    *inverse = 1.0f / __uint_as_float(bits);
    return (uint16_t)(bits >> 16);
}

/* Without a scale even NaN becomes 0: the scale alone marks the value as invalid. */
__device__ __forceinline__ int fixed(float value, float inverse)
{
    return inverse == 0 ? 0 : __float2int_rn(__fmul_rn(value, inverse));
}

/* Writes [K scale of each token][V scale of each token], K as [head_dim / 2][block_tokens][2
 * dimensions], V as [block_tokens / 2][head_dim][2 tokens]. */
template <class ELEMENT>
__device__ __forceinline__ void store_fixed(const struct compute_kv &kv, uint8_t *head_block,
                                            uint32_t token, const float *k, const float *v)
{
    const uint32_t dim = kv.head_dim, tokens = kv.block_tokens, lane = threadIdx.x % 32;
    const float limit = sizeof(ELEMENT) == 1 ? 127.0f : 8191.0f;
    float k_inverse, v_inverse;
    const uint16_t k_scale = fixed_scale(k, dim, limit, &k_inverse);
    const uint16_t v_scale = fixed_scale(v, dim, limit, &v_inverse);
    uint16_t *scales = reinterpret_cast<uint16_t *>(head_block);
    if (lane == 0) {
        scales[token] = k_scale;
        scales[tokens + token] = v_scale;
    }
    ELEMENT *keys = reinterpret_cast<ELEMENT *>(head_block + (size_t)tokens * 4);
    ELEMENT *values = keys + (size_t)dim * tokens + (size_t)(token / 2) * dim * 2 + token % 2;
    for (uint32_t d = lane; d < dim; d += 32) {
        keys[((size_t)(d / 2) * tokens + token) * 2 + d % 2] = (ELEMENT)fixed(k[d], k_inverse);
        values[2 * d] = (ELEMENT)fixed(v[d], v_inverse);
    }
}

/* Writes the vector x of a latent cache as [dimensions][block_tokens]. */
template <class ELEMENT>
__device__ __forceinline__ void latent_plain(const struct compute_kv &kv, uint8_t *block,
                                             uint32_t token, const float *x)
{
    ELEMENT *to = reinterpret_cast<ELEMENT *>(block) + token;
    for (uint32_t d = threadIdx.x % 32; d < 2 * kv.head_dim; d += 32)
        to[(size_t)d * kv.block_tokens] = element<ELEMENT>(x[d]);
}

/* Writes [scale of each token's first values][scale of each token's last values], then x as
 * [head_dim][block_tokens][2 dimensions]. */
template <class ELEMENT>
__device__ __forceinline__ void latent_fixed(const struct compute_kv &kv, uint8_t *block,
                                             uint32_t token, const float *x)
{
    const uint32_t own = 2 * kv.head_dim - kv.latent, tokens = kv.block_tokens;
    const float limit = sizeof(ELEMENT) == 1 ? 127.0f : 8191.0f;
    float own_inverse, inverse;
    const uint16_t own_scale = fixed_scale(x, own, limit, &own_inverse);
    const uint16_t scale = fixed_scale(x + own, kv.latent, limit, &inverse);
    uint16_t *scales = reinterpret_cast<uint16_t *>(block);
    if (threadIdx.x % 32 == 0) {
        scales[token] = own_scale;
        scales[tokens + token] = scale;
    }
    ELEMENT *to = reinterpret_cast<ELEMENT *>(block + (size_t)tokens * 4);
    for (uint32_t d = threadIdx.x % 32; d < 2 * kv.head_dim; d += 32)
        to[((size_t)(d / 2) * tokens + token) * 2 + d % 2] =
            (ELEMENT)fixed(x[d], d < own ? own_inverse : inverse);
}

__device__ __forceinline__ void store_latent(const struct compute_kv &kv, uint8_t *block,
                                             uint32_t token, const float *x)
{
    switch (kv.dtype) {
    case COMPUTE_KV_F16:
        latent_plain<__half>(kv, block, token, x);
        break;
    case COMPUTE_KV_F32:
        latent_plain<float>(kv, block, token, x);
        break;
    case COMPUTE_KV_I16:
        latent_fixed<int16_t>(kv, block, token, x);
        break;
    default:
        latent_fixed<int8_t>(kv, block, token, x);
        break;
    }
}

__device__ __forceinline__ void store(const struct compute_kv &kv, uint8_t *head_block,
                                      uint32_t token, const float *k, const float *v)
{
    switch (kv.dtype) {
    case COMPUTE_KV_F16:
        store_plain<__half>(kv, head_block, token, k, v);
        break;
    case COMPUTE_KV_F32:
        store_plain<float>(kv, head_block, token, k, v);
        break;
    case COMPUTE_KV_I16:
        store_fixed<int16_t>(kv, head_block, token, k, v);
        break;
    default:
        store_fixed<int8_t>(kv, head_block, token, k, v);
        break;
    }
}

/* Bytes of one KV head in a block. */
__device__ __forceinline__ size_t head_bytes(const struct compute_kv &kv)
{
    const size_t element = kv.dtype == COMPUTE_KV_F32 ? 4 : kv.dtype == COMPUTE_KV_I8 ? 1 : 2;
    const size_t scale = kv.dtype == COMPUTE_KV_I16 || kv.dtype == COMPUTE_KV_I8 ? 2 : 0;
    return kv.block_tokens * 2 * (kv.head_dim * element + scale);
}

__global__ void __launch_bounds__(THREADS)
    rope_store(const struct rope rope, const struct cuda_sequences s, const struct compute_kv kv,
               uint32_t head_count, float *q, float *k, const float *v)
{
    ptx_launch_dependents();
    ptx_wait_dependency();
    const uint32_t heads = head_count + kv.head_count;
    const uint32_t width = kv.latent != 0 ? 2 * kv.head_dim : kv.head_dim; /* Of q and k. */
    const size_t task = (size_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const uint32_t row = (uint32_t)(task / heads);
    uint32_t head = (uint32_t)(task % heads);
    if (row >= s.rows)
        return;
    const uint32_t position = s.row_position[row], sequence = s.row_sequence[row];
    if (sequence >= s.sequences) /* Padding. */
        return;
    if (head < head_count) {
        rotate(rope, position, q + ((size_t)row * head_count + head) * width);
        return;
    }
    head -= head_count;
    const uint32_t *blocks = s.blocks + s.table_begin[sequence];
    uint8_t *block = static_cast<uint8_t *>(kv.base) +
                     (size_t)blocks[position / kv.block_tokens] * kv.block_bytes;
    const size_t at = ((size_t)row * kv.head_count + head) * width;
    rotate(rope, position, k + at);
    if (kv.latent != 0)
        store_latent(kv, block, position % kv.block_tokens, k + at);
    else
        store(kv, block + head * head_bytes(kv), position % kv.block_tokens, k + at, v + at);
}
} // namespace

void cuda_rope_store(cudaStream_t stream, const float *table, uint32_t dim, bool neox,
                     const struct cuda_sequences *s, const struct compute_kv *kv,
                     uint32_t head_count, float *q, float *k, const float *v)
{
    const struct rope rope = {table, dim, neox};
    const size_t warps = (size_t)s->rows * (head_count + kv->head_count);
    const unsigned blocks = (unsigned)((warps + THREADS / 32 - 1) / (THREADS / 32));
    CUDA_LAUNCH_EARLY(rope_store, dim3(blocks), dim3(THREADS), 0, stream, rope, *s, *kv, head_count,
                      q, k, v);
}
