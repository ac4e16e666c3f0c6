/* The config of print.h. A machine's name is hardware, pool and number. Device, threads,
 * stages and KV memory come from the hardware file and from the split found for it. Where the
 * hardware file has none of them, and for each machine's address, the operator must complete the
 * config. */
#include "tools/plan/print.h"

#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct plan_cell *plan_best_cell(const struct plan_search *search)
{
    const struct plan_cell *best = NULL;
    for (uint32_t c = 0; c < search->cell_count; c++) {
        const struct plan_cell *cell = &search->cells[c];
        if (!cell->found || strcmp(cell->fixed_text, search->cells[0].fixed_text) != 0)
            continue;
        double better = best == NULL ? 1
                        : cell->fixed == PLAN_RATE
                            ? plan_mix_amount(search->inputs, &best->best, cell->minimize) -
                                  plan_mix_amount(search->inputs, &cell->best, cell->minimize)
                            : cell->best_rate_per_s - best->best_rate_per_s;
        if (better > 1e-9)
            best = cell;
    }
    return best;
}

/* Returns the KV memory that the simulation gave the machine (sim_machines.c); 0 = the config's
 * default. */
static uint64_t kv_bytes(const struct plan_inputs *inputs, const struct hardware *hardware)
{
    if (hardware->kv_memory_bytes > 0 || inputs->profile == NULL)
        return hardware->kv_memory_bytes;
    uint64_t weights =
        profile_stage_weight_bytes(inputs->profile, 0, inputs->profile->model.layer_count);
    return hardware->memory_bytes > weights ? hardware->memory_bytes - weights : 0;
}

/* Adds the machine's entry if its hardware names devices: device and threads, or stages; KV memory.
 */
static void machine_json(const struct plan_inputs *inputs, const struct hardware *hardware,
                         const struct machine_split *split, const char *name, json_t *machines)
{
    if (hardware->device[0] == 0 && split == NULL)
        return;
    json_t *machine = split != NULL ? json_pack("{s:o}", "stages", partition_config(&split->result))
                                    : json_pack("{s:s, s:I}", "device", hardware->device, "threads",
                                                (json_int_t)hardware->threads);
    if (split == NULL && hardware->tensor_parallel > 1)
        json_object_set_new(machine, "tensor_parallel",
                            json_integer((json_int_t)hardware->tensor_parallel));
    uint64_t kv = kv_bytes(inputs, hardware);
    if (kv > 0)
        json_object_set_new(machine, "kv_memory", json_integer((json_int_t)kv));
    json_object_set_new(machines, name, machine);
}

/* Returns the names of the mix's machines for prompts (or for both phases), or for tokens, and adds
 * their entries to `machines`. */
static json_t *names_json(const struct plan_inputs *inputs, const struct plan_mix *mix, bool tokens,
                          const char *pool, json_t *machines)
{
    const struct hardware *hardware =
        &inputs->kinds[tokens ? mix->token_kind : mix->prompt_kind].hardware;
    uint32_t count = tokens ? mix->token_count : mix->prompt_count;
    json_t *names = json_array();
    for (uint32_t i = 0; i < count; i++) {
        char name[48]; /* At most 27 bytes, so that stage processes can append their numbers. */
        snprintf(name, sizeof(name), "%.16s-%.6s-%u", hardware->name, pool, i);
        json_array_append_new(names, json_string(name));
        machine_json(inputs, hardware, plan_mix_split(inputs, mix, tokens), name, machines);
    }
    return names;
}

/* The options of the gateway that make it decide as the simulation with a table did. */
static json_t *as_simulated(const struct splitwise_setup *setup, const struct plan_mix *mix)
{
    json_int_t tokens = setup->machine.batch_tokens_max;
    return json_pack("{s:s, s:s, s:b, s:b, s:I, s:i, s:i, s:i, s:I, s:I, s:I}", "policy", "jsq",
                     "placement", "split", "adaptive_pools", mix->token_count > 0, "compare_time",
                     false, "prompt_queue_threshold_tokens",
                     (json_int_t)setup->prompt_queue_threshold_tokens, "prompt_queue_threshold_ms",
                     0, "machine_pending_ms", 0, "repurpose_window_ms", 0, "prompt_batch_tokens",
                     tokens, "prompt_fill_tokens", tokens, "batch_sequences_max",
                     (json_int_t)setup->machine.batch_tasks_max);
}

/* Returns the sizes of the tiers that were simulated; NULL = none. The store's servers are not
 * known: options.c refuses it. */
static json_t *tiers_json(const struct plan_inputs *inputs)
{
    json_t *tiers = json_object();
    for (int kind = 0; kind < TIER_KIND_COUNT; kind++) {
        char size[32];
        const double mib = inputs->tiers[kind].bytes / 1048576;
        snprintf(size, sizeof(size), "%.0fMiB", mib);
        if (mib > 0 && kind == TIER_KIND_MEMORY)
            json_object_set_new(tiers, "memory", json_pack("{s:s}", "size", size));
        if (mib > 0 && kind == TIER_KIND_FILE)
            json_object_set_new(tiers, "file", json_pack("{s:s, s:s}", "path", "kv", "size", size));
    }
    if (json_object_size(tiers) > 0)
        return json_pack("{s:o}", "tiers", tiers);
    json_decref(tiers);
    return NULL;
}

static json_t *config_json(const struct plan_search *search, const struct plan_cell *cell)
{
    const struct plan_inputs *inputs = search->inputs;
    const struct plan_mix *mix = &cell->best;
    struct splitwise_setup setup;
    json_t *pools = json_object();
    json_t *machines = json_object();
    splitwise_setup_default(&setup);
    const char *first = pool_name(mix->token_count > 0 ? POOL_PROMPT : POOL_MIXED);
    const char *token = pool_name(POOL_TOKEN);
    json_object_set_new(pools, first, names_json(inputs, mix, false, first, machines));
    if (mix->token_count > 0)
        json_object_set_new(pools, token, names_json(inputs, mix, true, token, machines));
    if (inputs->profile != NULL) /* The simulation used the config's own defaults. */
        return json_pack("{s:o, s:o, s:{s:s, s:i}, s:o*}", "pools", pools, "machines", machines,
                         "scheduler", "policy", "jsq", "speculative_tokens",
                         (int)inputs->draft_tokens, "kv", tiers_json(inputs));
    json_decref(machines);
    return json_pack("{s:o, s:o}", "pools", pools, "scheduler", as_simulated(&setup, mix));
}

enum status plan_config_write(const struct plan_search *search, const struct plan_cell *cell,
                              const char *path, struct error *error)
{
    if (cell->best.prompt_count + cell->best.token_count > LIMIT_MACHINES)
        return error_set(error, ST_TOO_LARGE, "%s: %u machines: a gateway connects to %d", path,
                         cell->best.prompt_count + cell->best.token_count, LIMIT_MACHINES);
    struct config *config = calloc(1, sizeof(*config));
    json_t *json = config_json(search, cell);
    enum status status = ST_OK;
    if (config == NULL || json == NULL)
        status = error_set(error, ST_NO_MEMORY, "out of memory");
    else if (json_dump_file(json, path, JSON_INDENT(1)) != 0)
        status = error_set(error, ST_IO, "%s: could not be written", path);
    else
        status = config_load(path, config, error);
    json_decref(json);
    free(config);
    return status;
}
