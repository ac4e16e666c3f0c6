/* simulate_trace: `cleave simulate --trace …`: reads what the command line names, runs the
 * simulation of its policy, prints and writes what came out. */
#ifndef SIMULATOR_SIMULATE_TRACE_H
#define SIMULATOR_SIMULATE_TRACE_H

#include "simulator/simulate_options.h"

/* The exit status: 0, or 2 when something that was named is wrong or could not be written. */
int simulate_trace(const struct simulate_options *options);

#endif
