/* sched_options: makes the options of the schedulers and of sched_memory from the config. The
 * gateway, the machines, the simulator and `cleave plan` call the functions, so that a simulated
 * cluster decides as a real cluster does. The functions keep no state, and any thread may call
 * them. They do not read or check the config file (config/config.h does). */
#ifndef SCHEDULER_OPTIONS_H
#define SCHEDULER_OPTIONS_H

#include "config/config.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/machine/machine.h"
#include "scheduler/memory.h"
#include "scheduler/pace.h"

/* What the config does not say about a cluster. */
struct sched_cluster_facts {
    uint32_t machine_count; /* See struct sched_cluster_options. */
    /* Prompt tokens from one prefix hash to the next; 0 = events have no prefixes. */
    uint32_t prefix_step_tokens;
    bool prefix_cache;  /* The machines keep prefixes. */
    bool may_repurpose; /* The scheduler may change home pools to follow the demand. */
};

/* What the config does not say about a machine. */
struct sched_machine_facts {
    uint32_t stage_count;        /* Stages of the machine; at most 1 = one batch in flight. */
    uint32_t path_count;         /* Paths through its stages; 0 = 1 path. */
    uint32_t micro_batch_tokens; /* Best size of a micro-batch by a profile; 0 = not known. */
};

/* Returns true if the config's policy is "prefix". */
bool sched_policy_is_prefix(const struct config *config);

/* Returns the options of a cluster scheduler with LIMIT_CLUSTER_REQUESTS slots. */
struct sched_cluster_options sched_cluster_options_make(const struct config *config,
                                                        const struct sched_cluster_facts *facts);

/* Returns the options of a machine's scheduler with LIMIT_MACHINE_REQUESTS slots. */
struct sched_machine_options sched_machine_options_make(const struct config *config,
                                                        const struct sched_machine_facts *facts);

/* Returns the options of a machine's sched_memory. block_count = KV blocks of the machine;
 * context_tokens = longest context that it serves. The requests that are decoded on the machine get
 * the upper half of the machine's slots. */
struct sched_memory_options sched_memory_options_make(const struct config *config,
                                                      const struct layer_groups *groups,
                                                      uint32_t block_count,
                                                      uint32_t context_tokens);

/* Returns the event SCHED_MACHINE_RATES with the prompt speed, the output speed and the step time
 * that follow from *rates and the config's batch sizes and TBT target. The caller sets `now_us` and
 * `machine`. */
struct sched_event sched_rates_event(const struct config *config, const struct sched_rates *rates);

/* Returns scheduler/prompt_fill_tokens; for "auto", the number that a machine uses until it has
 * measured its batches. */
uint32_t sched_prompt_fill_tokens(const struct config *config);

/* Returns the most prompt tokens that a batch with decodes can have. If
 * scheduler/mixed_prompt_tokens is "auto", sched_pace_limits_apply may set fewer. */
uint32_t sched_mixed_tokens_most(const struct config *config);

/* The values of the options mixed_prompt_tokens and prompt_fill_tokens that are in effect. */
struct sched_pace_limits {
    uint32_t mixed_prompt_tokens;
    uint32_t prompt_fill_tokens;
};
/* Computes from `pace` the values whose config key is "auto", and sets these values in `sm`. No
 * effect if `pipelined` is true: several batches may be in flight. Returns the values in effect. */
struct sched_pace_limits sched_pace_limits_apply(const struct config *config,
                                                 const struct sched_pace *pace, bool pipelined,
                                                 struct sched_machine *sm);

/* Returns the TTFT and TBT targets of the config (slo/ttft_ms, slo/tbt_ms). */
struct sched_pace_targets sched_pace_targets_make(const struct config *config);

/* Returns the most batches in flight on each path of a machine: 1 with at most one stage, else one
 * more than there are stages, so that the next batch waits at the first stage. All paths together
 * have at most LIMIT_BATCHES_IN_FLIGHT. */
uint32_t sched_batches_in_flight(uint32_t stage_count, uint32_t path_count);

/* Returns the prompt tokens of a micro-batch on a machine with stages: scheduler/micro_batch_tokens
 * if the config sets that key; otherwise best_tokens, or sched_prompt_fill_tokens if best_tokens is
 * 0, but at least LIMIT_CHUNK_TOKENS_MIN. best_tokens = best size by a profile; 0 = not known. */
uint32_t sched_micro_batch_tokens(const struct config *config, uint32_t best_tokens);

#endif
