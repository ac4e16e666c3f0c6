/* sim_cost: how long a machine takes for a batch: by a table (cost_table.h: number of tokens, not
 * the context), or by a profile (common/profile.h: tokens and context, stage by stage). Pure. */
#ifndef SIMULATOR_SIM_COST_H
#define SIMULATOR_SIM_COST_H

#include "common/profile.h"
#include "simulator/cost_table.h"

/* What a machine does between two batches, besides what a profile has of them: tokens are taken and
 * sent, the next batch is chosen, threads wake. Measured: 311 steps a second whose engine computes
 * for 99.1 % of the time. (With stages the first one computes the next batch meanwhile.) */
#define SIM_COST_BATCH_S 30e-6

struct sim_cost_stage { /* layers [first, last), on each of its replicas */
    uint32_t first;
    uint32_t last;
    uint32_t first_place; /* its replicas are places [first_place, first_place + replica_count) */
    uint32_t replica_count;
};

struct sim_cost {
    const struct cost_curve *curve; /* the table's; NULL: the profile's times count */
    const struct profile *profile;
    const struct profile_link *inside; /* between stages; NULL: no time */
    uint32_t stage_count;              /* ≥ 1 */
    struct sim_cost_stage stages[LIMIT_STAGES];
    const struct profile_device *places[LIMIT_STAGES]; /* the table's: NULL */
    const struct profile_device
        *busy;                     /* the first place, measured beside others; NULL: it was not */
    uint32_t speeds[LIMIT_STAGES]; /* of places: the shares of requests that replicas have */
    uint32_t layer_count;          /* ≥ 1: KV goes in so many pieces */
    uint64_t kv_bytes_per_token;
};

struct sim_work {
    uint32_t prompt_tokens;  /* of all prompts in the batch */
    double prompt_context;   /* profile_batch_context */
    uint32_t prompts_ending; /* prompts whose last row is sampled */
    uint32_t decodes;
    double decode_context; /* mean */
};

/* Seconds that a replica of a stage computes for the batch. A batch of both kinds costs the sum,
 * but for what a batch costs by itself; by the table, 1.1 times what a prompt of so many tokens
 * costs. */
double sim_cost_stage_s(const struct sim_cost *cost, uint32_t stage, uint32_t replica,
                        const struct sim_work *work);
/* How many times as long it computes for the batch while others compute on every core beside it;
 * at least 1, and 1 where that was not measured. */
double sim_cost_beside(const struct sim_cost *cost, const struct sim_work *work);
/* Until the next stage has the rows. */
double sim_cost_between_s(const struct sim_cost *cost, const struct sim_work *work);

#endif
