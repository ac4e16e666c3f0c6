/* isa_avx2: AVX2 with FMA and F16C. The integer GEMM works on 8 rows of W at a time (half a panel).
 * Dot products of unsigned by signed bytes go through vpmaddubsw, whose 16-bit sums saturate: they
 * are widened before they could (see DOTS_MAX). */
#include "compute/cpu/vector_avx2.h"

#include "compute/cpu/attention.h"
#include "compute/cpu/gemm_float.h"
#include "compute/cpu/product.h"

/* A product sum of two: at most 2 * 127 * the greatest quant; so many of them fit into 16 bits:
 * nibbles 15: 8 × 3810; Q5_K 31: 4 × 7874; Q6_K 63: 2 × 16002; Q8_0 |-128|: 1 × 32512. */
INLINE uint32_t dots_max(enum kernels_form form)
{
    return layout_nibbles(form)         ? 8
           : form == FORM_BYTE_F32_MIN  ? 4
           : form == FORM_BYTE_F32_HALF ? 2
                                        : 1;
}

INLINE __m256i half_quants(bool nibbles, const uint8_t *half, uint32_t g)
{
    if (!nibbles)
        return _mm256_load_si256((const __m256i *)(half + layout_vector_offset(0, g)));
    __m256i packed = _mm256_load_si256((const __m256i *)(half + layout_vector_offset(0, g % 4)));
    if (g >= 4)
        packed = _mm256_srli_epi16(packed, 4);
    return _mm256_and_si256(packed, _mm256_set1_epi8(15));
}

/* Pairs of products in 16 bits. Q8_0's stored quants are q + 128: signs move to the activations, so
 * that no pair exceeds 2 * 128 * 127. */
INLINE __m256i dot_pairs(enum kernels_form form, __m256i w, const int8_t *quants)
{
    int32_t four;
    memcpy(&four, quants, sizeof(four));
    __m256i a = _mm256_set1_epi32(four);
    if (form != FORM_BYTE_F16)
        return _mm256_maddubs_epi16(w, a);
    __m256i q = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
    return _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(a, q));
}

/* Columns [4 * first, 4 * last) as 8 exact sums. */
INLINE __m256i dot_range(enum kernels_form form, const uint8_t *half, const int8_t *quants,
                         uint32_t first, uint32_t last)
{
    const bool nibbles = layout_nibbles(form);
    const uint32_t run = dots_max(form);
    __m256i sum = _mm256_setzero_si256(), ones = _mm256_set1_epi16(1);
    for (uint32_t g = first; g < last; g += run) {
        __m256i pairs = dot_pairs(form, half_quants(nibbles, half, g), quants + g * 4);
        for (uint32_t i = 1; i < run; i++) {
            __m256i w = half_quants(nibbles, half, g + i);
            pairs = _mm256_add_epi16(pairs, dot_pairs(form, w, quants + (g + i) * 4));
        }
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    return sum;
}

/* The same of both planes, and less the offset: `minus_sum` is of the quants of these columns. */
INLINE __m256i dot_planes(enum kernels_form form, const uint8_t *half,
                          const struct kernels_block *a, const struct kernels_low *low, uint32_t r,
                          uint32_t first, uint32_t last, int32_t minus_sum)
{
    /* dot_pairs has Q8_0's quants signed already */
    const int32_t offset = form == FORM_BYTE_F16 ? 0 : layout_offset(form);
    __m256i sum = dot_range(form, half, a->quants[r], first, last);
    if (__builtin_expect(a->refined[r], 0))
        sum = _mm256_add_epi32(_mm256_slli_epi32(sum, 8),
                               dot_range(form, half, low->quants[r], first, last));
    return offset == 0 ? sum : _mm256_add_epi32(sum, _mm256_set1_epi32(offset * minus_sum));
}

INLINE __m256 add_product(__m256i sum, __m256 d, float scale, __m256 f)
{
    __m256 p = _mm256_mul_ps(d, _mm256_set1_ps(scale));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), p, f);
}

INLINE __m256 half_scales(bool wide, const uint8_t *scales, uint32_t lane)
{
    if (wide)
        return _mm256_loadu_ps((const float *)scales + lane);
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((const uint16_t *)scales + lane)));
}

/* Eight rows of W (`eight` = 0 … 3 in the group) in one block. */
INLINE void eight_block(enum kernels_form form, const uint8_t *block, uint32_t eight,
                        const struct kernels_block *a, const struct kernels_low *low, uint32_t rows,
                        __m256 *f)
{
    const uint32_t panel = eight / 2, lane = eight % 2 * 8;
    const bool wide = layout_scales_wide(form);
    const uint32_t second = PANEL_ROWS * (wide ? 4 : 2);
    const uint8_t *half = block + layout_vector_offset(panel, 0) + lane * 4;
    const uint8_t *scales = block + layout_scales_offset(form, panel);
    __m256 d = half_scales(wide, scales, lane);
    if (form == FORM_BYTE_F32_HALF) {
        __m256 last = half_scales(wide, scales + second, lane);
        for (uint32_t r = 0; r < rows; r++) {
            int32_t minus_last = a->minus_sum[1][r], minus_first = a->minus_sum[0][r] - minus_last;
            f[r] = add_product(dot_planes(form, half, a, low, r, 0, 4, minus_first), d, a->scale[r],
                               f[r]);
            f[r] = add_product(dot_planes(form, half, a, low, r, 4, 8, minus_last), last,
                               a->scale[r], f[r]);
        }
        return;
    }
    __m256 m = layout_min(form) ? half_scales(wide, scales + second, lane) : _mm256_setzero_ps();
    for (uint32_t r = 0; r < rows; r++) {
        f[r] = add_product(dot_planes(form, half, a, low, r, 0, 8, a->minus_sum[0][r]), d,
                           a->scale[r], f[r]);
        if (layout_min(form))
            f[r] = _mm256_fmadd_ps(m, _mm256_set1_ps(a->scaled_sum[r]), f[r]);
    }
}

#define AHEAD_BYTES (8 * 1024)

INLINE void gemm_rows(enum kernels_form form, const struct kernels_product *p, const uint8_t *group,
                      size_t first, uint32_t rows, bool prefetch, float out[TILE_ROWS][GROUP_ROWS])
{
    const size_t block_bytes = layout_block_bytes(form);
    for (uint32_t eight = 0; eight < 4; eight++) {
        const uint8_t *block = group;
        __m256 f[TILE_ROWS];
        for (uint32_t r = 0; r < rows; r++)
            f[r] = _mm256_setzero_ps();
        for (uint32_t b = 0; b < p->blocks; b++, block += block_bytes) {
            if (prefetch && eight == 0)
                for (size_t i = 0; i < block_bytes; i += 64)
                    v_prefetch(block + AHEAD_BYTES + i);
            eight_block(form, block, eight, &p->tiles[first + b], product_low(p, first + b), rows,
                        f);
        }
        for (uint32_t r = 0; r < rows; r++)
            _mm256_storeu_ps(out[r] + eight * 8, f[r]);
    }
}

#define GEMM_CASE(form, n)                                                                         \
    case n:                                                                                        \
        gemm_rows(form, p, group, first, n, prefetch, out);                                        \
        break

/* One function per form, one tile per number of rows. */
#define GEMM_FORM(name, form)                                                                      \
    static void name(const struct kernels_product *p, const uint8_t *group, size_t first,          \
                     uint32_t rows, bool prefetch, float out[TILE_ROWS][GROUP_ROWS])               \
    {                                                                                              \
        switch (rows) {                                                                            \
            GEMM_CASE(form, 1);                                                                    \
            GEMM_CASE(form, 2);                                                                    \
            GEMM_CASE(form, 3);                                                                    \
            GEMM_CASE(form, 4);                                                                    \
            GEMM_CASE(form, 5);                                                                    \
            GEMM_CASE(form, 6);                                                                    \
        }                                                                                          \
    }

GEMM_FORM(gemm_q4_0, FORM_NIBBLE_F16)
GEMM_FORM(gemm_q4_1, FORM_NIBBLE_F16_MIN)
GEMM_FORM(gemm_q4_k, FORM_NIBBLE_F32_MIN)
GEMM_FORM(gemm_q8_0, FORM_BYTE_F16)
GEMM_FORM(gemm_q5_k, FORM_BYTE_F32_MIN)
GEMM_FORM(gemm_q6_k, FORM_BYTE_F32_HALF)

static void gemm_quantised(const struct kernels_product *p)
{
    static const product_tile tiles[FORM_QUANTISED_COUNT] = {
        [FORM_NIBBLE_F16] = gemm_q4_0,     [FORM_NIBBLE_F16_MIN] = gemm_q4_1,
        [FORM_NIBBLE_F32_MIN] = gemm_q4_k, [FORM_BYTE_F16] = gemm_q8_0,
        [FORM_BYTE_F32_MIN] = gemm_q5_k,   [FORM_BYTE_F32_HALF] = gemm_q6_k,
    };
    product_run(p, tiles[p->form]);
}

static const struct kernels_floats floats = {
    .name = "", .gemm = gemm_float, .rounded_bytes = 4, .round = round_bf16};

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .gemm_quantised = gemm_quantised,
    .floats = &floats,
    .quantise = rows_quantise,
    .norm = rows_norm,
    .silu_mul = rows_silu_mul,
    .rope = rows_rope,
    .store = attention_store,
    .attention = attention_run,
};
