/* rates: a batch takes a + b × rows, because weights are read once for all rows. If a machine's
 * batches differ in size, a line through them predicts the time of others. If they all have one
 * size, only that size's time is known. */
#include "scheduler/rates.h"

#include <math.h>

#define US_PER_S  1e6
#define NS_PER_US 1e3

/* A measurement counts as at most this many times slower than the mean. */
#define SLOWER_MOST 8

static double old_share(uint64_t us)
{
    double part = (double)us / RATES_MEMORY_US;
    return part < 0.5 ? 1 - part : 0.5;
}

/* Work measured over a time longer than RATES_MEMORY_US (for example before this process knew the
 * machine) is scaled down to that time. */
static double new_share(uint64_t us)
{
    return us > RATES_MEMORY_US ? (double)RATES_MEMORY_US / (double)us : 1;
}

double sched_rates_outlier_limit(double measured, double mean)
{
    return mean > 0 && measured > SLOWER_MOST * mean ? SLOWER_MOST * mean : measured;
}

/* The same in microseconds, at least 1. mean_us = what the same rows took until now. */
static uint64_t limited_us(uint64_t us, double mean_us)
{
    double limited = sched_rates_outlier_limit((double)us, mean_us);
    return limited < 1 ? 1 : limited >= 0x1p64 ? UINT64_MAX : (uint64_t)limited;
}

void rates_line_add(struct rates_line *line, double keep, double weight, double rows, double us)
{
    line->weight = line->weight * keep + weight;
    line->rows = line->rows * keep + weight * rows;
    line->us = line->us * keep + weight * us;
    line->rows_rows = line->rows_rows * keep + weight * rows * rows;
    line->rows_us = line->rows_us * keep + weight * rows * us;
}

static void line_add(struct rates_line *line, uint64_t batches, uint64_t rows, uint64_t us)
{
    if (batches == 0 || rows == 0 || us == 0)
        return;
    if (line->weight > 0) /* Larger batches take longer, at most in proportion. */
        us = limited_us(us,
                        line->us / line->weight * (double)batches *
                            fmax(1, (double)rows / (double)batches / (line->rows / line->weight)));
    rates_line_add(line, old_share(us), new_share(us) * (double)batches,
                   (double)rows / (double)batches, (double)us / (double)batches);
}

void sched_rates_prompts_add(struct sched_rates *rates, uint64_t batches, uint64_t rows,
                             uint64_t us)
{
    line_add(&rates->prompts, batches, rows, us);
}

void sched_rates_decodes_add(struct sched_rates *rates, uint64_t batches, uint64_t rows,
                             uint64_t us)
{
    line_add(&rates->decodes, batches, rows, us);
}

static uint32_t rate_of(double rows, double us)
{
    double rate = rows / us * US_PER_S; /* Not a number if both are 0. */
    return rate > 1e9 ? 1000000000 : rate >= 1 ? (uint32_t)rate : 1;
}

void rates_line_fit(const struct rates_line *line, double *fixed_out, double *per_row_out)
{
    double rows = line->rows / line->weight;
    double us = line->us / line->weight;
    double variance = line->rows_rows / line->weight - rows * rows;
    /* Batches of one size: as if the whole time were proportional to rows. */
    double per_row = us / rows;
    if (variance > 0.01 * rows * rows)
        per_row = (line->rows_us / line->weight - rows * us) / variance;
    if (per_row < 0)
        per_row = 0;
    if (per_row > us / rows)
        per_row = us / rows;
    *fixed_out = fmax(0, us - per_row * rows); /* Large numbers are rounded. */
    *per_row_out = per_row;
}

uint32_t sched_rates_prompt_tokens_per_s(const struct sched_rates *rates, uint32_t rows)
{
    if (rates->prompts.weight <= 0)
        return 0;
    double fixed, per_row;
    rates_line_fit(&rates->prompts, &fixed, &per_row);
    return rate_of(rows, fixed + per_row * rows);
}

static uint32_t ns_of(double us)
{
    double ns = us * NS_PER_US;
    return ns >= UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

struct sched_step_time sched_rates_step(const struct sched_rates *rates)
{
    if (rates->decodes.weight <= 0)
        return (struct sched_step_time){0};
    double fixed, per_row;
    rates_line_fit(&rates->decodes, &fixed, &per_row);
    return (struct sched_step_time){.fixed_ns = ns_of(fixed), .row_ns = ns_of(per_row)};
}

struct sched_step_time sched_rates_step_guess(const struct sched_rates *rates)
{
    struct sched_step_time step = sched_rates_step(rates);
    if (step.fixed_ns == 0 && step.row_ns > 0)
        step =
            (struct sched_step_time){.fixed_ns = ns_of(rates->decodes.us / rates->decodes.weight)};
    return step;
}

uint32_t sched_rates_output_tokens_per_s(const struct sched_rates *rates, uint32_t rows_max,
                                         int64_t tbt_us)
{
    if (rates->decodes.weight <= 0)
        return 0;
    double fixed, per_row;
    rates_line_fit(&rates->decodes, &fixed, &per_row);
    double most = (double)rows_max;
    if (per_row > 0 && fixed + per_row * most > (double)tbt_us)
        most = ((double)tbt_us - fixed) / per_row;
    if (most < 1)
        most = 1;
    return rate_of(most, fixed + per_row * most);
}
