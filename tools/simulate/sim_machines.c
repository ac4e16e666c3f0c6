/* sim_machines: see the header. */
#include "tools/simulate/sim_machines.h"

#include "scheduler/options.h"
#include "scheduler/partition_even.h"
#include "scheduler/stage_costs.h"
#include "tools/simulate/splitwise/models.h"

#include <stdlib.h>
#include <string.h>

static void profile_host(const struct profile *profile, const struct profile_device *device,
                         struct sim_machine_facts *out)
{
    const struct profile_link *link = profile_link_find(profile, device->host, device->host, NULL);
    out->cost = (struct sim_cost){
        .profile = profile,
        .stage_link = link,
        .stage_count = 1,
        .stages = {{.end = profile->model.layer_count, .replica_count = 1}},
        .devices = {device},
        .busy_device = profile_device_find_busy(profile, device),
        .speeds = {1},
        .layer_count = profile->model.layer_count,
        .kv_layer_bytes = profile->model.kv_bytes_per_token,
        .kv_block_token_bytes = profile_kv_block_token_bytes(profile),
        .groups = profile->model.groups,
        .windowed_layers = profile_windowed_layers(profile),
    };
    out->threads = device->threads;
    if (link == NULL)
        return;
    out->link_bytes_per_s = link->bandwidth_bytes_per_s;
    out->link_latency_s = link->latency_us / 1e6;
}

static enum status device_missing(const char *kind, uint32_t threads, uint32_t ranks,
                                  const char *host, struct error *error)
{
    char wanted[32] = "";
    if (ranks > 1)
        snprintf(wanted, sizeof(wanted), " of %u ranks", ranks);
    return error_set(error, ST_NOT_FOUND, "the profile has no device %s with %u threads%s%s%s",
                     kind, threads, wanted, host[0] != 0 ? " on host " : "", host);
}

/* The host of a machine's address, if the profile has measured devices of that host; else "", any
 * host. */
static const char *host_of(const struct profile *profile, const struct config_machine *machine)
{
    const char *colon = strrchr(machine->address, ':');
    size_t bytes = colon != NULL ? (size_t)(colon - machine->address) : 0;
    for (uint32_t i = 0; i < profile->device_count && bytes > 0; i++)
        if (strlen(profile->devices[i].host) == bytes &&
            memcmp(profile->devices[i].host, machine->address, bytes) == 0)
            return profile->devices[i].host;
    return "";
}

/* Splits the layers as a real machine does (machine/executor/stage_plan.c). */
static enum status layers_split(const struct profile *profile, const struct config *config,
                                const struct config_machine *machine,
                                const struct config_stages *stages, struct sim_machine_facts *out,
                                uint32_t *ends, struct error *error)
{
    struct stage_costs costs;
    const uint32_t layers = profile->model.layer_count;
    const uint32_t count = stages->stages[stages->count - 1].list_index + 1;
    if (!stage_costs_use_profile(config, stages)) {
        stage_costs_by_weights(machine, stages, layers, profile->model.vocabulary_layers, &costs);
    } else {
        enum status status =
            stage_costs_by_profile(config, machine, stages, profile, "the profile", &costs, error);
        if (status != ST_OK)
            return status;
    }
    out->micro_batch_tokens = costs.micro_batch_tokens;
    return partition_even(costs.layers, layers, costs.first_extra, costs.last_extra, costs.speeds,
                          count, ends, error);
}

/* Adds a replica of a stage, with all its ranks. Neighbours with the same layers are replicas of
 * one stage. Returns false if its layers do not follow those of the stage before. */
static bool stage_add(struct sim_cost *cost, uint32_t place, uint32_t first, uint32_t end)
{
    struct sim_cost_stage *stage = &cost->stages[cost->stage_count - 1];
    if (place > 0 && stage->first == first && stage->end == end) {
        stage->replica_count++;
        return true;
    }
    uint32_t before = place > 0 ? stage->end : 0;
    stage = place > 0 ? &cost->stages[cost->stage_count++] : stage;
    *stage = (struct sim_cost_stage){
        .first = first, .end = end, .first_device = place, .replica_count = 1};
    return first == before && first < end;
}

static const struct profile_device *stage_device(const struct profile *profile,
                                                 const struct config_machine *machine,
                                                 const struct config_stage *stage,
                                                 struct error *error)
{
    const char *host = host_of(profile, machine);
    uint32_t threads = stage->threads > 0 ? stage->threads * stage->ranks : machine->threads;
    const struct profile_device *device =
        profile_device_find_default(profile, stage->device, threads, stage->ranks, host);
    if (device == NULL)
        device_missing(stage->device, threads, stage->ranks, "", error);
    return device;
}

/* The layers of a rank are those of its stage, and the profile's times are those of all ranks. */
static enum status stages_read(const struct profile *profile, const struct config *config,
                               const struct config_machine *machine,
                               const struct config_stages *stages, struct sim_machine_facts *out,
                               struct error *error)
{
    uint32_t ends[LIMIT_STAGE_PROCESSES], place = 0;
    enum status status = stages->count > 0
                             ? layers_split(profile, config, machine, stages, out, ends, error)
                             : ST_OK;
    bool good = true;
    for (uint32_t i = 0; i < stages->count && status == ST_OK; place++) {
        const struct config_stage *stage = &stages->stages[i];
        bool said = stage->end_layer > 0;
        uint32_t before = place > 0 ? ends[place - 1] : 0;
        good &= stage_add(&out->cost, place, said ? stage->first_layer : before,
                          said ? stage->end_layer : ends[place]);
        out->cost.speeds[place] = stage->speed > 0 ? stage->speed : 1;
        out->cost.devices[place] = stage_device(profile, machine, stage, error);
        if (out->cost.devices[place] == NULL)
            status = ST_NOT_FOUND;
        i += stage->ranks;
    }
    good &= out->cost.stages[out->cost.stage_count - 1].end == profile->model.layer_count;
    if (status == ST_OK && !good)
        status =
            error_set(error, ST_INVALID, "its stages are not the %u layers of the profile's model",
                      profile->model.layer_count);
    return status;
}

/* Returns how many times the KV of a token is in the machine's memory
 * (machine/executor/shape.c). */
static uint32_t kv_copies(const struct sim_cost *cost)
{
    uint32_t most = 1, count = 0;
    for (uint32_t i = 0; i < cost->stage_count; i++)
        count += cost->stages[i].replica_count;
    for (uint32_t i = 0; cost->profile != NULL && cost->profile->model.kv_copied && i < count; i++)
        most = cost->devices[i]->ranks > most ? cost->devices[i]->ranks : most;
    return most;
}

static enum status machine_fill(const struct profile *profile, const struct config *config,
                                const struct config_machine *machine, struct sim_machine_facts *out,
                                struct error *error)
{
    struct config_stages stages;
    const char *host = host_of(profile, machine);
    config_stages(machine, &stages);
    const struct profile_device *device =
        stages.count > 0
            ? stage_device(profile, machine, &stages.stages[0], error)
            : profile_device_find_default(profile, machine->device, machine->threads, 1, host);
    if (device == NULL)
        return stages.count > 0 ? ST_NOT_FOUND
                                : device_missing(machine->device, machine->threads, 1, "", error);
    profile_host(profile, device, out);
    enum status status = stages_read(profile, config, machine, &stages, out, error);
    if (status != ST_OK)
        return status;
    out->kv_copies = kv_copies(&out->cost);
    out->kv_tokens = machine->kv_memory_bytes / out->cost.kv_block_token_bytes / out->kv_copies;
    return out->kv_tokens > 0 ? ST_OK : error_set(error, ST_INVALID, "no KV memory");
}

static enum status machine_read(struct sim_machines *machines, const struct config *config,
                                const struct config_machine *machine, struct error *error)
{
    struct sim_machine_facts *out = &machines->machines[machines->count];
    *out = (struct sim_machine_facts){.home = machine->pool};
    snprintf(out->name, sizeof(out->name), "%s", machine->name);
    enum status status = machine_fill(machines->profile, config, machine, out, error);
    if (status != ST_OK)
        error_prefix(error, "%s: machine %s", config->source, machine->name);
    machines->count += status == ST_OK;
    return status;
}

enum status sim_machines_of_config(struct sim_machines *machines, const struct config *config,
                                   struct error *error)
{
    enum status status = ST_OK;
    if (machines->profile == NULL)
        return error_set(error, ST_USAGE,
                         "--profile: wanted for the machines of a config (or name --machines)");
    for (uint32_t i = 0; i < config->machine_count && status == ST_OK; i++)
        if (config_machine_present(config, i))
            status = machine_read(machines, config, &config->machines[i], error);
    return status;
}

/* ---- kinds of hardware ---- */

const struct profile_device *sim_machines_device(const struct profile *profile,
                                                 const struct hardware *hardware,
                                                 struct error *error)
{
    const uint32_t ranks = hardware->tensor_parallel > 1 ? hardware->tensor_parallel : 1;
    const struct profile_device *device = profile_device_find_default(
        profile, hardware->device, hardware->threads, ranks, hardware->host);
    if (device == NULL)
        device_missing(hardware->device, hardware->threads, ranks, hardware->host, error);
    return device;
}

static enum status table_host(struct sim_machines *machines, const struct hardware *hardware,
                              struct cost_curve *curve, const char *table, const char *name,
                              struct sim_machine_facts *out, struct error *error)
{
    const struct splitwise_model *model = splitwise_model_find(name);
    if (table == NULL)
        return error_set(error, ST_USAGE, "--table: wanted for machines of kind %s",
                         hardware->name);
    if (model == NULL)
        return error_set(error, ST_USAGE, "--model %s: want bloom-176b or llama2-70b", name);
    enum status status = cost_table_read(table, name, hardware->table_hardware,
                                         hardware->tensor_parallel, curve, error);
    if (status != ST_OK)
        return status;
    machines->has_reference =
        cost_table_read(table, name, SPLITWISE_SLO_HARDWARE, SPLITWISE_TENSOR_PARALLEL,
                        &machines->reference, NULL) == ST_OK;
    machines->weights_bytes = model->weights_bytes;
    machines->kv_bytes_per_token = splitwise_kv_bytes_per_token(model);
    out->cost =
        (struct sim_cost){.curve = curve,
                          .stage_count = 1,
                          .stages = {{.replica_count = 1}},
                          .speeds = {1},
                          .layer_count = (uint32_t)model->layers,
                          .kv_layer_bytes = machines->kv_bytes_per_token / (uint32_t)model->layers,
                          .kv_block_token_bytes = machines->kv_bytes_per_token};
    return ST_OK;
}

static enum status profile_kind(struct sim_machines *machines, const struct hardware *hardware,
                                const struct machine_split *split, const struct config *config,
                                struct sim_machine_facts *out, struct error *error)
{
    if (machines->profile == NULL)
        return error_set(error, ST_USAGE, "--profile: wanted for machines of kind %s",
                         hardware->name);
    const struct profile_device *device =
        split != NULL ? split->cluster.kinds[0].device
                      : sim_machines_device(machines->profile, hardware, error);
    if (device == NULL)
        return ST_NOT_FOUND;
    profile_host(machines->profile, device, out);
    if (split != NULL) {
        machine_split_cost(split, &out->cost);
        out->threads = machine_split_threads(split);
    }
    if (hardware->memory_bytes == 0 && hardware->kv_memory_bytes == 0)
        out->kv_tokens = config->kv.memory_bytes / out->cost.kv_block_token_bytes;
    return ST_OK;
}

static bool spec_read(const char *spec, uint32_t *count_out, enum pool *pool_out,
                      const char **path_out)
{
    char *end;
    unsigned long count = strtoul(spec, &end, 10);
    if (end == spec || *end != ':' || count < 1 || count > SCHED_MACHINES_MAX)
        return false;
    *count_out = (uint32_t)count;
    for (int pool = 0; pool < POOL_COUNT; pool++) {
        const char *name = pool_name((enum pool)pool);
        size_t bytes = strlen(name);
        if (strncmp(end + 1, name, bytes) != 0 || end[1 + bytes] != ':')
            continue;
        *pool_out = (enum pool)pool;
        *path_out = end + 2 + bytes;
        return true;
    }
    return false;
}

/* Sets the KV memory and the link of the machine, and adds `count` copies of it. */
static enum status machines_append(struct sim_machines *machines, uint32_t count,
                                   struct sim_machine_facts *host, struct error *error)
{
    const struct hardware *hardware = host->hardware;
    uint64_t weights =
        host->cost.curve != NULL
            ? machines->weights_bytes
            : profile_stage_weight_bytes(machines->profile, 0, host->cost.layer_count);
    uint64_t rest = hardware->memory_bytes > weights ? hardware->memory_bytes - weights : 0;
    uint64_t kv = hardware->kv_memory_bytes > 0 ? hardware->kv_memory_bytes : rest;
    if (machines->count + count > SCHED_MACHINES_MAX)
        return error_set(error, ST_TOO_LARGE, "more than %d machines", SCHED_MACHINES_MAX);
    const struct sim_machine_facts *first = &machines->machines[0];
    if (machines->count > 0 && (first->cost.curve != NULL) != (host->cost.curve != NULL))
        return error_set(error, ST_INVALID,
                         "its times are in a %s, those of %s are not: want machines of one model",
                         host->cost.curve != NULL ? "table" : "profile", first->hardware->name);
    host->kv_copies = kv_copies(&host->cost);
    if (kv > 0)
        host->kv_tokens = kv / host->cost.kv_block_token_bytes;
    host->kv_tokens /= host->kv_copies;
    if (host->kv_tokens == 0)
        return error_set(error, ST_INVALID, "no memory for KV beside the weights");
    host->link_is_from_hardware = hardware->link_bytes_per_s > 0;
    if (host->link_is_from_hardware)
        host->link_bytes_per_s = hardware->link_bytes_per_s;
    for (uint32_t i = 0; i < count; i++) {
        snprintf(host->name, sizeof(host->name), "%.16s-%u", hardware->name, machines->count);
        machines->machines[machines->count++] = *host;
    }
    return ST_OK;
}

enum status sim_machines_add_kind(struct sim_machines *machines, uint32_t count, enum pool pool,
                                  const struct hardware *hardware,
                                  const struct machine_split *split, const struct config *config,
                                  struct error *error)
{
    struct sim_machine_facts host = {.home = pool, .hardware = hardware};
    enum status status = profile_kind(machines, hardware, split, config, &host, error);
    return status == ST_OK ? machines_append(machines, count, &host, error) : status;
}

/* Finds the layer split of a hardware file's machine with several devices. */
static enum status split_find(struct sim_machines *machines, const char *path, enum pool pool,
                              const struct config *config, struct error *error)
{
    struct partition_cluster cluster;
    const struct hardware *hardware = &machines->kinds[machines->kind_count];
    if (machines->profile == NULL)
        return error_set(error, ST_USAGE, "--profile: wanted for machines of kind %s",
                         hardware->name);
    const struct machine_split_goal goal = machine_split_goal_default(
        pool == POOL_PROMPT, sched_micro_batch_tokens(config, 0),
        hardware->kv_memory_bytes > 0 ? hardware->kv_memory_bytes : config->kv.memory_bytes);
    enum status status =
        partition_cluster_of_machine(path, hardware->name, machines->profile, &cluster, error);
    if (status != ST_OK)
        return status;
    status = machine_split_find(hardware, &cluster, machines->profile, &goal,
                                &machines->splits[machines->kind_count], error);
    if (status != ST_OK)
        error_prefix(error, "%s", path);
    return status;
}

enum status sim_machines_add(struct sim_machines *machines, const char *spec, const char *table,
                             const char *model, const struct config *config, struct error *error)
{
    uint32_t count;
    enum pool pool;
    const char *file;
    char path[LIMIT_PATH_BYTES];
    if (!spec_read(spec, &count, &pool, &file))
        return error_set(error, ST_USAGE,
                         "--machines %s: want COUNT:POOL:FILE, as 25:prompt:h100.json", spec);
    if (machines->kind_count == SIM_KINDS_MAX)
        return error_set(error, ST_USAGE, "--machines %s: more than %d kinds", spec, SIM_KINDS_MAX);
    uint32_t kind = machines->kind_count;
    struct hardware *hardware = &machines->kinds[kind];
    hardware_find(file, path);
    enum status status = hardware_read(path, hardware, error);
    if (status == ST_OK && hardware->has_devices)
        status = split_find(machines, path, pool, config, error);
    if (status != ST_OK)
        return status;
    machines->kind_count++;
    if (hardware->table_hardware[0] == 0) {
        status = sim_machines_add_kind(machines, count, pool, hardware, machines->splits[kind],
                                       config, error);
    } else {
        struct sim_machine_facts host = {.home = pool, .hardware = hardware};
        status =
            table_host(machines, hardware, &machines->curves[kind], table, model, &host, error);
        if (status == ST_OK)
            status = machines_append(machines, count, &host, error);
    }
    if (status != ST_OK)
        error_prefix(error, "--machines %s", spec);
    return status;
}

/* Returns the smaller one of the rates that are not 0; 0 = both are 0. */
static double slower_of(double a, double b)
{
    return a > 0 && (b <= 0 || a < b) ? a : b;
}

struct sim_link sim_machines_link(const struct sim_machines *machines, uint32_t from, uint32_t to)
{
    const struct sim_machine_facts *a = &machines->machines[from];
    const struct sim_machine_facts *b = &machines->machines[to];
    const struct profile_device *device = a->cost.devices[0];
    const struct profile_device *other = b->cost.devices[0];
    const struct profile_link *link = NULL;
    /* Each copy crosses the link. */
    const double copies = b->kv_copies > 1 ? b->kv_copies : 1;
    if (device != NULL && other != NULL && strcmp(device->host, other->host) != 0)
        link = profile_link_find(machines->profile, device->host, other->host, NULL);
    if (link == NULL) {
        double rate = slower_of(a->link_bytes_per_s, b->link_bytes_per_s);
        return (struct sim_link){a->link_bytes_per_s > 0 ? rate / copies : 0, a->link_latency_s};
    }
    double rate = link->bandwidth_bytes_per_s;
    rate = a->link_is_from_hardware ? slower_of(rate, a->link_bytes_per_s) : rate;
    rate = b->link_is_from_hardware ? slower_of(rate, b->link_bytes_per_s) : rate;
    return (struct sim_link){rate / copies, link->latency_us / 1e6};
}

static uint64_t context_most(const struct sim_machine_facts *host, const struct config *config)
{
    if (host->cost.groups.windowed == 0)
        return host->kv_tokens;
    uint64_t blocks = host->kv_tokens / config->kv.block_tokens;
    const struct sched_memory_options memory =
        sched_memory_options_make(config, &host->cost.groups, (uint32_t)blocks, 0);
    return sched_memory_tokens_most(&memory, memory.block_count);
}

uint32_t sim_machines_context_tokens(const struct sim_machines *machines,
                                     const struct config *config)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < machines->count; i++) {
        uint64_t tokens = context_most(&machines->machines[i], config);
        most = tokens > most ? tokens : most;
    }
    return (uint32_t)(most < LIMIT_CONTEXT_TOKENS ? most : LIMIT_CONTEXT_TOKENS);
}

void sim_machines_done(struct sim_machines *machines)
{
    for (uint32_t i = 0; i < machines->kind_count; i++)
        machine_split_close(machines->splits[i]);
    machines->kind_count = 0;
    profile_close(machines->profile);
    machines->profile = NULL;
}
