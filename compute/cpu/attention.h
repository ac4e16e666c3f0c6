/* attention: causal attention of one KV head over the paged cache (F16, F32). isa_portable.c,
 * isa_avx2.c and isa_avx512.c include this header and put attention_run, attention_store and
 * functions of attention_fixed.h into their tables (kernels.h). sequences.c divides rows and heads
 * among the device's threads, which call the functions through the table. The functions have no
 * state; the caller passes scratch memory. attention_fixed.h computes over caches of integers.
 *
 * The result has the same bits for prompts and decodes, for all sizes of tiles and blocks, and for
 * every order of blocks:
 *
 *   q'   = q * scale
 *   s[t] = fma chain over d of q'[d] K[d][t]; with a cap, cap * tanh(s[t] / cap)
 *   m    = greatest s[t] of the positions that the row sees, or the sink if the sink is greater
 *   p[t] = exp(s[t] - m), 0 where masked
 *   z    = sum of p: p[t] is added to lane t % 16, then the lanes are added up; then exp(sink - m)
 *          is added
 *   o[d] = fma chain over t of p[t] V[t][d], times 1 / z
 *
 * A query is one head of one row. A tile is a few queries times a few vectors: all queries of a
 * tile use each loaded vector of K or V. In q'·K, a vector has the scores of 16 tokens, or of 8
 * tokens if the number of tokens in a block is no multiple of 16. In p·V, a vector has up to
 * 16 dimensions of o. So each lane computes one output, as one sequential chain. */
#ifndef COMPUTE_CPU_ATTENTION_H
#define COMPUTE_CPU_ATTENTION_H

#include "compute/cpu/attention_fixed.h"
#include "compute/cpu/rows.h"
#include "compute/half.h"

/* Distance in tokens at which a decode, which reads the KV once, from memory, prefetches KV into
 * the L2 cache. (Prefetching into a 32 KiB L1 cache is 20 % slower.) */
#define AHEAD_TOKENS 128

/* Loads `lanes` elements of the cache as floats. */
INLINE vec kv_load(enum compute_kv_dtype dtype, const uint8_t *p, uint32_t lanes)
{
    if (lanes == VECTOR_LANES)
        return dtype == COMPUTE_KV_F16 ? v_load_f16((const uint16_t *)p) : v_load((const float *)p);
    return dtype == COMPUTE_KV_F16 ? v_load_f16_part((const uint16_t *)p, lanes)
                                   : v_load_part((const float *)p, lanes);
}

/* Returns the address of KV head cache->kv_head in the block of `token`: K of the block's tokens,
 * then V (a latent cache has no V). */
INLINE const uint8_t *head_block(const struct kernels_cache *cache, uint32_t token)
{
    const struct compute_kv *kv = cache->kv;
    size_t head_bytes =
        (size_t)kv->head_dim * kv->block_tokens * 2 * compute_kv_element_bytes(kv->dtype);
    return (const uint8_t *)kv->base + cache->blocks[token / kv->block_tokens] * kv->block_bytes +
           cache->kv_head * head_bytes;
}

/* Returns the address of dimension 0 of the token's K. */
INLINE const uint8_t *key_column(const struct kernels_cache *cache, uint32_t token)
{
    return head_block(cache, token) +
           token % cache->kv->block_tokens * compute_kv_element_bytes(cache->kv->dtype);
}

/* The queries of one call and their scores. */
struct scores {
    /* [tile][dimensions of a key][QK_ROWS]: one tile after the other. */
    const float *queries;
    float *values;   /* [query][stride]: the scores s, later the weights p. */
    uint32_t origin; /* Token of the first score: a multiple of VECTOR_LANES. */
    size_t stride;
    uint32_t count; /* Number of queries. */
};

/* Computes the scores of the tile `q`, which has `rows` queries, for `vectors` × `lanes` tokens. K
 * of vector c begins at keys[c]. `step`: bytes from one dimension of K to the next. `ahead`:
 * `vectors` addresses to prefetch; NULL = none. `stride`: floats in `out` from one query to the
 * next. */
INLINE void qk_tile(enum compute_kv_dtype dtype, uint32_t rows, uint32_t vectors, uint32_t lanes,
                    uint32_t dim, size_t step, const uint8_t *const *keys,
                    const uint8_t *const *ahead, const float *q, float *out, size_t stride)
{
    vec s[QK_ROWS][QK_VECTORS];
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < vectors; c++)
            s[r][c] = v_zero();
    for (uint32_t d = 0; d < dim; d++) {
        vec k[QK_VECTORS];
        for (uint32_t c = 0; c < vectors; c++)
            k[c] = kv_load(dtype, keys[c] + d * step, lanes);
        if (ahead != NULL && d * step % 64 == 0)
            for (uint32_t c = 0; c < vectors; c++)
                v_prefetch_l2(ahead[c] + d * step);
        for (uint32_t r = 0; r < rows; r++) {
            vec query = v_set(q[d * QK_ROWS + r]);
            for (uint32_t c = 0; c < vectors; c++)
                s[r][c] = v_fma(query, k[c], s[r][c]);
        }
    }
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < vectors; c++) {
            if (lanes == VECTOR_LANES)
                v_store(out + r * stride + c * VECTOR_LANES, s[r][c]);
            else
                v_store_part(out + r * stride + c * VECTOR_LANES, s[r][c], lanes);
        }
}

/* Calls qk_tile with `rows` as a constant, so that the accumulators are kept in registers. */
INLINE void qk_rows(enum compute_kv_dtype dtype, uint32_t rows, uint32_t vectors, uint32_t lanes,
                    uint32_t dim, size_t step, const uint8_t *const *keys,
                    const uint8_t *const *ahead, const float *q, float *out, size_t stride)
{
#define QK_CASE(n)                                                                                 \
    case n:                                                                                        \
        qk_tile(dtype, n, vectors, lanes, dim, step, keys, ahead, q, out, stride);                 \
        break
    switch (rows) {
#if QK_ROWS == 6
        QK_CASE(6);
        QK_CASE(5);
        QK_CASE(4);
#endif
#if QK_ROWS >= 3
        QK_CASE(3);
        QK_CASE(2);
#endif
        QK_CASE(1);
    }
#undef QK_CASE
}

/* Computes the scores of all queries for tokens [token, token + vectors * lanes). Prefetches K of
 * later tokens, but only of tokens before ahead_limit. */
INLINE void qk_columns(const struct kernels_cache *cache, enum compute_kv_dtype dtype,
                       uint32_t token, uint32_t vectors, uint32_t lanes, uint32_t ahead_limit,
                       const struct scores *scores)
{
    const struct compute_kv *kv = cache->kv;
    const uint8_t *keys[QK_VECTORS], *ahead[QK_VECTORS];
    size_t step = (size_t)kv->block_tokens * compute_kv_element_bytes(dtype);
    bool prefetch = token + AHEAD_TOKENS + vectors * lanes <= ahead_limit;
    for (uint32_t c = 0; c < vectors; c++) {
        keys[c] = key_column(cache, token + c * lanes);
        ahead[c] = prefetch ? key_column(cache, token + AHEAD_TOKENS + c * lanes) : NULL;
    }
    for (uint32_t i = 0; i < scores->count; i += QK_ROWS) {
        uint32_t rows = scores->count - i < QK_ROWS ? scores->count - i : QK_ROWS;
        const uint32_t dim = compute_kv_key_dim(kv);
        const float *q = scores->queries + (size_t)i * dim;
        float *out = scores->values + i * scores->stride + (token - scores->origin);
        if (prefetch)
            qk_rows(dtype, rows, vectors, lanes, dim, step, keys, ahead, q, out, scores->stride);
        else
            qk_rows(dtype, rows, vectors, lanes, dim, step, keys, NULL, q, out, scores->stride);
    }
}

/* Computes the scores of all queries for tokens [first, tokens), rounded out to whole vectors of
 * tokens. With `decode`, also prefetches, unless a vector has 8 tokens. */
INLINE void qk_all(const struct kernels_cache *cache, enum compute_kv_dtype dtype, uint32_t first,
                   uint32_t tokens, bool decode, const struct scores *scores)
{
    uint32_t ahead_limit = decode ? tokens : 0, token = scores->origin;
    if (cache->kv->block_tokens % VECTOR_LANES != 0) {
        token = first / (VECTOR_LANES / 2) * (VECTOR_LANES / 2);
        for (; token < tokens; token += VECTOR_LANES / 2)
            qk_columns(cache, dtype, token, 1, VECTOR_LANES / 2, 0, scores);
        return;
    }
    /* The last vector may extend beyond `tokens`, but never beyond its block. */
    uint32_t padded = (tokens + VECTOR_LANES - 1) / VECTOR_LANES * VECTOR_LANES;
#if QK_VECTORS == 4
    for (; token + 4 * VECTOR_LANES <= padded; token += 4 * VECTOR_LANES)
        qk_columns(cache, dtype, token, 4, VECTOR_LANES, ahead_limit, scores);
    for (; token + 2 * VECTOR_LANES <= padded; token += 2 * VECTOR_LANES)
        qk_columns(cache, dtype, token, 2, VECTOR_LANES, ahead_limit, scores);
#endif
    for (; token < padded; token += VECTOR_LANES)
        qk_columns(cache, dtype, token, 1, VECTOR_LANES, ahead_limit, scores);
}

/* Turns the scores of one query into weights: scores [first, tokens) become p, the other entries up
 * to `padded` become 0. Returns 1 / z. cap: 0 = none. sink: -infinity = none. */
static float softmax_row(float *row, uint32_t first, uint32_t tokens, uint32_t padded, float cap,
                         float sink)
{
    const uint32_t begin = first / VECTOR_LANES * VECTOR_LANES;
    uint32_t whole = tokens / VECTOR_LANES * VECTOR_LANES, t;
    vec lane_max = v_set(-INFINITY), sum = v_zero();
    for (t = begin; cap != 0 && t < tokens; t += VECTOR_LANES)
        v_store(row + t, v_mul(v_tanh(v_div(v_load(row + t), v_set(cap))), v_set(cap)));
    for (t = tokens; t < padded; t++)
        row[t] = -INFINITY;
    for (t = begin; t < first; t++)
        row[t] = -INFINITY;
    for (t = begin; t < tokens; t += VECTOR_LANES)
        lane_max = v_max(lane_max, v_load(row + t));
    const float row_max = v_fold_max(lane_max);
    vec max = v_set(sink > row_max ? sink : row_max);
    for (t = 0; t < begin; t += VECTOR_LANES)
        v_store(row + t, v_zero());
    if (first > begin) {
        const uint32_t lanes = lanes_at(t, tokens);
        vec p = v_keep(v_drop(v_exp(v_sub(v_load(row + t), max)), first - begin), lanes);
        v_store(row + t, p);
        sum = v_add(sum, p);
        t += VECTOR_LANES;
    }
    for (; t < whole; t += VECTOR_LANES) {
        vec p = v_exp(v_sub(v_load(row + t), max));
        v_store(row + t, p);
        sum = v_add(sum, p);
    }
    if (t < tokens) {
        vec p = v_keep(v_exp(v_sub(v_load(row + t), max)), tokens - t);
        v_store(row + t, p);
        sum = v_add(sum, p);
        t += VECTOR_LANES;
    }
    for (; t < padded; t += VECTOR_LANES)
        v_store(row + t, v_zero());
    if (sink == -INFINITY)
        return 1.0f / v_fold_add(sum);
    float of_sink[VECTOR_LANES];
    v_store(of_sink, v_exp(v_sub(v_set(sink), max)));
    return 1.0f / (v_fold_add(sum) + of_sink[0]);
}

/* Tokens [first, end) whose V a tile reads. origin: the token that p[0] belongs to. */
struct pv_range {
    uint32_t first, end, origin;
};

/* Computes o = p·V times inverse[query] (1 / z) for `rows` queries and `vectors` vectors of `lanes`
 * dimensions, from dimension `first` on. `stride`: floats in p from one query to the next. With
 * `decode`, also prefetches. */
INLINE void pv_tile(const struct kernels_cache *cache, enum compute_kv_dtype dtype, uint32_t rows,
                    uint32_t vectors, uint32_t lanes, uint32_t first, struct pv_range seen,
                    bool decode, const float *p, size_t stride, const float *inverse, float *out)
{
    const struct compute_kv *kv = cache->kv;
    const uint32_t dim = kv->head_dim, block_tokens = kv->block_tokens;
    const size_t element = compute_kv_element_bytes(dtype), step = dim * element;
    const size_t skip = (size_t)dim * block_tokens * element + first * element; /* Past K. */
    vec o[PV_ROWS][PV_VECTORS];
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < vectors; c++)
            o[r][c] = v_zero();
    for (uint32_t begin = seen.first / block_tokens * block_tokens; begin < seen.end;
         begin += block_tokens) {
        const uint8_t *values = head_block(cache, begin) + skip, *ahead = values;
        uint32_t end = seen.end - begin < block_tokens ? seen.end - begin : block_tokens;
        const float *weights = p + (ptrdiff_t)begin - (ptrdiff_t)seen.origin;
        if (decode && begin + AHEAD_TOKENS < seen.end)
            ahead = head_block(cache, begin + AHEAD_TOKENS) + skip;
        for (uint32_t t = seen.first > begin ? seen.first - begin : 0; t < end; t++) {
            vec v[PV_VECTORS];
            for (uint32_t c = 0; c < vectors; c++)
                v[c] = kv_load(dtype, values + t * step + c * VECTOR_LANES * element, lanes);
            if (decode)
                for (uint32_t b = 0; b < vectors * VECTOR_LANES * element; b += 64)
                    v_prefetch_l2(ahead + t * step + b);
            for (uint32_t r = 0; r < rows; r++)
                for (uint32_t c = 0; c < vectors; c++)
                    o[r][c] = v_fma(v_set(weights[r * stride + t]), v[c], o[r][c]);
        }
    }
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < vectors; c++) {
            vec scaled = v_mul(o[r][c], v_set(inverse[r]));
            float *to = out + (size_t)r * dim + first + c * VECTOR_LANES;
            if (lanes == VECTOR_LANES)
                v_store(to, scaled);
            else
                v_store_part(to, scaled, lanes);
        }
}

/* Calls pv_tile with `rows` as a constant, so that the accumulators are kept in registers. */
INLINE void pv_rows(const struct kernels_cache *cache, enum compute_kv_dtype dtype, uint32_t rows,
                    uint32_t vectors, uint32_t lanes, uint32_t first, struct pv_range seen,
                    bool decode, const float *p, size_t stride, const float *inverse, float *out)
{
#define PV_CASE(n)                                                                                 \
    case n:                                                                                        \
        pv_tile(cache, dtype, n, vectors, lanes, first, seen, decode, p, stride, inverse, out);    \
        break
    switch (rows) {
#if PV_ROWS == 6
        PV_CASE(6);
        PV_CASE(5);
        PV_CASE(4);
#endif
#if PV_ROWS >= 3
        PV_CASE(3);
        PV_CASE(2);
#endif
        PV_CASE(1);
    }
#undef PV_CASE
}

/* Computes o of all queries over a latent cache. `inverse`: [query], 1 / z. `block`: memory for V
 * of one block as fp32, [token][dimension]. */
static void latent_pv(const struct kernels_cache *cache, const struct scores *scores,
                      uint32_t first_position, uint32_t heads, uint32_t window,
                      const float *inverse, float *block, float *out)
{
    const struct compute_kv *kv = cache->kv;
    const uint32_t dim = kv->latent, key_only_dims = 2 * kv->head_dim - dim,
                   tokens = kv->block_tokens;
    const uint32_t last = first_position + (scores->count - 1) / heads;
    const size_t element = compute_kv_element_bytes(kv->dtype);
    memset(out, 0, (size_t)scores->count * dim * sizeof(float));
    for (uint32_t begin = attention_first(first_position, window) / tokens * tokens; begin <= last;
         begin += tokens) {
        const uint8_t *keys = head_block(cache, begin);
        const uint32_t stored = last + 1 - begin < tokens ? last + 1 - begin : tokens;
        for (uint32_t d = 0; d < dim; d++)
            for (uint32_t t = 0; t < stored; t++) {
                const uint8_t *at = keys + ((size_t)(key_only_dims + d) * tokens + t) * element;
                block[(size_t)t * dim + d] = kv->dtype == COMPUTE_KV_F32
                                                 ? *(const float *)at
                                                 : half_from_f16(*(const uint16_t *)at);
            }
        for (uint32_t i = 0; i < scores->count; i++) {
            const uint32_t position = first_position + i / heads;
            const uint32_t first = attention_first(position, window);
            const uint32_t end = position + 1 < begin + stored ? position + 1 : begin + stored;
            const float *p = scores->values + i * scores->stride;
            for (uint32_t t = first > begin ? first : begin; t < end; t++)
                for (uint32_t d = 0; d < dim; d += VECTOR_LANES) {
                    const uint32_t lanes = lanes_at(d, dim);
                    float *to = out + (size_t)i * dim + d;
                    vec v = v_load_part(block + (size_t)(t - begin) * dim + d, lanes);
                    v = v_fma(v_set(p[t - scores->origin]), v, v_load_part(to, lanes));
                    v_store_part(to, v, lanes);
                }
        }
    }
    for (uint32_t i = 0; i < scores->count; i++)
        for (uint32_t d = 0; d < dim; d += VECTOR_LANES) {
            float *to = out + (size_t)i * dim + d;
            const uint32_t lanes = lanes_at(d, dim);
            v_store_part(to, v_mul(v_load_part(to, lanes), v_set(inverse[i])), lanes);
        }
}

/* kernels.attention for one type of cache, F16 or F32. */
INLINE void attention_typed(const struct kernels_cache *cache, enum compute_kv_dtype dtype,
                            uint32_t first_position, uint32_t rows, uint32_t heads,
                            const struct compute_attention *parameters, const float *q,
                            size_t q_stride, float *scratch, float *out)
{
    const uint32_t dim = compute_kv_key_dim(cache->kv), queries = rows * heads;
    const uint32_t tokens = first_position + rows;
    const size_t padded_queries = ((size_t)queries + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    const uint32_t begin = attention_first(first_position, parameters->window);
    float *packed = scratch;
    struct scores scores = {.queries = packed, .count = queries};
    scores.origin = begin / VECTOR_LANES * VECTOR_LANES;
    scores.stride = kernels_score_stride(dtype, tokens - scores.origin);
    scores.values = scratch + padded_queries * dim;
    float *latent = scratch + kernels_scratch_floats(cache->kv, queries, tokens - scores.origin) -
                    kernels_latent_floats(cache->kv, padded_queries);
    for (uint32_t i = 0; i < queries; i++) {
        const float *from = q + i / heads * q_stride + (size_t)(i % heads) * dim;
        float *to = packed + (size_t)(i / QK_ROWS) * QK_ROWS * dim + i % QK_ROWS;
        for (uint32_t d = 0; d < dim; d++)
            to[(size_t)d * QK_ROWS] = from[d] * parameters->scale;
    }
    qk_all(cache, dtype, begin, tokens, rows == 1, &scores);

    uint32_t padded = (tokens + VECTOR_LANES - 1) / VECTOR_LANES * VECTOR_LANES - scores.origin;
    for (uint32_t i = 0; i < queries; i += PV_ROWS) {
        uint32_t count = queries - i < PV_ROWS ? queries - i : PV_ROWS, first = 0;
        float inverse[PV_ROWS];
        for (uint32_t r = 0; r < count; r++) {
            const uint32_t position = first_position + (i + r) / heads, head = (i + r) % heads;
            const float *sinks = parameters->sinks;
            inverse[r] =
                softmax_row(scores.values + (i + r) * scores.stride,
                            attention_first(position, parameters->window) - scores.origin,
                            position + 1 - scores.origin, padded, parameters->cap,
                            sinks == NULL ? -INFINITY : sinks[cache->kv_head * heads + head]);
        }
        if (cache->kv->latent != 0) {
            memcpy(latent + i, inverse, count * sizeof(*latent));
            continue;
        }
        /* The tile's last row sees the latest token, the first row sees the earliest token. */
        const struct pv_range seen = {
            .first = attention_first(first_position + i / heads, parameters->window),
            .end = first_position + (i + count - 1) / heads + 1,
            .origin = scores.origin};
        const float *p = scores.values + i * scores.stride;
        float *to = out + (size_t)i * dim;
        for (; first + PV_VECTORS * VECTOR_LANES <= dim; first += PV_VECTORS * VECTOR_LANES)
            pv_rows(cache, dtype, count, PV_VECTORS, VECTOR_LANES, first, seen, rows == 1, p,
                    scores.stride, inverse, to);
        for (; first + VECTOR_LANES <= dim; first += VECTOR_LANES)
            pv_rows(cache, dtype, count, 1, VECTOR_LANES, first, seen, rows == 1, p, scores.stride,
                    inverse, to);
        if (first < dim)
            pv_rows(cache, dtype, count, 1, dim - first, first, seen, rows == 1, p, scores.stride,
                    inverse, to);
    }
    if (cache->kv->latent != 0)
        latent_pv(cache, &scores, first_position, heads, parameters->window, latent,
                  latent + padded_queries, out);
}

/* kernels.attention for all types of cache. */
static void attention_run(const struct kernels_cache *cache, uint32_t first_position, uint32_t rows,
                          uint32_t heads, const struct compute_attention *parameters,
                          const float *q, size_t q_stride, float *scratch, float *out)
{
    const enum compute_kv_dtype dtype = cache->kv->dtype;
    if (dtype == COMPUTE_KV_F16)
        attention_typed(cache, COMPUTE_KV_F16, first_position, rows, heads, parameters, q, q_stride,
                        scratch, out);
    else if (dtype == COMPUTE_KV_F32)
        attention_typed(cache, COMPUTE_KV_F32, first_position, rows, heads, parameters, q, q_stride,
                        scratch, out);
    else
        attention_fixed(cache, first_position, rows, heads, parameters, q, q_stride, scratch, out);
}

/* kernels.store for a latent cache. Not inlined, so that attention_store saves fewer registers. */
static __attribute__((noinline)) void store_latent(const struct compute_kv *kv, uint8_t *block,
                                                   uint32_t token, const float *x)
{
    if (kv->dtype == COMPUTE_KV_I16)
        store_fixed_latent(kv, COMPUTE_KV_I16, block, token, x);
    else if (kv->dtype == COMPUTE_KV_I8)
        store_fixed_latent(kv, COMPUTE_KV_I8, block, token, x);
    else
        rows_store_latent(kv, block, token, x);
}

/* kernels.store for all types of cache. */
static void attention_store(const struct compute_kv *kv, uint8_t *head_block, uint32_t token,
                            const float *k, const float *v)
{
    if (kv->latent != 0)
        store_latent(kv, head_block, token, k);
    else if (kv->dtype == COMPUTE_KV_I16)
        store_fixed(kv, COMPUTE_KV_I16, head_block, token, k, v);
    else if (kv->dtype == COMPUTE_KV_I8)
        store_fixed(kv, COMPUTE_KV_I8, head_block, token, k, v);
    else
        rows_store(kv, head_block, token, k, v);
}

#endif
