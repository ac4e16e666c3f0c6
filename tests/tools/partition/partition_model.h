/* partition_model: tries every plan of a small problem directly with the cost model of partition.h,
 * host by host, without states or bounds. It is simple enough to check by eye, and suitable only
 * for a handful of layers and devices. test_partition.c compares the partitioner with it, on its
 * one thread. The functions have no state. */
#ifndef TESTS_TOOLS_PARTITION_PARTITION_MODEL_H
#define TESTS_TOOLS_PARTITION_PARTITION_MODEL_H

#include "tools/partition/solver/partition.h"

/* Cost of a plan. */
struct partition_model_cost {
    struct partition_interval bottleneck;
    uint64_t latency_ns;
    uint32_t devices;
};

/* Compares two costs; < 0: a is better; 0: equal. */
int partition_model_compare(const struct partition_model_cost *a,
                            const struct partition_model_cost *b);

/* Finds the cost of the best plan. Returns false if there is no plan. plans_out: number of plans
 * tried. */
bool partition_model_best(const struct partition_problem *problem,
                          const struct partition_goal *goal, struct partition_model_cost *out,
                          uint64_t *plans_out);

/* Returns the cost of a plan, computed from its stages. Ends the test if it is not a plan of the
 * problem (layers, devices, hosts, memory, number of stages) or reports other times, bytes or sums.
 */
struct partition_model_cost partition_model_judge(const struct partition_problem *problem,
                                                  const struct partition_goal *goal,
                                                  const struct partition_plan *plan);

#endif
