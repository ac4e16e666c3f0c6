/* rates: the speed of a machine, from the measured times of its batches: prompt tokens per second,
 * KV tokens pushed per second, and decoded tokens per second with batches as large as the wanted
 * TBT allows. The gateway (server/gateway/schedule.c) and the simulator have one struct for each
 * machine and pass the rates to the cluster scheduler. Pure: no clock and no I/O; one thread owns
 * each struct. It measures nothing. Old measurements count less, so the rates follow a machine that
 * becomes slow within RATES_MEMORY_US of working time. */
#ifndef SCHEDULER_RATES_H
#define SCHEDULER_RATES_H

#include <stdint.h>

#define RATES_MEMORY_US 20000000

struct sched_rates {
    double prompt_rows;
    double prompt_us;
    /* Decode batches: sums for a line through (rows, time) by least squares. */
    double weight;
    double rows;
    double us;
    double rows_rows;
    double rows_us;
    double push_tokens;
    double push_us;
};

/* Records that batches with prompts computed `rows` rows in `us` microseconds since the last call.
 */
void sched_rates_prompts(struct sched_rates *rates, uint64_t rows, uint64_t us);
/* Records `batches` batches of decodes only, with `rows` rows and `us` microseconds in all. */
void sched_rates_decodes(struct sched_rates *rates, uint64_t batches, uint64_t rows, uint64_t us);

/* Records that KV of `tokens` tokens was sent, and that `us` microseconds of that time were not
 * hidden behind computing. */
void sched_rates_pushes(struct sched_rates *rates, uint64_t tokens, uint64_t us);

/* Return the rates; 0 = not known yet. */
uint32_t sched_rates_prompt_tokens_per_s(const struct sched_rates *rates);
uint32_t sched_rates_push_tokens_per_s(const struct sched_rates *rates);
/* Rate with batches of at most rows_max rows, as large as possible within tbt_us per batch (at
 * least one row); 0 = not known yet. */
uint32_t sched_rates_output_tokens_per_s(const struct sched_rates *rates, uint32_t rows_max,
                                         int64_t tbt_us);

#endif
