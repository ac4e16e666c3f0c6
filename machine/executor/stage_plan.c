/* stage_plan: see the header. */
#include "machine/executor/stage_plan.h"

#include "profile/profile.h"
#include "scheduler/options.h"
#include "scheduler/partition_even.h"
#include "scheduler/stage_costs.h"

#include <stdio.h>
#include <string.h>

/* Reads the costs from the config's profile, or computes them from the sizes of the weights. */
static enum status costs_read(const struct config *config, const struct config_machine *entry,
                              const struct config_stages *stages, const struct model_hyper *hyper,
                              uint64_t metadata_hash, struct stage_costs *out, struct error *error)
{
    char path[LIMIT_PATH_BYTES];
    struct profile *profile;
    if (!stage_costs_use_profile(config, stages)) {
        stage_costs_by_weights(entry, stages, hyper->layer_count, model_vocabulary_layers(hyper),
                               out);
        return ST_OK;
    }
    enum status status = config_file_path(config, config->profile, path, error);
    if (status == ST_OK)
        status = profile_load(path, &profile, error);
    if (status != ST_OK)
        return status;
    if (profile->model.layer_count != hyper->layer_count ||
        (profile->model.metadata_hash != 0 && profile->model.metadata_hash != metadata_hash))
        status = error_set(error, ST_MISMATCH, "%s is of another model, %s; the config's is %s",
                           path, profile->model.name, hyper->name);
    else
        status = stage_costs_by_profile(config, entry, stages, profile, path, out, error);
    profile_close(profile);
    return status;
}

static enum status split_evenly(const struct config_machine *entry, const struct stage_costs *costs,
                                const struct model_hyper *hyper, struct stage_plan *plan,
                                struct error *error)
{
    uint32_t ends[LIMIT_STAGE_PROCESSES];
    uint32_t count = plan->processes[plan->process_count - 1].config.list_index + 1;
    enum status status = partition_even(costs->layers, hyper->layer_count, costs->first_extra,
                                        costs->last_extra, costs->speeds, count, ends, error);
    if (status != ST_OK)
        return error_set(error, status, "machines/%s/stages: %u stages, the model has %u layers",
                         entry->name, count, hyper->layer_count);
    for (uint32_t i = 0; i < plan->process_count; i++) {
        uint32_t index = plan->processes[i].config.list_index;
        plan->processes[i].first_layer = index > 0 ? ends[index - 1] : 0;
        plan->processes[i].end_layer = ends[index];
    }
    return ST_OK;
}

/* Numbers the stages: neighbours with the same layers are replicas of one stage, unless they are
 * ranks. */
static void processes_number(struct stage_plan *plan, struct sched_paths_stage *stages,
                             uint32_t *speeds)
{
    for (uint32_t i = 0; i < plan->process_count; i++) {
        struct stage_plan_process *process = &plan->processes[i];
        const struct stage_plan_process *before = i > 0 ? &plan->processes[i - 1] : NULL;
        bool same = before != NULL && before->first_layer == process->first_layer;
        process->stage = before == NULL ? 0 : before->stage + (same ? 0 : 1);
        process->replica = same ? before->replica + (process->config.rank == 0 ? 1 : 0) : 0;
        if (process->config.rank > 0)
            continue;
        uint32_t index = process->config.list_index;
        speeds[index] = process->config.speed;
        if (!same)
            stages[process->stage].speeds = &speeds[index];
        stages[process->stage].replica_count++;
    }
    plan->stage_count = plan->processes[plan->process_count - 1].stage + 1;
}

static enum status paths_make(const struct config_machine *entry, struct stage_plan *plan,
                              struct error *error)
{
    struct sched_paths_stage stages[LIMIT_STAGE_PROCESSES] = {{0}};
    uint32_t speeds[LIMIT_STAGE_PROCESSES];
    processes_number(plan, stages, speeds);
    enum status status = sched_paths_open(stages, plan->stage_count, &plan->paths);
    if (status != ST_OK)
        return error_set(error, status,
                         "machines/%s/stages: more than %d paths through the replicas of its "
                         "stages: want replica counts that divide each other",
                         entry->name, LIMIT_STAGE_PATHS);
    for (uint32_t i = 0; i < plan->process_count; i++)
        for (uint32_t path = 0; path < plan->paths.path_count; path++)
            if (sched_paths_replica(&plan->paths, path, plan->processes[i].stage) ==
                plan->processes[i].replica)
                plan->processes[i].paths |= 1ull << path;
    return ST_OK;
}

static enum status processes_make(const struct config_machine *entry,
                                  const struct config_stages *stages,
                                  const struct model_hyper *hyper, struct stage_plan *out,
                                  struct error *error)
{
    out->process_count = stages->count;
    for (uint32_t i = 0; i < stages->count; i++) {
        const struct config_stage *from = &stages->stages[i];
        struct stage_plan_process *to = &out->processes[i];
        *to = (struct stage_plan_process){
            .config = *from, .first_layer = from->first_layer, .end_layer = from->end_layer};
        enum status status = model_shard_compute(hyper, from->rank, from->ranks, &to->shard, error);
        if (status != ST_OK) {
            error_prefix(error, "machines/%s/stages/%u", entry->name, from->list_index);
            return status;
        }
    }
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
    out->batches_in_flight = out->paths.path_count = out->paths.cycle_count = 1;
    if (stages.count == 0)
        return ST_OK;
    enum status status = costs_read(config, entry, &stages, hyper, metadata_hash, &costs, error);
    if (status == ST_OK)
        status = processes_make(entry, &stages, hyper, out, error);
    if (status != ST_OK)
        return status;
    out->micro_batch_tokens = costs.micro_batch_tokens;
    const struct config_stage *end = &stages.stages[stages.count - 1];
    if (end->end_layer == 0)
        status = split_evenly(entry, &costs, hyper, out, error);
    else if (end->end_layer != hyper->layer_count)
        status =
            error_set(error, ST_INVALID,
                      "machines/%s/stages/%u/layers: the last one is %u, the model's is %u",
                      entry->name, end->list_index, end->end_layer - 1, hyper->layer_count - 1);
    if (status == ST_OK)
        status = paths_make(entry, out, error);
    if (status != ST_OK)
        return status;
    out->batches_in_flight = sched_batches_in_flight(out->stage_count, out->paths.path_count);
    return ST_OK;
}

uint64_t stage_plan_processes(const struct stage_plan *plan, uint32_t path)
{
    uint64_t processes = 0;
    for (uint32_t i = 0; i < plan->process_count; i++)
        if ((plan->processes[i].paths >> path & 1) != 0)
            processes |= 1ull << i;
    return processes;
}

bool stage_plan_sends(const struct stage_plan *plan, uint32_t from, uint32_t to)
{
    const struct stage_plan_process *a = &plan->processes[from];
    const struct stage_plan_process *b = &plan->processes[to];
    return b->stage == a->stage + 1 && (b->paths & a->paths) != 0 &&
           b->config.rank % a->config.ranks == a->config.rank;
}

uint64_t stage_plan_done_senders(const struct stage_plan *plan, uint32_t path)
{
    const uint64_t processes = stage_plan_processes(plan, path);
    uint64_t enders = 0;
    for (uint32_t i = 0; i < plan->process_count; i++) {
        bool gives = false;
        for (uint32_t j = 0; j < plan->process_count; j++)
            gives |= (processes >> j & 1) != 0 && stage_plan_sends(plan, i, j);
        if ((processes >> i & 1) != 0 && !gives)
            enders |= 1ull << i;
    }
    return enders;
}

bool stage_plan_samples(const struct stage_plan *plan, uint32_t process)
{
    const struct stage_plan_process *at = &plan->processes[process];
    return at->stage + 1 == plan->stage_count && at->config.rank == 0;
}

uint32_t stage_plan_slot_count(const struct stage_plan *plan)
{
    return plan->batches_in_flight * plan->paths.path_count;
}

void stage_name(const char *machine, uint32_t process, char out[LIMIT_NAME_BYTES])
{
    snprintf(out, LIMIT_NAME_BYTES, "%.28s/%u", machine, process);
}

void stage_plan_process_text(const struct stage_plan_process *process,
                             char out[STAGE_PLAN_PROCESS_TEXT_BYTES])
{
    int used = snprintf(out, STAGE_PLAN_PROCESS_TEXT_BYTES, "layers %u to %u", process->first_layer,
                        process->end_layer - 1);
    if (process->shard.rank_count > 1)
        snprintf(out + used, STAGE_PLAN_PROCESS_TEXT_BYTES - (size_t)used, " (rank %u of %u)",
                 process->shard.rank, process->shard.rank_count);
}
