/* partition_print: a plan as a picture for people, or as JSON. */
#ifndef SIMULATOR_PARTITION_PRINT_H
#define SIMULATOR_PARTITION_PRINT_H

#include "simulator/partition_cost.h"

#include <jansson.h>
#include <stdio.h>

struct partition_result { /* of one phase */
    const struct profile *profile;
    const struct partition_cluster *cluster;
    const struct partition_work *work;
    const struct partition_costs *costs;
    const struct partition_plan *plan;
};

/* Of the token phase: KV blocks of the sequences that keep the slowest stage or link busy. */
uint64_t partition_blocks_wanted(const struct partition_result *result);

void partition_print(const struct partition_result *result, FILE *out);

/* A new reference; NULL: no memory. */
json_t *partition_json(const struct partition_result *result);
/* As a config's machines/NAME/stages: an entry for each device, replicas in a row. */
json_t *partition_config(const struct partition_result *result);

#endif
