/* sim_machine, the use of the devices. One device is fully busy while a batch is in flight. Several
 * devices are busy for the computing times of all stages, divided by the time that the batch is in
 * flight. A batch of prompts and decodes is divided between them by the time that each part would
 * take alone. */
#include "tools/simulate/sim_machine_state.h"

static double computed_s(const struct sim_machine *m, uint32_t path,
                         const struct profile_work *work)
{
    const struct sim_cost *cost = &m->options.host->cost;
    double sum = 0;
    for (uint32_t stage = 0; stage < cost->stage_count; stage++)
        sum += sim_cost_stage_s(cost, stage, sched_paths_replica(&m->paths, path, stage), work);
    return sum;
}

static double prompt_share(const struct sim_machine *m, uint32_t path,
                           const struct profile_work *work)
{
    struct profile_work prompts = *work;
    struct profile_work decodes = {.decodes = work->decodes,
                                   .decode_context = work->decode_context};
    if (work->decodes == 0 || work->prompt_tokens == 0)
        return work->prompt_tokens > 0 ? 1 : 0;
    prompts.decodes = 0;
    double prompts_s = computed_s(m, path, &prompts);
    return prompts_s / (prompts_s + computed_s(m, path, &decodes));
}

void sim_flight_use_set(const struct sim_machine *m, struct sim_flight *flight,
                        const struct profile_work *work, double now_s)
{
    const struct sim_cost *cost = &m->options.host->cost;
    uint32_t devices = 0;
    if (!m->options.use_recorded)
        return;
    for (uint32_t stage = 0; stage < cost->stage_count; stage++)
        devices += cost->stages[stage].replica_count;
    double use = 1;
    if (devices > 1 && flight->end_s > now_s)
        use = computed_s(m, flight->batch.path, work) / (flight->end_s - now_s) / devices;
    double share = prompt_share(m, flight->batch.path, work);
    flight->prompt_use = use * share;
    flight->decode_use = use * (1 - share);
}

void sim_machine_use(const struct sim_machine *m, struct sim_machine_use *out)
{
    uint32_t left = m->flight_count;
    *out = (struct sim_machine_use){
        .kv = m->block_count > 0 ? 1 - (double)sim_kv_available(m) / m->block_count : 0};
    for (uint32_t i = 0; left > 0; i++) {
        const struct sim_flight *flight = &m->flights[i];
        if (!flight->in_flight)
            continue;
        out->prompt += flight->prompt_use;
        out->decode += flight->decode_use;
        out->batch += flight->batch.item_count;
        left--;
    }
}
