/* store_fixed: writes K and V of one token into a cache of integers (COMPUTE_KV_I16,
 * COMPUTE_KV_I8), in the layout of compute/kv.h. attention_store (attention.h) calls store_fixed
 * and store_fixed_latent, on the device's threads. The functions have no state. They do not read
 * the cache (attention_fixed.h does), and do not write float caches (rows_store in rows.h does). */
#ifndef COMPUTE_CPU_STORE_FIXED_H
#define COMPUTE_CPU_STORE_FIXED_H

#include "compute/cpu/rows.h"

/* A vector whose greatest |x| is below FIXED_SMALL becomes 0, so that quotients are normal. */
#define FIXED_SMALL 0x1p-96f

/* Returns the greatest magnitude of an integer of the cache. */
INLINE float fixed_limit(enum compute_kv_dtype dtype)
{
    return dtype == COMPUTE_KV_I8 ? 127.0f : 8191.0f;
}

/* Returns the greatest |x|, or NaN if an element is NaN or infinite. */
INLINE float fixed_magnitude(const float *x, uint32_t count)
{
    vec most = v_zero(), poison = v_zero();
    for (uint32_t i = 0; i < count; i += VECTOR_LANES) {
        vec a = v_load_part(x + i, lanes_at(i, count));
        most = v_max(v_max(most, a), v_sub(v_zero(), a));
        poison = v_fma(a, v_zero(), poison);
    }
    return v_fold_add(poison) == 0 ? v_fold_max(most) : NAN;
}

/* Returns the bits of the scale of x in bfloat16, rounded up so that no integer exceeds
 * fixed_limit. The scale is NaN if an element is NaN or infinite. *inverse is 1 / scale; 0 = the
 * scale is NaN or 0, and all integers become 0. */
INLINE uint16_t fixed_scale(enum compute_kv_dtype dtype, const float *x, uint32_t count,
                            float *inverse)
{
    float magnitude = fixed_magnitude(x, count), scale;
    uint32_t bits;
    *inverse = 0;
    if (isnan(magnitude))
        return 0x7fc0;
    if (magnitude < FIXED_SMALL)
        return 0;
    scale = magnitude / fixed_limit(dtype);
    memcpy(&bits, &scale, sizeof(bits));
    bits = (bits + 0xffffu) & 0xffff0000u;
    memcpy(&scale, &bits, sizeof(scale));
    *inverse = 1.0f / scale;
    return (uint16_t)(bits >> 16);
}

/* Rounds `lanes` scaled values of a token's K, and writes them into the cache as pairs of
 * dimensions. `step`: bytes from one pair to the next. */
INLINE void fixed_put_keys(enum compute_kv_dtype dtype, uint8_t *at, size_t step, vec a,
                           uint32_t lanes)
{
    int16_t rounded[VECTOR_LANES];
    v_round_store16(rounded, a);
    for (uint32_t i = 0; i < lanes; i += 2, at += step) {
        const uint8_t pair[2] = {(uint8_t)rounded[i], (uint8_t)rounded[i + 1]};
        if (dtype == COMPUTE_KV_I8)
            memcpy(at, pair, 2);
        else
            memcpy(at, &rounded[i], 4);
    }
}

/* Rounds `lanes` scaled values of a token's V, and writes them into the cache, in which the values
 * of two tokens in one dimension are neighbours. half: 0 = the first token, 1 = the second. */
INLINE void fixed_put_values(enum compute_kv_dtype dtype, uint8_t *at, uint32_t half, vec a,
                             uint32_t lanes)
{
    int16_t rounded[VECTOR_LANES];
    if (dtype != COMPUTE_KV_I8) {
        v_round_store16_every_second((int16_t *)at, a, lanes, half);
        return;
    }
    v_round_store16(rounded, a);
    for (uint32_t i = 0; i < lanes; i++)
        at[2 * i + half] = (uint8_t)rounded[i];
}

/* Writes `count` values of a token to consecutive dimensions of a latent cache, from the address
 * `keys` on, and their scale to `scale_at`. */
INLINE void store_fixed_part(const struct compute_kv *kv, enum compute_kv_dtype dtype,
                             uint8_t *scale_at, uint8_t *keys, const float *x, uint32_t count)
{
    const size_t step = kv->block_tokens * 2 * compute_kv_element_bytes(dtype);
    float inverse;
    const uint16_t scale = fixed_scale(dtype, x, count, &inverse);
    memcpy(scale_at, &scale, 2);
    for (uint32_t d = 0; d < count; d += VECTOR_LANES) {
        const uint32_t lanes = lanes_at(d, count);
        vec a = inverse == 0 ? v_zero() : v_mul(v_load_part(x + d, lanes), v_set(inverse));
        fixed_put_keys(dtype, keys + d / 2 * step, step, a, lanes);
    }
}

/* Writes the vector x of one token into a latent cache. */
INLINE void store_fixed_latent(const struct compute_kv *kv, enum compute_kv_dtype dtype,
                               uint8_t *block, uint32_t token, const float *x)
{
    const uint32_t tokens = kv->block_tokens, own = 2 * kv->head_dim - kv->latent;
    const size_t pair = 2 * compute_kv_element_bytes(dtype);
    uint8_t *keys = block + (size_t)tokens * 4 + token * pair;
    store_fixed_part(kv, dtype, block + (size_t)token * 2, keys, x, own);
    store_fixed_part(kv, dtype, block + (size_t)(tokens + token) * 2,
                     keys + own / 2 * tokens * pair, x + own, kv->latent);
}

/* Writes K and V of one token and one KV head. */
INLINE void store_fixed(const struct compute_kv *kv, enum compute_kv_dtype dtype,
                        uint8_t *head_block, uint32_t token, const float *k, const float *v)
{
    const uint32_t dim = kv->head_dim, tokens = kv->block_tokens;
    uint8_t *keys = head_block + (size_t)tokens * 4;
    uint8_t *values = keys + (size_t)dim * tokens * compute_kv_element_bytes(dtype);
    float k_inverse, v_inverse;
    uint16_t k_scale = fixed_scale(dtype, k, dim, &k_inverse);
    uint16_t v_scale = fixed_scale(dtype, v, dim, &v_inverse);
    memcpy(head_block + (size_t)token * 2, &k_scale, 2);
    memcpy(head_block + (size_t)(tokens + token) * 2, &v_scale, 2);
    const size_t pair = 2 * compute_kv_element_bytes(dtype);
    keys += token * pair;
    values += (size_t)(token / 2) * dim * pair;
    for (uint32_t d = 0; d < dim; d += VECTOR_LANES) {
        uint32_t lanes = lanes_at(d, dim);
        /* If the scale is NaN, the integers become 0: only the scale marks the vector as
         * invalid. */
        vec a = k_inverse == 0 ? v_zero() : v_mul(v_load_part(k + d, lanes), v_set(k_inverse));
        vec b = v_inverse == 0 ? v_zero() : v_mul(v_load_part(v + d, lanes), v_set(v_inverse));
        fixed_put_keys(dtype, keys + d / 2 * tokens * pair, tokens * pair, a, lanes);
        fixed_put_values(dtype, values + d * pair, token % 2, b, lanes);
    }
}

#endif
