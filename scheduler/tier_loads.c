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

void sched_tier_loads_line(const struct sched_tier_loads *loads, int64_t now_us,
                           double *fixed_us_out, double *token_us_out)
{
    *fixed_us_out = *token_us_out = 0;
    if (loads->line.weight > 0 && now_us - loads->latest_us <= SCHED_TIER_LOADS_OLD_US)
        rates_line_fit(&loads->line, fixed_us_out, token_us_out);
}

uint32_t sched_tier_least_tokens(double fixed_us, double token_us, double compute_token_us)
{
    if (compute_token_us <= 0 || (fixed_us <= 0 && token_us <= 0))
        return 1;
    if (token_us >= compute_token_us)
        return SCHED_TIER_LOADS_NEVER;
    const double equal = fixed_us / (compute_token_us - token_us); /* Tokens with equal times. */
    return equal >= SCHED_TIER_LOADS_NEVER - 1 ? SCHED_TIER_LOADS_NEVER : (uint32_t)equal + 1;
}

uint32_t sched_tier_loads_least(const struct sched_tier_loads *loads, double compute_token_us,
                                int64_t now_us)
{
    double fixed_us, token_us;
    sched_tier_loads_line(loads, now_us, &fixed_us, &token_us);
    return sched_tier_least_tokens(fixed_us, token_us, compute_token_us);
}
