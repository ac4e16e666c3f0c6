/* rates: the speed of a machine, computed from measured times: prompt tokens per second, KV tokens
 * sent per second, and decoded tokens per second with batches as large as the wanted TBT allows.
 * The gateway and the simulator have one struct for each machine and pass the rates to the cluster
 * scheduler. Pure: no clock and no I/O; one thread owns each struct. It measures nothing: the
 * machines do. Older measurements count less (see RATES_MEMORY_US). */
#ifndef SCHEDULER_RATES_H
#define SCHEDULER_RATES_H

#include <stdint.h>

/* A new measurement of `us` microseconds reduces the weight of all older measurements by us /
 * RATES_MEMORY_US, at most by half. */
#define RATES_MEMORY_US 20000000

/* Sums for a line through the points (rows, time) of batches by least squares, each weighted by its
 * age. All zeros = nothing is known. */
struct rates_line {
    double weight; /* Number of batches. */
    double rows;
    double us;
    double rows_rows; /* Squares of rows. */
    double rows_us;   /* Products of rows and time. */
};

/* Adds a point to the line; the points before keep the part `keep` of their weight. */
void rates_line_add(struct rates_line *line, double keep, double weight, double rows, double us);
/* Stores the time of a batch without rows, and of one more row. Neither is negative. Points of one
 * size: as if the whole time were proportional to the rows. Requires a point. */
void rates_line_fit(const struct rates_line *line, double *fixed_out, double *per_row_out);

/* All zeros = nothing is known. */
struct sched_rates {
    struct rates_line prompts; /* Batches with prompts. */
    struct rates_line decodes; /* Batches that only decode. */
    double push_tokens;        /* Each weighted by its age, like push_us. */
    double push_us;
};

/* The time of a batch that only decodes: fixed_ns + row_ns for each answer. All zeros = not
 * known. */
struct sched_step {
    uint32_t fixed_ns;
    uint32_t row_ns;
};

/* Returns `measured`, but at most 8 × `mean`, the mean of earlier measurements (mean 0 = there are
 * none). Because of this limit, one very long measurement, such as that of a machine that was
 * stopped for a while, does not make the machine count as slow. */
double sched_rates_outlier_limit(double measured, double mean);

/* Record `batches` batches, with `rows` rows and `us` microseconds in all: batches with prompts,
 * and batches that only decoded. */
void sched_rates_prompts_add(struct sched_rates *rates, uint64_t batches, uint64_t rows,
                             uint64_t us);
void sched_rates_decodes_add(struct sched_rates *rates, uint64_t batches, uint64_t rows,
                             uint64_t us);

/* Records that KV of `tokens` tokens was sent, and that `us` microseconds of the transfers came
 * after computing. */
void sched_rates_pushes_add(struct sched_rates *rates, uint64_t tokens, uint64_t us);

/* Returns the rate with batches of `rows` rows; 0 = not known yet. So a machine that has computed
 * short prompts can be compared with one that has computed long prompts. */
uint32_t sched_rates_prompt_tokens_per_s(const struct sched_rates *rates, uint32_t rows);
/* Returns the rate at which KV is sent; 0 = not known yet. */
uint32_t sched_rates_push_tokens_per_s(const struct sched_rates *rates);
/* Returns the rate with the largest batch of 1 to rows_max rows that takes at most tbt_us; 0 = not
 * known yet. */
uint32_t sched_rates_output_tokens_per_s(const struct sched_rates *rates, uint32_t rows_max,
                                         int64_t tbt_us);
/* Returns the time of a decode batch; all zeros = not known yet. */
struct sched_step sched_rates_step(const struct sched_rates *rates);

#endif
