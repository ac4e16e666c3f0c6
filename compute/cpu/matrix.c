/* matrix: weights, repacked when they are opened into the form that the kernels stream (kernels.h).
 * Scales and quants are moved, never changed, so an embedding row can be read back exactly. */
#include "compute/cpu/cpu.h"
#include "compute/cpu/layout.h"
#include "compute/cpu/unpack.h"
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
    [COMPUTE_Q5_0] = FORM_FIVE_F16,
    [COMPUTE_Q5_1] = FORM_FIVE_F16_MIN,
    [COMPUTE_Q4_K] = FORM_NIBBLE_SUPER,
    [COMPUTE_Q5_K] = FORM_FIVE_SUPER,
    [COMPUTE_Q6_K] = FORM_SIX_SUPER,
    [COMPUTE_F8_E4M3] = FORM_BF16,
    [COMPUTE_Q2_K] = FORM_TWO_SUPER,
    [COMPUTE_Q3_K] = FORM_THREE_SUPER,
    [COMPUTE_IQ4_NL] = FORM_CODE_F16,
    [COMPUTE_IQ4_XS] = FORM_CODE_SUPER,
    [COMPUTE_MXFP4] = FORM_CODE_BF16,
    [COMPUTE_TQ1_0] = FORM_TWO_F16,
    [COMPUTE_TQ2_0] = FORM_TWO_F16,
    [COMPUTE_IQ3_S] = FORM_CODE_SUPER,
    [COMPUTE_IQ3_XXS] = FORM_CODE_SUPER,
    [COMPUTE_IQ2_S] = FORM_THREE_SUPER,
    [COMPUTE_IQ2_XS] = FORM_THREE_SUPER,
    [COMPUTE_IQ2_XXS] = FORM_THREE_SUPER,
    [COMPUTE_IQ1_S] = FORM_THREE_SUPER,
    [COMPUTE_IQ1_M] = FORM_THREE_SUPER,
};

struct repack {
    struct compute *c;
    const struct compute_matrix *m;
    const struct compute_source *source;
    size_t row_bytes;
};

/* Writes 4 bytes (four columns, or twice four) of row n in vector g of a panel. */
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

/* Packs two bits of each of 16 quants, from bit `shift` on. The bits of the four columns from 16 *
 * vector + 4g on become bits 2g and 2g + 1 of the four bytes. */
static uint32_t pairs_of(const uint8_t quants[32], uint32_t vector, uint32_t shift)
{
    uint32_t packed = 0;
    for (uint32_t g = 0; g < 4; g++)
        packed |= (four_at(quants, 4 * vector + g) >> shift & 0x03030303u) << g * 2;
    return packed;
}

static uint32_t bits_of(const uint8_t quants[32], uint32_t shift)
{
    uint32_t packed = 0;
    for (uint32_t g = 0; g < 8; g++)
        packed |= (four_at(quants, g) >> shift & 0x01010101u) << g;
    return packed;
}

static void quants_pack(enum kernels_form form, const uint8_t quants[32], uint8_t *panel,
                        uint32_t n)
{
    const uint32_t low = layout_low_vectors(form);
    for (uint32_t g = 0; g < low; g++) {
        const uint32_t four = four_at(quants, g);
        quants_put(panel, g, n,
                   layout_is_bytes(form) ? four
                   : layout_two_bits(form)
                       ? pairs_of(quants, g, 0)
                       : (four & 0x0f0f0f0fu) | (four_at(quants, g + 4) & 0x0f0f0f0fu) << 4);
    }
    if (layout_high_bits(form) == 1)
        quants_put(panel, low, n, bits_of(quants, low));
    for (uint32_t i = 0; layout_high_bits(form) == 2 && i < 2; i++)
        quants_put(panel, low + i, n, pairs_of(quants, i, low));
}

static void half_put(uint8_t *halves, uint32_t n, uint16_t half)
{
    memcpy(halves + (size_t)n * 2, &half, sizeof(half));
}

/* Packs the scales of an f16 or bf16 form, which holds them exactly. */
static void scales_pack(enum kernels_form form, const struct types_group *group, uint8_t *scales,
                        uint32_t n)
{
    if (form == FORM_CODE_BF16) /* Not half_to_bf16, which has no subnormal numbers. */
        half_put(scales, n, (uint16_t)(half_float_bits(group->scales[0]) >> 16));
    else
        half_put(scales, n, half_to_f16(group->scales[0]));
    if (layout_has_min(form))
        half_put(scales, PANEL_ROWS + n, half_to_f16(group->mins[0]));
}

/* Packs the scales and the header of row i for the 8 blocks from block `first` on. */
static void super_pack(const struct compute_matrix *m, const uint8_t *row, uint32_t first,
                       uint32_t i, uint8_t *group)
{
    const uint32_t panel = i / PANEL_ROWS, n = i % PANEL_ROWS;
    const uint32_t parts = layout_has_halves(m->form) || layout_has_codes(m->form) ? 2 : 1;
    uint8_t *header = group + layout_header_offset(m->form, first);
    struct types_two_level super;
    types_two_level_unpack(m->type, row, first / LAYOUT_HEADER_BLOCKS, &super);
    half_put(header + layout_units_offset(m->form, panel, 0), n, super.scale);
    if (layout_has_min(m->form))
        half_put(header + layout_units_offset(m->form, panel, 1), n, super.min ^ 0x8000);
    for (uint32_t b = 0; b < LAYOUT_HEADER_BLOCKS; b++) {
        uint8_t *scales =
            group + layout_block_offset(m->form, first + b) + layout_scales_offset(m->form, panel);
        for (uint32_t k = 0; k < 2; k++) {
            uint8_t byte = k == 0 || layout_has_halves(m->form) ? super.scales[parts * b + k]
                           : layout_has_min(m->form)            ? super.mins[b]
                                                                : 0; /* Not used. */
            if (layout_has_halves(m->form) && layout_has_min(m->form))
                byte |= (uint8_t)(super.mins[2 * b + k] << 4);
            scales[k * PANEL_ROWS + n] = byte;
        }
    }
}

/* Packs row i of W in block b, for any type, through the types' common form. */
static void block_put(const struct compute_matrix *m, const uint8_t *row, uint32_t b, uint32_t i,
                      uint8_t *group)
{
    struct types_group unpacked;
    uint8_t *block = group + layout_block_offset(m->form, b);
    types_group_unpack(m->type, row, b, &unpacked);
    quants_pack(m->form, unpacked.quants, block + layout_vector_offset(i / PANEL_ROWS, 0),
                i % PANEL_ROWS);
    if (!layout_two_level(m->form))
        scales_pack(m->form, &unpacked, block + layout_scales_offset(m->form, i / PANEL_ROWS),
                    i % PANEL_ROWS);
    else if (b % LAYOUT_HEADER_BLOCKS == 0)
        super_pack(m, row, b, i, group);
}

/* Packs four columns at a time for the most common types, whose bytes are already in the panel's
 * order. */
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
    for (uint32_t i = 0; i < GROUP_ROWS; i++) {
        uint32_t row = group * GROUP_ROWS + i;
        if (row >= m->rows)
            break;
        const uint8_t *from = (const uint8_t *)job->source->data + row * job->row_bytes;
        for (uint32_t b = 0; b < m->cols / 32; b++) {
            uint8_t *block = out + layout_block_offset(m->form, b);
            uint8_t *panel = block + layout_vector_offset(i / PANEL_ROWS, 0);
            uint8_t *scales = block + layout_scales_offset(m->form, i / PANEL_ROWS);
            if (!block_put_fast(m->type, from, b, panel, scales, i % PANEL_ROWS))
                block_put(m, from, b, i, out);
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
        const uint8_t *from = (const uint8_t *)job->source->data + row * job->row_bytes;
        if (m->form == FORM_F32) {
            compute_source_row(job->source, row, scratch);
            for (uint32_t k = 0; k < m->cols; k++)
                memcpy(out + layout_float_offset(m->form, i, k), &scratch[k], 4);
        } else if (m->type == COMPUTE_F8_E4M3) {
            for (uint32_t k = 0; k < m->cols; k++) {
                uint16_t half = half_to_bf16(half_from_e4m3(from[k]));
                memcpy(out + layout_float_offset(m->form, i, k), &half, 2);
            }
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

/* Stores the scales in the order of the groups. A slice's scales may begin inside a block, but not
 * between the two columns of a pair. */
static enum status scales_open(struct compute_matrix *m, const struct compute_scales *scales)
{
    const uint32_t first = scales->cols - scales->first_col;
    m->scale_first = first < m->cols ? first : m->cols;
    m->scale_cols = scales->cols;
    m->scale_blocks = 1 + (m->cols - m->scale_first + m->scale_cols - 1) / m->scale_cols;
    if (m->scale_blocks > 1 && (m->scale_first % 2 != 0 || m->scale_cols % 2 != 0))
        return ST_UNSUPPORTED;
    m->scales = calloc((size_t)m->groups * m->scale_blocks * GROUP_ROWS, sizeof(*m->scales));
    if (m->scales == NULL)
        return ST_NO_MEMORY;
    for (uint32_t row = 0; row < m->rows; row++)
        for (uint32_t b = 0; b < m->scale_blocks; b++) {
            size_t block = (size_t)(row / GROUP_ROWS) * m->scale_blocks + b;
            uint32_t col = b == 0 ? 0 : m->scale_first + (b - 1) * m->scale_cols;
            m->scales[block * GROUP_ROWS + row % GROUP_ROWS] = compute_scale_at(scales, row, col);
        }
    return ST_OK;
}

enum status cpu_matrix_open(struct compute *c, const struct compute_source *source,
                            struct compute_matrix **out)
{
    const enum compute_type type = source->type;
    const uint32_t rows = source->rows, cols = source->cols;
    assert((unsigned)type < COMPUTE_TYPE_COUNT && rows > 0 && cols > 0);
    assert(cols % compute_type_block_elements(type) == 0);
    enum kernels_form form = c->exact ? FORM_F32 : forms[type];
    if (form == FORM_F32 && cpu_scratch_grow(c, cols) != ST_OK)
        return ST_NO_MEMORY;
    struct compute_matrix *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return ST_NO_MEMORY;
    *m = (struct compute_matrix){.type = type, .form = form, .rows = rows, .cols = cols};
    m->groups = (rows + GROUP_ROWS - 1) / GROUP_ROWS;
    m->next = calloc(workers_threads(c->workers) + (size_t)cpu_lanes_count(c), sizeof(*m->next));
    if (form < FORM_QUANTISED_COUNT) {
        m->group_bytes = layout_group_bytes(form, cols / 32);
        m->way = cpu_product_way(c, form);
        m->way.strips = m->way.strips && cols / 32 <= KERNELS_STRIP_BLOCKS;
    } else
        m->group_bytes = layout_float_group_bytes(form, cols);
    m->data = arena_allocate(&c->weights, m->groups * m->group_bytes, &m->chunk);
    enum status status = m->data == NULL || m->next == NULL ? ST_NO_MEMORY : ST_OK;
    if (status == ST_OK && source->scales.values != NULL && form != FORM_F32)
        status = scales_open(m, &source->scales);
    if (status != ST_OK) {
        cpu_matrix_close(c, m);
        return status;
    }
    struct repack job = {.c = c, .m = m, .source = source};
    job.row_bytes = compute_source_row_bytes(source);
    assert(m->groups <= 65535);
    workers_run(c->workers, repack_item, &job, m->groups);
    *out = m;
    return ST_OK;
}

void cpu_matrix_close(struct compute *c, struct compute_matrix *m)
{
    if (m == NULL)
        return;
    if (c->last_product == m)
        c->last_product = NULL;
    cpu_lanes_forget(c->lanes, m);
    if (m->data != NULL)
        arena_free(&c->weights, m->chunk);
    free(m->next);
    free(m->scales);
    free(m);
}

unsigned cpu_matrix_needs(const struct compute_matrix *m)
{
    if (m->form < FORM_QUANTISED_COUNT)
        return COMPUTE_NEEDS_Q8 | (m->way.strips ? COMPUTE_NEEDS_STRIPS : 0);
    return m->form == FORM_BF16 ? COMPUTE_NEEDS_BF16 : COMPUTE_NEEDS_F32;
}

size_t cpu_matrix_bytes(const struct compute_matrix *m)
{
    const size_t scales = m->groups * m->scale_blocks * GROUP_ROWS * sizeof(float);
    return m->groups * m->group_bytes + scales;
}

static void embed_block(const struct compute_matrix *m, const uint8_t *group, uint32_t b,
                        uint32_t i, float out[32])
{
    struct unpacked w;
    unpack_row(m->form, types_codes(m->type), types_scale_factor(m->type), group, b, i, &w);
    for (uint32_t k = 0; k < 32; k++) {
        float product = w.scale[k / 16] * (float)w.values[k];
        out[k] = product + w.min[k / 16];
    }
}

static float scale_of(const struct compute_matrix *m, uint32_t row, uint32_t col)
{
    const uint32_t b = col < m->scale_first ? 0 : 1 + (col - m->scale_first) / m->scale_cols;
    const size_t block = (size_t)(row / GROUP_ROWS) * m->scale_blocks + b;
    return m->scales[block * GROUP_ROWS + row % GROUP_ROWS];
}

static void embed_row(const struct compute_matrix *m, uint32_t row, float *y)
{
    const uint8_t *group = m->data + row / GROUP_ROWS * m->group_bytes;
    uint32_t i = row % GROUP_ROWS;
    if (m->form < FORM_QUANTISED_COUNT) {
        for (uint32_t b = 0; b < m->cols / 32; b++)
            embed_block(m, group, b, i, y + (size_t)b * 32);
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
        if (m->scales != NULL)
            y[k] *= scale_of(m, row, k);
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
    for (uint32_t i = item * EMBED_ITEM_ROWS; i < end && i < job->count; i++) {
        float *y = job->y + (size_t)i * job->m->cols;
        if (job->ids[i] < job->m->rows)
            embed_row(job->m, job->ids[i], y);
        else
            memset(y, 0, job->m->cols * sizeof(float));
    }
}

void cpu_embed(struct compute *c, const struct compute_matrix *m, const uint32_t *ids,
               uint32_t count, float *y)
{
    struct embed job = {.m = m, .ids = ids, .count = count, .y = y};
    workers_run(c->workers, embed_item, &job, (count + EMBED_ITEM_ROWS - 1) / EMBED_ITEM_ROWS);
}
