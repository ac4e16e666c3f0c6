/* simulate_trace: `cleave simulate --trace …`: reads the inputs that the command line names, runs
 * the simulation, and prints and writes the results. */
#ifndef SIMULATOR_SIMULATE_TRACE_H
#define SIMULATOR_SIMULATE_TRACE_H

#include "simulator/simulate_options.h"

/* Returns the exit status: 0; 1 = an input is wrong or a result could not be written; 2 = wrong
 * options. */
int simulate_trace(const struct simulate_options *options);

#endif
