/* partition_cost: turns a profile, a cluster and the wanted work into the partitioner's problem
 * (tools/partition/solver/partition.h): the time of a piece of work in each layer on each kind of
 * device, bytes and links. A piece is a micro-batch of a prompt, or a group of sequences that
 * decode. Pure. */
#ifndef TOOLS_PARTITION_COST_H
#define TOOLS_PARTITION_COST_H

#include "tools/partition/cluster.h"

#define PARTITION_BLOCK_TOKENS 16 /* The default of kv/block_tokens. */

struct partition_work {
    bool prompt;          /* True: prompt phase. False: token phase. */
    uint32_t micro_batch; /* Tokens of one micro-batch of a prompt. */
    uint32_t prompt_tokens;
    uint32_t batch;   /* Sequences of one group. */
    uint32_t context; /* Average context of a sequence. */
    uint64_t blocks;  /* KV blocks of the machine. */
    uint64_t workspace_bytes;
    uint32_t stages; /* Number of stages; 0 = the best number. */
    bool replicas;
    double limit_ms; /* Limit of TTFT or TBT; 0 = none. */
};

struct partition_costs {
    struct partition_problem problem; /* Points into the other fields and into the cluster. */
    struct partition_goal goal;
    struct partition_kind kinds[PARTITION_KINDS_MAX];
    uint64_t layer_ns[PARTITION_KINDS_MAX][LIMIT_LAYERS];
    uint64_t layer_bytes[LIMIT_LAYERS];
    double piece_tokens; /* Prompt tokens of a piece (the mean over all pieces), or sequences. */
    double boundary_bytes;
};

/* Fills *out. The time of a prompt's piece is the mean over its micro-batches, because later ones
 * have more context, the last one can be shorter, and only the last one is sampled. *out points
 * into itself, so it must not be moved. */
void partition_costs_of(const struct profile *profile, const struct partition_cluster *cluster,
                        const struct partition_work *work, struct partition_costs *out);

#endif
