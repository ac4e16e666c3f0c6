/* tier_loads: whether KV of a prompt that a tier (kvcache/tiers/) has stored is loaded, or computed
 * again. The machine has one struct for each tier on its event loop thread. Pure: no clock and no
 * I/O. It measures nothing and loads nothing. */
#ifndef SCHEDULER_TIER_LOADS_H
#define SCHEDULER_TIER_LOADS_H

#include "scheduler/rates.h"

#include <stdbool.h>

/* Loads that were measured longer ago than this do not count: the tier may be faster now, and
 * only a new load shows it. */
#define SCHED_TIER_LOADS_OLD_US 30000000

/* Measured loads of one tier. All zeros = nothing is known. */
struct sched_tier_loads {
    struct rates_line line; /* Rows are tokens. */
    int64_t latest_us;      /* When the latest load was measured. */
};

/* Records that the KV of `tokens` tokens was loaded in `us` microseconds, with the time in which the
 * load waited for its turn. */
void sched_tier_loads_add(struct sched_tier_loads *loads, uint32_t tokens, int64_t us,
                          int64_t now_us);

/* Returns true if loading the KV of `tokens` tokens takes less time than computing these tokens, with
 * row_us microseconds each. True also while one of the two times is not known; false for 0 tokens. */
bool sched_tier_loads_win(const struct sched_tier_loads *loads, double row_us, uint32_t tokens,
                          int64_t now_us);

#endif
