/* layerwise: see the header. */
#include "scheduler/layerwise.h"

#include <math.h>

static bool measured(const struct sched_layerwise *speeds)
{
    return speeds->send_token_us > 0 && speeds->prompt_token_us > 0;
}

static double cost_us(const struct sched_layerwise *speeds)
{
    return (double)speeds->layer_count * SCHED_LAYER_US;
}

bool sched_layerwise_pays(const struct sched_layerwise *speeds, double sent_tokens,
                          uint32_t computed_tokens)
{
    if (!measured(speeds))
        return sent_tokens >= SCHED_LAYERWISE_TOKENS;
    return fmin(sent_tokens * speeds->send_token_us, computed_tokens * speeds->prompt_token_us) >=
           cost_us(speeds);
}

uint32_t sched_layerwise_tokens(const struct sched_layerwise *speeds)
{
    if (!measured(speeds))
        return SCHED_LAYERWISE_TOKENS;
    const double tokens =
        ceil(cost_us(speeds) / fmin(speeds->send_token_us, speeds->prompt_token_us));
    return tokens < UINT32_MAX ? (uint32_t)tokens : UINT32_MAX;
}
