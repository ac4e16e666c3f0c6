/* finals: computes the final vectors of rows, and adds them up. On the host: a few rows of
 * `hidden` numbers are cheap beside the layers that made them, and the results are the same on
 * every device. */
#include "model/forward/forward_state.h"

#include "common/pooling.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum status forward_finals_open(struct forward *f)
{
    const size_t bytes = f->m->hyper.hidden * sizeof(float);
    if (!model_has_last(f->m) || f->m->ops->device_memory(f->m->compute) == NULL)
        return ST_OK;
    f->host_norm = malloc(2 * bytes);
    f->host_row = malloc(bytes);
    if (f->host_norm == NULL || f->host_row == NULL)
        return ST_NO_MEMORY;
    f->m->ops->memory_read(f->m->compute, f->host_norm, f->m->output_norm, bytes);
    if (f->m->output_norm_bias != NULL)
        f->m->ops->memory_read(f->m->compute, f->host_norm + f->m->hyper.hidden,
                               f->m->output_norm_bias, bytes);
    return ST_OK;
}

/* The last norm of one row. */
struct row_norm {
    const float *x, *weights;
    const float *bias; /* NULL = none. */
    double mean;       /* 0 in an RMSNorm. */
    double scale;
};

static struct row_norm norm_begin(const struct forward *f, const float *row)
{
    const struct model *m = f->m;
    const uint32_t count = m->hyper.hidden;
    struct row_norm norm = {.x = row, .weights = m->output_norm, .bias = m->output_norm_bias};
    double squares = 0;
    if (f->host_norm != NULL) {
        m->ops->memory_read(m->compute, f->host_row, row, count * sizeof(float));
        norm.x = f->host_row;
        norm.weights = f->host_norm;
        norm.bias = norm.bias != NULL ? f->host_norm + count : NULL;
    }
    for (uint32_t i = 0; m->hyper.layer_norms && i < count; i++)
        norm.mean += (double)norm.x[i] / count;
    for (uint32_t i = 0; i < count; i++)
        squares += ((double)norm.x[i] - norm.mean) * ((double)norm.x[i] - norm.mean);
    norm.scale = 1 / sqrt(squares / count + (double)m->hyper.norm_epsilon);
    return norm;
}

static float norm_element(const struct row_norm *norm, uint32_t i)
{
    const float element =
        (float)(((double)norm->x[i] - norm->mean) * norm->scale) * norm->weights[i];
    return element + (norm->bias != NULL ? norm->bias[i] : 0);
}

/* Returns where row `row` of the last batch is. */
static const float *row_find(const struct forward *f, uint32_t row)
{
    const size_t hidden = f->m->hyper.hidden;
    uint32_t at = 0;
    while (at < f->tail_count && f->tail_rows[at] != row)
        at++;
    assert(f->tail_count == 0 || at < f->tail_count);
    return f->tail_count == 0 ? f->residual + row * hidden : f->tail_residual + at * hidden;
}

void forward_final_vector(struct forward *f, uint32_t row, float *out)
{
    const struct row_norm norm = norm_begin(f, row_find(f, row));
    for (uint32_t i = 0; i < f->m->hyper.hidden; i++)
        out[i] = norm_element(&norm, i);
}

static void row_add(const struct row_norm *norm, uint32_t count, int64_t *sum)
{
    for (uint32_t i = 0; i < count; i++) {
        float element = norm_element(norm, i);
        element = element > POOLING_ELEMENT_MAX    ? POOLING_ELEMENT_MAX
                  : element > -POOLING_ELEMENT_MAX ? element
                                                   : -POOLING_ELEMENT_MAX; /* NaN too */
        sum[i] += llrint((double)element * POOLING_ONE);
    }
}

void forward_pool(struct forward *f, uint32_t first_row, uint32_t count, int64_t *sum)
{
    assert(first_row + count <= f->complete_rows);
    for (uint32_t i = 0; i < count; i++) {
        const struct row_norm norm = norm_begin(f, row_find(f, first_row + i));
        row_add(&norm, f->m->hyper.hidden, sum);
    }
}
