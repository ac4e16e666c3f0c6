/* sim_options: random options for the scheduler of a simulated cluster, and the prompts of its
 * requests. test_simulation.c calls it on its one thread. The functions have no state; `draw`
 * returns a random number below its argument. */
#ifndef TESTS_SCHEDULER_SIM_OPTIONS_H
#define TESTS_SCHEDULER_SIM_OPTIONS_H

#include "scheduler/cluster/cluster.h"

#define SIM_MACHINES 6
#define SIM_REQUESTS 40

struct sched_cluster_options sim_options_draw(uint32_t (*draw)(uint32_t below));
/* Returns the first `tokens` tokens of a request's prompt. The requests
 * belong to a few conversations. Many prompts therefore begin with the same tokens. */
struct sched_prefix sim_prefix_of(uint32_t request, uint32_t tokens);

/* Returns a SCHED_MACHINE_TIERS of the machine, with tiers by this random number. (A number of its
 * own: with `draw`, the known seeds of test_simulation.c would no longer be what they are.) */
struct sched_event sim_tiers_of(uint32_t machine, uint64_t number);

void sim_options_print(const struct sched_cluster_options *options);

#endif
