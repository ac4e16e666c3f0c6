/* low_rank: y += B · A · x in fp32 for each row whose sequence has an adapter. Each row is computed
 * alone and in the same order, so its bits do not depend on the batch. */
#include "compute/cpu/cpu.h"

#include "common/widest.h"
#include "compute/low_rank.h"

#include <assert.h>

#define LANES 16

struct low_rank_job {
    const struct compute_low_ranks *ranks;
    const struct compute_batch *batch;
    const struct compute_activations *a;
    float *y;
};

WIDEST static void row_add(const struct compute_low_rank *l, const float *x, uint32_t cols,
                           uint32_t rows, float *y)
{
    for (uint32_t r = 0; r < l->rank; r++) {
        const float *down = l->down + (size_t)r * cols, *up = l->up + (size_t)r * rows;
        float sums[LANES] = {0}, sum = 0;
        uint32_t i = 0;
        for (; i + LANES <= cols; i += LANES)
            for (uint32_t j = 0; j < LANES; j++)
                sums[j] += down[i + j] * x[i + j];
        for (; i < cols; i++)
            sums[0] += down[i] * x[i];
        for (uint32_t j = 0; j < LANES; j++)
            sum += sums[j];
        for (i = 0; i < rows; i++)
            y[i] += sum * up[i];
    }
}

static void low_rank_item(void *context, uint32_t item, uint32_t thread)
{
    (void)thread;
    const struct low_rank_job *job = context;
    const struct compute_sequence *s = job->batch->sequences;
    while (item >= s->first_row + s->row_count)
        s++;
    if (s->adapter == 0)
        return;
    const struct compute_low_rank *l = &job->ranks->each[s->adapter - 1];
    row_add(l, job->a->floats + (size_t)item * job->a->cols, job->a->cols, job->ranks->rows,
            job->y + (size_t)item * job->ranks->rows);
}

void cpu_low_rank(struct compute *c, const struct compute_low_ranks *ranks,
                  const struct compute_batch *batch, const struct compute_activations *a, float *y)
{
    assert((a->needs & COMPUTE_NEEDS_F32) != 0);
    uint32_t end = 0;
    for (uint32_t i = 0; i < batch->sequence_count; i++)
        if (batch->sequences[i].adapter != 0)
            end = batch->sequences[i].first_row + batch->sequences[i].row_count;
    struct low_rank_job job = {.ranks = ranks, .batch = batch, .a = a, .y = y};
    if (end > 0)
        workers_run(c->workers, low_rank_item, &job, end);
}
