/* stage_costs: how long each layer of a model takes on the devices of a machine's stages. Machines,
 * stage processes and the simulator compute these costs before they divide the layers over stages
 * (partition_even.h). Any thread may call the functions, which own nothing and read no file. */
#ifndef SCHEDULER_STAGE_COSTS_H
#define SCHEDULER_STAGE_COSTS_H

#include "config/config.h"
#include "profile/profile.h"

/* Costs of a micro-batch of a prompt if the machine is in the prompt pool, otherwise of a decode
 * step. stage_costs_by_profile gives microseconds; stage_costs_by_weights gives multiples of the
 * cost of one layer, so that each layer costs 1. */
struct stage_costs {
    double layers[LIMIT_LAYERS]; /* Cost of each layer on the first stage's device. */
    double first_extra;          /* Cost of the embedding matrix, in the first stage; 0 = none. */
    double last_extra;           /* Cost of the vocabulary matrix, in the last stage; 0 = none. */
    /* Relative speed of each entry of the config's `stages`; larger = faster. */
    double speeds[LIMIT_STAGE_PROCESSES];
    /* Micro-batch size with which the stages compute a prompt of scheduler/prompt_batch_tokens
     * tokens fastest; 0 = the costs do not come from a profile. */
    uint32_t micro_batch_tokens;
};

/* Returns true if stage_costs_by_profile applies: the config has a profile, and no stage has ranks.
 */
bool stage_costs_use_profile(const struct config *config, const struct config_stages *stages);

/* Computes the costs by the sizes of the weights. A stage of T ranks counts as T times as fast as a
 * stage without ranks. vocabulary_layers: see model_vocabulary_layers. */
void stage_costs_by_weights(const struct config_machine *machine,
                            const struct config_stages *stages, uint32_t layer_count,
                            double vocabulary_layers, struct stage_costs *out);

/* Computes the costs by the profile. name: the profile's name in errors. Requires stages->count ≥ 1
 * and stages without ranks. ST_NOT_FOUND: the profile lacks a device of the stages. */
enum status stage_costs_by_profile(const struct config *config,
                                   const struct config_machine *machine,
                                   const struct config_stages *stages, const struct profile *p,
                                   const char *name, struct stage_costs *out, struct error *error);

#endif
