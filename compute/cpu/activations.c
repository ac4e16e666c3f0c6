/* activations: the inputs of matmul, in one or several forms (fp32, bfloat16, quantised in tiles of
 * at most 6 rows), and the row-wise operations that write them. */
#include "compute/cpu/cpu.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void cpu_activations_close(struct compute *c, struct compute_activations *a)
{
    (void)c;
    if (a == NULL)
        return;
    free(a->floats);
    free(a->rounded);
    free(a->blocks);
    free(a->second_planes);
    free(a->strips);
    free(a->strip_planes);
    free(a);
}

/* Returns false if there is no memory. The rows after the last row of a batch have no effect, but
 * their numbers must not be subnormal: that would be slow. */
static bool strips_open(struct compute_activations *a)
{
    const size_t count =
        ((size_t)a->rows_max + KERNELS_STRIP_ROWS - 1) / KERNELS_STRIP_ROWS * (a->cols / 32);
    a->strips = cpu_memory_allocate(count * sizeof(*a->strips));
    if (a->strips == NULL)
        return false;
    memset(a->strips, 0, count * sizeof(*a->strips));
    if (a->second_planes == NULL)
        return true;
    a->strip_planes = cpu_memory_allocate(count * sizeof(*a->strip_planes));
    return a->strip_planes != NULL;
}

enum status cpu_activations_open(struct compute *c, uint32_t rows_max, uint32_t cols,
                                 unsigned needs, struct compute_activations **out)
{
    assert(needs != 0 && rows_max > 0 && cols > 0);
    assert((needs & COMPUTE_NEEDS_Q8) == 0 || cols % 32 == 0);
    struct compute_activations *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return ST_NO_MEMORY;
    *a = (struct compute_activations){.rows_max = rows_max, .cols = cols, .needs = needs};
    a->tile_rows = TILE_ROWS;
    size_t blocks = ((size_t)rows_max + TILE_ROWS - 1) / TILE_ROWS * (cols / 32);
    a->floats = cpu_memory_allocate((size_t)rows_max * cols * sizeof(float));
    if (a->floats == NULL)
        goto undo_activations;
    if ((needs & COMPUTE_NEEDS_Q8) != 0) {
        a->blocks = cpu_memory_allocate(blocks * sizeof(struct kernels_block));
        if (a->blocks == NULL)
            goto undo_activations;
    }
    if ((needs & COMPUTE_NEEDS_BF16) != 0) {
        a->rounded_stride = (cols * (size_t)c->floats->rounded_bytes + 63) / 64 * 64;
        a->rounded = cpu_memory_allocate(rows_max * a->rounded_stride);
        if (a->rounded == NULL)
            goto undo_activations;
    }
    if ((needs & COMPUTE_NEEDS_Q8) != 0 && (needs & COMPUTE_NEEDS_REFINED) != 0) {
        a->second_planes = cpu_memory_allocate(blocks * sizeof(struct kernels_second_plane));
        if (a->second_planes == NULL)
            goto undo_activations;
    }
    if ((needs & COMPUTE_NEEDS_Q8) != 0 && (needs & COMPUTE_NEEDS_STRIPS) != 0 && !strips_open(a))
        goto undo_activations;
    if (cpu_scratch_grow(c, cols) != ST_OK)
        goto undo_activations;
    *out = a;
    return ST_OK;

undo_activations:
    cpu_activations_close(c, a);
    return ST_NO_MEMORY;
}

void cpu_activations_begin(struct compute_activations *a, uint32_t row_count)
{
    assert(row_count <= a->rows_max);
    a->tile_rows = cpu_tile_rows(row_count);
    a->few = row_count < CPU_STRIPS_ROWS_MIN;
}

struct row_job {
    struct compute *c;
    struct compute_activations *a;
    const float *x;  /* Input of norm; gate. */
    const float *up; /* gate_mul; NULL = all ones */
    enum compute_activation activation;
    const uint32_t *rows_in; /* norm; may be NULL */
    const float *weight;
    const float *bias; /* layer_norm; may be NULL */
    bool centred;      /* layer_norm instead of norm. */
    float epsilon;
    uint32_t row_count;
    uint32_t item_rows;
};

/* Where row `row` is computed: in place if fp32 is needed, otherwise in the thread's scratch
 * memory. */
static float *row_target(const struct row_job *job, uint32_t row, uint32_t thread)
{
    const struct compute_activations *a = job->a;
    if ((a->needs & COMPUTE_NEEDS_F32) != 0)
        return a->floats + (size_t)row * a->cols;
    return job->c->scratch[thread].data;
}

/* Copies columns [col, col + count) of a row from a->blocks to a->strips. */
static void strips_write(const struct compute_activations *a, uint32_t row, uint32_t col,
                         uint32_t count)
{
    const size_t first = cpu_activation_block(a, row, col);
    const size_t to = (size_t)(row / KERNELS_STRIP_ROWS) * (a->cols / 32) + col / 32;
    const uint32_t in = row % a->tile_rows, out = row % KERNELS_STRIP_ROWS;
    for (uint32_t i = 0; i < count / 32; i++) {
        const struct kernels_block *block = &a->blocks[first + i];
        struct kernels_strip *strip = &a->strips[to + i];
        memcpy(strip->quants[out], block->quants[in], sizeof(strip->quants[out]));
        strip->scale[out] = block->scale[in];
        strip->scaled_sum[out] = block->scaled_sum[in];
        strip->shift[out] = block->refined[in] * 8;
        if (a->strip_planes == NULL)
            continue;
        if (block->refined[in] != 0)
            memcpy(a->strip_planes[to + i].quants[out], a->second_planes[first + i].quants[in],
                   sizeof(a->strip_planes[to + i].quants[out]));
        else
            memset(a->strip_planes[to + i].quants[out], 0,
                   sizeof(a->strip_planes[to + i].quants[out]));
    }
}

void cpu_activations_quantise(const struct compute *c, const struct compute_activations *a,
                              uint32_t row, uint32_t col, uint32_t count, const float *values)
{
    if (a->rounded != NULL)
        c->floats->round(values, count,
                         a->rounded + row * a->rounded_stride + col * c->floats->rounded_bytes);
    if (a->blocks == NULL)
        return;
    size_t block = cpu_activation_block(a, row, col);
    assert(a->second_planes == NULL || count == a->cols);
    c->kernels->quantise(values, count, a->blocks + block,
                         a->second_planes != NULL ? a->second_planes + block : NULL,
                         row % a->tile_rows);
    if (a->strips != NULL && !a->few)
        strips_write(a, row, col, count);
}

void cpu_activations_finish(const struct compute *c, const struct compute_activations *a,
                            uint32_t row, const float *values)
{
    cpu_activations_quantise(c, a, row, 0, a->cols, values);
}

static void norm_row(const struct row_job *job, const float *x, uint32_t cols, float *values)
{
    if (job->weight == NULL)
        memcpy(values, x, cols * sizeof(float));
    else if (job->centred)
        job->c->kernels->layer_norm(x, cols, job->weight, job->bias, job->epsilon, values);
    else
        job->c->kernels->norm(x, cols, job->weight, job->epsilon, values);
}

static void norm_item(void *context, uint32_t item, uint32_t thread)
{
    const struct row_job *job = context;
    uint32_t cols = job->a->cols, end = (item + 1) * job->item_rows;
    for (uint32_t row = item * job->item_rows; row < end && row < job->row_count; row++) {
        uint32_t from = job->rows_in != NULL ? job->rows_in[row] : row;
        float *values = row_target(job, row, thread);
        norm_row(job, job->x + (size_t)from * cols, cols, values);
        cpu_activations_finish(job->c, job->a, row, values);
    }
}

void cpu_gate_mul_row(const struct compute *c, enum compute_activation activation,
                      const float *gate, const float *up, uint32_t cols, float *out)
{
    const struct kernels *k = c->kernels;
    assert(up != NULL || activation != COMPUTE_SILU);
    (activation == COMPUTE_SILU   ? k->silu_mul
     : activation == COMPUTE_GELU ? k->gelu_mul
                                  : k->gelu_erf_mul)(gate, up, cols, out);
}

static void gate_item(void *context, uint32_t item, uint32_t thread)
{
    const struct row_job *job = context;
    uint32_t cols = job->a->cols, end = (item + 1) * job->item_rows;
    for (uint32_t row = item * job->item_rows; row < end && row < job->row_count; row++) {
        float *values = row_target(job, row, thread);
        cpu_gate_mul_row(job->c, job->activation, job->x + (size_t)row * cols,
                         job->up != NULL ? job->up + (size_t)row * cols : NULL, cols, values);
        cpu_activations_finish(job->c, job->a, row, values);
    }
}

static void rows_run(struct compute *c, workers_fn fn, struct row_job *job)
{
    cpu_activations_begin(job->a, job->row_count);
    job->item_rows = cpu_item_rows(c, job->row_count, job->a->tile_rows);
    workers_run(c->workers, fn, job, (job->row_count + job->item_rows - 1) / job->item_rows);
}

void cpu_norm(struct compute *c, const float *x, const uint32_t *rows_in, uint32_t row_count,
              uint32_t cols, const float *weight, float epsilon, struct compute_activations *a)
{
    assert(cols == a->cols);
    struct row_job job = {.c = c,
                          .a = a,
                          .x = x,
                          .rows_in = rows_in,
                          .weight = weight,
                          .epsilon = epsilon,
                          .row_count = row_count};
    rows_run(c, norm_item, &job);
}

void cpu_layer_norm(struct compute *c, const float *x, const uint32_t *rows_in, uint32_t row_count,
                    uint32_t cols, const float *weight, const float *bias, float epsilon,
                    struct compute_activations *a)
{
    assert(cols == a->cols);
    struct row_job job = {.c = c,
                          .a = a,
                          .x = x,
                          .rows_in = rows_in,
                          .weight = weight,
                          .bias = bias,
                          .centred = true,
                          .epsilon = epsilon,
                          .row_count = row_count};
    rows_run(c, norm_item, &job);
}

void cpu_gate_mul(struct compute *c, enum compute_activation activation, const float *gate,
                  const float *up, uint32_t row_count, uint32_t cols, struct compute_activations *a)
{
    assert(cols == a->cols);
    struct row_job job = {
        .c = c, .a = a, .x = gate, .up = up, .activation = activation, .row_count = row_count};
    rows_run(c, gate_item, &job);
}
