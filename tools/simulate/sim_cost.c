/* sim_cost: see the header. */
#include "tools/simulate/sim_cost.h"

#define MIXED_FACTOR 1.1 /* The factor of Splitwise's simulator. */

static double table_s(const struct cost_curve *curve, const struct profile_work *work)
{
    double rows = (double)work->prompt_tokens + work->decodes;
    if (work->prompt_tokens == 0)
        return cost_curve_decodes_s(curve, rows);
    return cost_curve_prompts_s(curve, rows) * (work->decodes > 0 ? MIXED_FACTOR : 1);
}

static double device_s(const struct sim_cost *cost, const struct sim_cost_stage *s,
                       const struct profile_device *device, const struct profile_work *work)
{
    return profile_stage_us(cost->profile, device, s->first, s->end, work) / 1e6;
}

double sim_cost_stage_s(const struct sim_cost *cost, uint32_t stage, uint32_t replica,
                        const struct profile_work *work)
{
    const struct sim_cost_stage *s = &cost->stages[stage];
    if (cost->curve != NULL)
        return table_s(cost->curve, work);
    return device_s(cost, s, cost->devices[s->first_device + replica], work) +
           (cost->stage_count == 1 ? SIM_COST_BATCH_S : 0);
}

double sim_cost_busy_slowdown(const struct sim_cost *cost, const struct profile_work *work)
{
    if (cost->busy_device == NULL)
        return 1;
    double alone_s = device_s(cost, &cost->stages[0], cost->devices[0], work);
    double beside_s = device_s(cost, &cost->stages[0], cost->busy_device, work);
    return beside_s > alone_s && alone_s > 0 ? beside_s / alone_s : 1;
}

uint64_t sim_cost_kv_bytes(const struct sim_cost *cost, uint32_t first, uint32_t end,
                           uint32_t window_first)
{
    uint64_t all = end > first ? end - first : 0;
    uint64_t windowed = end > window_first ? end - window_first : 0;
    return cost->kv_layer_bytes *
           ((cost->layer_count - cost->windowed_layers) * all + cost->windowed_layers * windowed);
}

double sim_cost_between_s(const struct sim_cost *cost, const struct profile_work *work)
{
    if (cost->stage_link == NULL || cost->profile == NULL)
        return 0;
    double rows = (double)work->prompt_tokens + work->decodes;
    double bytes = rows * (double)cost->profile->model.boundary_bytes_per_token;
    return profile_link_us(cost->stage_link, bytes) / 1e6;
}
