/* tier_loads: see the header. */
#include "scheduler/tier_loads.h"

/* Part of the weight that earlier loads keep when a new one is added. */
#define KEEP 0.8

void sched_tier_loads_add(struct sched_tier_loads *loads, uint32_t tokens, int64_t us,
                          int64_t now_us)
{
    if (tokens == 0 || us < 0)
        return;
    rates_line_add(&loads->line, KEEP, 1, tokens, (double)us);
    loads->latest_us = now_us;
}

bool sched_tier_loads_win(const struct sched_tier_loads *loads, double row_us, uint32_t tokens,
                          int64_t now_us)
{
    double fixed_us, token_us;
    if (tokens == 0)
        return false;
    if (row_us <= 0 || loads->line.weight <= 0 ||
        now_us - loads->latest_us > SCHED_TIER_LOADS_OLD_US)
        return true;
    rates_line_fit(&loads->line, &fixed_us, &token_us);
    return fixed_us + token_us * tokens < row_us * tokens;
}
