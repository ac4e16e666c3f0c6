/* partition_cost: from a profile, a cluster and what is wanted to the partitioner's problem: the
 * time of a piece in each layer on each kind of device, bytes, links. Pure. */
#ifndef SIMULATOR_PARTITION_COST_H
#define SIMULATOR_PARTITION_COST_H

#include "simulator/partition_cluster.h"

#define PARTITION_BLOCK_TOKENS 16 /* kv/block_tokens, unless it is set otherwise */

struct partition_work {
    bool prompt;          /* else tokens */
    uint32_t micro_batch; /* tokens of a piece of a prompt */
    uint32_t prompt_tokens;
    uint32_t batch;   /* sequences of a group */
    uint32_t context; /* tokens that each has, on average */
    uint64_t blocks;  /* of KV that the machine has */
    uint64_t workspace_bytes;
    uint32_t stages; /* 0: as many as are best */
    bool replicas;
    double limit_ms; /* of TTFT or TBT; 0: none */
};

struct partition_costs {
    struct partition_problem problem; /* points into the rest, and into the cluster */
    struct partition_goal goal;
    struct partition_kind kinds[PARTITION_KINDS_MAX];
    uint64_t layer_ns[PARTITION_KINDS_MAX][LIMIT_LAYERS];
    uint64_t layer_bytes[LIMIT_LAYERS];
    double piece_tokens; /* prompt tokens, or sequences; of a prompt the mean of its pieces */
    double boundary_bytes;
};

/* Of a prompt's micro-batches the mean: they have more and more context, the last one may be short,
 * and it alone is sampled. *out must stay where it is. */
void partition_costs_of(const struct profile *profile, const struct partition_cluster *cluster,
                        const struct partition_work *work, struct partition_costs *out);

#endif
