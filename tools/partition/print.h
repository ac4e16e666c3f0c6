/* partition_print: writes a plan of the partitioner as a text picture, as JSON, or as a config. */
#ifndef TOOLS_PARTITION_PRINT_H
#define TOOLS_PARTITION_PRINT_H

#include "tools/partition/cost.h"

#include <jansson.h>
#include <stdio.h>

struct partition_result { /* Result of one phase. The pointers belong to the caller. */
    const struct profile *profile;
    const struct partition_cluster *cluster;
    const struct partition_work *work;
    const struct partition_costs *costs;
    const struct partition_plan *plan;
};

/* Token phase only: the KV blocks of all sequences that are needed to keep the slowest stage or
 * link busy. */
uint64_t partition_blocks_wanted(const struct partition_result *result);

void partition_print(const struct partition_result *result, FILE *out);

/* Returns a new reference; NULL = out of memory. */
json_t *partition_json(const struct partition_result *result);
/* Returns the value of machines/NAME/stages of a config: an entry for each device, the replicas of
 * a stage one after another. */
json_t *partition_config(const struct partition_result *result);

#endif
