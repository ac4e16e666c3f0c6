/* stage_costs: how long each layer of the model takes on the devices of a machine's stages. The
 * costs come from the profile that the config names. Without a profile, and for a machine with
 * ranks, the costs come from the sizes of the weights. stage_plan.c calls this part while a process
 * starts, on the main thread. This part owns nothing, measures nothing, and does not divide the
 * layers over stages (stage_plan.h does). */
#ifndef MACHINE_EXECUTOR_STAGE_COSTS_H
#define MACHINE_EXECUTOR_STAGE_COSTS_H

#include "config/config.h"
#include "model/forward/model.h"

/* Costs are in microseconds if they come from a profile; else the cost of each layer is 1. */
struct stage_costs {
    double layers[LIMIT_LAYERS]; /* Cost of each layer on the first stage's device. */
    double first_extra;          /* Further cost of the first stage: the embedding matrix. */
    double last_extra;           /* Further cost of the last stage: the vocabulary matrix. */
    /* By list_index (struct config_stage): relative speed of the stage; larger = faster. */
    double speeds[LIMIT_STAGE_PROCESSES];
    uint32_t micro_batch_tokens; /* Best size of micro-batches; 0 = not known (no profile). */
};

/* Computes the costs. metadata_hash: of the model file. Returns ST_MISMATCH if the profile is of
 * another model, ST_NOT_FOUND if it has no device of a stage, or an error of its file. The error
 * names the file. */
enum status stage_costs_read(const struct config *config, const struct config_machine *entry,
                             const struct config_stages *stages, const struct model_hyper *hyper,
                             uint64_t metadata_hash, struct stage_costs *out, struct error *error);

#endif
