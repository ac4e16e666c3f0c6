/* machine_split: decides which layers each device of a machine with several devices runs
 * (hardware.h, "devices"). The partitioner (tools/partition/solver/partition.h) finds the split
 * with the most tokens per second within a latency limit; this part describes the machine to it and
 * chooses the goal. sim_host.c and `cleave plan` (splits.c) find each split on the main thread;
 * after that it is constant, and any thread may read it. */
#ifndef TOOLS_SIMULATE_MACHINE_SPLIT_H
#define TOOLS_SIMULATE_MACHINE_SPLIT_H

#include "tools/partition/print.h"
#include "tools/simulate/hardware.h"
#include "tools/simulate/sim_cost.h"

struct machine_split_goal {
    bool prompt;            /* True: for a prompt machine. False: for a machine that decodes. */
    uint32_t prompt_tokens; /* Prompt length of a typical request. */
    uint32_t micro_batch;   /* Tokens of one micro-batch of the prompt. */
    uint32_t context;       /* Context of a typical request while it decodes. */
    /* Sequences that decode together; 0 = the best power of two (1 if the limit cannot be kept or
     * `prompt` is true). */
    uint32_t batch;
    uint32_t batch_max; /* Largest number to choose if batch is 0. The KV memory limits it too. */
    double limit_ms;    /* Limit of TTFT or of a decode step; 0 = none. */
    uint64_t kv_bytes;  /* KV memory of all layers together. */
};

struct machine_split {
    struct partition_cluster cluster; /* One host: the machine. */
    struct partition_work work;       /* What the split was found for. */
    struct partition_costs costs;
    struct partition_plan plan;      /* The split. */
    struct profile_link device_link; /* Link between the devices. */
    struct partition_result result;  /* Pointers to the fields above, for printing. */
};

/* Returns the defaults of `cleave partition` for everything that is not a parameter. */
struct machine_split_goal machine_split_goal_default(bool prompt, uint32_t micro_batch,
                                                     uint64_t kv_bytes);

/* Finds the best split within goal->limit_ms. If no split keeps the limit, finds the best split
 * without a limit. The caller closes *out. Requires that the profile outlives the split.
 * ST_INVALID, ST_TOO_LARGE: the layers do not fit the devices, or there are too many devices.
 * ST_NO_MEMORY. */
enum status machine_split_find(const struct hardware *hardware,
                               const struct partition_cluster *cluster,
                               const struct profile *profile, const struct machine_split_goal *goal,
                               struct machine_split **out, struct error *error);
void machine_split_close(struct machine_split *split); /* NULL is fine */

/* Returns true if the same layers run on the same devices. */
bool machine_split_equals(const struct machine_split *a, const struct machine_split *b);
/* Sets in *out the stages, their devices, the devices' speeds (1) and the link between the devices;
 * leaves the other fields alone. */
void machine_split_cost(const struct machine_split *split, struct sim_cost *out);
/* Returns the sum of the threads of all devices that have stages. */
uint32_t machine_split_threads(const struct machine_split *split);

#endif
