/* tier_loads: decides whether KV of a prompt that a tier (kvcache/tiers/) has stored is loaded or
 * computed again. machine/ has one struct sched_tier_loads for each tier, on the machine's event
 * loop thread; the simulator has one for each simulated tier; the cluster scheduler calls
 * sched_tier_least_tokens. Pure: no clock and no I/O. The functions measure and load nothing. */
#ifndef SCHEDULER_TIER_LOADS_H
#define SCHEDULER_TIER_LOADS_H

#include "scheduler/rates.h"

#include <stdint.h>

/* If the latest load was measured longer ago than this, the measured loads do not count: the tier
 * may be faster now, and only a new load shows it. */
#define SCHED_TIER_LOADS_OLD_US 30000000

/* Measured loads of one tier. All zeros = nothing is known. */
struct sched_tier_loads {
    struct rates_line line; /* Rows are tokens. */
    int64_t latest_us;      /* When the latest load was measured. */
};

/* Records a load of the KV of `tokens` tokens that took `us` microseconds, with its wait for
 * earlier loads. No effect if `tokens` is 0 or `us` negative. */
void sched_tier_loads_add(struct sched_tier_loads *loads, uint32_t tokens, int64_t us,
                          int64_t now_us);

/* Stores the measured microseconds of a load without tokens (the fixed part), and of each token; 0
 * and 0 = not measured, or measured too long ago. */
void sched_tier_loads_line(const struct sched_tier_loads *loads, int64_t now_us,
                           double *fixed_us_out, double *token_us_out);

#define SCHED_TIER_LOADS_NEVER UINT32_MAX

/* Returns the least number of tokens for which loading their KV takes less time than computing
 * them. A load takes fixed_us + token_us × tokens microseconds, computing takes compute_token_us ×
 * tokens. SCHED_TIER_LOADS_NEVER = computing never takes longer; 1 = loading always takes less
 * time, or a time is not known (fixed_us and token_us both 0, or compute_token_us 0). */
uint32_t sched_tier_least_tokens(double fixed_us, double token_us, double compute_token_us);
/* Returns sched_tier_least_tokens with the measured loads. */
uint32_t sched_tier_loads_least(const struct sched_tier_loads *loads, double compute_token_us,
                                int64_t now_us);

#endif
