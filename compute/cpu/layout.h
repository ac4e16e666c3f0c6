/* layout: where things are in a repacked group (see enum kernels_form in kernels.h). Stateless
 * inline functions that fold to constants where the form is one. */
#ifndef COMPUTE_CPU_LAYOUT_H
#define COMPUTE_CPU_LAYOUT_H

#include "compute/cpu/kernels.h"

static inline bool layout_nibbles(enum kernels_form form)
{
    return form <= FORM_NIBBLE_F32_MIN;
}

/* Scales are fp32, not f16. */
static inline bool layout_scales_wide(enum kernels_form form)
{
    return form == FORM_NIBBLE_F32_MIN || form == FORM_BYTE_F32_MIN || form == FORM_BYTE_F32_HALF;
}

static inline bool layout_min(enum kernels_form form)
{
    return form == FORM_NIBBLE_F16_MIN || form == FORM_NIBBLE_F32_MIN || form == FORM_BYTE_F32_MIN;
}

/* What is subtracted from a quant. */
static inline int32_t layout_offset(enum kernels_form form)
{
    return form == FORM_NIBBLE_F16      ? 8
           : form == FORM_BYTE_F16      ? 128
           : form == FORM_BYTE_F32_HALF ? 32
                                        : 0;
}

/* Of one panel in one block. */
static inline uint32_t layout_quants_bytes(enum kernels_form form)
{
    return layout_nibbles(form) ? 256 : 512;
}

/* Vector g of a panel's quants: the panels take turns, for both are read in one pass and the
 * hardware prefetcher follows one stream better than two. */
#define LAYOUT_VECTOR_STRIDE 128

static inline size_t layout_vector_offset(uint32_t panel, uint32_t g)
{
    return (size_t)g * LAYOUT_VECTOR_STRIDE + (size_t)panel * 64;
}

/* Of one panel in one block: [scales][minima or second scales]. */
static inline uint32_t layout_scales_bytes(enum kernels_form form)
{
    uint32_t values = layout_min(form) || form == FORM_BYTE_F32_HALF ? 2 : 1;
    return values * PANEL_ROWS * (layout_scales_wide(form) ? 4 : 2);
}

static inline uint32_t layout_scales_offset(enum kernels_form form, uint32_t panel)
{
    return 2 * layout_quants_bytes(form) + panel * layout_scales_bytes(form);
}

static inline uint32_t layout_block_bytes(enum kernels_form form)
{
    return 2 * layout_quants_bytes(form) + 2 * layout_scales_bytes(form);
}

/* The float forms: bytes of one column of a group, and how many columns lie beside each other. */
static inline uint32_t layout_float_bytes(enum kernels_form form)
{
    return GROUP_ROWS * (form == FORM_F32 ? 4 : 2);
}

static inline uint32_t layout_float_step(enum kernels_form form)
{
    return form == FORM_BF16 ? 2 : 1;
}

/* Of a whole group: the columns are filled up with zeros to whole steps. */
static inline size_t layout_float_group_bytes(enum kernels_form form, uint32_t cols)
{
    uint32_t step = layout_float_step(form);
    return (size_t)((cols + step - 1) / step * step) * layout_float_bytes(form);
}

/* Row i of the group in column k. In BF16 the first column of a pair is in the high half of its 4
 * bytes: vdpbf16ps adds that one first. */
static inline size_t layout_float_offset(enum kernels_form form, uint32_t i, uint32_t k)
{
    if (form == FORM_F32)
        return ((size_t)k * GROUP_ROWS + i) * 4;
    if (form == FORM_F16)
        return ((size_t)k * GROUP_ROWS + i) * 2;
    return ((size_t)(k / 2) * GROUP_ROWS + i) * 4 + (k % 2 == 0 ? 2 : 0);
}

#endif
