/* unpack: unpacks 32 weights of one matrix row from a group of repacked weights (layout.h), in
 * plain C. isa_portable.c calls unpack_row for its products; matrix.c calls unpack_row for the rows
 * of an embedding matrix. Any thread may call the functions, which have no state and compute no
 * products. */
#ifndef COMPUTE_CPU_UNPACK_H
#define COMPUTE_CPU_UNPACK_H

#include "compute/cpu/layout.h"
#include "compute/half.h"

#include <string.h>

/* 32 weights: weight i is scale[i / 16] * values[i] + min[i / 16]. */
struct unpacked {
    int32_t values[32];
    float scale[2];
    float min[2];
};

/* Returns the quant in row `row` and column `col` of a block. `quants`: the panel's quants. */
static inline uint32_t unpack_quant(enum kernels_form form, const uint8_t *quants, uint32_t row,
                                    uint32_t col)
{
    const uint32_t g = col / 4, byte = row * 4 + col % 4, low = layout_low_vectors(form);
    const uint32_t pair = g % 4 * 2;
    uint32_t quant;
    if (layout_is_bytes(form))
        return quants[layout_vector_offset(0, g) + byte];
    if (layout_two_bits(form))
        quant = quants[layout_vector_offset(0, g / 4) + byte] >> pair & 3u;
    else
        quant = quants[layout_vector_offset(0, g % 4) + byte] >> g / 4 * 4 & 15u;
    if (layout_high_bits(form) == 1)
        quant |= (quants[layout_vector_offset(0, low) + byte] >> g & 1u) << low;
    if (layout_high_bits(form) == 2)
        quant |= (quants[layout_vector_offset(0, low + g / 4) + byte] >> pair & 3u) << low;
    return quant;
}

/* Returns the i-th 16-bit float, which need not be aligned. */
static inline uint16_t unpack_half(const uint8_t *halves, uint32_t i)
{
    uint16_t half;
    memcpy(&half, halves + (size_t)i * 2, sizeof(half));
    return half;
}

/* Writes out->scale and out->min of a row, for a form with two levels of scales
 * (layout_two_level). */
static inline void unpack_two_level_scales(enum kernels_form form, float factor,
                                           const uint8_t *header, const uint8_t *scales,
                                           uint32_t panel, uint32_t row, struct unpacked *out)
{
    const uint8_t *units = header + layout_units_offset(form, panel, 0);
    const float unit = half_from_f16(unpack_half(units, row)) * factor;
    const float unit_min =
        layout_has_min(form)
            ? half_from_f16(unpack_half(header + layout_units_offset(form, panel, 1), row))
            : 0;
    for (uint32_t i = 0; i < 2; i++) {
        uint8_t byte = scales[(layout_has_halves(form) ? i * PANEL_ROWS : 0) + row];
        uint8_t min = layout_has_halves(form) ? byte >> 4 : scales[PANEL_ROWS + row];
        if (layout_has_halves(form) && layout_has_min(form))
            byte &= 15u;
        out->scale[i] = unit * (layout_scales_signed(form) ? (float)(int8_t)byte : (float)byte);
        out->min[i] = layout_has_min(form) ? unit_min * (float)min : 0;
    }
}

/* Unpacks the 32 weights of row `n` of a group in block `b` of 32 columns. codes, factor: see
 * struct kernels_product. */
static inline void unpack_row(enum kernels_form form, const int8_t *codes, float factor,
                              const uint8_t *group, uint32_t b, uint32_t n, struct unpacked *out)
{
    const uint32_t panel = n / PANEL_ROWS, row = n % PANEL_ROWS;
    const uint8_t *block = group + layout_block_offset(form, b);
    const uint8_t *quants = block + layout_vector_offset(panel, 0);
    const uint8_t *scales = block + layout_scales_offset(form, panel);
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t quant = unpack_quant(form, quants, row, i);
        out->values[i] =
            layout_has_codes(form) ? codes[quant] : (int32_t)quant - layout_quant_offset(form);
    }
    if (layout_two_level(form)) {
        unpack_two_level_scales(form, factor, group + layout_header_offset(form, b), scales, panel,
                                row, out);
        return;
    }
    const uint16_t scale = unpack_half(scales, row);
    out->scale[0] = out->scale[1] =
        form == FORM_CODE_BF16 ? half_from_bf16(scale) : half_from_f16(scale);
    out->min[0] = out->min[1] =
        layout_has_min(form) ? half_from_f16(unpack_half(scales, PANEL_ROWS + row)) : 0;
}

#endif
