/* sim_cost: how long a machine takes for a batch. The times come from a table (cost_table.h), where
 * they depend on the number of tokens, or from a profile (profile/profile.h), where they also
 * depend on context and stage. The struct owns nothing. sim_machines.h fills the struct before a
 * simulation; after that the struct is constant, and any thread may read it. The functions do not
 * know queues, blocks, or which machines share cores. */
#ifndef TOOLS_SIMULATE_SIM_COST_H
#define TOOLS_SIMULATE_SIM_COST_H

#include "profile/profile.h"
#include "tools/report/cost_table.h"

/* Time between two batches of a machine with one stage: receiving and sending tokens, choosing the
 * next batch, waking threads. A profile does not contain this time. Measured: at 311 decode steps
 * per second, the engine computes for 99.1 % of the time. */
#define SIM_COST_BATCH_S 30e-6

/* A stage, whose layers are on each of its replicas. */
struct sim_cost_stage {
    uint32_t first;         /* First layer. */
    uint32_t end;           /* Layer after the last layer; 0 = times of the table. */
    uint32_t first_device;  /* Index in `devices` of the first replica; the others follow. */
    uint32_t replica_count; /* ≥ 1. */
};

struct sim_cost {
    const struct cost_curve *curve;        /* Curve of the table; NULL = times of the profile. */
    const struct profile *profile;         /* NULL = times of the table. */
    const struct profile_link *stage_link; /* Link between stages; NULL = takes no time. */
    uint32_t stage_count;                  /* ≥ 1. */
    struct sim_cost_stage stages[LIMIT_STAGE_PROCESSES];
    /* Device of each replica of each stage; NULL = times of the table. */
    const struct profile_device *devices[LIMIT_STAGE_PROCESSES];
    /* The first device, as measured while other cores were busy; NULL = not measured. */
    const struct profile_device *busy_device;
    /* Weights by which the replicas of a stage share the requests, indexed like `devices`. */
    uint32_t speeds[LIMIT_STAGE_PROCESSES];
    uint32_t layer_count;    /* Layers of the model, ≥ 1. */
    uint64_t kv_layer_bytes; /* KV bytes of a token in one layer. */
    /* KV bytes of a token in a block, which has the layers of one layer group. */
    uint64_t kv_block_token_bytes;
    struct layer_groups groups; /* Which layers have a window. */
    uint32_t windowed_layers;   /* Number of layers with a window. */
};

/* Returns the seconds that a replica of a stage computes for the batch. With a profile and one
 * stage, SIM_COST_BATCH_S is included. With a table, a batch of prompts and decodes takes 1.1 times
 * as long as a batch of prompts with this number of tokens. */
double sim_cost_stage_s(const struct sim_cost *cost, uint32_t stage, uint32_t replica,
                        const struct profile_work *work);
/* Returns the slowdown (≥ 1) of the batch while other machines compute on all other cores; 1 if the
 * slowdown was not measured. */
double sim_cost_busy_slowdown(const struct sim_cost *cost, const struct profile_work *work);
/* Returns the bytes of KV of the tokens first … end - 1 in layers without a window, and of the
 * tokens window_first … end - 1 in layers with a window. */
uint64_t sim_cost_kv_bytes(const struct sim_cost *cost, uint32_t first, uint32_t end,
                           uint32_t window_first);
/* Returns the seconds in which the batch's activations move to the next stage; 0 without profile or
 * stage_link. */
double sim_cost_between_s(const struct sim_cost *cost, const struct profile_work *work);

#endif
