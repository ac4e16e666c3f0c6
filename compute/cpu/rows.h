/* rows: kernels on rows of fp32: quantisation, RMSNorm, LayerNorm, SiLU, GELU, a cap, rotary
 * embedding, and the writing of K and V as floats. isa_portable.c, isa_avx2.c and isa_avx512.c
 * include this header after their vector header, and put functions rows_X into their tables as
 * kernels.X (isa_avx512.c has another kernels.quantise, see quantise_avx512.h); kernels.h defines
 * the results. attention_store (attention.h) calls rows_store and rows_store_latent. Any thread may
 * call the functions, which have no state. The operations and their order, and so the bits of the
 * results, are the same on every instruction set (ISA). Products and attention are in other
 * headers. */
#ifndef COMPUTE_CPU_ROWS_H
#define COMPUTE_CPU_ROWS_H

#include "compute/cpu/kernels.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* ROWS_EACH is a loop over i < count; ROWS_UNROLL stands before other loops over vectors. Where a
 * vec is in registers, both macros unroll the loop, so that the vectors stay in registers. */
#ifdef VECTOR_REGISTERS
#define ROWS_UNROLL         _Pragma("GCC unroll 6")
#define ROWS_EACH(i, count) _Pragma("GCC unroll 16") for (uint32_t i = 0; i < (count); i++)
#else
#define ROWS_UNROLL
#define ROWS_EACH(i, count) for (uint32_t i = 0; i < (count); i++)
#endif

#define ROWS_EXP_VECTORS 8      /* Most vectors of one call of v_exp_each. */
#define ROWS_EXP_LEAST   -86.0f /* Below -87.3, e^x is no normal number. */

/* Replaces `count` ≤ ROWS_EXP_VECTORS vectors x by e^x, within about 1 ulp. `least` is
 * ROWS_EXP_LEAST: an x below -86 counts as -86, and an x above 86 as 86. NaN stays NaN. The result
 * is 2^n e^r with |r| ≤ ln 2 / 2. e^r is computed as 1 + r + r² c(r), with a polynomial c of degree
 * 4 (relative error 2^-28 before rounding). */
INLINE void v_exp_each(vec *x, uint32_t count, float least)
{
    static const float factors[] = {0x1.123a6cp-7f, 0x1.5558f4p-5f, 0x1.555490p-3f,
                                    0x1.fffffcp-2f, 1.0f,           1.0f};
    vec rounded[ROWS_EXP_VECTORS], p[ROWS_EXP_VECTORS];
    ROWS_EACH(i, count)
    {
        x[i] = v_max(v_set(least), x[i]);
        if (least == ROWS_EXP_LEAST)
            x[i] = v_min(v_set(-ROWS_EXP_LEAST), x[i]);
    }
    ROWS_EACH(i, count) rounded[i] = v_fma(x[i], v_set(0x1.715476p+0f), v_set(0x1.8p23f));
    ROWS_EACH(i, count) p[i] = v_sub(rounded[i], v_set(0x1.8p23f));
    ROWS_EACH(i, count) x[i] = v_fma(p[i], v_set(-0x1.62e400p-1f), x[i]);
    ROWS_EACH(i, count) x[i] = v_fma(p[i], v_set(-0x1.7f7d1cp-20f), x[i]);
    ROWS_EACH(i, count) p[i] = v_set(0x1.6a2352p-10f);
    ROWS_EACH(k, 6)
    ROWS_EACH(i, count) p[i] = v_fma(p[i], x[i], v_set(factors[k]));
    ROWS_EACH(i, count) x[i] = v_scale_exponent(p[i], rounded[i]);
}

/* Returns e^x of one vector. */
INLINE vec v_exp(vec x)
{
    v_exp_each(&x, 1, ROWS_EXP_LEAST);
    return x;
}

/* Returns tanh x = (e^2x - 1) / (e^2x + 1), within about 1e-7. */
INLINE vec v_tanh(vec x)
{
    const vec one = v_set(1.0f), e = v_exp(v_add(x, x));
    return v_div(v_sub(e, one), v_add(e, one));
}

/* Returns how many elements of a row of `count` elements are in the vector that begins at element
 * i: VECTOR_LANES, or fewer at the row's end. Requires i < count. */
INLINE uint32_t lanes_at(uint32_t i, uint32_t count)
{
    return count - i < VECTOR_LANES ? count - i : VECTOR_LANES;
}

/* Computes the scale of a block and the inverse of the scale. `bits`: the bits (as fp32) of the
 * block's greatest |x|. `most`: the quant that this |x| becomes. *scale and *inverse are 0 if
 * this |x| is below 2^-96. Returns false, with *scale NaN, if the block has a NaN or an infinity. */
INLINE bool block_scale(uint32_t bits, float most, float *scale, float *inverse)
{
    float amax;
    memcpy(&amax, &bits, sizeof(amax));
    *scale = *inverse = 0;
    if (bits >= 0x7f800000u) { /* The scale makes the results of this row NaN. */
        *scale = NAN;
        return false;
    }
    if (amax >= 0x1p-96f) { /* Then both quotients are normal numbers. */
        *scale = amax / most;
        *inverse = most / amax;
    }
    return true;
}

/* Writes the fields of a block for row `row`, without the quants. first: the sum of the row's first
 * 16 quants; last: the sum of its last 16 quants. */
INLINE void block_describe(struct kernels_block *block, uint32_t row, float scale, int32_t first,
                           int32_t last, bool refined)
{
    block->scale[row] = scale;
    block->scaled_sum[row] = scale * (float)(first + last);
    block->minus_sum[0][row] = -(first + last);
    block->minus_sum[1][row] = -last;
    block->refined[row] = refined;
}

/* Quantises one block of row `row` in one plane. `bits`: see block_scale. */
INLINE void block_quantise(const float *x, uint32_t bits, struct kernels_block *block, uint32_t row)
{
    vec a = v_load(x), b = v_load(x + 16);
    float scale, inverse;
    if (!block_scale(bits, 127.0f, &scale, &inverse))
        a = b = v_zero();
    int32_t first = v_round_store(block->quants[row], v_mul(a, v_set(inverse)));
    int32_t last = v_round_store(block->quants[row] + 16, v_mul(b, v_set(inverse)));
    block_describe(block, row, scale, first, last, false);
}

/* Quantises 16 values in two planes, `high` and `low`. Returns the sum of 256 high + low. */
INLINE int32_t refined_half(int8_t *high, int8_t *low, vec a, float inverse)
{
    const vec magic = v_set(0x1.8p23f), most = v_set(127.0f), least = v_set(-127.0f);
    vec t = v_mul(a, v_set(inverse));
    vec h = v_sub(v_add(v_mul(t, v_set(0x1p-8f)), magic), magic);
    vec l = v_max(least, v_min(most, v_fma(h, v_set(-256.0f), t)));
    return v_round_store(high, h) * 256 + v_round_store(low, l);
}

/* Quantises one block of row `row` in two planes (kernels.h). `bits`: see block_scale. `low`: the
 * second plane. */
static void block_refine(const float *x, uint32_t bits, struct kernels_block *block,
                         struct kernels_second_plane *low, uint32_t row)
{
    vec a = v_load(x), b = v_load(x + 16);
    float scale, inverse;
    if (!block_scale(bits, 32639.0f, &scale, &inverse))
        a = b = v_zero();
    int32_t first = refined_half(block->quants[row], low->quants[row], a, inverse);
    int32_t last = refined_half(block->quants[row] + 16, low->quants[row] + 16, b, inverse);
    block_describe(block, row, scale, first, last, true);
}

/* Returns true if a block whose greatest |x| is `amax` gets a second plane. `sum` is the sum of
 * these amax over the `count` blocks of the row, in order. */
INLINE bool block_refines(float amax, uint32_t count, float sum)
{
    return amax * (float)count >= 3.0f * sum;
}

static void rows_quantise(const float *x, uint32_t count, struct kernels_block *blocks,
                          struct kernels_second_plane *second_planes, uint32_t row)
{
    const uint32_t n = count / 32;
    float sum = 0;
    uint32_t bits;
    for (uint32_t i = 0; i < n; i++) {
        bits = v_magnitude_bits(v_load(x + i * 32), v_load(x + i * 32 + 16));
        /* scale[row] holds amax until the scale is written. */
        memcpy(&blocks[i].scale[row], &bits, sizeof(bits));
        sum += blocks[i].scale[row];
    }
    for (uint32_t i = 0; i < n; i++) {
        memcpy(&bits, &blocks[i].scale[row], sizeof(bits));
        if (second_planes != NULL && block_refines(blocks[i].scale[row], n, sum))
            block_refine(x + i * 32, bits, &blocks[i], &second_planes[i], row);
        else
            block_quantise(x + i * 32, bits, &blocks[i], row);
    }
}

static float rows_squares(const float *x, uint32_t cols)
{
    vec sum = v_zero();
    uint32_t i, whole = cols / VECTOR_LANES * VECTOR_LANES;
    for (i = 0; i < whole; i += VECTOR_LANES) {
        vec a = v_load(x + i);
        sum = v_fma(a, a, sum);
    }
    if (i < cols) {
        vec a = v_load_part(x + i, cols - i);
        sum = v_fma(a, a, sum);
    }
    return v_fold_add(sum);
}

static void rows_weigh(const float *x, uint32_t cols, const float *weight, float factor, float *out)
{
    const vec scale = v_set(factor);
    uint32_t i, whole = cols / VECTOR_LANES * VECTOR_LANES;
    for (i = 0; i < whole; i += VECTOR_LANES)
        v_store(out + i, v_mul(v_mul(v_load(x + i), scale), v_load(weight + i)));
    if (i < cols) {
        vec a = v_mul(v_load_part(x + i, cols - i), scale);
        v_store_part(out + i, v_mul(a, v_load_part(weight + i, cols - i)), cols - i);
    }
}

static void rows_norm(const float *x, uint32_t cols, const float *weight, float epsilon, float *out)
{
    const float mean = rows_squares(x, cols) / (float)cols;
    rows_weigh(x, cols, weight, 1.0f / sqrtf(mean + epsilon), out);
}

static void rows_layer_norm(const float *x, uint32_t cols, const float *weight, const float *bias,
                            float epsilon, float *out)
{
    vec sum = v_zero();
    for (uint32_t i = 0; i < cols; i += VECTOR_LANES)
        sum = v_add(sum, v_load_part(x + i, lanes_at(i, cols)));
    const vec mean = v_set(v_fold_add(sum) / (float)cols);
    for (uint32_t i = 0; i < cols; i += VECTOR_LANES) {
        const uint32_t lanes = lanes_at(i, cols);
        v_store_part(out + i, v_sub(v_load_part(x + i, lanes), mean), lanes);
    }
    rows_norm(out, cols, weight, epsilon, out);
    for (uint32_t i = 0; bias != NULL && i < cols; i++)
        out[i] += bias[i];
}

/* Returns gate / (1 + e^-gate) * up. */
INLINE vec v_silu_mul(vec gate, vec up)
{
    vec one = v_set(1.0f);
    vec denominator = v_add(one, v_exp(v_sub(v_zero(), gate)));
    return v_mul(v_div(gate, denominator), up);
}

/* Computes v_silu_mul of ROWS_EXP_VECTORS vectors. */
INLINE void silu_mul_wide(const float *gate, const float *up, float *out)
{
    vec e[ROWS_EXP_VECTORS];
    ROWS_EACH(k, ROWS_EXP_VECTORS) e[k] = v_sub(v_zero(), v_load(gate + k * VECTOR_LANES));
    v_exp_each(e, ROWS_EXP_VECTORS, ROWS_EXP_LEAST);
    ROWS_EACH(k, ROWS_EXP_VECTORS) e[k] = v_add(v_set(1.0f), e[k]);
    ROWS_EACH(k, ROWS_EXP_VECTORS) e[k] = v_div(v_load(gate + k * VECTOR_LANES), e[k]);
    ROWS_EACH(k, ROWS_EXP_VECTORS)
    v_store(out + k * VECTOR_LANES, v_mul(e[k], v_load(up + k * VECTOR_LANES)));
}

static void rows_silu_mul(const float *gate, const float *up, uint32_t cols, float *out)
{
    const uint32_t wide = ROWS_EXP_VECTORS * VECTOR_LANES;
    uint32_t i, whole = cols / VECTOR_LANES * VECTOR_LANES;
    for (i = 0; i + wide <= cols; i += wide)
        silu_mul_wide(gate + i, up + i, out + i);
    for (; i < whole; i += VECTOR_LANES)
        v_store(out + i, v_silu_mul(v_load(gate + i), v_load(up + i)));
    if (i < cols)
        v_store_part(out + i,
                     v_silu_mul(v_load_part(gate + i, cols - i), v_load_part(up + i, cols - i)),
                     cols - i);
}

/* Returns gate (1 + tanh(u)) / 2 * up, computed as gate / (1 + e^-2u) * up, where
 * u = sqrt(2 / pi) (gate + 0.044715 gate³). */
INLINE vec v_gelu_mul(vec gate, vec up)
{
    vec one = v_set(1.0f), square = v_mul(gate, gate);
    vec slope = v_fma(v_set(-0x1.2444f2p-4f), square, v_set(-0x1.988454p+0f));
    vec denominator = v_add(one, v_exp(v_mul(slope, gate)));
    return v_mul(v_div(gate, denominator), up);
}

/* Returns `lanes` elements of a row from element i on; ones if the row is NULL. */
INLINE vec load_or_ones(const float *row, uint32_t i, uint32_t lanes)
{
    return row != NULL ? v_load_part(row + i, lanes) : v_set(1.0f);
}

static void rows_gelu_mul(const float *gate, const float *up, uint32_t cols, float *out)
{
    for (uint32_t i = 0; i < cols; i += VECTOR_LANES) {
        uint32_t lanes = lanes_at(i, cols);
        v_store_part(out + i, v_gelu_mul(v_load_part(gate + i, lanes), load_or_ones(up, i, lanes)),
                     lanes);
    }
}

/* Returns x (1 + erf(x / sqrt(2))) / 2, within about 2e-7 |x|. Let a = |x|, t = 1 / (1 + 0.4 a /
 * sqrt(2)) and c = e^(-a² / 2) t q(t), which approximates erfc(a / sqrt(2)) / 2. The result is
 * max(x, 0) - a c. The polynomial q has degree 8 (relative error 6e-8 before rounding). */
INLINE vec v_gelu_erf(vec x)
{
    static const float factors[] = {-0x1.111168p-4f, 0x1.1c0ce4p-5f, 0x1.adf5b8p-5f,
                                    0x1.15bfacp-5f,  0x1.96af0cp-4f, 0x1.9ab220p-4f,
                                    0x1.d026f2p-4f,  0x1.ce1338p-4f};
    const vec one = v_set(1.0f), a = v_max(v_sub(v_zero(), x), x);
    const vec t = v_div(one, v_fma(a, v_set(0x1.21a186p-2f), one));
    vec q = v_set(0x1.4653d0p-6f);
    ROWS_EACH(i, 8) q = v_fma(q, t, v_set(factors[i]));
    const vec tail = v_mul(v_exp(v_mul(v_mul(a, a), v_set(-0.5f))), v_mul(t, q));
    return v_sub(v_max(v_zero(), x), v_mul(a, tail));
}

static void rows_gelu_erf_mul(const float *gate, const float *up, uint32_t cols, float *out)
{
    for (uint32_t i = 0; i < cols; i += VECTOR_LANES) {
        uint32_t lanes = lanes_at(i, cols);
        const vec gelu = v_gelu_erf(v_load_part(gate + i, lanes));
        v_store_part(out + i, v_mul(gelu, load_or_ones(up, i, lanes)), lanes);
    }
}

static void rows_cap(float cap, uint32_t count, float *x)
{
    const vec caps = v_set(cap);
    for (uint32_t i = 0; i < count; i += VECTOR_LANES) {
        const uint32_t lanes = lanes_at(i, count);
        v_store_part(x + i, v_mul(v_tanh(v_div(v_load_part(x + i, lanes), caps)), caps), lanes);
    }
}

static void rows_rope(const struct kernels_rope *rope, float *head)
{
    uint32_t half = rope->dim / 2;
    if (half == 0)
        return;
    const float *cosines = rope->table, *sines = rope->table + half;
    if (rope->neox) {
        for (uint32_t i = 0; i < half; i++) {
            float a = head[i], b = head[i + half];
            head[i] = fmaf(a, cosines[i], -(b * sines[i]));
            head[i + half] = fmaf(b, cosines[i], a * sines[i]);
        }
        return;
    }
    for (uint32_t i = 0; i < half; i++) {
        float a = head[2 * i], b = head[2 * i + 1];
        head[2 * i] = fmaf(a, cosines[i], -(b * sines[i]));
        head[2 * i + 1] = fmaf(b, cosines[i], a * sines[i]);
    }
}

/* Writes the vector x of one token into a latent cache of floats. */
static void rows_store_latent(const struct compute_kv *kv, uint8_t *block, uint32_t token,
                              const float *x)
{
    const uint32_t dim = 2 * kv->head_dim, tokens = kv->block_tokens;
    const vec most = v_set(65504.0f), least = v_set(-65504.0f);
    for (uint32_t d = 0; d < dim; d += VECTOR_LANES) {
        const uint32_t lanes = lanes_at(d, dim);
        uint16_t column[VECTOR_LANES];
        v_store_f16_part(column, v_max(least, v_min(most, v_load_part(x + d, lanes))), lanes);
        for (uint32_t i = 0; i < lanes; i++)
            if (kv->dtype == COMPUTE_KV_F32)
                ((float *)block)[(size_t)(d + i) * tokens + token] = x[d + i];
            else
                ((uint16_t *)block)[(size_t)(d + i) * tokens + token] = column[i];
    }
}

/* Writes K and V of one token and one KV head into a cache of floats. */
static void rows_store(const struct compute_kv *kv, uint8_t *head_block, uint32_t token,
                       const float *k, const float *v)
{
    uint32_t dim = kv->head_dim, tokens = kv->block_tokens;
    if (kv->dtype == COMPUTE_KV_F32) {
        float *keys = (float *)head_block;
        for (uint32_t d = 0; d < dim; d++)
            keys[(size_t)d * tokens + token] = k[d];
        memcpy(keys + (size_t)dim * tokens + (size_t)token * dim, v, dim * sizeof(float));
        return;
    }
    /* Values are limited to ±65504. An infinity in the cache would become NaN (0 * infinity) in
     * rows that do not see the token. */
    const vec most = v_set(65504.0f), least = v_set(-65504.0f);
    uint16_t *keys = (uint16_t *)head_block;
    uint16_t *values = keys + (size_t)dim * tokens + (size_t)token * dim;
    for (uint32_t d = 0; d < dim; d += VECTOR_LANES) {
        uint32_t lanes = lanes_at(d, dim);
        uint16_t column[VECTOR_LANES];
        vec key = v_max(least, v_min(most, v_load_part(k + d, lanes)));
        vec value = v_max(least, v_min(most, v_load_part(v + d, lanes)));
        v_store_f16_part(column, key, lanes);
        v_store_f16_part(values + d, value, lanes);
        for (uint32_t i = 0; i < lanes; i++)
            keys[(size_t)(d + i) * tokens + token] = column[i];
    }
}

#endif
