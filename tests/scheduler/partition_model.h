/* partition_model: every plan of a small problem, one after another, straight from the cost model
 * in partition.h: hosts one by one, no states, no bounds. So plain that it can be checked by eye;
 * good for a handful of layers and devices. */
#ifndef TESTS_SCHEDULER_PARTITION_MODEL_H
#define TESTS_SCHEDULER_PARTITION_MODEL_H

#include "scheduler/partition.h"

/* What a plan costs. */
struct partition_model_cost {
    struct partition_rate bottleneck;
    uint64_t latency_ns;
    uint32_t devices;
};

/* < 0: a is better. */
int partition_model_compare(const struct partition_model_cost *a,
                            const struct partition_model_cost *b);

/* The best plan's cost. False: there is none. plans_out: how many were looked at. */
bool partition_model_best(const struct partition_problem *problem,
                          const struct partition_goal *goal, struct partition_model_cost *out,
                          uint64_t *plans_out);

/* What the plan costs, by the stages that it names; ends the test if it is no plan of the problem
 * (layers, devices, hosts, memory, number of stages) or tells other times, bytes or sums. */
struct partition_model_cost partition_model_judge(const struct partition_problem *problem,
                                                  const struct partition_goal *goal,
                                                  const struct partition_plan *plan);

#endif
