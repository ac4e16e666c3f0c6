/* stage_costs: how long each layer of the model takes on the devices of a machine's stages. The
 * costs come from the profile that the config names. Without a profile, and for a machine with
 * ranks, the costs come from the sizes of the weights; then a stage of T ranks counts as T times as
 * fast as a stage without ranks. stage_plan.c calls this part while a machine's process or a stage
 * process starts, on the main thread. This part owns nothing. It reads the profile's file, measures
 * nothing, and does not divide the layers over stages (stage_plan.h does). */
#ifndef MACHINE_EXECUTOR_STAGE_COSTS_H
#define MACHINE_EXECUTOR_STAGE_COSTS_H

#include "config/config.h"
#include "model/forward/model.h"

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

/* Computes the costs. metadata_hash: of the model file. An error means that the profile cannot be
 * used: an error of the file, ST_MISMATCH (another model) or ST_NOT_FOUND (a device of the config
 * is not in the profile). The text names the file. */
enum status stage_costs_read(const struct config *config, const struct config_machine *entry,
                             const struct config_stages *stages, const struct model_hyper *hyper,
                             uint64_t metadata_hash, struct stage_costs *out, struct error *error);

#endif
