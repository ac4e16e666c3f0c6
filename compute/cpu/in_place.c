/* in_place: row-wise operations on fp32 rows that only some families of models need: a scaled
 * embedding, head norms, post norms. */
#include "compute/cpu/cpu.h"

#include <assert.h>
#include <math.h>

struct in_place {
    struct compute *c;
    const float *y; /* Only for norm_add. */
    const float *weight;
    float epsilon;
    uint32_t rows;
    uint32_t heads; /* Only for head_norm. */
    uint32_t width; /* Of a head, or of a row. */
    float *x;
};

void cpu_scale(struct compute *c, float factor, size_t count, float *x)
{
    (void)c;
    for (size_t i = 0; i < count; i++)
        x[i] *= factor;
}

void cpu_scale_add(struct compute *c, float factor, size_t count, const float *y, float *x)
{
    (void)c;
    for (size_t i = 0; i < count; i++)
        x[i] = fmaf(factor, y[i], x[i]);
}

struct cap_job {
    const struct kernels *kernels;
    float cap;
    size_t count;
    float *x;
};

#define CAP_ITEM 16384

static void cap_item(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct cap_job *job = context;
    const size_t first = (size_t)item * CAP_ITEM, left = job->count - first;
    job->kernels->cap(job->cap, left < CAP_ITEM ? (uint32_t)left : CAP_ITEM, job->x + first);
}

void cpu_cap(struct compute *c, float cap, size_t count, float *x)
{
    struct cap_job job = {.kernels = c->kernels, .cap = cap, .count = count, .x = x};
    workers_run(c->workers, cap_item, &job, (uint32_t)((count + CAP_ITEM - 1) / CAP_ITEM));
}

static void head_norm_item(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct in_place *job = context;
    uint32_t end = (item + 1) * ITEM_ROWS < job->rows ? (item + 1) * ITEM_ROWS : job->rows;
    for (uint32_t row = item * ITEM_ROWS; row < end; row++)
        for (uint32_t head = 0; head < job->heads; head++) {
            float *values = job->x + ((size_t)row * job->heads + head) * job->width;
            job->c->kernels->norm(values, job->width, job->weight, job->epsilon, values);
        }
}

void cpu_head_norm(struct compute *c, const float *weight, float epsilon, uint32_t row_count,
                   uint32_t head_count, uint32_t head_dim, float *x)
{
    struct in_place job = {.c = c,
                           .weight = weight,
                           .epsilon = epsilon,
                           .rows = row_count,
                           .heads = head_count,
                           .width = head_dim,
                           .x = x};
    workers_run(c->workers, head_norm_item, &job, (row_count + ITEM_ROWS - 1) / ITEM_ROWS);
}

static void norm_add_item(void *context, uint32_t item, uint32_t thread)
{
    const struct in_place *job = context;
    float *normed = job->c->scratch[thread].data;
    uint32_t end = (item + 1) * ITEM_ROWS < job->rows ? (item + 1) * ITEM_ROWS : job->rows;
    for (uint32_t row = item * ITEM_ROWS; row < end; row++) {
        float *x = job->x + (size_t)row * job->width;
        job->c->kernels->norm(job->y + (size_t)row * job->width, job->width, job->weight,
                              job->epsilon, normed);
        for (uint32_t i = 0; i < job->width; i++)
            x[i] += normed[i];
    }
}

void cpu_norm_add(struct compute *c, const float *y, uint32_t row_count, uint32_t cols,
                  const float *weight, float epsilon, float *x)
{
    struct in_place job = {.c = c,
                           .y = y,
                           .weight = weight,
                           .epsilon = epsilon,
                           .rows = row_count,
                           .width = cols,
                           .x = x};
    enum status status = cpu_scratch_grow(c, cols);
    /* Activations with this number of columns have allocated it already. */
    assert(status == ST_OK);
    workers_run(c->workers, norm_add_item, &job, (row_count + ITEM_ROWS - 1) / ITEM_ROWS);
}
