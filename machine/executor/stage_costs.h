/* stage_costs: the cost of layers on the devices of a machine's stages: from the profile that the
 * config names (cleave profile), or without a profile from the size of their weights. Profiles do
 * not cover ranks: if a machine has ranks, its costs are taken from the weights, and a stage of two
 * ranks counts as twice as fast. stage_plan.c calls it while a process starts. Any thread; no
 * state. It reads the profile's file, measures nothing, and divides no layers (stage_plan.h does).
 */
#ifndef MACHINE_EXECUTOR_STAGE_COSTS_H
#define MACHINE_EXECUTOR_STAGE_COSTS_H

#include "config/config.h"
#include "model/forward/model.h"

struct stage_costs {             /* Costs in microseconds, or without a profile in layers. */
    double layers[LIMIT_LAYERS]; /* On the first stage's device. */
    double first_extra;          /* Embedding. */
    double last_extra;           /* Vocabulary, sampling. */
    double speeds[LIMIT_STAGES]; /* Of each stage of the config, relative to the first. */
    /* Micro-batch size that computes a prompt fastest; 0 = no profile. */
    uint32_t micro_batch_tokens;
};

/* Other status than ST_OK: the profile cannot be used; the error names the file and the mistake. */
enum status stage_costs_read(const struct config *config, const struct config_machine *entry,
                             const struct config_stages *stages, const struct model_hyper *hyper,
                             uint64_t metadata_hash, struct stage_costs *out, struct error *error);

#endif
