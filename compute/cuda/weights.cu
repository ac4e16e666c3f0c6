/* weights: packs a file's rows into the device's layout (weights.cuh), on the host. Quants and
 * scales are moved, never changed. Any thread; rows are independent of each other. The scales of
 * F8_E4M3 are a separate table for the whole matrix. */
#include "compute/cuda/weights.cuh"

extern "C" {
#include "compute/half.h"
#include "compute/types.h"
}

#include <cstring>

enum compute_type cuda_weights_kept(enum compute_type type)
{
    if (type == COMPUTE_TQ1_0 || type == COMPUTE_TQ2_0)
        return COMPUTE_Q4_0;
    return types_codes(type) != NULL && types_is_two_level(type) ? COMPUTE_Q3_K : type;
}

void cuda_weights_codes(enum compute_type type, struct cuda_weights *w)
{
    const int8_t *codes = types_codes(type);
    if (codes == NULL)
        return;
    memcpy(w->codes, codes, sizeof(w->codes));
    w->factor = types_scale_factor(type);
}

struct cuda_weights_layout cuda_weights_layout(enum compute_type file_type, uint32_t cols)
{
    const enum compute_type type = cuda_weights_kept(file_type);
    if (weights_float(type))
        return {((size_t)cols * weights_element_bytes(type) + 15) / 16 * 16, 0};
    const size_t steps = weights_steps(cols);
    const size_t scales = steps * (weights_scale_bytes(type) + (weights_super(type) ? 4 : 0));
    return {steps * weights_step_bytes(type), (scales + 15) / 16 * 16};
}

bool cuda_weights_f8(const struct compute_source *source, struct cuda_weights *w, float *scales)
{
    const struct compute_scales *s = &source->scales;
    const bool rows = s->values == NULL || (size_t)s->first_col + source->cols <= s->cols;
    if (!rows && (s->rows != 128 || s->cols != 128 || s->first_col != 0))
        return false;
    const uint32_t right = rows ? 1 : (source->cols + 127) / 128;
    const size_t stride = rows ? 1 : (right + 3) / 4 * 4;
    w->scale_shift = rows ? 0 : 7;
    w->scale_first = rows ? 0 : s->first_row;
    w->scale_row_bytes = stride * sizeof(float);
    if (scales == NULL)
        return true;
    memset(scales, 0, cuda_weights_f8_bytes(w));
    for (uint32_t row = 0; row < source->rows; row++)
        for (uint32_t i = 0; i < right; i++)
            scales[((w->scale_first + row) >> w->scale_shift) * stride + i] =
                s->values == NULL ? 1 : compute_scale_at(s, row, 128 * i);
    return true;
}

size_t cuda_weights_f8_bytes(const struct cuda_weights *w)
{
    return ((size_t)(w->scale_first + w->rows - 1) / (1u << w->scale_shift) + 1) *
           w->scale_row_bytes;
}

namespace
{
void bits_set(uint8_t *at, uint32_t bits)
{
    uint32_t word;
    memcpy(&word, at, sizeof(word));
    word |= bits;
    memcpy(at, &word, sizeof(word));
}

/* Packs the quants of group j of unit `unit` into their step, which must be zeroed. */
void group_pack(enum compute_type type, const struct types_group &group, uint32_t unit, uint32_t j,
                uint8_t *step)
{
    const uint32_t high_bits = weights_high_bits(type);
    for (uint32_t t = 0; t < 4; t++)
        for (uint32_t e = 0; e < 8; e++) {
            const uint32_t pair = e / 2, odd = e % 2;
            const uint32_t value = group.quants[weights_column(type, t, e / 4) + e % 4];
            if (type == COMPUTE_Q8_0) {
                step[unit * 128 + j / 2 * 64 + t * 16 + j % 2 * 8 + pair / 2 * 4 + pair % 2 +
                     2 * odd] = (uint8_t)(value ^ 0x80u);
                continue;
            }
            bits_set(step + unit * 64 + t * 16 + j * 4, (value & 15u) << (4 * pair + 16 * odd));
            if (high_bits == 1)
                bits_set(step + 128 + unit * 16 + t * 4, value >> 4 << (4 * j + pair + 16 * odd));
            else if (high_bits == 2)
                bits_set(step + 128 + unit * 32 + t * 8 + j / 2 * 4,
                         value >> 4 << (j % 2 * 8 + 2 * pair + 16 * odd));
        }
}

/* Packs scale and minimum of 32 columns, which the file has in this precision. */
void scale_pack(enum compute_type kept, const struct types_group &group, uint8_t *at)
{
    const uint16_t min = half_to_f16(group.mins[0]);
    uint16_t scale = half_to_f16(group.scales[0]);
    if (kept == COMPUTE_MXFP4)
        scale = (uint16_t)(half_float_bits(group.scales[0]) >> 16);
    memcpy(at, &scale, 2);
    if (weights_min(kept))
        memcpy(at + 2, &min, 2);
}

void super_pack(enum compute_type type, const uint8_t *row, uint32_t steps, uint32_t step,
                uint8_t *scales)
{
    struct types_two_level super;
    types_two_level_unpack(type, row, step, &super);
    uint8_t *at = scales + (size_t)step * 16;
    memcpy(scales + (size_t)steps * 16 + (size_t)step * 4, &super.scale, 2);
    memcpy(scales + (size_t)steps * 16 + (size_t)step * 4 + 2, &super.min, 2);
    if (weights_halves(cuda_weights_kept(type))) {
        for (uint32_t i = 0; i < 16; i++)
            at[i] = (uint8_t)(super.scales[i] | super.mins[i] << 4); /* Only Q2_K has minima. */
        return;
    }
    for (uint32_t i = 0; i < 8; i++) {
        at[2 * i] = super.scales[i];
        at[2 * i + 1] = super.mins[i];
    }
}
} // namespace

void cuda_weights_pack(enum compute_type type, uint32_t rows, uint32_t cols, const void *source,
                       size_t source_row, uint8_t *quants, uint8_t *scales)
{
    const struct cuda_weights_layout layout = cuda_weights_layout(type, cols);
    const enum compute_type kept = cuda_weights_kept(type);
    const size_t source_bytes =
        (size_t)cols / compute_type_block_elements(type) * compute_type_block_bytes(type);
    const uint32_t steps = weights_steps(cols);
    for (uint32_t r = 0; r < rows; r++) {
        const uint8_t *row = static_cast<const uint8_t *>(source) + r * source_row;
        uint8_t *to = quants + r * layout.row_bytes, *scale = scales + r * layout.scale_row_bytes;
        memset(to, 0, layout.row_bytes);
        if (weights_float(type)) {
            memcpy(to, row, source_bytes);
            continue;
        }
        memset(scale, 0, layout.scale_row_bytes);
        for (uint32_t group = 0; group < cols / 32; group++) {
            struct types_group unpacked;
            types_group_unpack(type, row, group, &unpacked);
            for (uint8_t &quant : unpacked.quants)
                if (kept != type && types_codes(type) == NULL)
                    quant = (uint8_t)(quant + types_quant_offset(kept) - types_quant_offset(type));
            group_pack(kept, unpacked, group / 4 % 2, group % 4,
                       to + (size_t)(group / 8) * weights_step_bytes(kept));
            if (!weights_super(kept))
                scale_pack(kept, unpacked, scale + (size_t)group * (weights_min(kept) ? 4 : 2));
        }
        for (uint32_t step = 0; weights_super(kept) && step < steps; step++)
            super_pack(type, row, steps, step, scale);
    }
}
