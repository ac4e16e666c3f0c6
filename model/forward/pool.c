/* forward_pool: adds up the final vectors of rows. On the host: a few rows of `hidden` numbers are
 * cheap beside the layers that made them, and the sums are the same on every device. */
#include "model/forward/forward_state.h"

#include "common/pooling.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum status forward_pool_open(struct forward *f)
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

/* bias: NULL = none. centred: LayerNorm instead of RMSNorm. */
static void row_add(const float *x, const float *norm, const float *bias, uint32_t count,
                    float epsilon, bool centred, int64_t *sum)
{
    double squares = 0, mean = 0;
    for (uint32_t i = 0; centred && i < count; i++)
        mean += (double)x[i] / count;
    for (uint32_t i = 0; i < count; i++)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    const double scale = 1 / sqrt(squares / count + (double)epsilon);
    for (uint32_t i = 0; i < count; i++) {
        float element = (float)(((double)x[i] - mean) * scale) * norm[i];
        element += bias != NULL ? bias[i] : 0;
        element = element > POOLING_ELEMENT_MAX    ? POOLING_ELEMENT_MAX
                  : element > -POOLING_ELEMENT_MAX ? element
                                                   : -POOLING_ELEMENT_MAX; /* NaN too */
        sum[i] += llrint((double)element * POOLING_ONE);
    }
}

void forward_pool(struct forward *f, uint32_t first_row, uint32_t count, int64_t *sum)
{
    const struct model *m = f->m;
    const uint32_t hidden = m->hyper.hidden;
    const float *norm = f->host_norm != NULL ? f->host_norm : m->output_norm;
    const float *bias = m->output_norm_bias;
    if (bias != NULL && f->host_norm != NULL)
        bias = f->host_norm + hidden;
    assert(first_row + count <= f->scored_rows);
    for (uint32_t i = 0; i < count; i++) {
        const float *x = f->residual + (size_t)(first_row + i) * hidden;
        if (f->host_row != NULL)
            m->ops->memory_read(m->compute, f->host_row, x, hidden * sizeof(float));
        row_add(f->host_row != NULL ? f->host_row : x, norm, bias, hidden, m->hyper.norm_epsilon,
                m->hyper.layer_norms, sum);
    }
}
