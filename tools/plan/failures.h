/* plan_failures: what failures of machines cost a plan, and what checkpoints of answers
 * (kv/checkpoint) are worth: simulates the best mix of each cell at its rate without failures, with
 * failures, and with failures and checkpoints. plan_main calls it on the main thread after the
 * search. It does not search: the mixes are the best ones for machines that do not fail. */
#ifndef TOOLS_PLAN_FAILURES_H
#define TOOLS_PLAN_FAILURES_H

#include "tools/plan/search.h"

/* Fills cell->goodput of each cell that has a plan. mtbf_s: mean time until a machine fails;
 * repair_s: time until it is up again. Requires times of a profile and mtbf_s > 0. Simulates eight
 * times with failures, each time with another seed. Returns the errors of the simulation. */
enum status plan_failures_run(const struct plan_search *search, double mtbf_s, double repair_s,
                              struct error *error);

#endif
