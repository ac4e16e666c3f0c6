/* machine_split: finds which layers each device of a machine with several devices runs (hardware.h,
 * "devices"). The partitioner (tools/partition/solver/partition.h) finds the split with the most
 * tokens per second within a latency limit. This part describes the machine to the partitioner.
 * `cleave simulate` and `cleave plan` own the splits, and find them on the main thread; after that
 * a split is constant, and any thread may read it. This part reads no files and simulates
 * nothing. */
#ifndef TOOLS_SIMULATE_MACHINE_SPLIT_H
#define TOOLS_SIMULATE_MACHINE_SPLIT_H

#include "tools/partition/print.h"
#include "tools/simulate/hardware.h"
#include "tools/simulate/sim_cost.h"

/* What the split is found for. */
struct machine_split_goal {
    bool prompt;            /* True: for a prompt machine. False: for a machine that decodes. */
    uint32_t prompt_tokens; /* Prompt length of a typical request. */
    uint32_t micro_batch;   /* Tokens of one micro-batch of the prompt. */
    uint32_t context;       /* Context of a typical request while it decodes. */
    /* Sequences that decode together. 0 = machine_split_find chooses: 1 for a prompt machine or if
     * no split keeps the limit, otherwise the power of two with the most tokens per second. */
    uint32_t batch;
    uint32_t batch_max; /* Most sequences that machine_split_find may choose. */
    double limit_ms;    /* Limit of TTFT (prompt machine) or of a decode step; 0 = none. */
    uint64_t kv_bytes;  /* KV memory of all layers together. */
};

struct machine_split {
    struct partition_cluster cluster; /* The machine as one host (see machine_split_find). */
    /* The work for the partitioner. work.limit_ms: 0 also if no split keeps the goal's limit. */
    struct partition_work work;
    struct partition_costs costs;    /* Times and memory of the layers on each device. */
    struct partition_plan plan;      /* The split. */
    struct profile_link device_link; /* Link between the devices. */
    struct partition_result result;  /* The split for partition_print; points into this struct. */
};

/* Returns a goal with these values, and with the defaults of `cleave partition` in the other
 * fields. */
struct machine_split_goal machine_split_goal_default(bool prompt, uint32_t micro_batch,
                                                     uint64_t kv_bytes);

/* Finds the best split within goal->limit_ms. If no split keeps the limit, finds the best split
 * without a limit. Also tries to join each N devices of a kind into one device of N ranks, if the
 * profile has such a device. cluster: the machine's devices and links
 * (partition_cluster_of_machine); copied. hardware: only workspace_bytes is used. The caller closes
 * *out. The profile must outlive *out. ST_INVALID: the layers do not fit into the memory of the
 * devices. ST_TOO_LARGE: there are too many devices, or a time is too long. ST_NO_MEMORY. */
enum status machine_split_find(const struct hardware *hardware,
                               const struct partition_cluster *cluster,
                               const struct profile *profile, const struct machine_split_goal *goal,
                               struct machine_split **out, struct error *error);
void machine_split_close(struct machine_split *split); /* NULL is fine. */

/* Returns true if the stages of both splits have equal layers, devices and replicas. */
bool machine_split_equals(const struct machine_split *a, const struct machine_split *b);
/* Sets stage_count, stages, devices, speeds and stage_link of *out; leaves the other fields alone.
 * *out points into the split, which must outlive *out. */
void machine_split_cost(const struct machine_split *split, struct sim_cost *out);
/* Returns the sum of the threads of all devices that have stages. */
uint32_t machine_split_threads(const struct machine_split *split);

#endif
