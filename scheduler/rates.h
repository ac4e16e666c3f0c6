/* rates: the speed of a machine, computed from measured times: prompt tokens per second, and
 * decoded tokens per second with batches as large as the TBT target allows. The gateway and the
 * simulator have one struct sched_rates for each machine, on the thread of the cluster scheduler. A
 * machine uses struct rates_line for the speeds of its links and tiers, on its event loop thread;
 * the simulator uses it for tiers.
 * Pure: no clock and no I/O. The functions measure nothing: the machines do. */
#ifndef SCHEDULER_RATES_H
#define SCHEDULER_RATES_H

#include <stdint.h>

/* In struct sched_rates, a new measurement of `us` microseconds reduces the weight of older
 * measurements of its line by the part us / RATES_MEMORY_US, at most by half. */
#define RATES_MEMORY_US 20000000

/* Weighted sums over points (rows, microseconds), for a line by the method of least squares. All
 * zeros = no point. Bytes (link_speed.h) or tokens (tier_loads.h) may take the place of rows. */
struct rates_line {
    double weight;    /* Weights of the points. */
    double rows;      /* Rows. */
    double us;        /* Microseconds. */
    double rows_rows; /* Squares of rows. */
    double rows_us;   /* Products of rows and time. */
};

/* Multiplies the weight of all earlier points by `keep`, then adds a point. */
void rates_line_add(struct rates_line *line, double keep, double weight, double rows, double us);
/* Stores the microseconds of a batch without rows (the fixed part) and of one more row, each ≥ 0.
 * If the points' rows hardly differ, the fixed part is 0. Requires a point with rows > 0. */
void rates_line_fit(const struct rates_line *line, double *fixed_out, double *per_row_out);

/* All zeros = nothing is known. */
struct sched_rates {
    struct rates_line prompts; /* Batches with prompts. */
    struct rates_line decodes; /* Batches that only decode. */
};

/* The time of a batch that only decodes: fixed_ns + row_ns × answers. All zeros = not known. */
struct sched_step_time {
    uint32_t fixed_ns;
    uint32_t row_ns;
};

/* Returns the smaller one of `measured` and 8 × `mean`, so that a single very long measurement
 * counts little. mean = mean of earlier measurements; 0 = none: the result is `measured`. */
double sched_rates_outlier_limit(double measured, double mean);

/* Records `batches` batches with prompts, of `rows` rows and `us` microseconds in all. No effect if
 * a number is 0. */
void sched_rates_prompts_add(struct sched_rates *rates, uint64_t batches, uint64_t rows,
                             uint64_t us);
/* Records `batches` batches that only decoded, of `rows` rows and `us` microseconds in all. No
 * effect if a number is 0. */
void sched_rates_decodes_add(struct sched_rates *rates, uint64_t batches, uint64_t rows,
                             uint64_t us);

/* Returns the prompt tokens per second with batches of `rows` rows; 0 = not known yet. */
uint32_t sched_rates_prompt_tokens_per_s(const struct sched_rates *rates, uint32_t rows);
/* Returns the decoded tokens per second with the largest batch that has at most rows_max rows and
 * takes at most tbt_us. If even a batch of one row takes longer, this batch counts; if larger
 * batches take no longer than it, one of rows_max rows counts. 0 = not known yet. */
uint32_t sched_rates_output_tokens_per_s(const struct sched_rates *rates, uint32_t rows_max,
                                         int64_t tbt_us);
/* Returns the time of a decode batch; all zeros = not known yet. fixed_ns is 0 if the measured
 * batches hardly differ in size. */
struct sched_step_time sched_rates_step(const struct sched_rates *rates);
/* Returns sched_rates_step, except if its fixed_ns is 0, as it is if the measured batches hardly
 * differ in size: then fixed_ns is the mean time of these batches and row_ns is 0, so batches of
 * every size count as equally long. With a time in proportion to the rows, the scheduler would
 * never give a second answer to a machine that has only decoded single answers, so a larger batch
 * would never be measured. */
struct sched_step_time sched_rates_step_guess(const struct sched_rates *rates);

#endif
