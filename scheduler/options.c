/* sched_options: see the header. */
#include "scheduler/options.h"

#include <string.h>

/* Prefixes remembered for all machines: a few conversations for each request that can be open. */
#define PREFIXES_MAX 65536
/* A machine gets no more requests when its pending or scheduled tokens reach these bounds (multiple
 * of its KV memory, and tokens). The requests wait in the cluster's queue, where they can still go
 * to any machine and where queue_requests_max counts them. The bounds are large enough to keep the
 * machine's memory full and the next requests at hand, and small enough for its request table. */
#define MACHINE_KV_MULTIPLE 2
#define MACHINE_TOKENS_MAX  131072
#define PENDING_MS_LEAST    100
#define UNMEASURED_BATCHES  2   /* Most pending prompts of a machine whose rate is not known. */
#define PROMPT_FILL_TOKENS  128 /* Until a machine has measured its batches. */
/* Machines are compared by their prompt rates with batches of prompt_batch_tokens divided by this
 * number: short prompts that share a batch, or a prompt of mean length. */
#define RATES_BATCH_PART 2
/* Rule 2 leaves free what machines keep for growing answers, and as much again for the error of the
 * estimate: answers that become longer than expected would otherwise make reservations wait. */
#define GROWTH_RESERVES 2
/* Blocks that answers keep after their window, while KV is copied (kv/checkpoint). The copy of a
 * block has this number of blocks' tokens as its time. */
#define WINDOW_SPARE_BLOCKS 2

bool sched_policy_is_prefix(const struct config *config)
{
    return strcmp(config->scheduler.policy, "prefix") == 0;
}

static bool placement_auto(const struct config *config)
{
    return strcmp(config->scheduler.placement, "auto") == 0;
}

/* If requests are always split, half of the TTFT target: the other half is for the prompt itself
 * and for the transfer. Otherwise each request's place is weighed, which needs no threshold. */
static uint32_t threshold_ms(const struct config *config)
{
    uint32_t ms = config->scheduler.prompt_queue_threshold_ms;
    if (ms != CONFIG_AUTO)
        return ms;
    return placement_auto(config) ? 0 : (config->slo.ttft_ms + 1) / 2;
}

static uint32_t threshold_tokens(const struct config *config)
{
    uint32_t tokens = config->scheduler.prompt_queue_threshold_tokens;
    if (tokens != CONFIG_AUTO)
        return tokens;
    return config->scheduler.prompt_queue_threshold_ms == 0 ? CONFIG_THRESHOLD_TOKENS : 0;
}

/* As long as the TTFT target: what a machine has at hand must not run out, and more than that waits
 * better in the gateway. Not so short that prompts no longer share batches. */
static uint32_t pending_ms(const struct config *config)
{
    uint32_t ms = config->scheduler.machine_pending_ms;
    if (ms != CONFIG_AUTO)
        return ms;
    return config->slo.ttft_ms > PENDING_MS_LEAST ? config->slo.ttft_ms : PENDING_MS_LEAST;
}

/* Two batches: a machine always has a next batch at hand until its first report, 0.1 s after it
 * has computed a batch. */
static uint64_t unmeasured_tokens(const struct config *config)
{
    return pending_ms(config) > 0 ? UNMEASURED_BATCHES * config->scheduler.prompt_batch_tokens : 0;
}

struct sched_cluster_options sched_cluster_options_make(const struct config *config,
                                                        const struct sched_cluster_facts *facts)
{
    bool adaptive = config->scheduler.adaptive_pools;
    bool deadline = strcmp(config->scheduler.policy, "deadline") == 0;
    bool answers_grow = config->scheduler.preemptions_max > 0;
    bool prefixes = facts->prefix_step_tokens > 0;
    bool prefix = prefixes && sched_policy_is_prefix(config);
    return (struct sched_cluster_options){
        .request_count = LIMIT_CLUSTER_REQUESTS,
        .machine_count = facts->machine_count,
        /* Under every policy, because the config can change the policy of an open scheduler. */
        .prefix_count = prefixes ? PREFIXES_MAX : 0,
        .queue_requests_max = config->scheduler.queue_requests_max,
        .queue_us_max = config->scheduler.queue_ms * 1000ll,
        .wait_us_max = config->scheduler.wait_ms * 1000ll,
        .cover_after_us = config->scheduler.takeover_delay_ms * 1000ll,
        .prompt_queue_threshold_tokens = threshold_tokens(config),
        .prompt_queue_threshold_unmeasured =
            threshold_tokens(config) == 0 ? CONFIG_THRESHOLD_TOKENS : 0,
        .prompt_queue_threshold_us = threshold_ms(config) * 1000ll,
        .compare_time = config->scheduler.compare_time,
        .token_memory_threshold = adaptive,
        .growth_reserve_percent =
            answers_grow ? GROWTH_RESERVES * config->scheduler.growth_reserve_percent : 0,
        .growth_reserve_tokens = answers_grow ? GROWTH_RESERVES * config->kv.block_tokens : 0,
        .schedule_mean_answer = answers_grow,
        .machine_kv_multiple = MACHINE_KV_MULTIPLE,
        .machine_tokens_max = MACHINE_TOKENS_MAX,
        .machine_us_max = pending_ms(config) * 1000ll,
        .machine_tokens_unmeasured = unmeasured_tokens(config),
        .ageing_us = config->scheduler.ageing_ms * 1000ll,
        .adaptive = adaptive,
        .homing = SCHED_HOMING_DONE,
        .one_machine_routes = placement_auto(config),
        .one_machine_targets = sched_pace_targets_make(config),
        .stay_tokens = 1, /* Among equals, the machine that has the KV. */
        .prefix_slack_tokens = config->scheduler.prefix_slack_tokens,
        .prefix_step_tokens = facts->prefix_step_tokens,
        .prefix_saves = prefix && facts->prefix_cache,
        .ttft_us_max = deadline ? config->slo.ttft_ms * 1000ll : 0,
        .repurpose_window_us =
            adaptive && facts->may_repurpose ? config->scheduler.repurpose_window_ms * 1000ll : 0,
        .repurpose_interval_us_min = config->scheduler.repurpose_interval_ms * 1000ll,
        .repurpose_gain_percent_min = config->scheduler.repurpose_gain_percent,
    };
}

struct sched_event sched_rates_event(const struct config *config, const struct sched_rates *rates)
{
    return (struct sched_event){
        .kind = SCHED_MACHINE_RATES,
        .prompt_tokens_per_s = sched_rates_prompt_tokens_per_s(
            rates, config->scheduler.prompt_batch_tokens / RATES_BATCH_PART),
        .output_tokens_per_s = sched_rates_output_tokens_per_s(
            rates, config->scheduler.batch_sequences_max, config->slo.tbt_ms * 1000ll),
        .step = sched_rates_step_guess(rates),
    };
}

uint32_t sched_prompt_fill_tokens(const struct config *config)
{
    uint32_t tokens = config->scheduler.prompt_fill_tokens;
    return tokens == CONFIG_AUTO ? PROMPT_FILL_TOKENS : tokens;
}

uint32_t sched_mixed_tokens_most(const struct config *config)
{
    uint32_t most = config->scheduler.mixed_prompt_tokens;
    return most == CONFIG_AUTO ? config->scheduler.prompt_batch_tokens : most;
}

struct sched_pace_targets sched_pace_targets_make(const struct config *config)
{
    return (struct sched_pace_targets){.ttft_us = config->slo.ttft_ms * 1000ll,
                                       .tbt_us = config->slo.tbt_ms * 1000ll};
}

struct sched_pace_limits sched_pace_limits_apply(const struct config *config,
                                                 const struct sched_pace *pace, bool pipelined,
                                                 struct sched_machine *sm)
{
    const struct sched_pace_targets targets = sched_pace_targets_make(config);
    struct sched_pace_limits out = {sched_mixed_tokens_most(config),
                                    sched_prompt_fill_tokens(config)};
    if (config->scheduler.mixed_prompt_tokens == CONFIG_AUTO && !pipelined) {
        out.mixed_prompt_tokens = sched_pace_mixed_tokens(pace, &targets, out.mixed_prompt_tokens);
        sched_machine_mixed_tokens_set(sm, out.mixed_prompt_tokens);
    }
    if (config->scheduler.prompt_fill_tokens == CONFIG_AUTO && !pipelined) {
        out.prompt_fill_tokens = sched_pace_fill_tokens(pace, out.prompt_fill_tokens,
                                                        config->scheduler.prompt_batch_tokens);
        sched_machine_fill_tokens_set(sm, out.prompt_fill_tokens);
    }
    return out;
}

uint32_t sched_batches_in_flight(uint32_t stage_count, uint32_t path_count)
{
    uint32_t most = LIMIT_BATCHES_IN_FLIGHT / (path_count > 0 ? path_count : 1);
    uint32_t wanted = stage_count > 1 ? stage_count + 1 : 1;
    return wanted < most ? wanted : most;
}

uint32_t sched_micro_batch_tokens(const struct config *config, uint32_t best_tokens)
{
    if (config->scheduler.micro_batch_tokens > 0)
        return config->scheduler.micro_batch_tokens;
    uint32_t tokens = best_tokens > 0 ? best_tokens : sched_prompt_fill_tokens(config);
    return tokens > LIMIT_CHUNK_TOKENS_MIN ? tokens : LIMIT_CHUNK_TOKENS_MIN;
}

struct sched_machine_options sched_machine_options_make(const struct config *config,
                                                        const struct sched_machine_facts *facts)
{
    uint32_t in_flight = sched_batches_in_flight(facts->stage_count, facts->path_count);
    return (struct sched_machine_options){
        .slot_count = LIMIT_MACHINE_REQUESTS,
        .prompt_fill_tokens = sched_prompt_fill_tokens(config),
        .prompt_batch_tokens = config->scheduler.prompt_batch_tokens,
        .mixed_prompt_tokens = sched_mixed_tokens_most(config),
        .batch_sequences_max = config->scheduler.batch_sequences_max,
        .ageing_us = config->scheduler.ageing_ms * 1000ll,
        .path_count = facts->path_count,
        .batches_in_flight = in_flight,
        .decode_batches_in_flight = facts->stage_count,
        .micro_batch_tokens =
            in_flight > 1 ? sched_micro_batch_tokens(config, facts->micro_batch_tokens) : 0,
    };
}

struct sched_memory_options sched_memory_options_make(const struct config *config,
                                                      const struct layer_groups *groups,
                                                      uint32_t block_count, uint32_t context_tokens)
{
    uint32_t alone = config->scheduler.prompt_batch_tokens;
    uint32_t beside_decodes = sched_mixed_tokens_most(config);
    bool copies =
        strcmp(config->kv.checkpoint, "idle") == 0 || strcmp(config->kv.checkpoint, "always") == 0;
    return (struct sched_memory_options){
        .block_count = block_count,
        .block_tokens = config->kv.block_tokens,
        .groups = *groups,
        .chunk_tokens = alone > beside_decodes ? alone : beside_decodes,
        .context_tokens = context_tokens,
        .window_spare_tokens = copies ? WINDOW_SPARE_BLOCKS * config->kv.block_tokens : 0,
        .draft_tokens = config->scheduler.speculative_tokens,
        .first_slot = LIMIT_MACHINE_REQUESTS / 2,
        .slot_count = LIMIT_MACHINE_REQUESTS / 2,
        .growth_tokens = config->scheduler.growth_tokens,
        .growth_reserve_percent = config->scheduler.growth_reserve_percent,
        .preemptions_max = config->scheduler.preemptions_max,
    };
}
