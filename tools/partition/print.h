/* partition_print: writes a plan of the partitioner as a text picture, as JSON, or as the stages of
 * a config. `cleave partition`, `plan` and `simulate` call the functions on their main thread. The
 * functions have no state, compute no plans and open no files. */
#ifndef TOOLS_PARTITION_PRINT_H
#define TOOLS_PARTITION_PRINT_H

#include "tools/partition/cost.h"

#include <jansson.h>
#include <stdio.h>

/* One phase's plan and the inputs from which it was computed. Nothing here is owned. */
struct partition_result {
    const struct profile *profile;
    const struct partition_cluster *cluster;
    const struct partition_work *work;
    const struct partition_costs *costs;
    const struct partition_plan *plan;
};

/* Returns how many KV blocks the machine needs for the sequences that keep its slowest stage or
 * link busy. Requires a plan of the token phase. */
uint64_t partition_blocks_wanted(const struct partition_result *result);

/* Writes the picture: a line for each stage and each link, then the plan's speed and memory. */
void partition_print(const struct partition_result *result, FILE *out);

/* Returns the plan as a JSON object, a new reference for the caller; NULL = out of memory. */
json_t *partition_json(const struct partition_result *result);
/* Returns the plan as the value of the config key machines/NAME/stages: an array with an element
 * for each device, the replicas of a stage one after another. A new reference for the caller; NULL
 * = out of memory. */
json_t *partition_config(const struct partition_result *result);

#endif
