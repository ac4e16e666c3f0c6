/* low_rank: y += B · A · x in fp32 for each row whose sequence has an adapter. Each row is computed
 * alone and in the same order, so its bits do not depend on the batch. */
#include "compute/cpu/cpu.h"

#include "common/widest.h"
#include "compute/low_rank.h"

#include <assert.h>

#define LANES 16
#define RANKS 4

struct low_rank_job {
    const struct compute_low_ranks *ranks;
    const struct compute_batch *batch;
    const struct compute_activations *a;
    float *y;
};

/* Sums of RANKS ranks at a time, each in LANES parts: x is read once for them. */
WIDEST static void down_products(const float *down, uint32_t rank, const float *x, uint32_t cols,
                                 float *out)
{
    const uint32_t whole = cols / LANES * LANES;
    for (uint32_t first = 0; first < rank; first += RANKS) {
        const uint32_t count = rank - first < RANKS ? rank - first : RANKS;
        const float *rows[RANKS];
        float sums[RANKS][LANES] = {{0}};
        for (uint32_t r = 0; r < RANKS; r++) /* Rows beyond the last one are not used. */
            rows[r] = down + (size_t)(first + (r < count ? r : 0)) * cols;
        for (uint32_t i = 0; i < whole; i += LANES)
            for (uint32_t r = 0; r < RANKS; r++)
                for (uint32_t j = 0; j < LANES; j++)
                    sums[r][j] += rows[r][i + j] * x[i + j];
        for (uint32_t r = 0; r < count; r++) {
            float sum = 0;
            for (uint32_t i = whole; i < cols; i++)
                sums[r][0] += rows[r][i] * x[i];
            for (uint32_t j = 0; j < LANES; j++)
                sum += sums[r][j];
            out[first + r] = sum;
        }
    }
}

/* Adds all ranks to LANES elements of y at a time. */
WIDEST static void up_products(const float *up, uint32_t rank, const float *factors, uint32_t rows,
                               float *y)
{
    uint32_t i = 0;
    for (; i + LANES <= rows; i += LANES) {
        float sums[LANES];
        for (uint32_t j = 0; j < LANES; j++)
            sums[j] = y[i + j];
        for (uint32_t r = 0; r < rank; r++)
            for (uint32_t j = 0; j < LANES; j++)
                sums[j] += factors[r] * up[(size_t)r * rows + i + j];
        for (uint32_t j = 0; j < LANES; j++)
            y[i + j] = sums[j];
    }
    for (; i < rows; i++)
        for (uint32_t r = 0; r < rank; r++)
            y[i] += factors[r] * up[(size_t)r * rows + i];
}

static void row_add(const struct compute_low_rank *l, const float *x, uint32_t cols, uint32_t rows,
                    float *y)
{
    float factors[COMPUTE_LOW_RANK_MAX];
    if (l->rank == 0)
        return;
    down_products(l->down, l->rank, x, cols, factors);
    up_products(l->up, l->rank, factors, rows, y);
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
    const struct compute_low_rank *l = &job->ranks->by_adapter[s->adapter - 1];
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
