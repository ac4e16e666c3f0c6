/* partition_print: shows a plan of the partitioner (solver/partition.h) as a text picture, as JSON,
 * or as the stages of a config. `cleave partition`, `plan` and `simulate` call the functions on the
 * main thread. The functions have no state and compute no plans. */
#ifndef TOOLS_PARTITION_PRINT_H
#define TOOLS_PARTITION_PRINT_H

#include "tools/partition/cost.h"

#include <jansson.h>
#include <stdio.h>

/* A plan for one phase, and the inputs of this plan. The struct owns nothing. */
struct partition_result {
    const struct profile *profile;
    const struct partition_cluster *cluster;
    const struct partition_work *work;
    const struct partition_costs *costs;
    const struct partition_plan *plan;
};

/* Returns the number of KV blocks for as many groups of sequences as keep the slowest stage or link
 * busy. Requires a plan of the token phase. */
uint64_t partition_blocks_wanted(const struct partition_result *result);

/* Writes the picture: a line for each stage and each link, then the plan's speed; in the token
 * phase also the KV blocks. */
void partition_print(const struct partition_result *result, FILE *out);

/* Returns the plan as a JSON object, a new reference for the caller; NULL = out of memory. */
json_t *partition_json(const struct partition_result *result);
/* Returns the plan as the value of the config key machines/NAME/stages: an array with an element
 * for each replica of each stage, in the order of the stages. The result is a new reference for
 * the caller; NULL = out of memory. */
json_t *partition_config(const struct partition_result *result);

#endif
