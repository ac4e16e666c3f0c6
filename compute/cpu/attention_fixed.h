/* attention_fixed: attention over a cache of integers (COMPUTE_KV_I16, COMPUTE_KV_I8). attention.h
 * includes this header. attention_run (attention.h) calls attention_fixed; attention_part and
 * attention_join are in struct kernels. The device's threads call the functions, which have no
 * state; the caller passes scratch memory. store_fixed.h, not this header, writes the cache.
 *
 * Prompts and decodes compute the formulas below, so they give the same bits. In the formulas, Q,
 * K, V and p are integers, and a sum in parentheses is the float nearest to the exact integer sum:
 *
 * - The cache holds k = ks * K and v = vs * V (store_fixed.h). q is rounded to qs * Q, |Q| ≤ 4095,
 *   with qs from the greatest |q|; qs is then multiplied by the scale of attention.
 * - s[t] is computed over 64 dimensions at a time, in order: s[t] = fma((Σ Q[d] K[d][t]), ks[t],
 *   s[t]).
 * - For each segment of 512 tokens (which starts at a multiple of 512):
 *    m    = the greatest s[t] of the tokens that the row sees
 *    e[t] = 2^max(fma(s[t], c, -(m * c)), -86) with c = qs / ln 2 (fixed_exp2)
 *    z    = Σ e, in lanes as in attention.h
 *    w[t] = e[t] * vs[t]; each group of 64 tokens (which starts at a multiple of 64) is rounded to
 *           ws * p, |p| ≤ 4095, with ws from the greatest w of the group
 *    o[d] = fma((Σ p[t] V[t][d]), ws, o[d]), one group of 64 tokens at a time, in order
 *    Then m is multiplied by qs.
 * - Segments are joined in order. The segments that are already joined have m, z and o, the next
 *   segment has m', z' and o'. With M = max(m, m'), a = exp(m - M), b = exp(m' - M):
 *    z = fma(z, a, z' * b), o = fma(o, a, o' * b), m = M. At the end o is multiplied by 1 / z.
 * - A cap replaces s[t] by cap * tanh(s[t] * (qs / cap)), and then qs by 1, before m is computed.
 * - A sink is joined last, as a segment with m' = sink, z' = 1 and o' = 0.
 * - A latent cache (compute/kv.h) has two scales per token: the first for the dimensions before the
 *   values, the second for the dimensions of the values. s[t] is computed over the dimensions
 *   before the values, then over the dimensions of the values, 64 dimensions at a time. vs is the
 *   second scale.
 * - Tokens that the row does not see (later tokens, and tokens before the row's window) have e = w
 *   = 0. Segments without a token that the row sees are not joined.
 *
 * The integers |K| and |V| are at most 8191, so every sum is at most 64 * 8191 * 4095, which is
 * below 2^31. */
#ifndef COMPUTE_CPU_ATTENTION_FIXED_H
#define COMPUTE_CPU_ATTENTION_FIXED_H

#include "compute/cpu/rows.h"
#include "compute/cpu/store_fixed.h"

#define FIXED_DIMS          64 /* Dimensions of one exact sum of scores. */
#define FIXED_GROUP         64 /* Tokens of one exact sum of values; their weights share a scale. */
#define FIXED_GROUP_VECTORS (FIXED_GROUP / VECTOR_LANES)    /* Vectors of a group. */
#define FIXED_GROUPS        (KERNELS_SEGMENT / FIXED_GROUP) /* Groups of a segment. */
static_assert(KERNELS_SEGMENT % FIXED_GROUP == 0, "groups do not cross segments");
#define FIXED_QUERY        4095.0f /* Greatest |Q|. */
#define FIXED_WEIGHT       4095.0f /* Greatest |p|. */
#define FIXED_LOG2_E       0x1.715476p+0f
#define FIXED_EXPONENT_MIN -86.0f /* Least exponent of e: subnormal numbers would be slow. */
#define FIXED_V_CHUNK      128    /* Tokens whose V stays in the L1 cache for all queries. */
/* Queries whose scores stay in the L1 cache from q·K to p·V. */
#define FIXED_BAND 12
static_assert(FIXED_BAND % QK_ROWS == 0 && FIXED_BAND % PV_ROWS == 0, "tiles do not cross bands");

/* A call with at most FIXED_DECODE_ROWS rows is a decode: it reads KV that is not in the CPU's
 * caches. Its first tile of queries prefetches, except over a latent cache: while the tile works on
 * a unit (struct fixed_unit), it prefetches the unit that is FIXED_AHEAD places later in the order
 * of reading (fixed_ahead_at). With units of 8 tokens, only p·V prefetches. */
#define FIXED_AHEAD       8
#define FIXED_DECODE_ROWS 17

/* Loads `lanes` pairs of integers of the cache, widened to 16 bits. */
INLINE ivec fixed_load(enum compute_kv_dtype dtype, const uint8_t *p, uint32_t lanes)
{
    if (dtype == COMPUTE_KV_I8)
        return lanes == VECTOR_LANES ? v_load_pairs8((const int8_t *)p)
                                     : v_load_pairs8_part((const int8_t *)p, lanes);
    return lanes == VECTOR_LANES ? v_load_pairs((const int16_t *)p)
                                 : v_load_pairs_part((const int16_t *)p, lanes);
}

/* Returns the first position that a row at `position` sees. window: 0 = no window. */
INLINE uint32_t attention_first(uint32_t position, uint32_t window)
{
    return window != 0 && position >= window ? position + 1 - window : 0;
}

/* A unit: the addresses of 16 tokens of one KV head in one block, or of 8 tokens if the number of
 * tokens in a block is no multiple of 16. */
struct fixed_unit {
    const uint8_t *scales; /* Scales of K. The block's scales of V follow its scales of K. */
    const uint8_t *keys;
    const uint8_t *values;
};

/* State of one call of attention. The arrays are in the call's scratch memory, except that
 * attention_part has `score_max` and `sum` in its result, `part`. A band is a job with some of the
 * queries, whose scores stay in the L1 cache (fixed_band). "The segment" is the part of a segment
 * that struct fixed_span describes. */
struct fixed_job {
    uint32_t dim;       /* Dimensions of a key. */
    uint32_t value_dim; /* Dimensions of a value. */
    uint32_t block_tokens;
    uint32_t first_query; /* Index in the call of the band's first query. */
    uint32_t queries;     /* Number of queries. */
    uint32_t tokens;      /* Tokens of the segment, up to the last that a query sees. */
    uint32_t window;      /* See struct compute_attention. */
    uint32_t padded;      /* `tokens` rounded up to whole vectors. */
    uint32_t nan_v;       /* First token whose vs is NaN; UINT32_MAX = none. */
    uint32_t unit_tokens; /* Tokens of a unit: 16 or 8. */
    uint32_t unit_count;  /* Units of the segment. */
    /* The segment's units, then FIXED_AHEAD units that decode reads next. */
    struct fixed_unit *units;
    int32_t *packed;  /* Q in pairs, [query][dim / 2]. */
    float *q_scale;   /* [query]: qs. */
    float *scores;    /* [query][stride]: s; later weights, as 16-bit integers. */
    float *w_scale;   /* [query][FIXED_GROUPS]: ws. */
    float *v_scale;   /* [token]: vs. */
    uint8_t *values;  /* A latent cache's V of the segment (fixed_latent_values). */
    float *score_max; /* [query]: m. */
    float *sum;       /* [query]: z. */
    size_t stride;    /* Floats from one query's scores to the next. */
};

/* Addresses that a decode prefetches while it works on a unit: one vector for each vector that it
 * loads. */
struct fixed_ahead {
    const uint8_t *scales; /* Prefetched once. */
    const uint8_t *vector; /* The next vector to prefetch. */
    size_t step;           /* Bytes from one vector to the next. */
};

/* Returns what to prefetch for place `read_index` in the order of reading: K of all units of the
 * segment, then V of all units, then K of the units that are read after the segment. */
INLINE struct fixed_ahead fixed_ahead_at(const struct fixed_job *job, enum compute_kv_dtype dtype,
                                         uint32_t read_index)
{
    const size_t pair = 2 * compute_kv_element_bytes(dtype);
    const struct fixed_unit *unit = job->units;
    const uint32_t count = job->unit_count;
    if (read_index >= count && read_index < 2 * count) {
        unit += read_index - count;
        return (struct fixed_ahead){unit->values, unit->values, VECTOR_LANES * pair};
    }
    unit += read_index < count ? read_index : read_index - count;
    return (struct fixed_ahead){unit->scales, unit->keys, job->block_tokens * pair};
}

/* Computes the scores of `rows` queries for `vectors` vectors of `lanes` tokens, over `pairs` pairs
 * of dimensions. step: bytes from one pair of K to the next. ahead: addresses to prefetch; NULL =
 * none. q: Q, with q_step pairs from one query to the next. first_dims: replaces the scores in
 * `out`; false = adds to these scores. k_scale: ks. stride: floats in `out` from one query to the
 * next. */
INLINE void fixed_qk_tile(enum compute_kv_dtype dtype, uint32_t rows, uint32_t vectors,
                          uint32_t lanes, uint32_t pairs, size_t step, const uint8_t *const *keys,
                          const struct fixed_ahead *ahead, const int32_t *q, size_t q_step,
                          bool first_dims, const vec *k_scale, float *out, size_t stride)
{
    ivec s[QK_ROWS][QK_VECTORS];
    ROWS_UNROLL
    for (uint32_t r = 0; r < rows; r++)
        ROWS_UNROLL
    for (uint32_t c = 0; c < vectors; c++)
        s[r][c] = v_int_zero();
    for (uint32_t d = 0; d < pairs; d++) {
        ivec k[QK_VECTORS];
        ROWS_UNROLL
        for (uint32_t c = 0; c < vectors; c++) {
            k[c] = fixed_load(dtype, keys[c] + d * step, lanes);
            if (ahead != NULL)
                v_prefetch_l2(ahead[c].vector + d * ahead[c].step);
        }
        ROWS_UNROLL
        for (uint32_t r = 0; r < rows; r++) {
            ivec one = v_int_set(q[r * q_step + d]);
            ROWS_UNROLL
            for (uint32_t c = 0; c < vectors; c++)
                s[r][c] = v_dot_pairs(s[r][c], k[c], one);
        }
    }
    ROWS_UNROLL
    for (uint32_t r = 0; r < rows; r++, out += stride)
        ROWS_UNROLL
    for (uint32_t c = 0; c < vectors; c++) {
        vec before = v_zero();
        if (!first_dims)
            before = v_load(out + c * VECTOR_LANES);
        /* If a unit is half a vector, this also writes to the place of the next unit's scores,
         * which are written later. */
        v_store(out + c * VECTOR_LANES, v_fma(v_int_float(s[r][c]), k_scale[c], before));
    }
}

/* Calls fixed_qk_tile with `rows` as a constant, so that the accumulators are kept in registers. */
INLINE void fixed_qk_rows(enum compute_kv_dtype dtype, uint32_t rows, uint32_t vectors,
                          uint32_t lanes, uint32_t pairs, size_t step, const uint8_t *const *keys,
                          const struct fixed_ahead *ahead, const int32_t *q, size_t q_step,
                          bool first_dims, const vec *k_scale, float *out, size_t stride)
{
#define FIXED_QK_CASE(n)                                                                           \
    case n:                                                                                        \
        fixed_qk_tile(dtype, n, vectors, lanes, pairs, step, keys, ahead, q, q_step, first_dims,   \
                      k_scale, out, stride);                                                       \
        break
    switch (rows) {
#if QK_ROWS == 6
        FIXED_QK_CASE(6);
        FIXED_QK_CASE(5);
        FIXED_QK_CASE(4);
#endif
#if QK_ROWS >= 3
        FIXED_QK_CASE(3);
        FIXED_QK_CASE(2);
#endif
        FIXED_QK_CASE(1);
    }
#undef FIXED_QK_CASE
}

/* Computes the scores of all queries for `vectors` units of `lanes` tokens, from `unit` on. */
INLINE void fixed_qk_units(const struct fixed_job *job, enum compute_kv_dtype dtype, bool decode,
                           bool latent, uint32_t unit, uint32_t vectors, uint32_t lanes)
{
    const uint32_t pairs = job->dim / 2, key_only_pairs = (job->dim - job->value_dim) / 2;
    const size_t step = (size_t)job->block_tokens * 2 * compute_kv_element_bytes(dtype);
    struct fixed_ahead ahead[QK_VECTORS];
    const uint8_t *keys[QK_VECTORS];
    vec k_scale[QK_VECTORS], latent_scale[QK_VECTORS];
    for (uint32_t c = 0; c < vectors; c++) {
        if (latent)
            latent_scale[c] = v_load_bf16_part(
                (const uint16_t *)job->units[unit + c].scales + job->block_tokens, lanes);
        k_scale[c] = v_load_bf16_part((const uint16_t *)job->units[unit + c].scales, lanes);
        if (decode) {
            ahead[c] = fixed_ahead_at(job, dtype, unit + c + FIXED_AHEAD);
            v_prefetch_l2(ahead[c].scales);
        }
    }
    for (uint32_t i = 0; i < job->queries; i += QK_ROWS) {
        uint32_t rows = job->queries - i < QK_ROWS ? job->queries - i : QK_ROWS;
        const int32_t *q = job->packed + (size_t)i * pairs;
        float *out = job->scores + i * job->stride + (size_t)unit * lanes;
        for (uint32_t c = 0; c < vectors; c++)
            keys[c] = job->units[unit + c].keys;
        for (uint32_t d = 0, count; d < pairs; d += count) {
            count = pairs - d < FIXED_DIMS / 2 ? pairs - d : FIXED_DIMS / 2;
            if (latent && d < key_only_pairs && key_only_pairs - d < count)
                count = key_only_pairs - d;
            fixed_qk_rows(dtype, rows, vectors, lanes, count, step, keys, decode ? ahead : NULL,
                          q + d, pairs, d == 0,
                          latent && d >= key_only_pairs ? latent_scale : k_scale, out, job->stride);
            for (uint32_t c = 0; c < vectors; c++) {
                keys[c] += count * step;
                ahead[c].vector += decode ? count * ahead[c].step : 0;
            }
        }
    }
}

/* Computes the scores of all queries for the segment. With `decode`, also prefetches, unless a unit
 * has 8 tokens. */
INLINE void fixed_qk(const struct fixed_job *job, enum compute_kv_dtype dtype, bool decode,
                     bool latent)
{
    uint32_t unit = 0;
    if (job->unit_tokens != VECTOR_LANES) {
        for (; unit < job->unit_count; unit++)
            fixed_qk_units(job, dtype, false, latent, unit, 1, VECTOR_LANES / 2);
        return;
    }
    /* The last unit may extend beyond `tokens`, but never beyond its block. */
#if QK_VECTORS == 4
    for (; unit + 4 <= job->unit_count; unit += 4)
        fixed_qk_units(job, dtype, decode, latent, unit, 4, VECTOR_LANES);
#endif
    for (; unit < job->unit_count; unit++)
        fixed_qk_units(job, dtype, decode, latent, unit, 1, VECTOR_LANES);
}

#include "compute/cpu/attention_softmax.h"
#include "compute/cpu/attention_values.h"

/* Joins the next segment's result of query i (next_o, next_most and next_sum are o', m' and z') to
 * the result of the earlier segments (o, most and sum are o, m and z). */
static void fixed_join(uint32_t i, uint32_t dim, float *o, float *most, float *sum,
                       const float *next_o, const float *next_most, const float *next_sum)
{
    const float greatest = next_most[i] > most[i] ? next_most[i] : most[i];
    const vec a = v_exp(v_set(most[i] - greatest)), b = v_exp(v_set(next_most[i] - greatest));
    v_store_part(sum + i, v_fma(v_set(sum[i]), a, v_mul(v_set(next_sum[i]), b)), 1);
    most[i] = greatest;
    for (uint32_t d = i * dim; d < (i + 1) * dim; d += VECTOR_LANES) {
        uint32_t lanes = lanes_at(d, (i + 1) * dim);
        vec added = v_mul(v_load_part(next_o + d, lanes), b);
        v_store_part(o + d, v_fma(v_load_part(o + d, lanes), a, added), lanes);
    }
}

/* Multiplies o of each query by 1 / z. */
static void fixed_finish(uint32_t queries, uint32_t dim, const float *sum, float *o)
{
    for (uint32_t i = 0; i < queries; i++)
        for (uint32_t d = 0; d < dim; d += VECTOR_LANES) {
            uint32_t lanes = lanes_at(d, dim);
            float *to = o + (size_t)i * dim + d;
            v_store_part(to, v_mul(v_load_part(to, lanes), v_set(1.0f / sum[i])), lanes);
        }
}

/* Rounds the queries to integers: writes job->packed and job->q_scale. */
static void fixed_pack(const struct fixed_job *job, uint32_t heads, float scale, const float *q,
                       size_t q_stride)
{
    const uint32_t dim = job->dim;
    for (uint32_t i = 0; i < job->queries; i++) {
        const float *from = q + i / heads * q_stride + (size_t)(i % heads) * dim;
        int16_t *to = (int16_t *)(job->packed + (size_t)i * (dim / 2));
        /* Rows are far apart, so no hardware prefetcher follows them: prefetches two rows ahead. */
        for (uint32_t d = 0; i + 2 * heads < job->queries && d < dim; d += VECTOR_LANES)
            v_prefetch_l2(from + 2 * q_stride + d);
        float magnitude = fixed_magnitude(from, dim), inverse = 0;
        job->q_scale[i] = isnan(magnitude) ? NAN : 0;
        if (magnitude >= FIXED_SMALL) {
            job->q_scale[i] = magnitude / FIXED_QUERY * scale;
            inverse = FIXED_QUERY / magnitude;
        }
        /* The unused lanes of the last vector are written beyond the end of this query. They do no
         * harm, because the next query or, after the last query, the scores are written later. */
        for (uint32_t d = 0; d < dim; d += VECTOR_LANES) {
            vec a = v_load_part(from + d, lanes_at(d, dim));
            v_round_store16(to + d, inverse == 0 ? v_zero() : v_mul(a, v_set(inverse)));
        }
    }
}

/* Returns the unit of KV head `kv_head` that begins with token `token`. */
INLINE struct fixed_unit fixed_unit_at(const struct kernels_cache *cache,
                                       enum compute_kv_dtype dtype, uint32_t kv_head,
                                       uint32_t token)
{
    const struct compute_kv *kv = cache->kv;
    const size_t element = compute_kv_element_bytes(dtype), dim = kv->head_dim;
    const uint32_t tokens = kv->block_tokens, t = token % tokens;
    const uint8_t *block = (const uint8_t *)kv->base +
                           cache->blocks[token / tokens] * kv->block_bytes +
                           kv_head * tokens * compute_kv_token_bytes(kv->head_dim, dtype);
    const uint8_t *keys = block + (size_t)tokens * 4;
    return (struct fixed_unit){.scales = block + (size_t)t * 2,
                               .keys = keys + t * 2 * element,
                               .values = keys + (tokens + t) * dim * element};
}

/* Fills job->units with the addresses of tokens [begin, end), without reading the cache. Units
 * before the unit of token `first` get the addresses of that unit, because a window may have passed
 * their own blocks. */
INLINE void fixed_find(struct fixed_job *job, const struct kernels_cache *cache,
                       enum compute_kv_dtype dtype, uint32_t begin, uint32_t end, uint32_t first)
{
    struct fixed_unit *to = job->units;
    job->tokens = end - begin;
    job->padded = (job->tokens + VECTOR_LANES - 1) / VECTOR_LANES * VECTOR_LANES;
    first = first / job->unit_tokens * job->unit_tokens;
    for (uint32_t t = begin; t < end; t += job->unit_tokens)
        *to++ = fixed_unit_at(cache, dtype, cache->kv_head, t > first ? t : first);
    job->unit_count = (uint32_t)(to - job->units);
}

/* Fills job->v_scale with the scales of V, and sets job->nan_v. In a decode, call this function
 * after fixed_qk, which prefetches the scales. */
INLINE void fixed_scales(struct fixed_job *job)
{
    vec poison = v_zero();
    for (uint32_t i = 0; i < job->unit_count; i++) {
        const uint32_t t = i * job->unit_tokens, left = job->tokens - t;
        const uint8_t *v_scale = job->units[i].scales + (size_t)job->block_tokens * 2;
        vec scales = v_load_bf16_part((const uint16_t *)v_scale,
                                      left < job->unit_tokens ? left : job->unit_tokens);
        poison = v_fma(scales, v_zero(), poison);
        v_store(job->v_scale + t, scales);
    }
    job->nan_v = UINT32_MAX;
    if (v_fold_add(poison) == 0)
        return;
    for (job->nan_v = 0; !isnan(job->v_scale[job->nan_v]);)
        job->nan_v++;
}

/* Appends to job->units the FIXED_AHEAD units that the thread probably reads after the segment that
 * ends at `end`: units of the next segment, of the next KV head, or of the next sequence. */
static void fixed_find_next(struct fixed_job *job, const struct kernels_cache *cache,
                            enum compute_kv_dtype dtype, uint32_t end, uint32_t tokens)
{
    struct kernels_cache next = *cache;
    uint32_t token = end;
    if (end >= tokens) {
        if (++next.kv_head == cache->kv->head_count) {
            next.kv_head = 0;
            next.blocks = cache->next_blocks != NULL ? cache->next_blocks : cache->blocks;
            tokens = cache->next_blocks != NULL ? cache->next_tokens : tokens;
        }
        token = attention_first(tokens - 1, job->window) / job->unit_tokens * job->unit_tokens;
    }
    for (uint32_t i = 0; i < FIXED_AHEAD; i++) {
        uint32_t t = token + i * job->unit_tokens < tokens ? token + i * job->unit_tokens : token;
        job->units[job->unit_count + i] = fixed_unit_at(&next, dtype, next.kv_head, t);
    }
}

/* Returns a job whose arrays are in `scratch`, which has kernels_scratch_floats() floats. */
INLINE struct fixed_job fixed_open(const struct compute_kv *kv, uint32_t queries, uint32_t window,
                                   float *scratch)
{
    const size_t padded = ((size_t)queries + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    struct fixed_job job = {.dim = compute_kv_key_dim(kv),
                            .value_dim = compute_kv_value_dim(kv),
                            .queries = queries,
                            .window = window};
    job.block_tokens = kv->block_tokens;
    job.unit_tokens = job.block_tokens % VECTOR_LANES == 0 ? VECTOR_LANES : VECTOR_LANES / 2;
    job.stride = kernels_score_stride(kv->dtype, 0);
    job.packed = (int32_t *)scratch;
    job.scores = scratch + padded * (job.dim / 2);
    job.v_scale = job.scores + padded * job.stride;
    job.units = (struct fixed_unit *)(job.v_scale + job.stride);
    job.w_scale = job.v_scale + 2 * job.stride;
    job.q_scale = job.w_scale + padded * FIXED_GROUPS;
    job.score_max = job.q_scale + padded;
    job.sum = job.score_max + padded;
    job.values = (uint8_t *)(scratch + kernels_scratch_floats(kv, queries, 0) -
                             kernels_latent_floats(kv, padded));
    return job;
}

/* Defines name_qk and name_pv: separate functions, so that the compiler keeps values in registers.
 */
#define FIXED_PRODUCTS(name, dtype, decode)                                                        \
    static void name##_qk(const struct fixed_job *job)                                             \
    {                                                                                              \
        fixed_qk(job, dtype, decode, false);                                                       \
    }                                                                                              \
    static void name##_pv(const struct fixed_job *job, uint32_t first_position, uint32_t heads,    \
                          uint32_t position, float *out)                                           \
    {                                                                                              \
        fixed_pv(job, dtype, decode, first_position, heads, position, out);                        \
    }

FIXED_PRODUCTS(fixed_i16_prompt, COMPUTE_KV_I16, false)
FIXED_PRODUCTS(fixed_i16_decode, COMPUTE_KV_I16, true)
FIXED_PRODUCTS(fixed_i8_prompt, COMPUTE_KV_I8, false)
FIXED_PRODUCTS(fixed_i8_decode, COMPUTE_KV_I8, true)

static void fixed_i16_latent_qk(const struct fixed_job *job)
{
    fixed_qk(job, COMPUTE_KV_I16, false, true);
}

static void fixed_i8_latent_qk(const struct fixed_job *job)
{
    fixed_qk(job, COMPUTE_KV_I8, false, true);
}

/* Copies V of a segment of a latent cache to `to`, in the layout of a cache with K and V, in which
 * the values of two tokens in one dimension are neighbours. Sets the units' `values`. */
static void fixed_latent_values(struct fixed_job *job, enum compute_kv_dtype dtype, uint8_t *to)
{
    const uint32_t tokens = job->unit_tokens, dim = job->value_dim;
    const size_t element = compute_kv_element_bytes(dtype), pair = 2 * element;
    const size_t step = job->block_tokens * pair;
    for (uint32_t i = 0; i < job->unit_count; i++, to += tokens * dim * element) {
        const uint8_t *keys = job->units[i].keys + (job->dim - dim) / 2 * step;
        job->units[i].values = to;
        for (uint32_t d = 0; d < dim; d += 2, keys += step)
            for (uint32_t t = 0; t < tokens; t += 2) {
                uint8_t *at = to + ((size_t)t / 2 * dim + d) * pair;
                const uint8_t *from = keys + t * pair;
                memcpy(at, from, element);
                memcpy(at + element, from + pair, element);
                memcpy(at + pair, from + element, element);
                memcpy(at + pair + element, from + pair + element, element);
            }
    }
}

/* Returns the band of up to `most` queries from query `first` on, for the segment that begins at
 * position `begin`. The band's `tokens` end at the position of the last query; 0 = the last query
 * is before the segment, so no query of the band sees a token of the segment. */
static struct fixed_job fixed_band(const struct fixed_job *job, uint32_t first_position,
                                   uint32_t heads, uint32_t begin, uint32_t first, uint32_t most)
{
    struct fixed_job band = *job;
    band.first_query = first;
    band.queries = job->queries - first < most ? job->queries - first : most;
    band.tokens =
        fixed_view_end(first_position, heads, first + band.queries - 1, begin, job->tokens);
    band.padded = (band.tokens + VECTOR_LANES - 1) / VECTOR_LANES * VECTOR_LANES;
    band.unit_count = (band.tokens + job->unit_tokens - 1) / job->unit_tokens;
    band.packed += (size_t)first * (job->dim / 2);
    band.q_scale += first;
    band.score_max += first;
    band.sum += first;
    return band;
}

/* Turns the scores of a band into integer weights. */
static void fixed_band_softmax(const struct fixed_job *band, uint32_t first_position,
                               uint32_t heads, uint32_t begin, float cap)
{
    for (uint32_t i = 0; i < band->queries; i++) {
        const struct fixed_view view = fixed_view_of(band, first_position, heads, i, begin);
        if (cap != 0)
            fixed_cap(band, i, view, cap);
        fixed_greatest_score(band, i, view);
    }
    for (uint32_t i = 0; i < band->queries; i++)
        fixed_softmax(band, i, fixed_view_of(band, first_position, heads, i, begin),
                      cap != 0 ? 1 : band->q_scale[i]);
}

/* The tokens [begin, end) of a segment that a call computes. `begin` is the first token of the
 * segment or of the group that has token `first`, whichever is later. */
struct fixed_span {
    uint32_t begin, end, first; /* first: the first token that the call's first row sees. */
};

/* Returns the tokens to compute of the segment that begins at position `begin`, for rows at
 * positions first_position to tokens - 1. */
INLINE struct fixed_span fixed_span_of(uint32_t begin, uint32_t first_position, uint32_t tokens,
                                       uint32_t window)
{
    struct fixed_span span = {.begin = begin};
    span.end = tokens - begin < KERNELS_SEGMENT ? tokens : begin + KERNELS_SEGMENT;
    span.first = attention_first(first_position, window);
    if (span.first / FIXED_GROUP * FIXED_GROUP > begin)
        span.begin = span.first / FIXED_GROUP * FIXED_GROUP;
    return span;
}

/* Computes one segment: writes o to `out`, m to job->score_max and z to job->sum. With `decode`,
 * the first tile of queries prefetches, except over a latent cache. */
static void fixed_segment(struct fixed_job *job, const struct kernels_cache *cache, bool decode,
                          uint32_t first_position, uint32_t heads, struct fixed_span span,
                          float cap, float *out)
{
    static void (*const qk[2][3])(const struct fixed_job *) = {
        {fixed_i16_prompt_qk, fixed_i16_decode_qk, fixed_i16_latent_qk},
        {fixed_i8_prompt_qk, fixed_i8_decode_qk, fixed_i8_latent_qk}};
    static void (*const pv[2][2])(const struct fixed_job *, uint32_t, uint32_t, uint32_t,
                                  float *) = {{fixed_i16_prompt_pv, fixed_i16_decode_pv},
                                              {fixed_i8_prompt_pv, fixed_i8_decode_pv}};
    const enum compute_kv_dtype dtype = cache->kv->dtype;
    const bool latent = cache->kv->latent != 0;
    decode = decode && !latent;
    fixed_find(job, cache, dtype, span.begin, span.end, span.first);
    if (latent)
        fixed_latent_values(job, dtype, job->values);
    if (decode)
        fixed_find_next(job, cache, dtype, span.end, first_position + job->queries / heads);
    else
        fixed_scales(job);
    for (uint32_t first = 0, most; first < job->queries; first += most) {
        const bool reads = decode && first == 0;
        most = reads ? TILE_ROWS : FIXED_BAND;
        struct fixed_job band = fixed_band(job, first_position, heads, span.begin, first, most);
        if (band.tokens > 0)
            qk[dtype == COMPUTE_KV_I8][latent ? 2 : reads](&band);
        if (reads)
            fixed_scales(job);
        band.nan_v = job->nan_v;
        if (band.tokens == 0)
            continue;
        fixed_band_softmax(&band, first_position, heads, span.begin, cap);
        pv[dtype == COMPUTE_KV_I8][reads](&band, first_position, heads, span.begin,
                                          out + (size_t)first * job->value_dim);
    }
}

/* Joins a sink to the result of each query of one KV head. sinks: [heads]; most: m; sum: z. */
static void fixed_sinks(const float *sinks, uint32_t queries, uint32_t heads, uint32_t dim,
                        float *most, float *sum, float *o)
{
    for (uint32_t i = 0; i < queries; i++) {
        const float sink = sinks[i % heads], greatest = sink > most[i] ? sink : most[i];
        const vec a = v_exp(v_set(most[i] - greatest)), b = v_exp(v_set(sink - greatest));
        v_store_part(sum + i, v_fma(v_set(sum[i]), a, b), 1);
        most[i] = greatest;
        for (uint32_t d = i * dim; d < (i + 1) * dim; d += VECTOR_LANES) {
            uint32_t lanes = lanes_at(d, (i + 1) * dim);
            v_store_part(o + d, v_mul(v_load_part(o + d, lanes), a), lanes);
        }
    }
}

/* Joins the results of a segment (o in `next`, m and z in `job`) to the earlier results of the
 * queries that see a token of the segment. For the call's first segment, next == out. */
static void fixed_join_seen(const struct fixed_job *job, uint32_t first_position, uint32_t heads,
                            struct fixed_span span, const float *next, float *out, float *most,
                            float *sum)
{
    const size_t bytes = job->value_dim * sizeof(float);
    for (uint32_t i = 0; i < job->queries; i++) {
        const uint32_t end = first_position + i / heads + 1;
        const uint32_t first = attention_first(end - 1, job->window);
        if (end <= span.begin || first >= span.end)
            continue;
        if (first < span.begin) {
            fixed_join(i, job->value_dim, out, most, sum, next, job->score_max, job->sum);
            continue;
        }
        if (next != out) /* The query's first segment. */
            memcpy(out + (size_t)i * job->value_dim, next + (size_t)i * job->value_dim, bytes);
        most[i] = job->score_max[i];
        sum[i] = job->sum[i];
    }
}

/* kernels.attention for integer caches. `out` is [rows × heads][value_dim]. */
static void attention_fixed(const struct kernels_cache *cache, uint32_t first_position,
                            uint32_t rows, uint32_t heads,
                            const struct compute_attention *parameters, const float *q,
                            size_t q_stride, float *scratch, float *out)
{
    const uint32_t tokens = first_position + rows, dim = compute_kv_value_dim(cache->kv);
    struct fixed_job job = fixed_open(cache->kv, rows * heads, parameters->window, scratch);
    const size_t padded = (size_t)(job.sum - job.score_max);
    float *most = job.sum + padded, *sum = most + padded, *next = sum + padded;
    const uint32_t first_begin =
        attention_first(first_position, parameters->window) / KERNELS_SEGMENT * KERNELS_SEGMENT;
    fixed_pack(&job, heads, parameters->scale, q, q_stride);
    for (uint32_t begin = first_begin; begin < tokens; begin += KERNELS_SEGMENT) {
        const struct fixed_span span =
            fixed_span_of(begin, first_position, tokens, parameters->window);
        float *to = begin == first_begin ? out : next;
        fixed_segment(&job, cache, rows <= FIXED_DECODE_ROWS, first_position, heads, span,
                      parameters->cap, to);
        fixed_join_seen(&job, first_position, heads, span, to, out, most, sum);
    }
    if (parameters->sinks != NULL)
        fixed_sinks(parameters->sinks + (size_t)cache->kv_head * heads, job.queries, heads, dim,
                    most, sum, out);
    fixed_finish(job.queries, dim, sum, out);
}

/* kernels.attention_part. Writes to `part` o of all heads, [heads][value_dim], then m of each head,
 * then z of each head. */
static void attention_part(const struct kernels_cache *cache, uint32_t position, uint32_t heads,
                           const struct compute_attention *parameters, const float *q,
                           uint32_t segment, float *scratch, float *part)
{
    struct fixed_job job = fixed_open(cache->kv, heads, parameters->window, scratch);
    job.score_max = part + (size_t)heads * job.value_dim;
    job.sum = job.score_max + heads;
    fixed_pack(&job, heads, parameters->scale, q, 0);
    fixed_segment(
        &job, cache, true, position, heads,
        fixed_span_of(segment * KERNELS_SEGMENT, position, position + 1, parameters->window),
        parameters->cap, part);
}

/* kernels.attention_join. Writes o of the heads to parts[0..heads × dim). */
static void attention_join(uint32_t heads, uint32_t dim, uint32_t count, size_t stride,
                           const float *sinks, float *parts)
{
    float *most = parts + (size_t)heads * dim, *sum = most + heads;
    for (uint32_t k = 1; k < count; k++) {
        const float *next = parts + k * stride, *next_most = next + (size_t)heads * dim;
        for (uint32_t i = 0; i < heads; i++)
            fixed_join(i, dim, parts, most, sum, next, next_most, next_most + heads);
    }
    if (sinks != NULL)
        fixed_sinks(sinks, heads, heads, dim, most, sum, parts);
    fixed_finish(heads, dim, sum, parts);
}

#endif
