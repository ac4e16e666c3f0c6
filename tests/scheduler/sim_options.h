/* sim_options: the options of a simulated cluster's scheduler, drawn at random. */
#ifndef TESTS_SCHEDULER_SIM_OPTIONS_H
#define TESTS_SCHEDULER_SIM_OPTIONS_H

#include "scheduler/cluster.h"

#define SIM_MACHINES    6
#define SIM_REQUESTS    40
#define SIM_PREFIX_STEP 20

struct sched_cluster_options sim_options_draw(uint32_t (*draw)(uint32_t below));
void sim_options_print(const struct sched_cluster_options *options);

#endif
