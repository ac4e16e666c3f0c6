/* stage_costs: what layers cost on the devices of a machine's stages: from the profile that the
 * config names (cleave profile), or, without one, by the size of their weights. A profile does not
 * know ranks: of a machine that has some, stages count by their weights, and a stage of two ranks
 * is twice as fast. */
#ifndef MACHINE_STAGE_COSTS_H
#define MACHINE_STAGE_COSTS_H

#include "common/config.h"
#include "model/model.h"

struct stage_costs {             /* microseconds, or without a profile in layers */
    double layers[LIMIT_LAYERS]; /* on the first stage's device */
    double first_extra;          /* embedding */
    double last_extra;           /* vocabulary, sampling */
    double speeds[LIMIT_STAGES]; /* of each of the config's stages, against the first one's */
    uint32_t micro_batch_tokens; /* that a prompt is computed soonest with; 0: no profile says */
};

/* ST_INVALID, ST_NOT_FOUND …: the profile cannot be used; the text names file and what is wrong. */
enum status stage_costs_read(const struct config *config, const struct config_machine *entry,
                             const struct config_stages *stages, const struct model_hyper *hyper,
                             uint64_t metadata_hash, struct stage_costs *out, struct error *error);

#endif
