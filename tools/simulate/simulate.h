/* simulate: the command `cleave simulate`. It simulates a trace on a cluster (simulate_trace.h),
 * simulates the cases of a directory of reference results and compares its results with them
 * (splitwise/reference.h), or gives a gateway's event log to the scheduler again (replay_log.h).
 * The program's main() calls it; all work is done on the main thread. It starts no machine and
 * computes no model. */
#ifndef TOOLS_SIMULATE_SIMULATE_H
#define TOOLS_SIMULATE_SIMULATE_H

/* argv[0] is the subcommand's name. Returns the exit status: 0 = done, and equal if something was
 * compared; 1 = differences or another failure; 2 = wrong options. */
int simulate_main(int argc, char **argv);

#endif
