/* layout: offsets and sizes within a repacked group of weights (enum kernels_form in kernels.h).
 * matrix.c, which writes weights, the products and unpack.h, which read weights, and
 * product_choice.c call these functions on any thread. The functions have no state and do not
 * access the weights. */
#ifndef COMPUTE_CPU_LAYOUT_H
#define COMPUTE_CPU_LAYOUT_H

#include "compute/cpu/kernels.h"

/* The properties in which the quantised forms differ. */
struct layout_form {
    uint8_t low_bits; /* Bits of a quant that are stored together: 2, 4 or 8. */
    /* Bits of a quant above the low bits, 0 to 2; a panel's block has one vector for each bit. */
    uint8_t high_bits;
    int16_t offset; /* The number that is subtracted from a quant: 0 or a power of two. */
    bool codes;     /* Quants are indices of kernels_product.codes. */
    /* Two levels of scales: a scale is a byte (FORM_TWO_SUPER: a nibble) times a unit that 256
     * columns share. */
    bool super;
    bool halves; /* The first and the last 16 columns of a block have their own scales. */
    bool min;    /* The form has minima. */
};

static const struct layout_form layout_forms[FORM_QUANTISED_COUNT] = {
    [FORM_NIBBLE_F16] = {4, 0, 8, .codes = false},
    [FORM_NIBBLE_F16_MIN] = {4, 0, 0, .min = true},
    [FORM_BYTE_F16] = {8, 0, 128, .codes = false},
    [FORM_FIVE_F16] = {4, 1, 16, .codes = false},
    [FORM_FIVE_F16_MIN] = {4, 1, 0, .min = true},
    [FORM_NIBBLE_SUPER] = {4, 0, 0, .super = true, .min = true},
    [FORM_FIVE_SUPER] = {4, 1, 0, .super = true, .min = true},
    [FORM_SIX_SUPER] = {4, 2, 32, .super = true, .halves = true},
    [FORM_TWO_F16] = {2, 0, 1, .codes = false},
    [FORM_TWO_SUPER] = {2, 0, 0, .super = true, .halves = true, .min = true},
    [FORM_THREE_SUPER] = {2, 1, 0, .codes = true, .super = true, .halves = true},
    [FORM_CODE_F16] = {4, 0, 0, .codes = true},
    [FORM_CODE_BF16] = {4, 0, 0, .codes = true},
    [FORM_CODE_SUPER] = {4, 0, 0, .codes = true, .super = true},
};

/* Calls each(name, form) for the forms with one scale per row and block, for those with scales of
 * halves, and for all: for code that has a function for each form. */
/* clang-format off */
#define LAYOUT_FORMS_ONE_SCALE(each)                                                               \
    each(q4_0, FORM_NIBBLE_F16)                                                                    \
    each(q4_1, FORM_NIBBLE_F16_MIN)                                                                \
    each(q8_0, FORM_BYTE_F16)                                                                      \
    each(q5_0, FORM_FIVE_F16)                                                                      \
    each(q5_1, FORM_FIVE_F16_MIN)                                                                  \
    each(q4_k, FORM_NIBBLE_SUPER)                                                                  \
    each(q5_k, FORM_FIVE_SUPER)                                                                    \
    each(tq, FORM_TWO_F16)                                                                         \
    each(iq4_nl, FORM_CODE_F16)                                                                    \
    each(mxfp4, FORM_CODE_BF16)                                                                    \
    each(iq4_xs, FORM_CODE_SUPER)
#define LAYOUT_FORMS_HALVES(each)                                                                  \
    each(q6_k, FORM_SIX_SUPER)                                                                     \
    each(q2_k, FORM_TWO_SUPER)                                                                     \
    each(q3_k, FORM_THREE_SUPER)
/* clang-format on */
#define LAYOUT_FORMS(each) LAYOUT_FORMS_ONE_SCALE(each) LAYOUT_FORMS_HALVES(each)

/* Returns true if quants are whole bytes. */
static inline bool layout_is_bytes(enum kernels_form form)
{
    return layout_forms[form].low_bits == 8;
}

/* Returns true if a quant has two low bits. */
static inline bool layout_two_bits(enum kernels_form form)
{
    return layout_forms[form].low_bits == 2;
}

/* Returns the number of vectors of a panel's low bits in a block. */
static inline uint32_t layout_low_vectors(enum kernels_form form)
{
    return layout_forms[form].low_bits;
}

static inline uint32_t layout_high_bits(enum kernels_form form)
{
    return layout_forms[form].high_bits;
}

static inline bool layout_has_codes(enum kernels_form form)
{
    return layout_forms[form].codes;
}

static inline bool layout_two_level(enum kernels_form form)
{
    return layout_forms[form].super;
}

static inline bool layout_has_min(enum kernels_form form)
{
    return layout_forms[form].min;
}

static inline bool layout_has_halves(enum kernels_form form)
{
    return layout_forms[form].halves;
}

static inline int32_t layout_quant_offset(enum kernels_form form)
{
    return layout_forms[form].offset;
}

/* Returns true if the bytes of scales are signed. */
static inline bool layout_scales_signed(enum kernels_form form)
{
    return layout_two_level(form) && !layout_has_min(form);
}

/* Returns the bytes of the quants of one panel in one block. */
static inline uint32_t layout_quants_bytes(enum kernels_form form)
{
    return 64 * (layout_low_vectors(form) + layout_high_bits(form));
}

/* Bytes from one vector of a panel's quants to the next. The vectors of the two panels alternate,
 * because the hardware prefetcher follows one stream better than two. */
#define LAYOUT_VECTOR_STRIDE 128

/* Returns the offset in a block of vector g of a panel's quants. Vectors from layout_low_vectors on
 * have the high bits. */
static inline size_t layout_vector_offset(uint32_t panel, uint32_t g)
{
    return (size_t)g * LAYOUT_VECTOR_STRIDE + (size_t)panel * 64;
}

/* Returns how many numbers a row has in a block beside its quants, 1 or 2. In a SUPER form
 * (kernels.h), the numbers are bytes; in other forms, the scale and, if the form has minima, the
 * minimum, as 16-bit floats. */
static inline uint32_t layout_scales_per_row(enum kernels_form form)
{
    return layout_has_min(form) || layout_two_level(form) ? 2 : 1;
}

/* Returns the bytes of the scales and minima of one panel in one block. */
static inline uint32_t layout_scales_bytes(enum kernels_form form)
{
    return layout_scales_per_row(form) * PANEL_ROWS * (layout_two_level(form) ? 1 : 2);
}

/* Returns the offset of a panel's scales in a block. */
static inline uint32_t layout_scales_offset(enum kernels_form form, uint32_t panel)
{
    return 2 * layout_quants_bytes(form) + panel * layout_scales_bytes(form);
}

/* Returns the bytes of a block: the quants and scales of both panels. */
static inline uint32_t layout_block_bytes(enum kernels_form form)
{
    return 2 * layout_quants_bytes(form) + 2 * layout_scales_bytes(form);
}

/* A SUPER form has a header before LAYOUT_HEADER_BLOCKS blocks. For each panel, the header has the
 * f16 units of all rows' scales and, if the form has minima, the negated units of the minima. */
#define LAYOUT_HEADER_BLOCKS 8

/* Returns the offset in the header of a panel's units: units of the scales for i = 0, units of the
 * minima for i = 1. */
static inline uint32_t layout_units_offset(enum kernels_form form, uint32_t panel, uint32_t i)
{
    return layout_has_min(form) ? (panel * 2 + i) * PANEL_ROWS * 2 : panel * PANEL_ROWS * 2;
}

/* Returns the bytes of a header; 0 if the form has no headers. */
static inline uint32_t layout_header_bytes(enum kernels_form form)
{
    return layout_two_level(form) ? layout_units_offset(form, 2, 0) : 0;
}

/* Returns the bytes of a header and its blocks. */
static inline size_t layout_header_blocks_bytes(enum kernels_form form)
{
    return layout_header_bytes(form) + (size_t)LAYOUT_HEADER_BLOCKS * layout_block_bytes(form);
}

/* Returns the offset in a group of the header that belongs to a block. */
static inline size_t layout_header_offset(enum kernels_form form, uint32_t block)
{
    return block / LAYOUT_HEADER_BLOCKS * layout_header_blocks_bytes(form);
}

/* Returns the offset of a block in its group. */
static inline size_t layout_block_offset(enum kernels_form form, uint32_t block)
{
    return layout_header_offset(form, block) + layout_header_bytes(form) +
           (size_t)(block % LAYOUT_HEADER_BLOCKS) * layout_block_bytes(form);
}

/* Returns the bytes of a group of a quantised form with `blocks` blocks. */
static inline size_t layout_group_bytes(enum kernels_form form, uint32_t blocks)
{
    return blocks * (size_t)layout_block_bytes(form) +
           blocks / LAYOUT_HEADER_BLOCKS * layout_header_bytes(form);
}

/* Returns the bytes of one column of a group of a float form. */
static inline uint32_t layout_float_column_bytes(enum kernels_form form)
{
    return GROUP_ROWS * (form == FORM_F32 ? 4 : 2);
}

/* Returns the number of columns of a float form whose values alternate: 2 or 1. */
static inline uint32_t layout_float_step(enum kernels_form form)
{
    return form == FORM_BF16 ? 2 : 1;
}

/* Returns the bytes of a group of a float form. Columns are padded with zeros to a multiple of
 * layout_float_step. */
static inline size_t layout_float_group_bytes(enum kernels_form form, uint32_t cols)
{
    uint32_t step = layout_float_step(form);
    return (size_t)((cols + step - 1) / step * step) * layout_float_column_bytes(form);
}

/* Returns the offset in a group of a float form of the value in row i and column k. In BF16 the
 * first column of a pair is in the high half of 4 bytes, because vdpbf16ps adds the high half
 * first. */
static inline size_t layout_float_offset(enum kernels_form form, uint32_t i, uint32_t k)
{
    if (form == FORM_F32)
        return ((size_t)k * GROUP_ROWS + i) * 4;
    if (form == FORM_F16)
        return ((size_t)k * GROUP_ROWS + i) * 2;
    return ((size_t)(k / 2) * GROUP_ROWS + i) * 4 + (k % 2 == 0 ? 2 : 0);
}

#endif
