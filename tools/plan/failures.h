/* plan_failures: computes what failures of machines cost a plan, and how much checkpoints of
 * answers (kv/checkpoint) help. For each cell with a plan, simulates the cell's best mix at
 * best_rate_per_s in three modes: without failures, with failures, and with failures and
 * checkpoints. Each mode with failures is simulated 8 times, with other times of failures.
 * plan_main calls this part on the main thread after the search. This part owns nothing and does
 * not search: the mixes are the best mixes for machines that do not fail. */
#ifndef TOOLS_PLAN_FAILURES_H
#define TOOLS_PLAN_FAILURES_H

#include "tools/plan/search.h"

/* Sets `goodput` of each cell that has a plan. mtbf_s: mean seconds until a machine fails, > 0.
 * repair_s: seconds until a failed machine is up again. Requires search->inputs->profile (times of
 * a profile, not of a table). Returns the errors of the simulation, or ST_NO_MEMORY. */
enum status plan_failures_run(const struct plan_search *search, double mtbf_s, double repair_s,
                              struct error *error);

#endif
