/* panel_avx512: reads the weights of a panel (kernels.h) into AVX-512 registers, and writes a row's
 * results. gemm_avx512.c and gemm_amx.c include this header. The functions have no state; any
 * thread may call them. `s` and `form` are constants where the functions are called. */
#ifndef COMPUTE_CPU_PANEL_AVX512_H
#define COMPUTE_CPU_PANEL_AVX512_H

#include "compute/cpu/vector_avx512.h"

#include "compute/cpu/product.h"

#define INLINE static inline __attribute__((always_inline))

/* Both panels of a block, with a byte for each quant. In products of many rows, each group is
 * unpacked into such blocks once, and not once per tile. */
struct unpacked {
    _Alignas(64) uint8_t quants[8][2][64]; /* [vector][panel]; of unpacked_form. */
    /* [half of the columns][panel]. Without scales of halves, the first is that of the block. */
    float scale[2][2][PANEL_ROWS];
    float min[2][2][PANEL_ROWS]; /* Only if the form has minima. */
};

struct shape {
    enum kernels_form form;
    bool unpacked; /* True: a block is a struct unpacked, and `form` is an unpacked_form. */
    uint32_t rows; /* Rows of the tile. */
    bool refined;  /* Some row has a second plane. */
    /* The product's codes plus 128, as unsigned bytes, in each 128 bits; and its factor. */
    __m512i codes;
    float factor;
};

/* Makes the compiler load again what was loaded before. gcc would otherwise load and unpack a
 * block's quants ahead of a branch, or once for two planes, and keep 16 vectors on the stack. */
INLINE void forget_loads(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Moves bit `from` of each byte, and the bits above it, to bit `to`; bits of other bytes may
 * follow.
 */
INLINE __m512i bits_move(__m512i v, uint32_t from, uint32_t to)
{
    return from < to   ? _mm512_slli_epi16(v, to - from)
           : from > to ? _mm512_srli_epi16(v, from - to)
                       : v;
}

/* Vector g of a panel's quants as unsigned bytes: g = 0 … 7, four columns each. */
INLINE __m512i panel_quants(struct shape s, const uint8_t *block, uint32_t panel, uint32_t g)
{
    if (s.unpacked)
        return _mm512_load_si512(((const struct unpacked *)block)->quants[g][panel]);
    const uint32_t low = layout_low_vectors(s.form); /* Also the bits below the high bits. */
    const bool two = layout_two_bits(s.form), high_two = layout_high_bits(s.form) == 2;
    const uint32_t vector = layout_is_bytes(s.form) ? g : two ? g / 4 : g % 4;
    __m512i packed = _mm512_load_si512(block + layout_vector_offset(panel, vector));
    if (layout_is_bytes(s.form))
        return packed;
    packed = bits_move(packed, two ? g % 4 * 2 : g / 4 * 4, 0);
    packed = _mm512_and_si512(packed, _mm512_set1_epi8(two ? 3 : 15));
    if (layout_high_bits(s.form) != 0) {
        const __m512i mask = _mm512_set1_epi8((char)((high_two ? 3 : 1) << low));
        __m512i high =
            _mm512_load_si512(block + layout_vector_offset(panel, high_two ? low + g / 4 : low));
        high = bits_move(high, high_two ? g % 4 * 2 : g, low);
        packed = _mm512_ternarylogic_epi32(packed, high, mask, 0xf8); /* packed | (high & mask) */
    }
    return layout_has_codes(s.form) ? _mm512_shuffle_epi8(s.codes, packed) : packed;
}

/* Numbers of 16 bits of a panel's rows. */
INLINE vec panel_floats(enum kernels_form form, const uint8_t *numbers)
{
    if (form == FORM_CODE_BF16)
        return _mm512_castsi512_ps(_mm512_slli_epi32(
            _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)numbers)), 16));
    return v_load_f16((const uint16_t *)numbers);
}

INLINE vec panel_units(struct shape s, const uint8_t *header, uint32_t panel, uint32_t i)
{
    vec units = panel_floats(s.form, header + layout_units_offset(s.form, panel, i));
    return layout_has_codes(s.form) ? v_mul(units, v_set(s.factor)) : units;
}

/* Scales of half `half` of the columns. */
INLINE vec panel_scales(struct shape s, const uint8_t *header, const uint8_t *block, uint32_t panel,
                        uint32_t half)
{
    if (s.unpacked)
        return v_load(((const struct unpacked *)block)->scale[half][panel]);
    const uint8_t *scales = block + layout_scales_offset(s.form, panel);
    if (!layout_two_level(s.form))
        return panel_floats(s.form, scales);
    __m128i bytes = _mm_load_si128((const __m128i *)(scales + half * PANEL_ROWS));
    if (layout_has_halves(s.form) && layout_has_min(s.form))
        bytes = _mm_and_si128(bytes, _mm_set1_epi8(15));
    __m512i values =
        layout_scales_signed(s.form) ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
    return v_mul(panel_units(s, header, panel, 0), _mm512_cvtepi32_ps(values));
}

/* Minima of half `half` of the columns. */
INLINE vec panel_minima(struct shape s, const uint8_t *header, const uint8_t *block, uint32_t panel,
                        uint32_t half)
{
    if (s.unpacked)
        return v_load(((const struct unpacked *)block)->min[half][panel]);
    const uint8_t *scales = block + layout_scales_offset(s.form, panel);
    if (!layout_two_level(s.form))
        return panel_floats(s.form, scales + (size_t)PANEL_ROWS * 2);
    const bool halves = layout_has_halves(s.form);
    __m512i values = _mm512_cvtepu8_epi32(
        _mm_load_si128((const __m128i *)(scales + (halves ? half : 1) * PANEL_ROWS)));
    if (halves)
        values = _mm512_srli_epi32(values, 4);
    return v_mul(panel_units(s, header, panel, 1), _mm512_cvtepi32_ps(values));
}

/* The number that panel_quants adds to each weight: 0 or a power of two. */
INLINE uint32_t quants_offset(enum kernels_form form)
{
    return layout_has_codes(form) ? 128 : (uint32_t)layout_quant_offset(form);
}

/* Writes 16 results of one row, of which `lanes` exist. */
INLINE void result_write(const struct kernels_product *p, uint32_t output, uint32_t lanes, float *y,
                         vec f)
{
    const __mmask16 mask = v_mask(lanes);
    if (p->bias != NULL)
        f = v_add(f, _mm512_maskz_loadu_ps(mask, p->bias + output));
    if (p->adds_to_y)
        f = v_add(_mm512_maskz_loadu_ps(mask, y + output), f);
    _mm512_mask_storeu_ps(y + output, mask, f);
}

/* Returns the product's codes plus 128, in each 128 bits. */
INLINE __m512i codes_load(enum kernels_form form, const struct kernels_product *p)
{
    if (!layout_has_codes(form))
        return _mm512_setzero_si512();
    return _mm512_xor_si512(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p->codes)),
                            _mm512_set1_epi8((char)0x80));
}

/* Returns the form that a form's unpacked blocks are multiplied as: one with the same scales and
 * minima. Without minima, 128 is added to each quant. */
INLINE enum kernels_form unpacked_form(enum kernels_form form)
{
    if (layout_has_min(form))
        return layout_has_halves(form) ? FORM_TWO_SUPER : FORM_NIBBLE_F16_MIN;
    return layout_has_halves(form) ? FORM_THREE_SUPER : FORM_BYTE_F16;
}

#endif
