/* stage_plan: see the header. */
#include "machine/stage_plan.h"

#include "machine/stage_costs.h"
#include "scheduler/partition_even.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static enum status split_evenly(const struct config_machine *entry, const struct stage_costs *costs,
                                const struct model_hyper *hyper, struct stage_plan *plan,
                                struct error *error)
{
    uint32_t ends[LIMIT_STAGES];
    enum status status =
        partition_even(costs->layers, hyper->layer_count, costs->first_extra, costs->last_extra,
                       costs->speeds, plan->place_count, ends, error);
    if (status != ST_OK)
        return error_set(error, status, "machines/%s/stages: %u stages, the model has %u layers",
                         entry->name, plan->place_count, hyper->layer_count);
    for (uint32_t i = 0; i < plan->place_count; i++) {
        plan->places[i].first_layer = i > 0 ? ends[i - 1] : 0;
        plan->places[i].last_layer = ends[i];
    }
    return ST_OK;
}

/* Numbers the stages: neighbours with the same layers are replicas of one. */
static enum status paths_make(const struct config_machine *entry, struct stage_plan *plan,
                              struct error *error)
{
    struct sched_paths_stage stages[LIMIT_STAGES] = {{0}};
    uint32_t speeds[LIMIT_STAGES];
    for (uint32_t i = 0; i < plan->place_count; i++) {
        struct stage_place *place = &plan->places[i];
        bool same = i > 0 && plan->places[i - 1].first_layer == place->first_layer;
        place->stage = i == 0 ? 0 : plan->places[i - 1].stage + (same ? 0 : 1);
        place->replica = same ? plan->places[i - 1].replica + 1 : 0;
        speeds[i] = place->config.speed;
        if (!same)
            stages[place->stage].speeds = &speeds[i];
        stages[place->stage].replica_count++;
    }
    plan->stage_count = plan->places[plan->place_count - 1].stage + 1;
    enum status status = sched_paths_open(stages, plan->stage_count, &plan->paths);
    if (status != ST_OK)
        return error_set(error, status,
                         "machines/%s/stages: more than %d paths through the replicas of its "
                         "stages: want replica counts that divide each other",
                         entry->name, LIMIT_STAGE_PATHS);
    for (uint32_t i = 0; i < plan->place_count; i++)
        for (uint32_t path = 0; path < plan->paths.path_count; path++)
            if (sched_paths_replica(&plan->paths, path, plan->places[i].stage) ==
                plan->places[i].replica)
                plan->places[i].paths |= 1ull << path;
    return ST_OK;
}

enum status stage_plan_make(const struct config *config, const struct config_machine *entry,
                            const struct model_hyper *hyper, uint64_t metadata_hash,
                            struct stage_plan *out, struct error *error)
{
    struct config_stages stages;
    struct stage_costs costs;
    memset(out, 0, sizeof(*out));
    config_stages(entry, &stages);
    if (stages.count == 0)
        return ST_OK;
    enum status status =
        stage_costs_read(config, entry, &stages, hyper, metadata_hash, &costs, error);
    if (status != ST_OK)
        return status;
    out->micro_batch_tokens = costs.micro_batch_tokens;
    out->place_count = stages.count;
    for (uint32_t i = 0; i < stages.count; i++)
        out->places[i] = (struct stage_place){.config = stages.stages[i],
                                              .first_layer = stages.stages[i].first_layer,
                                              .last_layer = stages.stages[i].last_layer};
    uint32_t last = stages.stages[stages.count - 1].last_layer;
    if (last == 0)
        status = split_evenly(entry, &costs, hyper, out, error);
    else if (last != hyper->layer_count)
        status = error_set(error, ST_INVALID,
                           "machines/%s/stages/%u/layers: the last one is %u, the model's is %u",
                           entry->name, stages.count - 1, last - 1, hyper->layer_count - 1);
    if (status == ST_OK)
        status = paths_make(entry, out, error);
    if (status != ST_OK)
        return status;
    /* One more than stages: the next one waits at the first stage, which need not ask for it. */
    out->batches_in_flight = out->stage_count > 1 ? out->stage_count + 1 : 1;
    if (out->batches_in_flight * out->paths.path_count > LIMIT_BATCHES_IN_FLIGHT)
        out->batches_in_flight = LIMIT_BATCHES_IN_FLIGHT / out->paths.path_count;
    return ST_OK;
}

uint32_t stage_plan_place(const struct stage_plan *plan, uint32_t stage, uint32_t path)
{
    for (uint32_t i = 0; i < plan->place_count; i++)
        if (plan->places[i].stage == stage && (plan->places[i].paths >> path & 1) != 0)
            return i;
    assert(!"each path has a place in each stage");
    return 0;
}

uint32_t stage_plan_slots(const struct stage_plan *plan)
{
    return plan->batches_in_flight * plan->paths.path_count;
}

void stage_name(const char *machine, uint32_t place, char out[LIMIT_NAME_BYTES])
{
    snprintf(out, LIMIT_NAME_BYTES, "%.28s/%u", machine, place);
}
