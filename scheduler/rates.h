/* rates: how fast a machine is, from what its batches took: tokens per second of prompts, and of
 * decodes in batches as large as the wanted time between tokens allows. Pure; one owner. What is
 * old counts less: a machine that has become slow shows within RATES_MEMORY_US of its own work. */
#ifndef SCHEDULER_RATES_H
#define SCHEDULER_RATES_H

#include <stdint.h>

#define RATES_MEMORY_US 20000000

struct sched_rates {
    double prompt_rows;
    double prompt_us;
    /* Decode batches: a line through (rows, time), by least squares. */
    double weight;
    double rows;
    double us;
    double rows_rows;
    double rows_us;
    double push_tokens;
    double push_us;
};

/* Batches with prompts took so long for so many rows, since the last call. */
void sched_rates_prompts(struct sched_rates *rates, uint64_t rows, uint64_t us);
/* So did `batches` batches of decodes only. */
void sched_rates_decodes(struct sched_rates *rates, uint64_t batches, uint64_t rows, uint64_t us);

/* KV of so many tokens was pushed, and so long was waited for it when nothing was left to compute.
 */
void sched_rates_pushes(struct sched_rates *rates, uint64_t tokens, uint64_t us);

/* 0: not known yet. */
uint32_t sched_rates_prompt_tokens_per_s(const struct sched_rates *rates);
uint32_t sched_rates_push_tokens_per_s(const struct sched_rates *rates);
/* With batches of `rows_max` at most, each of which takes tbt_us at most where that is possible. */
uint32_t sched_rates_output_tokens_per_s(const struct sched_rates *rates, uint32_t rows_max,
                                         int64_t tbt_us);

#endif
