/* packed: see packed.h. Nothing is rounded except scales that a 16-bit float does not hold (BF16
 * scales below 2^-17, F32 scales). Integers with zero points are kept as Q5_0, because their
 * differences have 5 bits. */
#include "model/file/packed.h"

#include "compute/half.h"
#include "compute/types.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCK     32 /* Columns of a block of Q4_0, Q5_0, Q8_0 and MXFP4. */
#define TILE_ROWS 16 /* Rows that are converted together, because they share cache lines. */

/* Endings of two names: that of the tensor with packed quants, by which a matrix is recognised, and
 * that of the tensor with the values. */
static const struct {
    const char *quants, *values;
} endings[] = {
    [PACKED_NONE] = {"", ""},
    [PACKED_GPTQ] = {".qweight", ".weight"},
    [PACKED_AWQ] = {".qweight", ".weight"},
    [PACKED_COMPRESSED] = {".weight_packed", ".weight"},
    [PACKED_INT8] = {".weight", ".weight"},
    [PACKED_MXFP4] = {"_blocks", ""},
};

/* The packed tensors of one matrix. */
struct matrix {
    const struct packed_settings *p;
    char name[160]; /* Without ending. */
    const struct mapped_tensor *quants, *scales, *zeros;
    uint64_t rows, cols, experts;
    uint64_t group_columns, groups; /* Columns that share a scale; scales of a row. */
    enum compute_type type;
};

static bool ends_with(struct mapped_text name, const char *ending)
{
    const size_t bytes = strlen(ending);
    return name.bytes > bytes && memcmp(name.text + name.bytes - bytes, ending, bytes) == 0;
}

bool packed_weights_name(struct mapped_text name, char *out, size_t capacity)
{
    static const struct {
        const char *ending, *values;
    } all[] = {{".qweight", ".weight"},
               {".qzeros", ".weight"},
               {".scales", ".weight"},
               {".g_idx", ".weight"},
               {".weight_packed", ".weight"},
               {".weight_zero_point", ".weight"},
               {".weight_shape", ".weight"},
               {".weight_g_idx", ".weight"},
               {"_blocks", ""},
               {"_scales", ""}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (!ends_with(name, all[i].ending))
            continue;
        int used = snprintf(out, capacity, "%.*s%s", (int)(name.bytes - strlen(all[i].ending)),
                            name.text, all[i].values);
        return used > 0 && (size_t)used < capacity;
    }
    return false;
}

/* ---- the tensors of a matrix ---- */

/* Finds NAME + ending. `count` dimensions are compared, the contiguous one first. */
static enum status part_find(const struct folder *f, const struct matrix *m, const char *ending,
                             uint32_t count, const uint64_t *dims, const struct mapped_tensor **out,
                             struct error *error)
{
    char name[192];
    snprintf(name, sizeof(name), "%s%s", m->name, ending);
    const struct mapped_tensor *t = folder_tensor_find_any(f, name);
    if (t == NULL)
        return error_set(error, ST_INVALID, "tensor %.120s is missing, which belongs to %.120s%s",
                         name, m->name, endings[m->p->format].quants);
    bool fits = t->dim_count == count;
    for (uint32_t i = 0; i < count; i++)
        fits = fits && t->dims[i] == dims[i];
    *out = t;
    return fits ? ST_OK
                : error_set(error, ST_INVALID,
                            "tensor %.120s has %" PRIu32 " dimensions and the shape %" PRIu64
                            " x %" PRIu64 ": want %" PRIu64 " x %" PRIu64 " for weights of %" PRIu64
                            " x %" PRIu64,
                            name, t->dim_count, t->dims[1], t->dims[0], count > 1 ? dims[1] : 1,
                            dims[0], m->rows, m->cols);
}

static enum status integer_check(const struct mapped_tensor *t, enum mapped_integer wanted,
                                 const char *wanted_name, struct error *error)
{
    if (t->integer == wanted)
        return ST_OK;
    return error_set(error, ST_INVALID, "tensor %.120s is not of type %s, as packed weights are",
                     t->name.text, wanted_name);
}

static enum status scales_check(const struct mapped_tensor *t, struct error *error)
{
    if (t->integer == MAPPED_NO_INTEGER &&
        (t->type == COMPUTE_F16 || t->type == COMPUTE_BF16 || t->type == COMPUTE_F32))
        return ST_OK;
    return error_set(error, ST_UNSUPPORTED, "tensor %.120s: scales are of type F16, BF16 or F32",
                     t->name.text);
}

/* Columns are in groups of `group` in their order, so that neighbours share a scale. */
static enum status order_check(const struct folder *f, const struct matrix *m, const char *ending,
                               struct error *error)
{
    char name[192];
    snprintf(name, sizeof(name), "%s%s", m->name, ending);
    const struct mapped_tensor *t = folder_tensor_find_any(f, name);
    if (t == NULL)
        return ST_OK;
    if (t->integer != MAPPED_I32 || t->dim_count != 1 || t->dims[0] != m->cols)
        return error_set(error, ST_INVALID, "tensor %.120s: want %" PRIu64 " elements of type I32",
                         name, m->cols);
    for (uint64_t i = 0; i < m->cols; i++) {
        int32_t group;
        memcpy(&group, (const uint8_t *)t->data + 4 * i, sizeof(group));
        if (group < 0 || (uint64_t)group != i / m->group_columns)
            return error_set(error, ST_UNSUPPORTED,
                             "tensor %.120s: column %" PRIu64 " is in group %" PRId32
                             ", want %" PRIu64
                             ": columns in another order (desc_act, actorder) are "
                             "not supported",
                             name, i, group, i / m->group_columns);
    }
    return ST_OK;
}

static enum status groups_set(struct matrix *m, struct error *error)
{
    m->group_columns = m->p->group_columns != 0 ? m->p->group_columns : m->cols;
    m->groups = m->cols / m->group_columns;
    if (m->rows <= UINT32_MAX && m->cols <= UINT32_MAX && m->cols % BLOCK == 0 &&
        m->group_columns % BLOCK == 0 && m->cols % m->group_columns == 0)
        return ST_OK;
    return error_set(error, ST_UNSUPPORTED,
                     "tensor %.120s%s: weights of %" PRIu64 " x %" PRIu64 " in groups of %" PRIu64
                     " columns: want groups of a multiple of %d columns, "
                     "and whole groups",
                     m->name, endings[m->p->format].quants, m->rows, m->cols, m->group_columns,
                     BLOCK);
}

/* GPTQ: quants [cols / each × rows]; AWQ: [cols × rows / each]. */
static enum status read_columns(const struct folder *f, struct matrix *m, struct error *error)
{
    const uint64_t each = 32 / m->p->weight_bits, *dims = m->quants->dims;
    const bool gptq = m->p->format == PACKED_GPTQ;
    if (m->quants->dim_count != 2 || __builtin_mul_overflow(dims[0], gptq ? 1 : each, &m->rows) ||
        __builtin_mul_overflow(dims[1], gptq ? each : 1, &m->cols) || m->rows % each != 0)
        return error_set(error, ST_INVALID, "tensor %.120s: want a matrix of packed columns",
                         m->quants->name.text);
    enum status status = groups_set(m, error);
    if (status != ST_OK)
        return status;
    const uint64_t scales[2] = {m->rows, m->groups}, zeros[2] = {m->rows / each, m->groups};
    status = part_find(f, m, ".scales", 2, scales, &m->scales, error);
    if (status == ST_OK)
        status = part_find(f, m, ".qzeros", 2, zeros, &m->zeros, error);
    if (status == ST_OK)
        status = integer_check(m->zeros, MAPPED_I32, "I32", error);
    return status == ST_OK && gptq ? order_check(f, m, ".g_idx", error) : status;
}

/* compressed-tensors: quants [rows × cols / each] or, for INT8, [rows × cols]. */
static enum status read_rows(const struct folder *f, struct matrix *m, struct error *error)
{
    const uint64_t each = m->p->format == PACKED_INT8 ? 1 : 32 / m->p->weight_bits;
    m->rows = m->quants->dims[1];
    if (m->quants->dim_count != 2 || __builtin_mul_overflow(m->quants->dims[0], each, &m->cols))
        return error_set(error, ST_INVALID, "tensor %.120s: want a matrix of packed rows",
                         m->quants->name.text);
    enum status status = groups_set(m, error);
    if (status != ST_OK)
        return status;
    const uint64_t scales[2] = {m->groups, m->rows}, zeros[2] = {m->groups, (m->rows + 7) / 8};
    status = part_find(f, m, ".weight_scale", 2, scales, &m->scales, error);
    if (status == ST_OK && m->p->is_asymmetric)
        status = part_find(f, m, ".weight_zero_point", 2, zeros, &m->zeros, error);
    if (status == ST_OK && m->p->is_asymmetric)
        status = integer_check(m->zeros, MAPPED_I32, "I32", error);
    return status == ST_OK ? order_check(f, m, ".weight_g_idx", error) : status;
}

/* MXFP4: blocks [experts × rows × groups × 16], scales [experts × rows × groups]. */
static enum status read_stack(const struct folder *f, struct matrix *m, struct error *error)
{
    const uint64_t *dims = m->quants->dims;
    m->rows = dims[2], m->groups = dims[1], m->experts = dims[3];
    m->group_columns = BLOCK, m->type = COMPUTE_MXFP4;
    uint64_t all;
    if (m->quants->dim_count != 4 || dims[0] != BLOCK / 2 ||
        __builtin_mul_overflow(m->groups, BLOCK, &m->cols) ||
        __builtin_mul_overflow(m->rows, m->experts, &all) || all > UINT32_MAX ||
        m->cols > UINT32_MAX)
        return error_set(error, ST_INVALID,
                         "tensor %.120s: want a stack of matrices of blocks of 16 bytes",
                         m->quants->name.text);
    const uint64_t scales[3] = {m->groups, m->rows, m->experts};
    enum status status = part_find(f, m, "_scales", 3, scales, &m->scales, error);
    return status == ST_OK ? integer_check(m->scales, MAPPED_U8, "U8", error) : status;
}

/* Describes the matrix whose quants are `quants`, and checks the tensors that belong to them. */
static enum status matrix_read(const struct packed_settings *p, const struct folder *f,
                               const struct mapped_tensor *quants, struct matrix *m,
                               struct error *error)
{
    const size_t end = strlen(endings[p->format].quants);
    *m = (struct matrix){.p = p, .quants = quants, .experts = 1};
    if (quants->name.bytes - end >= sizeof(m->name))
        return error_set(error, ST_INVALID, "tensor %.120s: its name is too long",
                         quants->name.text);
    snprintf(m->name, sizeof(m->name), "%.*s", (int)(quants->name.bytes - end), quants->name.text);
    m->type = p->weight_bits == 8 ? COMPUTE_Q8_0 : p->is_asymmetric ? COMPUTE_Q5_0 : COMPUTE_Q4_0;
    enum status status;
    if (p->format == PACKED_MXFP4)
        status = integer_check(quants, MAPPED_U8, "U8", error);
    else if (p->format == PACKED_INT8)
        status = integer_check(quants, MAPPED_I8, "I8", error);
    else
        status = integer_check(quants, MAPPED_I32, "I32", error);
    if (status != ST_OK)
        return status;
    if (p->format == PACKED_MXFP4)
        return read_stack(f, m, error);
    status = p->format == PACKED_GPTQ || p->format == PACKED_AWQ ? read_columns(f, m, error)
                                                                 : read_rows(f, m, error);
    return status == ST_OK ? scales_check(m->scales, error) : status;
}

static bool is_quants(const struct packed_settings *p, const struct mapped_tensor *t)
{
    return t->integer != MAPPED_NO_INTEGER && ends_with(t->name, endings[p->format].quants);
}

enum status packed_tensors_add(const struct packed_settings *p, struct folder *f,
                               struct error *error)
{
    const size_t count = folder_tensor_count(f);
    enum status status = ST_OK;
    for (size_t i = 0; i < count && status == ST_OK; i++) {
        const struct mapped_tensor *t = folder_tensor_at(f, i);
        struct matrix m;
        char name[192];
        if (p->format == PACKED_NONE || !is_quants(p, t))
            continue;
        status = matrix_read(p, f, t, &m, error);
        if (status != ST_OK)
            break;
        snprintf(name, sizeof(name), "%s%s", m.name, endings[p->format].values);
        const struct mapped_tensor values = {.type = m.type,
                                             .dim_count = p->format == PACKED_MXFP4 ? 3 : 2,
                                             .dims = {m.cols, m.rows, m.experts, 1}};
        status = folder_tensor_add(f, name, &values, error);
    }
    return status == ST_OK ? folder_tensors_sort(f, error) : status;
}

/* ---- conversion ---- */

static uint32_t word_of(const struct mapped_tensor *t, uint64_t index)
{
    uint32_t word;
    memcpy(&word, (const uint8_t *)t->data + 4 * index, sizeof(word));
    return word;
}

/* Bits from which AWQ keeps the number of column or row i % 8. */
static uint32_t awq_shift(uint64_t i)
{
    return (uint32_t)(i % 8 / 2 + i % 2 * 4) * 4;
}

static uint32_t quant_of(const struct matrix *m, uint64_t row, uint64_t col)
{
    const uint32_t bits = m->p->weight_bits, each = 32 / bits, mask = bits == 8 ? 255 : 15;
    if (m->p->format == PACKED_GPTQ)
        return word_of(m->quants, col / each * m->rows + row) >> col % each * bits & mask;
    if (m->p->format == PACKED_AWQ)
        return word_of(m->quants, col * (m->rows / 8) + row / 8) >> awq_shift(row) & mask;
    return word_of(m->quants, row * (m->cols / each) + col / each) >> col % each * bits & mask;
}

/* The zero point of a row's group; 8 or 128 if the matrix has none of its own. */
static uint32_t zero_of(const struct matrix *m, uint64_t row, uint64_t group)
{
    const uint32_t bits = m->p->weight_bits, each = 32 / bits, mask = bits == 8 ? 255 : 15;
    if (m->zeros == NULL)
        return mask / 2 + 1;
    if (m->p->format == PACKED_AWQ)
        return word_of(m->zeros, group * (m->rows / 8) + row / 8) >> awq_shift(row) & mask;
    if (m->p->format == PACKED_COMPRESSED)
        return word_of(m->zeros, row / 8 * m->groups + group) >> row % 8 * 4 & mask;
    const uint32_t stored =
        word_of(m->zeros, group * (m->rows / each) + row / each) >> row % each * bits;
    return (stored + m->p->zero_points_less_one) & mask;
}

static float scale_of(const struct matrix *m, uint64_t row, uint64_t group)
{
    const bool columns = m->p->format == PACKED_GPTQ || m->p->format == PACKED_AWQ;
    const uint64_t at = columns ? group * m->rows + row : row * m->groups + group;
    const size_t bytes = compute_type_block_bytes(m->scales->type);
    _Alignas(4) uint8_t number[4];
    float scale;
    memcpy(number, (const uint8_t *)m->scales->data + at * bytes, bytes);
    compute_dequantize(m->scales->type, number, 1, &scale);
    return scale;
}

static void q4_0_write(const struct matrix *m, uint64_t row, uint64_t col, struct block_q4_0 *out)
{
    for (uint32_t i = 0; i < 16; i++)
        out->quants[i] = (uint8_t)(quant_of(m, row, col + i) | quant_of(m, row, col + 16 + i) << 4);
}

static void q5_0_write(const struct matrix *m, uint64_t row, uint64_t col, uint32_t zero,
                       struct block_q5_0 *out)
{
    memset(out->high_bits, 0, sizeof(out->high_bits));
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t value = quant_of(m, row, col + i) + 16 - zero;
        out->quants[i % 16] =
            (uint8_t)((i < 16 ? 0 : out->quants[i % 16]) | (value & 15u) << i / 16 * 4);
        out->high_bits[i / 8] |= (uint8_t)((value >> 4 & 1u) << i % 8);
    }
}

static void q8_0_write(const struct matrix *m, uint64_t row, uint64_t col, struct block_q8_0 *out)
{
    if (m->p->format == PACKED_INT8)
        memcpy(out->quants, (const uint8_t *)m->quants->data + row * m->cols + col, BLOCK);
    else
        for (uint32_t i = 0; i < BLOCK; i++)
            out->quants[i] = (int8_t)(quant_of(m, row, col + i) ^ 128u);
}

/* Writes the block of a row that begins at column `col`. */
static enum status block_write(const struct matrix *m, uint64_t row, uint64_t col, uint8_t *out,
                               struct error *error)
{
    const uint64_t group = col / m->group_columns;
    const float scale = scale_of(m, row, group);
    const uint32_t zero = zero_of(m, row, group), middle = m->p->weight_bits == 8 ? 128 : 8;
    const uint16_t half = half_to_f16(scale);
    if (!isfinite(half_from_f16(half)))
        return error_set(error, ST_INVALID,
                         "tensor %.120s: scale of row %" PRIu64 ", group %" PRIu64
                         " is %g: want a number up to 65504",
                         m->scales->name.text, row, group, (double)scale);
    if (!m->p->is_asymmetric && zero != middle)
        return error_set(error, ST_INVALID,
                         "tensor %.120s: zero point of row %" PRIu64 ", group %" PRIu64
                         " is %" PRIu32 ": want %" PRIu32 " for symmetric weights of %" PRIu32
                         " bits",
                         m->zeros->name.text, row, group, zero, middle, m->p->weight_bits);
    memcpy(out, &half, sizeof(half)); /* The first member of these blocks. */
    if (m->type == COMPUTE_Q4_0)
        q4_0_write(m, row, col, (struct block_q4_0 *)(void *)out);
    else if (m->type == COMPUTE_Q5_0)
        q5_0_write(m, row, col, zero, (struct block_q5_0 *)(void *)out);
    else
        q8_0_write(m, row, col, (struct block_q8_0 *)(void *)out);
    return ST_OK;
}

/* Neighbouring elements are neighbouring nibbles; in a block of a GGUF file they are 16 apart. */
static enum status mxfp4_write(const struct matrix *m, uint64_t row, uint64_t col, uint8_t *out,
                               struct error *error)
{
    struct block_mxfp4 *block = (struct block_mxfp4 *)(void *)out;
    const uint64_t at = row * m->groups + col / BLOCK;
    const uint8_t *from = (const uint8_t *)m->quants->data + at * 16;
    block->exponent = ((const uint8_t *)m->scales->data)[at];
    if (block->exponent == 255)
        return error_set(error, ST_INVALID, "tensor %.120s: element %" PRIu64 " is NaN",
                         m->scales->name.text, at);
    for (uint32_t i = 0; i < 16; i++) {
        const uint32_t shift = i % 2 * 4;
        block->quants[i] =
            (uint8_t)((from[i / 2] >> shift & 15u) | (from[8 + i / 2] >> shift & 15u) << 4);
    }
    return ST_OK;
}

static enum status rows_write(const struct matrix *m, uint64_t first, uint64_t count, uint8_t *out,
                              struct error *error)
{
    const size_t block_bytes = compute_type_block_bytes(m->type);
    const size_t row_bytes = m->cols / BLOCK * block_bytes;
    for (uint64_t tile = 0; tile < count; tile += TILE_ROWS)
        for (uint64_t col = 0; col < m->cols; col += BLOCK)
            for (uint64_t i = tile; i < count && i < tile + TILE_ROWS; i++) {
                uint8_t *to = out + i * row_bytes + col / BLOCK * block_bytes;
                enum status status = m->type == COMPUTE_MXFP4
                                         ? mxfp4_write(m, first + i, col, to, error)
                                         : block_write(m, first + i, col, to, error);
                if (status != ST_OK)
                    return status;
            }
    return ST_OK;
}

enum status packed_read(const struct packed_settings *p, const struct folder *f,
                        const struct mapped_tensor *t, uint32_t first, uint32_t count, void **out,
                        struct error *error)
{
    struct matrix m;
    char name[256];
    const size_t end = strlen(endings[p->format].values);
    snprintf(name, sizeof(name), "%.*s%s", (int)(t->name.bytes - end), t->name.text,
             endings[p->format].quants);
    enum status status = matrix_read(p, f, folder_tensor_find_any(f, name), &m, error);
    if (status != ST_OK)
        return status;
    uint8_t *rows = malloc(count * (m.cols / BLOCK) * compute_type_block_bytes(m.type));
    if (rows == NULL)
        return error_set(error, ST_NO_MEMORY, "tensor %.120s: no memory for %" PRIu32 " rows",
                         t->name.text, count);
    status = rows_write(&m, first, count, rows, error);
    if (status != ST_OK) {
        free(rows);
        return status;
    }
    *out = rows;
    return ST_OK;
}
