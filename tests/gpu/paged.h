/* paged: sequences with random queries, keys and values, and a paged KV cache in the host's memory,
 * written by the plainest code that follows compute.h. Tests of the attention kernels copy the
 * cache to the device, and compute their references from the same values, on the main thread. It
 * computes no attention. */
#ifndef TESTS_GPU_PAGED_H
#define TESTS_GPU_PAGED_H

#include "compute/cuda/kernels.cuh"
#include "compute/half.h"
#include "tests/gpu/harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace paged
{
/* Heads and cache format of a model. */
struct shape {
    uint32_t heads, kv_heads, dim, block_tokens;
    enum compute_kv_dtype dtype;
    uint32_t window = 0;
    float cap = 0;
    bool sinks = false;
};

/* A sequence's inputs and the ids of its blocks. */
struct sequence {
    uint32_t tokens;
    std::vector<float> q, k, v; /* [token][head][dim] */
    std::vector<uint32_t> blocks;
};

/* ---- the cache ---- */

class cache
{
  public:
    cache(const shape &s, uint32_t block_count) : s(s)
    {
        kv.block_tokens = s.block_tokens;
        kv.head_count = s.kv_heads;
        kv.head_dim = s.dim;
        kv.dtype = s.dtype;
        kv.block_bytes = compute_kv_block_bytes(s.block_tokens, s.kv_heads, s.dim, s.dtype) + 64;
        bytes.assign(block_count * kv.block_bytes, 0xff);
    }

    /* Stores one token's K and V of one KV head in the layout of compute.h. On return k and v hold
     * the rounded values that were stored. */
    void store(const sequence &q, uint32_t token, uint32_t head, float *k, float *v)
    {
        uint8_t *at = bytes.data() + q.blocks[token / s.block_tokens] * kv.block_bytes +
                      head * s.block_tokens * compute_kv_token_bytes(s.dim, s.dtype);
        const uint32_t t = token % s.block_tokens;
        if (!compute_kv_fixed(s.dtype)) {
            for (uint32_t d = 0; d < s.dim; d++) {
                put(at, d * s.block_tokens + t, k + d);
                put(at, (s.block_tokens + t) * s.dim + d, v + d);
            }
            return;
        }
        uint8_t *keys = at + s.block_tokens * 4;
        const uint32_t values = s.dim * s.block_tokens;
        float k_scale = scale_of(k), v_scale = scale_of(v);
        const uint16_t scales[2] = {half_to_bf16(k_scale), half_to_bf16(v_scale)};
        memcpy(at + t * 2, &scales[0], 2);
        memcpy(at + (s.block_tokens + t) * 2, &scales[1], 2);
        for (uint32_t d = 0; d < s.dim; d++) {
            put_integer(keys, (d / 2 * s.block_tokens + t) * 2 + d % 2, k + d, k_scale);
            put_integer(keys, values + (t / 2 * s.dim + d) * 2 + t % 2, v + d, v_scale);
        }
    }

    void copy(uint32_t to, const cache &other, uint32_t from)
    {
        memcpy(bytes.data() + to * kv.block_bytes, other.bytes.data() + from * kv.block_bytes,
               kv.block_bytes);
    }

    struct compute_kv kv = {};
    std::vector<uint8_t> bytes;

  private:
    void put(uint8_t *at, uint32_t i, float *x)
    {
        uint16_t half = half_to_f16(*x);
        if (s.dtype == COMPUTE_KV_F32) {
            memcpy(at + i * 4, x, 4);
        } else {
            memcpy(at + i * 2, &half, 2);
            *x = half_from_f16(half);
        }
    }
    float limit() const
    {
        return s.dtype == COMPUTE_KV_I8 ? 127.0f : 8191.0f;
    }
    float scale_of(const float *x) const
    {
        float most = 0;
        for (uint32_t d = 0; d < s.dim; d++)
            most = std::fmax(most, std::fabs(x[d]));
        uint32_t bits = half_float_bits(most / limit());
        return half_bits_float((bits + 0xffff) & 0xffff0000u);
    }
    void put_integer(uint8_t *at, uint32_t i, float *x, float scale)
    {
        int16_t n = scale > 0 ? (int16_t)std::lrint(*x / scale) : 0;
        if (s.dtype == COMPUTE_KV_I8)
            at[i] = (uint8_t)n;
        else
            memcpy(at + i * 2, &n, 2);
        *x = (float)n * scale;
    }
    shape s;
};

/* ---- sequences ---- */

inline std::vector<float> draw(gpu::random &random, size_t count, float deviation)
{
    std::vector<float> x(count);
    for (float &value : x)
        value = deviation * random.normal();
    return x;
}

/* Draws a sequence. The variances make a token see a few keys clearly: the softmax is neither flat
 * nor a single peak. */
inline sequence draw_sequence(gpu::random &random, const shape &s, uint32_t tokens)
{
    sequence q;
    q.tokens = tokens;
    q.q = draw(random, (size_t)tokens * s.heads * s.dim, 2);
    q.k = draw(random, (size_t)tokens * s.kv_heads * s.dim, 1);
    q.v = draw(random, (size_t)tokens * s.kv_heads * s.dim, 1);
    return q;
}

/* Gives the sequences blocks in random order, out of twice as many as they need. Returns the number
 * of blocks of the cache. */
inline uint32_t shuffle_blocks(gpu::random &random, const shape &s,
                               std::vector<sequence> &sequences)
{
    uint32_t needed = 0;
    for (const sequence &q : sequences)
        needed += (q.tokens + s.block_tokens - 1) / s.block_tokens;
    std::vector<uint32_t> ids(2 * needed);
    for (uint32_t i = 0; i < ids.size(); i++)
        ids[i] = i;
    for (uint32_t i = (uint32_t)ids.size() - 1; i > 0; i--)
        std::swap(ids[i], ids[random.below(i + 1)]);
    for (sequence &q : sequences) {
        const uint32_t count = (q.tokens + s.block_tokens - 1) / s.block_tokens;
        q.blocks.assign(ids.end() - count, ids.end());
        ids.resize(ids.size() - count);
    }
    return 2 * needed;
}
} // namespace paged

#endif
