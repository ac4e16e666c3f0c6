/* plan_splits: see the header. The latency limits are the SLO's limits for the median request: a
 * machine that misses them for a typical request while it is idle cannot be part of any plan. */
#include "tools/plan/splits.h"

#include "scheduler/options.h"

#include "tools/plan/profile.h"

#include <stdlib.h>

struct typical { /* Median lengths. */
    uint32_t prompt_tokens;
    uint32_t output_tokens;
};

enum status plan_splits_devices(const struct plan_inputs *inputs, struct plan_kind *kind,
                                struct error *error)
{
    if (inputs->cores > 0)
        return error_set(error, ST_USAGE,
                         "--cores: %s: machines of several devices cannot share cores", kind->path);
    return partition_cluster_of_machine(kind->path, kind->hardware.name, inputs->profile,
                                        &kind->cluster, error);
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static enum status typical_of(const struct plan_requests *requests, struct typical *out,
                              struct error *error)
{
    size_t count = requests->count;
    uint32_t *lengths = calloc(2 * count + 2, sizeof(lengths[0]));
    if (lengths == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++) {
        lengths[i] = requests->arrivals[i].prompt_tokens;
        lengths[count + i] = requests->arrivals[i].output_tokens;
    }
    qsort(lengths, count, sizeof(lengths[0]), by_size);
    qsort(lengths + count, count, sizeof(lengths[0]), by_size);
    *out = (struct typical){.prompt_tokens = lengths[count / 2],
                            .output_tokens = lengths[count + count / 2]};
    free(lengths);
    return ST_OK;
}

static enum status kind_split(const struct plan_inputs *inputs, struct plan_kind *kind,
                              const struct config *config, const struct typical *typical,
                              struct error *error)
{
    uint64_t kv_bytes = kind->hardware.kv_memory_bytes;
    struct machine_split_goal goal = {
        .prompt = true,
        .prompt_tokens = typical->prompt_tokens > 0 ? typical->prompt_tokens : 1,
        .micro_batch = sched_prompt_fill_tokens(config),
        .context = typical->prompt_tokens + typical->output_tokens / 2,
        .batch_max = config->scheduler.batch_sequences_max,
        .kv_bytes = kv_bytes > 0 ? kv_bytes : config->kv.memory_bytes,
        .limit_ms = 1e3 * inputs->limits[SLO_TTFT][0] *
                    cost_curve_prompts_s(&inputs->slo_curve, typical->prompt_tokens)};
    enum status status = machine_split_find(&kind->hardware, &kind->cluster, inputs->profile, &goal,
                                            &kind->prompt_split, error);
    goal.prompt = false;
    goal.limit_ms = 1e3 * inputs->limits[SLO_TBT][0] *
                    cost_curve_decodes_s(&inputs->slo_curve, typical->prompt_tokens);
    if (status == ST_OK)
        status = machine_split_find(&kind->hardware, &kind->cluster, inputs->profile, &goal,
                                    &kind->token_split, error);
    if (status != ST_OK)
        error_prefix(error, "%s", kind->path);
    return status;
}

enum status plan_splits_find(struct plan_inputs *inputs, struct error *error)
{
    struct typical typical = {0, 0};
    struct config *config = calloc(1, sizeof(*config)); /* Too large for a stack. */
    if (config == NULL)
        return error_set(error, ST_NO_MEMORY, "out of memory");
    plan_profile_config(config);
    enum status status = typical_of(&inputs->requests, &typical, error);
    for (uint32_t i = 0; i < inputs->kind_count && status == ST_OK; i++)
        if (inputs->kinds[i].hardware.has_devices)
            status = kind_split(inputs, &inputs->kinds[i], config, &typical, error);
    free(config);
    return status;
}

void plan_splits_done(struct plan_inputs *inputs)
{
    for (uint32_t i = 0; i < inputs->kind_count; i++) {
        machine_split_close(inputs->kinds[i].prompt_split);
        machine_split_close(inputs->kinds[i].token_split);
        inputs->kinds[i].prompt_split = inputs->kinds[i].token_split = NULL;
    }
}
