/* layout: offsets and sizes within a repacked group of weights (see enum kernels_form in
 * kernels.h). matrix.c writes weights by them, and the products (matmul.c, product.h, gemm_float.h,
 * gemm_<isa>.c, isa_portable.c, isa_avx512_bf16.c) read them. No state; any thread. The functions
 * are inline, and the compiler folds them to constants where the form is a constant. They access no
 * memory. */
#ifndef COMPUTE_CPU_LAYOUT_H
#define COMPUTE_CPU_LAYOUT_H

#include "compute/cpu/kernels.h"

/* Whether quants are whole bytes. Otherwise they are nibbles, followed by their higher bits. */
static inline bool layout_bytes(enum kernels_form form)
{
    return form == FORM_BYTE_F16;
}

/* Bits of a quant beyond its nibble, which is also the number of vectors that hold them. */
static inline uint32_t layout_high_bits(enum kernels_form form)
{
    return form == FORM_SIX_SUPER                                                          ? 2
           : form == FORM_FIVE_F16 || form == FORM_FIVE_F16_MIN || form == FORM_FIVE_SUPER ? 1
                                                                                           : 0;
}

/* Whether scales are bytes times a unit per 256 columns. Otherwise they are f16. */
static inline bool layout_super(enum kernels_form form)
{
    return form >= FORM_NIBBLE_SUPER && form <= FORM_SIX_SUPER;
}

/* Whether the form has minima. */
static inline bool layout_min(enum kernels_form form)
{
    return form == FORM_NIBBLE_F16_MIN || form == FORM_FIVE_F16_MIN || form == FORM_NIBBLE_SUPER ||
           form == FORM_FIVE_SUPER;
}

/* Whether a block has two sub-blocks of 16 columns, each with its own scale. */
static inline bool layout_halves(enum kernels_form form)
{
    return form == FORM_SIX_SUPER;
}

/* What is subtracted from a quant: 0 or a power of two. */
static inline int32_t layout_offset(enum kernels_form form)
{
    return form == FORM_NIBBLE_F16  ? 8
           : form == FORM_FIVE_F16  ? 16
           : form == FORM_SIX_SUPER ? 32
           : form == FORM_BYTE_F16  ? 128
                                    : 0;
}

/* Bytes of the quants of one panel in one block. */
static inline uint32_t layout_quants_bytes(enum kernels_form form)
{
    return layout_bytes(form) ? 512 : 256 + 64 * layout_high_bits(form);
}

/* Offset of vector g of a panel's quants. The vectors of the two panels alternate, because both
 * panels are read in one pass and the hardware prefetcher follows one stream better than two.
 * Vectors 4 and 5 hold the high bits. */
#define LAYOUT_VECTOR_STRIDE 128

static inline size_t layout_vector_offset(uint32_t panel, uint32_t g)
{
    return (size_t)g * LAYOUT_VECTOR_STRIDE + (size_t)panel * 64;
}

/* Values per row in each block: the scales, then the minima or the scales of the last 16 columns.
 */
static inline uint32_t layout_scales(enum kernels_form form)
{
    return layout_min(form) || layout_halves(form) ? 2 : 1;
}

/* Bytes of the scales of one panel in one block. */
static inline uint32_t layout_scales_bytes(enum kernels_form form)
{
    return layout_scales(form) * PANEL_ROWS * (layout_super(form) ? 1 : 2);
}

/* Offset of a panel's scales in a block. */
static inline uint32_t layout_scales_offset(enum kernels_form form, uint32_t panel)
{
    return 2 * layout_quants_bytes(form) + panel * layout_scales_bytes(form);
}

/* Bytes of a block: the quants and scales of both panels. */
static inline uint32_t layout_block_bytes(enum kernels_form form)
{
    return 2 * layout_quants_bytes(form) + 2 * layout_scales_bytes(form);
}

/* A SUPER form has a header before each LAYOUT_SUPER_BLOCKS blocks. It has, per panel, the rows'
 * f16 units of the scales and, if the form has minima, the negated units of the minima. */
#define LAYOUT_SUPER_BLOCKS 8

/* Offset in the header of a panel's units: of the scales (i = 0) or of the minima (i = 1). */
static inline uint32_t layout_units_offset(enum kernels_form form, uint32_t panel, uint32_t i)
{
    return layout_min(form) ? (panel * 2 + i) * PANEL_ROWS * 2 : panel * PANEL_ROWS * 2;
}

/* Bytes of a header; 0 if the form has none. */
static inline uint32_t layout_header_bytes(enum kernels_form form)
{
    return layout_super(form) ? layout_units_offset(form, 2, 0) : 0;
}

/* Bytes of a header with its blocks. */
static inline size_t layout_super_bytes(enum kernels_form form)
{
    return layout_header_bytes(form) + (size_t)LAYOUT_SUPER_BLOCKS * layout_block_bytes(form);
}

/* Offset in a group of the header that belongs to a block. */
static inline size_t layout_header_offset(enum kernels_form form, uint32_t block)
{
    return block / LAYOUT_SUPER_BLOCKS * layout_super_bytes(form);
}

/* Offset of a block in its group. */
static inline size_t layout_block_offset(enum kernels_form form, uint32_t block)
{
    return layout_header_offset(form, block) + layout_header_bytes(form) +
           (size_t)(block % LAYOUT_SUPER_BLOCKS) * layout_block_bytes(form);
}

/* Bytes of a group of a quantised form. */
static inline size_t layout_group_bytes(enum kernels_form form, uint32_t blocks)
{
    return blocks * (size_t)layout_block_bytes(form) +
           blocks / LAYOUT_SUPER_BLOCKS * layout_header_bytes(form);
}

/* Float forms: bytes of one column of a group. */
static inline uint32_t layout_float_bytes(enum kernels_form form)
{
    return GROUP_ROWS * (form == FORM_F32 ? 4 : 2);
}

/* Number of columns that are stored interleaved: 2 or 1. */
static inline uint32_t layout_float_step(enum kernels_form form)
{
    return form == FORM_BF16 ? 2 : 1;
}

/* Bytes of a group of a float form. The columns are padded with zeros to whole steps. */
static inline size_t layout_float_group_bytes(enum kernels_form form, uint32_t cols)
{
    uint32_t step = layout_float_step(form);
    return (size_t)((cols + step - 1) / step * step) * layout_float_bytes(form);
}

/* Offset in a group of the value in row i and column k. In BF16 the first column of a pair is in
 * the high half of the 4 bytes, because vdpbf16ps adds the high half first. */
static inline size_t layout_float_offset(enum kernels_form form, uint32_t i, uint32_t k)
{
    if (form == FORM_F32)
        return ((size_t)k * GROUP_ROWS + i) * 4;
    if (form == FORM_F16)
        return ((size_t)k * GROUP_ROWS + i) * 2;
    return ((size_t)(k / 2) * GROUP_ROWS + i) * 4 + (k % 2 == 0 ? 2 : 0);
}

#endif
