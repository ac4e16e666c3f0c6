/* matrix: weights, repacked when they are opened into the form that the kernels stream (kernels.h).
 * The f16 scales and the quants are moved, never changed, so an embedding row can be read back
 * exactly. */
#include "compute/cpu/cpu.h"
#include "compute/cpu/layout.h"
#include "compute/half.h"
#include "compute/types.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const enum kernels_form forms[COMPUTE_TYPE_COUNT] = {
    [COMPUTE_F32] = FORM_F32,
    [COMPUTE_F16] = FORM_F16,
    [COMPUTE_BF16] = FORM_BF16,
    [COMPUTE_Q8_0] = FORM_BYTE_F16,
    [COMPUTE_Q4_0] = FORM_NIBBLE_F16,
    [COMPUTE_Q4_1] = FORM_NIBBLE_F16_MIN,
    [COMPUTE_Q4_K] = FORM_NIBBLE_F32_MIN,
    [COMPUTE_Q5_K] = FORM_BYTE_F32_MIN,
    [COMPUTE_Q6_K] = FORM_BYTE_F32_HALF,
};

struct repack {
    struct compute *c;
    const struct compute_matrix *m;
    const uint8_t *source;
    size_t row_bytes;
};

/* 4 bytes (four columns, or twice four) of row n in vector g of a panel. */
static void quants_put(uint8_t *panel, uint32_t g, uint32_t n, uint32_t four)
{
    memcpy(panel + layout_vector_offset(0, g) + (size_t)n * 4, &four, sizeof(four));
}

static uint32_t four_at(const void *p, uint32_t i)
{
    uint32_t four;
    memcpy(&four, (const uint8_t *)p + (size_t)i * 4, sizeof(four));
    return four;
}

static void scale_put(enum kernels_form form, uint8_t *scales, uint32_t i, float value)
{
    uint16_t half = half_to_f16(value); /* exact: it was one in the file */
    if (layout_scales_wide(form))
        memcpy(scales + (size_t)i * 4, &value, sizeof(value));
    else
        memcpy(scales + (size_t)i * 2, &half, sizeof(half));
}

/* Any type, by way of its common form. */
static void block_put(const struct compute_matrix *m, const uint8_t *row, uint32_t b,
                      uint8_t *panel, uint8_t *scales, uint32_t n)
{
    struct types_group group;
    types_group_unpack(m->type, row, b, &group);
    for (uint32_t g = 0; g < 8; g++) {
        if (!layout_nibbles(m->form))
            quants_put(panel, g, n, four_at(group.quants, g));
        else if (g < 4)
            quants_put(panel, g, n, four_at(group.quants, g) | four_at(group.quants, g + 4) << 4);
    }
    scale_put(m->form, scales, n, group.scale[0]);
    if (layout_min(m->form))
        scale_put(m->form, scales, PANEL_ROWS + n, group.min);
    else if (m->form == FORM_BYTE_F32_HALF)
        scale_put(m->form, scales, PANEL_ROWS + n, group.scale[1]);
}

/* The common types' bytes are in the panel's order already: four columns at a time. */
static bool block_put_fast(enum compute_type type, const uint8_t *row, uint32_t b, uint8_t *panel,
                           uint8_t *scales, uint32_t n)
{
    if (type == COMPUTE_Q4_1 || type == COMPUTE_Q4_0) {
        const size_t header = type == COMPUTE_Q4_1 ? 4 : 2;
        const uint8_t *block = row + b * (header + 16);
        memcpy(scales + (size_t)n * 2, block, 2);
        if (type == COMPUTE_Q4_1)
            memcpy(scales + 2 * (size_t)(PANEL_ROWS + n), block + 2, 2);
        for (uint32_t g = 0; g < 4; g++)
            quants_put(panel, g, n, four_at(block + header, g));
        return true;
    }
    if (type == COMPUTE_Q8_0) {
        const uint8_t *block = row + (size_t)b * sizeof(struct block_q8_0);
        memcpy(scales + (size_t)n * 2, block, 2);
        for (uint32_t g = 0; g < 8; g++)
            quants_put(panel, g, n, four_at(block + 2, g) ^ 0x80808080u);
        return true;
    }
    return false;
}

static void repack_quantised(const struct repack *job, uint32_t group, uint8_t *out)
{
    const struct compute_matrix *m = job->m;
    const size_t block_bytes = layout_block_bytes(m->form);
    for (uint32_t i = 0; i < GROUP_ROWS; i++) {
        uint32_t row = group * GROUP_ROWS + i;
        if (row >= m->rows)
            break;
        const uint8_t *from = job->source + row * job->row_bytes;
        for (uint32_t b = 0; b < m->cols / 32; b++) {
            uint8_t *block = out + b * block_bytes;
            uint8_t *panel = block + layout_vector_offset(i / PANEL_ROWS, 0);
            uint8_t *scales = block + layout_scales_offset(m->form, i / PANEL_ROWS);
            if (!block_put_fast(m->type, from, b, panel, scales, i % PANEL_ROWS))
                block_put(m, from, b, panel, scales, i % PANEL_ROWS);
        }
    }
}

static void repack_float(const struct repack *job, uint32_t group, uint8_t *out, float *scratch)
{
    const struct compute_matrix *m = job->m;
    for (uint32_t i = 0; i < GROUP_ROWS; i++) {
        uint32_t row = group * GROUP_ROWS + i;
        if (row >= m->rows)
            break;
        const uint8_t *from = job->source + row * job->row_bytes;
        if (m->form == FORM_F32) {
            compute_dequantize(m->type, from, m->cols, scratch);
            for (uint32_t k = 0; k < m->cols; k++)
                memcpy(out + layout_float_offset(m->form, i, k), &scratch[k], 4);
        } else {
            for (uint32_t k = 0; k < m->cols; k++)
                memcpy(out + layout_float_offset(m->form, i, k), from + (size_t)k * 2, 2);
        }
    }
}

static void repack_item(void *context, uint32_t group, uint32_t thread)
{
    const struct repack *job = context;
    const struct compute_matrix *m = job->m;
    uint8_t *out = m->data + group * m->group_bytes;
    if ((group + 1) * GROUP_ROWS > m->rows || (m->form == FORM_BF16 && m->cols % 2 != 0))
        memset(out, 0, m->group_bytes);
    if (m->form < FORM_QUANTISED_COUNT)
        repack_quantised(job, group, out);
    else
        repack_float(job, group, out, job->c->scratch[thread].data);
}

enum status cpu_matrix_open(struct compute *c, enum compute_type type, uint32_t rows, uint32_t cols,
                            const void *source, struct compute_matrix **out)
{
    assert((unsigned)type < COMPUTE_TYPE_COUNT && rows > 0 && cols > 0);
    assert(cols % compute_type_block_elements(type) == 0);
    enum kernels_form form = c->exact ? FORM_F32 : forms[type];
    if (form == FORM_F32 && cpu_scratch_need(c, cols) != ST_OK)
        return ST_NO_MEMORY;
    struct compute_matrix *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return ST_NO_MEMORY;
    *m = (struct compute_matrix){.type = type, .form = form, .rows = rows, .cols = cols};
    m->groups = (rows + GROUP_ROWS - 1) / GROUP_ROWS;
    if (form < FORM_QUANTISED_COUNT)
        m->group_bytes = (size_t)(cols / 32) * layout_block_bytes(form);
    else
        m->group_bytes = layout_float_group_bytes(form, cols);
    m->data = arena_take(&c->weights, m->groups * m->group_bytes, &m->chunk);
    if (m->data == NULL) {
        free(m);
        return ST_NO_MEMORY;
    }
    struct repack job = {.c = c, .m = m, .source = source};
    job.row_bytes = cols / compute_type_block_elements(type) * compute_type_block_bytes(type);
    assert(m->groups <= 65535);
    workers_run(c->workers, repack_item, &job, m->groups);
    *out = m;
    return ST_OK;
}

void cpu_matrix_close(struct compute *c, struct compute_matrix *m)
{
    if (m == NULL)
        return;
    arena_give(&c->weights, m->chunk);
    free(m);
}

unsigned cpu_matrix_needs(const struct compute_matrix *m)
{
    return m->form < FORM_QUANTISED_COUNT ? COMPUTE_NEEDS_Q8
           : m->form == FORM_BF16         ? COMPUTE_NEEDS_BF16
                                          : COMPUTE_NEEDS_F32;
}

size_t cpu_matrix_bytes(const struct compute_matrix *m)
{
    return m->groups * m->group_bytes;
}

static float scale_get(enum kernels_form form, const uint8_t *scales, uint32_t i)
{
    float value;
    uint16_t half;
    if (layout_scales_wide(form)) {
        memcpy(&value, scales + (size_t)i * 4, sizeof(value));
        return value;
    }
    memcpy(&half, scales + (size_t)i * 2, sizeof(half));
    return half_from_f16(half);
}

static void embed_block(const struct compute_matrix *m, const uint8_t *block, uint32_t i,
                        float out[32])
{
    const uint8_t *panel = block + layout_vector_offset(i / PANEL_ROWS, 0);
    const uint8_t *scales = block + layout_scales_offset(m->form, i / PANEL_ROWS);
    uint32_t n = i % PANEL_ROWS;
    struct types_group group = {.min = 0};
    for (uint32_t g = 0; g < (layout_nibbles(m->form) ? 4u : 8u); g++) {
        uint32_t four = four_at(panel + layout_vector_offset(0, g), n);
        uint32_t low = layout_nibbles(m->form) ? four & 0x0f0f0f0fu : four;
        uint32_t high = four >> 4 & 0x0f0f0f0fu;
        memcpy(group.quants + (size_t)g * 4, &low, sizeof(low));
        if (layout_nibbles(m->form))
            memcpy(group.quants + 16 + (size_t)g * 4, &high, sizeof(high));
    }
    group.scale[0] = group.scale[1] = scale_get(m->form, scales, n);
    if (layout_min(m->form))
        group.min = scale_get(m->form, scales, PANEL_ROWS + n);
    else if (m->form == FORM_BYTE_F32_HALF)
        group.scale[1] = scale_get(m->form, scales, PANEL_ROWS + n);
    types_group_dequantize(m->type, &group, out);
}

static void embed_row(const struct compute_matrix *m, uint32_t row, float *y)
{
    const uint8_t *group = m->data + row / GROUP_ROWS * m->group_bytes;
    uint32_t i = row % GROUP_ROWS;
    if (m->form < FORM_QUANTISED_COUNT) {
        for (uint32_t b = 0; b < m->cols / 32; b++)
            embed_block(m, group + (size_t)b * layout_block_bytes(m->form), i, y + (size_t)b * 32);
        return;
    }
    for (uint32_t k = 0; k < m->cols; k++) {
        const uint8_t *at = group + layout_float_offset(m->form, i, k);
        uint16_t half;
        if (m->form == FORM_F32) {
            memcpy(&y[k], at, sizeof(y[k]));
            continue;
        }
        memcpy(&half, at, sizeof(half));
        y[k] = m->form == FORM_F16 ? half_from_f16(half) : half_from_bf16(half);
    }
}

#define EMBED_ITEM_ROWS 8

struct embed {
    const struct compute_matrix *m;
    const uint32_t *ids;
    uint32_t count;
    float *y;
};

static void embed_item(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct embed *job = context;
    uint32_t end = (item + 1) * EMBED_ITEM_ROWS;
    for (uint32_t i = item * EMBED_ITEM_ROWS; i < end && i < job->count; i++)
        embed_row(job->m, job->ids[i], job->y + (size_t)i * job->m->cols);
}

void cpu_embed(struct compute *c, const struct compute_matrix *m, const uint32_t *ids,
               uint32_t count, float *y)
{
    for (uint32_t i = 0; i < count; i++)
        assert(ids[i] < m->rows);
    struct embed job = {.m = m, .ids = ids, .count = count, .y = y};
    workers_run(c->workers, embed_item, &job, (count + EMBED_ITEM_ROWS - 1) / EMBED_ITEM_ROWS);
}
