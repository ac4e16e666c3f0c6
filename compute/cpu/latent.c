/* latent: the products of latent attention (compute/latent.h) on the CPU. A work item is one head
 * of some rows. Each output element is one fma chain over the columns, as in products with F32
 * weights (kernels.h), so its bits do not depend on the items. */
#include "compute/latent.h"

#include "compute/cpu/cpu.h"

#include <assert.h>
#include <string.h>

#define LATENT_ITEM_ROWS (2 * TILE_ROWS)

struct latent_job {
    struct compute *c;
    const struct compute_matrix *m;
    uint32_t head_count, head_groups; /* head_groups: groups of the matrix that a head has. */
    uint32_t rotated;                 /* Values that are copied to the output of each head. */
    uint32_t row_count;
    const float *x;                /* [row][head][x_stride]; cols(m) values are multiplied. */
    size_t x_stride;               /* Floats of a head. */
    float *y;                      /* [row][head][rotated, then rows of the head's matrix] */
    struct compute_activations *a; /* Activations into which y is quantised too; NULL = none. */
};

/* Multiplies rows [first, first + rows), at most TILE_ROWS, with the matrix of a head. */
static void head_run(const struct latent_job *job, uint32_t head, uint32_t first, uint32_t rows)
{
    const struct compute_matrix *m = job->m;
    const uint32_t outputs = job->head_groups * GROUP_ROWS;
    const size_t width = job->rotated + outputs;
    const float *x = job->x + ((size_t)first * job->head_count + head) * job->x_stride;
    float *y = job->y + ((size_t)first * job->head_count + head) * width;
    _Alignas(64) float out[TILE_ROWS][GROUP_ROWS];
    struct kernels_float f = {.form = m->form,
                              .x = x,
                              .x_stride = job->head_count * job->x_stride,
                              .end_col = m->cols,
                              .rows = rows};
    for (uint32_t g = 0; g < job->head_groups; g++) {
        f.group = m->data + (head * job->head_groups + g) * m->group_bytes;
        job->c->floats->gemm(&f, out);
        for (uint32_t r = 0; r < rows; r++)
            memcpy(y + r * job->head_count * width + job->rotated + (size_t)g * GROUP_ROWS, out[r],
                   sizeof(out[r]));
    }
    for (uint32_t r = 0; r < rows; r++)
        memcpy(y + r * job->head_count * width, x + r * f.x_stride + m->cols,
               job->rotated * sizeof(float));
}

static void latent_item(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct latent_job *job = context;
    const uint32_t head = item % job->head_count;
    uint32_t row = item / job->head_count * LATENT_ITEM_ROWS, end = row + LATENT_ITEM_ROWS;
    end = end < job->row_count ? end : job->row_count;
    for (; row < end; row += TILE_ROWS)
        head_run(job, head, row, end - row < TILE_ROWS ? end - row : TILE_ROWS);
}

static void latent_run(struct latent_job *job)
{
    const uint32_t tiles = (job->row_count + LATENT_ITEM_ROWS - 1) / LATENT_ITEM_ROWS;
    assert(job->m->form == FORM_F32 && job->m->rows % (job->head_count * GROUP_ROWS) == 0);
    job->head_groups = job->m->rows / job->head_count / GROUP_ROWS;
    workers_run(job->c->workers, latent_item, job, tiles * job->head_count);
}

static void cpu_absorb(struct compute *c, const struct compute_matrix *m, uint32_t head_count,
                       uint32_t rotated, uint32_t row_count, const float *x, float *q)
{
    struct latent_job job = {.c = c,
                             .m = m,
                             .head_count = head_count,
                             .rotated = rotated,
                             .row_count = row_count,
                             .x = x,
                             .x_stride = m->cols + rotated,
                             .y = q};
    latent_run(&job);
}

static void finish_item(void *context, uint32_t row, uint32_t thread)
{
    (void)thread;
    const struct latent_job *job = context;
    cpu_activations_finish(job->c, job->a, row, job->a->floats + (size_t)row * job->a->cols);
}

static void cpu_expand(struct compute *c, const struct compute_matrix *m, uint32_t head_count,
                       uint32_t row_count, const struct compute_activations *x,
                       struct compute_activations *a)
{
    struct latent_job job = {.c = c,
                             .m = m,
                             .head_count = head_count,
                             .row_count = row_count,
                             .x = x->floats,
                             .x_stride = m->cols,
                             .y = a->floats,
                             .a = a};
    assert(x->cols == head_count * m->cols && a->cols == m->rows);
    cpu_activations_begin(a, row_count);
    latent_run(&job);
    if ((a->needs & (COMPUTE_NEEDS_Q8 | COMPUTE_NEEDS_BF16)) != 0)
        workers_run(c->workers, finish_item, &job, row_count);
}

struct join_job {
    struct compute *c;
    const float *weight;
    float epsilon;
    uint32_t own_cols, cols;
    const float *own, *latent;
    float *k;
};

static void join_item(void *context, uint32_t row, uint32_t thread)
{
    (void)thread;
    const struct join_job *job = context;
    float *k = job->k + (size_t)row * (job->own_cols + job->cols);
    memcpy(k, job->own + (size_t)row * job->own_cols, job->own_cols * sizeof(float));
    job->c->kernels->norm(job->latent + (size_t)row * job->cols, job->cols, job->weight,
                          job->epsilon, k + job->own_cols);
}

static void cpu_join(struct compute *c, const float *weight, float epsilon, uint32_t row_count,
                     uint32_t own_cols, uint32_t cols, const float *own, const float *latent,
                     float *k)
{
    struct join_job job = {.c = c,
                           .weight = weight,
                           .epsilon = epsilon,
                           .own_cols = own_cols,
                           .cols = cols,
                           .own = own,
                           .latent = latent,
                           .k = k};
    workers_run(c->workers, join_item, &job, row_count);
}

const struct compute_latent_ops cpu_latent = {
    .join = cpu_join, .absorb = cpu_absorb, .expand = cpu_expand};
