/* types_coded: the types of GGUF files whose quants are indices of a table of up to 16 values.
 * Signs and magnitudes of the IQ1, IQ2 and IQ3 types are one index here, so that all types of this
 * file differ only in their tables. */
#include "compute/half.h"
#include "compute/types.h"
#include "compute/types_grid.h"

#include <assert.h>
#include <string.h>

static const int8_t codes_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
/* E2M1, times 2. */
static const int8_t codes_fp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
static const int8_t codes_q3_k[16] = {-4, -3, -2, -1, 0, 1, 2, 3};
/* Bit 3 of an index (IQ3), or bit 2 (IQ2), is the sign. */
static const int8_t codes_iq3_s[16] = {1,  3,  5,  7,  9,  11,  13,  15,
                                       -1, -3, -5, -7, -9, -11, -13, -15};
static const int8_t codes_iq3_xxs[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                         -4, -12, -20, -28, -36, -44, -52, -62};
static const int8_t codes_iq2[16] = {8, 25, 43, 0, -8, -25, -43, 0};
/* -1, 0 and 1 plus 1/8 (or, with bit 2, minus 1/8), times 8. */
static const int8_t codes_iq1[16] = {-7, 1, 9, 0, -9, -1, 7, 0};

const int8_t *types_codes(enum compute_type type)
{
    switch (type) {
    case COMPUTE_Q3_K:
        return codes_q3_k;
    case COMPUTE_IQ4_NL:
    case COMPUTE_IQ4_XS:
        return codes_iq4;
    case COMPUTE_MXFP4:
        return codes_fp4;
    case COMPUTE_IQ3_S:
        return codes_iq3_s;
    case COMPUTE_IQ3_XXS:
        return codes_iq3_xxs;
    case COMPUTE_IQ2_S:
    case COMPUTE_IQ2_XS:
    case COMPUTE_IQ2_XXS:
        return codes_iq2;
    case COMPUTE_IQ1_S:
    case COMPUTE_IQ1_M:
        return codes_iq1;
    default:
        return NULL;
    }
}

float types_scale_factor(enum compute_type type)
{
    switch (type) {
    case COMPUTE_IQ3_XXS:
        return 0.25f;
    case COMPUTE_IQ2_S:
    case COMPUTE_IQ2_XS:
    case COMPUTE_IQ2_XXS:
    case COMPUTE_IQ1_S:
    case COMPUTE_IQ1_M:
        return 0.125f;
    default:
        return 1;
    }
}

/* ---- scales ---- */

static uint32_t word_at(const uint8_t *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof(word));
    return word;
}

/* Nibble i of an array of bytes, low nibbles first. */
static uint32_t nibble_at(const uint8_t *bytes, uint32_t i)
{
    return bytes[i / 2] >> i % 2 * 4 & 15u;
}

/* Scale i of 16, 6 bits: the low 4 bits are nibble i / 8 of byte i % 8, the high 2 bits are in
 * bytes 8–11. */
static uint32_t q3_k_scale(const uint8_t scales[12], uint32_t i)
{
    return (scales[i % 8] >> i / 8 * 4 & 15u) | (scales[8 + i % 4] >> i / 4 * 2 & 3u) << 4;
}

/* Scale of part i of 32 elements. */
static uint32_t scale_of_32(enum compute_type type, const void *block, uint32_t i)
{
    if (type == COMPUTE_IQ4_XS) {
        const struct block_iq4_xs *b = block;
        return (nibble_at(b->scales_low, i) | (b->scales_high >> 2 * i & 3u) << 4) - 32u;
    }
    if (type == COMPUTE_IQ3_S)
        return 2 * nibble_at(((const struct block_iq3_s *)block)->scales, i) + 1;
    if (type == COMPUTE_IQ3_XXS)
        return 2 * (word_at(((const struct block_iq3_xxs *)block)->signs_scales + 4 * i) >> 28) + 1;
    if (type == COMPUTE_IQ2_XXS)
        return 2 * (word_at(((const struct block_iq2_xxs *)block)->points_signs_scale[i] + 4) >>
                    28) +
               1;
    assert(type == COMPUTE_IQ1_S);
    return 2 * (((const struct block_iq1_s *)block)->points_high[i] >> 12 & 7u) + 1;
}

/* Scale of part i of 16 elements. */
static uint32_t scale_of_16(enum compute_type type, const void *block, uint32_t i)
{
    if (type == COMPUTE_Q3_K)
        return q3_k_scale(((const struct block_q3_k *)block)->scales, i) - 32u;
    if (type == COMPUTE_IQ2_S)
        return 2 * nibble_at(((const struct block_iq2_s *)block)->scales, i) + 1;
    if (type == COMPUTE_IQ2_XS)
        return 2 * nibble_at(((const struct block_iq2_xs *)block)->scales, i) + 1;
    if (type == COMPUTE_IQ1_M)
        return 2 * (((const struct block_iq1_m *)block)->scales[i / 4] >> i % 4 * 3 & 7u) + 1;
    return scale_of_32(type, block, i / 2);
}

/* The f16 scale of all 256 elements. */
static uint16_t block_scale(enum compute_type type, const void *block)
{
    uint16_t scale = 0;
    if (type == COMPUTE_Q3_K)
        return ((const struct block_q3_k *)block)->scale;
    if (type != COMPUTE_IQ1_M) {
        memcpy(&scale, block, sizeof(scale));
        return scale;
    }
    for (uint32_t i = 0; i < 4; i++)
        scale |= (uint16_t)(((const struct block_iq1_m *)block)->scales[i] >> 12 << 4 * i);
    return scale;
}

void types_coded_two_level_unpack(enum compute_type type, const void *row, uint32_t index,
                                  struct types_two_level *out)
{
    const uint8_t *block = (const uint8_t *)row + index * compute_type_block_bytes(type);
    out->scale = block_scale(type, block);
    for (uint32_t i = 0; i < 16; i++)
        out->scales[i] = (uint8_t)scale_of_16(type, block, i);
}

/* ---- quants ---- */

static void nibbles_unpack(const uint8_t packed[16], uint8_t quants[32])
{
    for (uint32_t i = 0; i < 16; i++) {
        quants[i] = packed[i] & 15u;
        quants[i + 16] = packed[i] >> 4;
    }
}

static void q3_k_unpack(const struct block_q3_k *b, uint32_t part, uint8_t quants[32])
{
    for (uint32_t i = 0; i < 32; i++)
        quants[i] = (uint8_t)((b->quants[part / 4 * 32 + i] >> part % 4 * 2 & 3u) |
                              (b->high_bits[i] >> part & 1u) << 2);
}

/* Eight signs of 7 bits: the number of negative signs is even. */
static uint32_t signs_of_7(uint32_t seven)
{
    return seven | (uint32_t)__builtin_parity(seven) << 7;
}

/* Writes `count` elements of a point; bit i of `signs` is the sign of element i, which becomes bit
 * `sign_bit` of its index. */
static void point_put(enum types_grid grid, uint32_t index, uint32_t signs, uint32_t sign_bit,
                      uint32_t count, uint8_t *quants)
{
    const uint8_t *point = types_grid_point(grid, index);
    for (uint32_t i = 0; i < count; i++)
        quants[i] = (uint8_t)(point[i] | (signs >> i & 1u) << sign_bit);
}

/* Eight elements from 8 * k on of part `part`. */
static void iq2_unpack(enum compute_type type, const void *block, uint32_t part, uint32_t k,
                       uint8_t quants[8])
{
    const uint32_t i = 4 * part + k;
    if (type == COMPUTE_IQ2_XXS) {
        const uint8_t *eight = ((const struct block_iq2_xxs *)block)->points_signs_scale[part];
        point_put(GRID_IQ2_XXS, eight[k], signs_of_7(word_at(eight + 4) >> 7 * k & 127u), 2, 8,
                  quants);
    } else if (type == COMPUTE_IQ2_XS) {
        const uint16_t both = ((const struct block_iq2_xs *)block)->points_signs[i];
        point_put(GRID_IQ2_XS, both & 511u, signs_of_7(both >> 9), 2, 8, quants);
    } else {
        const struct block_iq2_s *b = block;
        const uint32_t high = b->points_high[part] >> 2 * k & 3u;
        point_put(GRID_IQ2_S, b->points[i] | high << 8, b->signs[i], 2, 8, quants);
    }
}

static void iq1_unpack(enum compute_type type, const void *block, uint32_t part, uint32_t k,
                       uint8_t quants[8])
{
    const uint32_t i = 4 * part + k;
    if (type == COMPUTE_IQ1_S) {
        const struct block_iq1_s *b = block;
        const uint32_t high = b->points_high[part] >> 3 * k & 7u;
        const uint32_t minus = b->points_high[part] >> 15 != 0 ? 255 : 0;
        point_put(GRID_IQ1, b->points[i] | high << 8, minus, 2, 8, quants);
    } else {
        const struct block_iq1_m *b = block;
        const uint32_t four = nibble_at(b->points_high, i);
        point_put(GRID_IQ1, b->points[i] | (four & 7u) << 8, (four & 8u) != 0 ? 255 : 0, 2, 8,
                  quants);
    }
}

/* Eight elements: two points. */
static void iq3_unpack(enum compute_type type, const void *block, uint32_t part, uint32_t k,
                       uint8_t quants[8])
{
    if (type == COMPUTE_IQ3_XXS) {
        const struct block_iq3_xxs *b = block;
        const uint32_t signs = signs_of_7(word_at(b->signs_scales + 4 * part) >> 7 * k & 127u);
        point_put(GRID_IQ3_XXS, b->points[8 * part + 2 * k], signs, 3, 4, quants);
        point_put(GRID_IQ3_XXS, b->points[8 * part + 2 * k + 1], signs >> 4, 3, 4, quants + 4);
        return;
    }
    const struct block_iq3_s *b = block;
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t i = 2 * k + half, high = b->points_high[part] >> i & 1u;
        point_put(GRID_IQ3_S, b->points[8 * part + i] | high << 8,
                  (uint32_t)b->signs[4 * part + k] >> 4 * half, 3, 4, quants + (size_t)4 * half);
    }
}

static void quants_unpack(enum compute_type type, const void *block, uint32_t part,
                          uint8_t quants[32])
{
    if (type == COMPUTE_IQ4_NL) {
        nibbles_unpack(((const struct block_iq4_nl *)block)->quants, quants);
    } else if (type == COMPUTE_MXFP4) {
        nibbles_unpack(((const struct block_mxfp4 *)block)->quants, quants);
    } else if (type == COMPUTE_IQ4_XS) {
        nibbles_unpack(((const struct block_iq4_xs *)block)->quants + (size_t)part * 16, quants);
    } else if (type == COMPUTE_Q3_K) {
        q3_k_unpack(block, part, quants);
    } else {
        for (uint32_t k = 0; k < 4; k++) {
            uint8_t *eight = quants + (size_t)8 * k;
            if (type == COMPUTE_IQ3_S || type == COMPUTE_IQ3_XXS)
                iq3_unpack(type, block, part, k, eight);
            else if (type == COMPUTE_IQ1_S || type == COMPUTE_IQ1_M)
                iq1_unpack(type, block, part, k, eight);
            else
                iq2_unpack(type, block, part, k, eight);
        }
    }
}

void types_coded_group_unpack(enum compute_type type, const void *row, uint32_t group,
                              struct types_group *out)
{
    assert(types_codes(type) != NULL);
    const uint32_t parts = compute_type_block_elements(type) / 32, part = group % parts;
    const uint8_t *block =
        (const uint8_t *)row + (size_t)(group / parts) * compute_type_block_bytes(type);
    quants_unpack(type, block, part, out->quants);
    if (type == COMPUTE_MXFP4) {
        const uint32_t e = block[0]; /* Numbers below 2^-126 have other bits. */
        out->scales[0] = out->scales[1] = half_bits_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        return;
    }
    const float scale = half_from_f16(block_scale(type, block)) * types_scale_factor(type);
    for (uint32_t i = 0; i < 2; i++)
        out->scales[i] = type == COMPUTE_IQ4_NL
                             ? scale
                             : scale * (float)(int8_t)scale_of_16(type, block, 2 * part + i);
}
