/* partition_print: writes a plan of the partitioner as a text picture, as JSON, or as the stages of
 * a config. `cleave partition`, `cleave plan` and the simulator's machine_split (only
 * partition_blocks_wanted) call the functions on their main thread; the functions have no state.
 * They solve nothing and open no files. */
#ifndef TOOLS_PARTITION_PRINT_H
#define TOOLS_PARTITION_PRINT_H

#include "tools/partition/cost.h"

#include <jansson.h>
#include <stdio.h>

/* One phase's plan and the inputs of the partitioner. The pointers belong to the caller. */
struct partition_result {
    const struct profile *profile;
    const struct partition_cluster *cluster;
    const struct partition_work *work;
    const struct partition_costs *costs;
    const struct partition_plan *plan;
};

/* Returns the number of KV blocks of all sequences that must be in flight to keep the slowest stage
 * or link busy. Requires a plan of the token phase. */
uint64_t partition_blocks_wanted(const struct partition_result *result);

/* Writes a line for each stage and each link, then the conclusions. */
void partition_print(const struct partition_result *result, FILE *out);

/* Returns the plan as a JSON object, a new reference for the caller; NULL = out of memory. */
json_t *partition_json(const struct partition_result *result);
/* Returns the plan as the value of the config key machines/NAME/stages, a new reference for the
 * caller: an array with an entry for each device, the replicas of a stage one after another. */
json_t *partition_config(const struct partition_result *result);

#endif
