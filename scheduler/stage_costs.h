/* stage_costs: how long each layer of a model takes on the devices of a machine's stages: by a
 * profile, or without one by the sizes of the weights. machine/executor/stage_plan.c calls this
 * part when a machine or a stage process starts, and tools/simulate/sim_host.c before a simulation,
 * so that simulated machines have the stages of real ones. This part owns nothing, reads no file,
 * and does not divide the layers over stages (partition_even.h does). */
#ifndef SCHEDULER_STAGE_COSTS_H
#define SCHEDULER_STAGE_COSTS_H

#include "config/config.h"
#include "profile/profile.h"

/* Costs are in microseconds if they come from a profile; else the cost of each layer is 1. */
struct stage_costs {
    double layers[LIMIT_LAYERS]; /* Cost of each layer on the first stage's device. */
    double first_extra;          /* Cost of the embedding, in the first stage; 0 = none. */
    double last_extra;           /* Cost of the vocabulary, in the last stage; 0 = none. */
    /* Relative speed of each entry of the config's `stages`; larger = faster. */
    double speeds[LIMIT_STAGE_PROCESSES];
    /* Micro-batch size with which the stages compute a prompt of a whole batch fastest; 0 = the
     * costs do not come from a profile. */
    uint32_t micro_batch_tokens;
};

/* Returns true if the profile that the config names decides about the stages: the config names one,
 * and no stage has ranks. */
bool stage_costs_use_profile(const struct config *config, const struct config_stages *stages);

/* Computes the costs by the sizes of the weights. A stage of T ranks counts as T times as fast as
 * a stage without ranks. vocabulary_layers: the weights of the vocabulary matrix, divided by those
 * of a layer (model_vocabulary_layers). */
void stage_costs_by_weights(const struct config_machine *entry, const struct config_stages *stages,
                            uint32_t layer_count, double vocabulary_layers,
                            struct stage_costs *out);

/* Computes the costs by the profile, which errors call `name`. Requires stages->count >= 1. Returns
 * ST_NOT_FOUND if the profile lacks a device of the stages. */
enum status stage_costs_by_profile(const struct config *config, const struct config_machine *entry,
                                   const struct config_stages *stages, const struct profile *p,
                                   const char *name, struct stage_costs *out, struct error *error);

#endif
