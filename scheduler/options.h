/* sched_options: the options of the schedulers and of sched_memory, made from the config. The
 * gateway, the machine and the simulator use these functions, so that a simulated cluster decides
 * as a real one does. A caller that must differ changes the result, and says why. Functions have no
 * state: any thread may call them. */
#ifndef SCHEDULER_OPTIONS_H
#define SCHEDULER_OPTIONS_H

#include "config/config.h"
#include "scheduler/cluster/cluster.h"
#include "scheduler/machine/machine.h"
#include "scheduler/memory.h"

/* What the config does not say about a cluster. */
struct sched_cluster_facts {
    uint32_t machine_count;
    /* Prompt tokens from one prefix hash to the next; 0 = events have no prefixes. */
    uint32_t prefix_step_tokens;
    bool prefix_cache; /* The machines keep prefixes. */
    bool leads;        /* Of several schedulers, this one changes home pools. */
};

/* What the config does not say about a machine. */
struct sched_machine_facts {
    uint32_t stage_count;
    uint32_t path_count;         /* 0 means 1. */
    uint32_t micro_batch_tokens; /* Best size by a profile; 0 = not known. */
};

/* Returns whether the config's policy is "prefix". */
bool sched_policy_prefix(const struct config *config);

struct sched_cluster_options sched_cluster_options_make(const struct config *config,
                                                        const struct sched_cluster_facts *facts);

/* The slots are those of a machine's request table (LIMIT_MACHINE_REQUESTS). */
struct sched_machine_options sched_machine_options_make(const struct config *config,
                                                        const struct sched_machine_facts *facts);

/* A machine with this many KV blocks, and the longest context that it serves. The upper half of the
 * slots is for the requests that are decoded on the machine, the lower half for its prompts. */
struct sched_memory_options sched_memory_options_make(const struct config *config,
                                                      uint32_t block_count,
                                                      uint32_t context_tokens);

/* Returns the number of batches in flight on each path of a machine: one more than there are
 * stages, so that the next batch already waits at the first stage. */
uint32_t sched_batches_in_flight(uint32_t stage_count, uint32_t path_count);

/* Returns the prompt tokens of a micro-batch on a machine with stages. `best_tokens` is the best
 * size by a profile; 0 = not known. At least LIMIT_CHUNK_TOKENS. */
uint32_t sched_micro_batch_tokens(const struct config *config, uint32_t best_tokens);

#endif
