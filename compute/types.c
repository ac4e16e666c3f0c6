/* types: the blocks of each weight type in a GGUF file, and their plain dequantisation: the
 * reference that every repacked layout and every kernel is tested against.
 *
 * The block structs follow the GGUF format: little-endian, scales as IEEE halves. K-quants have 256
 * elements in sub-blocks of 32 (Q4_K, Q5_K; 6-bit scale and minimum each) or 16 (Q2_K: 4-bit scale
 * and minimum; Q6_K: 8-bit scale). types_coded.c has the types whose quants are indices of a
 * table. */
#include "compute/types.h"

#include "compute/half.h"
#include "compute/kv.h"

#include <assert.h>

static const struct {
    const char *name;
    uint32_t elements;
    uint32_t bytes;
} type_table[COMPUTE_TYPE_COUNT] = {
    [COMPUTE_F32] = {"F32", 1, 4},
    [COMPUTE_F16] = {"F16", 1, 2},
    [COMPUTE_BF16] = {"BF16", 1, 2},
    [COMPUTE_Q8_0] = {"Q8_0", 32, sizeof(struct block_q8_0)},
    [COMPUTE_Q4_0] = {"Q4_0", 32, sizeof(struct block_q4_0)},
    [COMPUTE_Q4_1] = {"Q4_1", 32, sizeof(struct block_q4_1)},
    [COMPUTE_Q5_0] = {"Q5_0", 32, sizeof(struct block_q5_0)},
    [COMPUTE_Q5_1] = {"Q5_1", 32, sizeof(struct block_q5_1)},
    [COMPUTE_Q4_K] = {"Q4_K", 256, sizeof(struct block_q4_k)},
    [COMPUTE_Q5_K] = {"Q5_K", 256, sizeof(struct block_q5_k)},
    [COMPUTE_Q6_K] = {"Q6_K", 256, sizeof(struct block_q6_k)},
    [COMPUTE_Q2_K] = {"Q2_K", 256, sizeof(struct block_q2_k)},
    [COMPUTE_Q3_K] = {"Q3_K", 256, sizeof(struct block_q3_k)},
    [COMPUTE_IQ4_NL] = {"IQ4_NL", 32, sizeof(struct block_iq4_nl)},
    [COMPUTE_IQ4_XS] = {"IQ4_XS", 256, sizeof(struct block_iq4_xs)},
    [COMPUTE_MXFP4] = {"MXFP4", 32, sizeof(struct block_mxfp4)},
    [COMPUTE_TQ1_0] = {"TQ1_0", 256, sizeof(struct block_tq1_0)},
    [COMPUTE_TQ2_0] = {"TQ2_0", 256, sizeof(struct block_tq2_0)},
    [COMPUTE_IQ3_S] = {"IQ3_S", 256, sizeof(struct block_iq3_s)},
    [COMPUTE_IQ3_XXS] = {"IQ3_XXS", 256, sizeof(struct block_iq3_xxs)},
    [COMPUTE_IQ2_S] = {"IQ2_S", 256, sizeof(struct block_iq2_s)},
    [COMPUTE_IQ2_XS] = {"IQ2_XS", 256, sizeof(struct block_iq2_xs)},
    [COMPUTE_IQ2_XXS] = {"IQ2_XXS", 256, sizeof(struct block_iq2_xxs)},
    [COMPUTE_IQ1_S] = {"IQ1_S", 256, sizeof(struct block_iq1_s)},
    [COMPUTE_IQ1_M] = {"IQ1_M", 256, sizeof(struct block_iq1_m)},
    [COMPUTE_F8_E4M3] = {"F8_E4M3", 1, 1},
};

const char *compute_type_name(enum compute_type type)
{
    assert((unsigned)type < COMPUTE_TYPE_COUNT);
    return type_table[type].name;
}

uint32_t compute_type_block_elements(enum compute_type type)
{
    assert((unsigned)type < COMPUTE_TYPE_COUNT);
    return type_table[type].elements;
}

static const char *const kv_dtype_names[COMPUTE_KV_DTYPE_COUNT] = {
    [COMPUTE_KV_F16] = "f16",
    [COMPUTE_KV_F32] = "f32",
    [COMPUTE_KV_I16] = "i16",
    [COMPUTE_KV_I8] = "i8",
};

const char *compute_kv_dtype_name(enum compute_kv_dtype dtype)
{
    return kv_dtype_names[dtype];
}

bool compute_kv_dtype_find(const char *name, enum compute_kv_dtype *out)
{
    for (int i = 0; i < COMPUTE_KV_DTYPE_COUNT; i++)
        if (strcmp(name, kv_dtype_names[i]) == 0) {
            *out = (enum compute_kv_dtype)i;
            return true;
        }
    return false;
}

size_t compute_type_block_bytes(enum compute_type type)
{
    assert((unsigned)type < COMPUTE_TYPE_COUNT);
    return type_table[type].bytes;
}

/* Scale and minimum of sub-block i of a Q4_K or Q5_K block, 6 bits each. The first four are in the
 * low bits of bytes 0–3 and 4–7, the last four are split between bytes 8–11 and the top bits of
 * 0–7. */
static void k_scale_min(const uint8_t scales[12], uint32_t i, uint32_t *scale, uint32_t *min)
{
    if (i < 4) {
        *scale = scales[i] & 63u;
        *min = scales[i + 4] & 63u;
        return;
    }
    *scale = (scales[i + 4] & 15u) | (uint32_t)(scales[i - 4] >> 6) << 4;
    *min = (uint32_t)(scales[i + 4] >> 4) | (uint32_t)(scales[i] >> 6) << 4;
}

static void nibbles_unpack(const uint8_t packed[16], uint8_t quants[32])
{
    for (uint32_t i = 0; i < 16; i++) {
        quants[i] = packed[i] & 15u;
        quants[i + 16] = packed[i] >> 4;
    }
}

static void fives_unpack(const uint8_t packed[16], const uint8_t high_bits[4], uint8_t quants[32])
{
    nibbles_unpack(packed, quants);
    for (uint32_t i = 0; i < 32; i++)
        quants[i] |= (uint8_t)((high_bits[i / 8] >> i % 8 & 1u) << 4);
}

static void q4_k_unpack(const struct block_q4_k *block, uint32_t part, struct types_group *out)
{
    const uint8_t *packed = block->quants + part / 2 * 32;
    uint32_t shift = part % 2 * 4, scale, min;
    for (uint32_t i = 0; i < 32; i++)
        out->quants[i] = packed[i] >> shift & 15u;
    k_scale_min(block->scales, part, &scale, &min);
    /* 11 bits × 6 bits: exact in fp32, like all products here. */
    out->scales[0] = out->scales[1] = half_from_f16(block->scale) * (float)scale;
    out->mins[0] = out->mins[1] = -(half_from_f16(block->min) * (float)min);
}

static void q5_k_unpack(const struct block_q5_k *block, uint32_t part, struct types_group *out)
{
    const uint8_t *packed = block->quants + part / 2 * 32;
    uint32_t shift = part % 2 * 4, scale, min;
    for (uint32_t i = 0; i < 32; i++)
        out->quants[i] =
            (uint8_t)((packed[i] >> shift & 15u) | (block->high_bits[i] >> part & 1u) << 4);
    k_scale_min(block->scales, part, &scale, &min);
    out->scales[0] = out->scales[1] = half_from_f16(block->scale) * (float)scale;
    out->mins[0] = out->mins[1] = -(half_from_f16(block->min) * (float)min);
}

static void q6_k_unpack(const struct block_q6_k *block, uint32_t part, struct types_group *out)
{
    /* Two halves of 128 elements. In each half, quarter j has its low 4 bits in 32 bytes from byte
     * (j % 2) * 32 on, as nibble j / 2, and its high 2 bits in bits 2j and 2j + 1 of 32 bytes. */
    uint32_t half = part / 4, quarter = part % 4;
    const uint8_t *low = block->low_bits + half * 64 + quarter % 2 * 32;
    const uint8_t *high = block->high_bits + half * 32;
    for (uint32_t i = 0; i < 32; i++)
        out->quants[i] =
            (uint8_t)((low[i] >> quarter / 2 * 4 & 15u) | (high[i] >> quarter * 2 & 3u) << 4);
    float scale = half_from_f16(block->scale);
    out->scales[0] = scale * (float)block->scales[part * 2];
    out->scales[1] = scale * (float)block->scales[part * 2 + 1];
}

/* Two halves of 128 elements; quarter j of a half has bits 2j and 2j + 1 of 32 bytes. */
static void q2_k_unpack(const struct block_q2_k *block, uint32_t part, struct types_group *out)
{
    for (uint32_t i = 0; i < 32; i++)
        out->quants[i] = block->quants[part / 4 * 32 + i] >> part % 4 * 2 & 3u;
    for (uint32_t i = 0; i < 2; i++) {
        uint8_t both = block->scales[part * 2 + i];
        out->scales[i] = half_from_f16(block->scale) * (float)(both & 15u);
        out->mins[i] = -(half_from_f16(block->min) * (float)(both >> 4));
    }
}

static void tq1_0_unpack(const struct block_tq1_0 *block, uint32_t part, struct types_group *out)
{
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    out->scales[0] = out->scales[1] = half_from_f16(block->scale);
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t at = part * 32 + i;
        /* A byte is a fraction of 256 with five digits of base 3. It has the same digit of elements
         * that are 32, 16 or 4 apart. */
        uint8_t digits = at < 160   ? block->quants[at % 32] * powers[at / 32]
                         : at < 240 ? block->quants[32 + at % 16] * powers[(at - 160) / 16]
                                    : block->quants_last[at % 4] * powers[(at - 240) / 4];
        out->quants[i] = (uint8_t)(digits * 3u >> 8);
    }
}

static void tq2_0_unpack(const struct block_tq2_0 *block, uint32_t part, struct types_group *out)
{
    out->scales[0] = out->scales[1] = half_from_f16(block->scale);
    for (uint32_t i = 0; i < 32; i++)
        out->quants[i] = block->quants[part / 4 * 32 + i] >> part % 4 * 2 & 3u;
}

uint32_t types_quant_offset(enum compute_type type)
{
    switch (type) {
    case COMPUTE_Q8_0:
        return 128;
    case COMPUTE_Q6_K:
        return 32;
    case COMPUTE_Q5_0:
        return 16;
    case COMPUTE_Q4_0:
        return 8;
    case COMPUTE_TQ1_0:
    case COMPUTE_TQ2_0:
        return 1;
    default:
        return 0;
    }
}

void types_group_unpack(enum compute_type type, const void *row, uint32_t group,
                        struct types_group *out)
{
    out->mins[0] = out->mins[1] = 0;
    switch (type) {
    case COMPUTE_Q8_0: {
        const struct block_q8_0 *block = (const struct block_q8_0 *)row + group;
        out->scales[0] = out->scales[1] = half_from_f16(block->scale);
        for (uint32_t i = 0; i < 32; i++)
            out->quants[i] = (uint8_t)(block->quants[i] ^ 0x80);
        return;
    }
    case COMPUTE_Q4_0: {
        const struct block_q4_0 *block = (const struct block_q4_0 *)row + group;
        out->scales[0] = out->scales[1] = half_from_f16(block->scale);
        nibbles_unpack(block->quants, out->quants);
        return;
    }
    case COMPUTE_Q4_1: {
        const struct block_q4_1 *block = (const struct block_q4_1 *)row + group;
        out->scales[0] = out->scales[1] = half_from_f16(block->scale);
        out->mins[0] = out->mins[1] = half_from_f16(block->min);
        nibbles_unpack(block->quants, out->quants);
        return;
    }
    case COMPUTE_Q5_0: {
        const struct block_q5_0 *block = (const struct block_q5_0 *)row + group;
        out->scales[0] = out->scales[1] = half_from_f16(block->scale);
        fives_unpack(block->quants, block->high_bits, out->quants);
        return;
    }
    case COMPUTE_Q5_1: {
        const struct block_q5_1 *block = (const struct block_q5_1 *)row + group;
        out->scales[0] = out->scales[1] = half_from_f16(block->scale);
        out->mins[0] = out->mins[1] = half_from_f16(block->min);
        fives_unpack(block->quants, block->high_bits, out->quants);
        return;
    }
    case COMPUTE_Q4_K:
        q4_k_unpack((const struct block_q4_k *)row + group / 8, group % 8, out);
        return;
    case COMPUTE_Q5_K:
        q5_k_unpack((const struct block_q5_k *)row + group / 8, group % 8, out);
        return;
    case COMPUTE_Q6_K:
        q6_k_unpack((const struct block_q6_k *)row + group / 8, group % 8, out);
        return;
    case COMPUTE_Q2_K:
        q2_k_unpack((const struct block_q2_k *)row + group / 8, group % 8, out);
        return;
    case COMPUTE_TQ1_0:
        tq1_0_unpack((const struct block_tq1_0 *)row + group / 8, group % 8, out);
        return;
    case COMPUTE_TQ2_0:
        tq2_0_unpack((const struct block_tq2_0 *)row + group / 8, group % 8, out);
        return;
    default:
        types_coded_group_unpack(type, row, group, out);
    }
}

bool types_is_two_level(enum compute_type type)
{
    return compute_type_block_elements(type) == 256 && type != COMPUTE_TQ1_0 &&
           type != COMPUTE_TQ2_0;
}

void types_two_level_unpack(enum compute_type type, const void *row, uint32_t index,
                            struct types_two_level *out)
{
    *out = (struct types_two_level){.min = 0};
    if (types_codes(type) != NULL) {
        types_coded_two_level_unpack(type, row, index, out);
        return;
    }
    if (type == COMPUTE_Q2_K) {
        const struct block_q2_k *block = (const struct block_q2_k *)row + index;
        out->scale = block->scale;
        out->min = block->min;
        for (uint32_t i = 0; i < 16; i++) {
            out->scales[i] = block->scales[i] & 15u;
            out->mins[i] = block->scales[i] >> 4;
        }
        return;
    }
    if (type == COMPUTE_Q6_K) {
        const struct block_q6_k *block = (const struct block_q6_k *)row + index;
        out->scale = block->scale;
        memcpy(out->scales, block->scales, sizeof(out->scales));
        return;
    }
    assert(type == COMPUTE_Q4_K || type == COMPUTE_Q5_K);
    const struct block_q4_k *block =
        type == COMPUTE_Q4_K
            ? (const struct block_q4_k *)row + index
            : (const struct block_q4_k *)(const void *)((const struct block_q5_k *)row + index);
    out->scale = block->scale; /* Both block types begin with these fields. */
    out->min = block->min;
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t scale, min;
        k_scale_min(block->scales, i, &scale, &min);
        out->scales[i] = (uint8_t)scale;
        out->mins[i] = (uint8_t)min;
    }
}

/* Writes the 32 elements of a group as floats. */
static void group_dequantize(enum compute_type type, const struct types_group *group, float out[32])
{
    const int32_t offset = (int32_t)types_quant_offset(type);
    const int8_t *codes = types_codes(type);
    for (uint32_t i = 0; i < 32; i++) {
        int32_t value =
            codes != NULL ? codes[group->quants[i]] : (int32_t)group->quants[i] - offset;
        float product = group->scales[i / 16] * (float)value;
        out[i] = product + group->mins[i / 16];
    }
}

void compute_dequantize(enum compute_type type, const void *source, size_t count, float *out)
{
    assert(count % compute_type_block_elements(type) == 0);
    const uint16_t *halves = source;
    switch (type) {
    case COMPUTE_F32:
        memcpy(out, source, count * sizeof(float));
        return;
    case COMPUTE_F16:
        for (size_t i = 0; i < count; i++)
            out[i] = half_from_f16(halves[i]);
        return;
    case COMPUTE_BF16:
        for (size_t i = 0; i < count; i++)
            out[i] = half_from_bf16(halves[i]);
        return;
    case COMPUTE_F8_E4M3:
        for (size_t i = 0; i < count; i++)
            out[i] = half_from_e4m3(((const uint8_t *)source)[i]);
        return;
    default:
        break;
    }
    size_t block_bytes = compute_type_block_bytes(type);
    uint32_t groups = compute_type_block_elements(type) / 32;
    for (size_t i = 0; i < count / 32; i++) {
        struct types_group group;
        types_group_unpack(type, (const uint8_t *)source + i / groups * block_bytes,
                           (uint32_t)(i % groups), &group);
        group_dequantize(type, &group, out + i * 32);
    }
}

size_t compute_source_row_bytes(const struct compute_source *source)
{
    if (source->row_bytes != 0)
        return source->row_bytes;
    return source->cols / compute_type_block_elements(source->type) *
           compute_type_block_bytes(source->type);
}

void compute_source_row(const struct compute_source *source, uint32_t row, float *out)
{
    const uint8_t *data = source->data;
    assert(row < source->rows);
    compute_dequantize(source->type, data + row * compute_source_row_bytes(source), source->cols,
                       out);
    for (uint32_t col = 0; source->scales.values != NULL && col < source->cols; col++)
        out[col] *= compute_scale_at(&source->scales, row, col);
}

bool compute_source_slice(const struct compute_source *source, uint32_t row, uint32_t rows,
                          uint32_t col, uint32_t cols, struct compute_source *out)
{
    const uint32_t block = compute_type_block_elements(source->type);
    assert((size_t)row + rows <= source->rows && (size_t)col + cols <= source->cols);
    if (col % block != 0 || cols % block != 0)
        return false;
    *out = *source;
    out->row_bytes = compute_source_row_bytes(source);
    out->data = (const uint8_t *)source->data + row * out->row_bytes +
                (size_t)(col / block) * compute_type_block_bytes(source->type);
    out->rows = rows;
    out->cols = cols;
    struct compute_scales *scales = &out->scales;
    if (scales->values == NULL)
        return true;
    scales->values += (size_t)((scales->first_row + row) / scales->rows) * scales->stride +
                      (scales->first_col + col) / scales->cols;
    scales->first_row = (scales->first_row + row) % scales->rows;
    scales->first_col = (scales->first_col + col) % scales->cols;
    return true;
}
