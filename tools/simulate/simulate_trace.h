/* simulate_trace: runs `cleave simulate --trace …`: reads the inputs that the command line names,
 * simulates (sim_run.h, or splitwise.h for the policy splitwise-compat), and writes the results.
 * simulate_main.c calls the function on the main thread. This part owns the inputs, totals and
 * results; a run owns its state. This part decides nothing about a request: the scheduler does. */
#ifndef TOOLS_SIMULATE_SIMULATE_TRACE_H
#define TOOLS_SIMULATE_SIMULATE_TRACE_H

#include "tools/simulate/simulate_options.h"

/* Reads, simulates and prints, with errors to standard error. Returns the exit status: 0 = done; 1
 * = failed, e.g. an input is wrong or a result cannot be written; 2 = wrong options. */
int simulate_trace(const struct simulate_options *options);

#endif
