/* simulate_trace: `cleave simulate --trace …`: reads the inputs that the command line names, runs
 * the simulation, and prints and writes the results. */
#ifndef TOOLS_SIMULATE_SIMULATE_TRACE_H
#define TOOLS_SIMULATE_SIMULATE_TRACE_H

#include "tools/simulate/simulate_options.h"

/* Returns the exit status: 0; 1 = an input is wrong or a result could not be written; 2 = wrong
 * options. */
int simulate_trace(const struct simulate_options *options);

#endif
