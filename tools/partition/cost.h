/* partition_cost: computes the partitioner's problem (solver/partition.h) from a profile, a cluster
 * and the wanted work. A *piece* is a micro-batch of a prompt, or a group of sequences that decode
 * together. `cleave partition`, `plan` and `simulate` call the functions on the main thread. The
 * functions have no state, and the caller owns the result. The partitioner finds the split. */
#ifndef TOOLS_PARTITION_COST_H
#define TOOLS_PARTITION_COST_H

#include "tools/partition/cluster.h"

#define PARTITION_BLOCK_TOKENS 16 /* The default of kv/block_tokens. */

/* What the machine must compute. */
struct partition_work {
    bool is_prompt_phase;        /* True: prompt phase. False: token phase. */
    uint32_t micro_batch_tokens; /* Prompt phase: tokens of one micro-batch, ≥ 1. */
    uint32_t prompt_tokens;      /* Prompt phase: tokens of the prompt, ≥ 1. */
    uint32_t group_sequences;    /* Token phase: sequences of one group. */
    uint32_t context_tokens;     /* Token phase: average context of a sequence. */
    uint64_t blocks;          /* KV blocks of the machine, of PARTITION_BLOCK_TOKENS tokens each. */
    uint64_t workspace_bytes; /* Memory that each device needs besides weights and KV. */
    uint32_t stages;          /* Number of stages; 0 = the best number. */
    bool replicas;            /* A stage may have several replicas. */
    double limit_ms;          /* Limit of TTFT (prompt phase) or TBT (token phase); 0 = none. */
};

/* The problem and the goal for the partitioner, and the arrays that the problem points to. */
struct partition_costs {
    struct partition_problem problem;
    struct partition_goal goal;
    struct partition_kind kinds[PARTITION_KINDS_MAX];
    /* Time of a piece, for each kind of device and layer. */
    uint64_t layer_ns[PARTITION_KINDS_MAX][LIMIT_LAYERS];
    /* Weights and KV of each layer. With g layer groups, every g-th layer counts the KV of g
     * layers, and the other layers count none. */
    uint64_t layer_bytes[LIMIT_LAYERS];
    /* Tokens of a piece. Prompt phase: mean of the micro-batches. Token phase: one per sequence. */
    double piece_tokens;
    double boundary_bytes; /* Activations of a piece between two stages. */
};

/* Returns the bytes of a KV block of PARTITION_BLOCK_TOKENS tokens on a machine with all layers. */
uint64_t partition_block_bytes(const struct profile *profile);

/* Fills *out. The time of a prompt's piece is the mean over the prompt's micro-batches. *out must
 * not be moved, and the cluster and the profile must outlive *out. */
void partition_costs_of(const struct profile *profile, const struct partition_cluster *cluster,
                        const struct partition_work *work, struct partition_costs *out);

#endif
