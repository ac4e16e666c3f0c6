/* simulate: the command `cleave simulate`. It simulates a trace on a cluster (simulate_trace.h),
 * compares simulations with a directory of reference results (splitwise/reference.h), or gives a
 * gateway's event log to the scheduler again (replay_log.h). The program's main() calls
 * simulate_main on the main thread. The command starts no machine and computes no model. */
#ifndef TOOLS_SIMULATE_SIMULATE_H
#define TOOLS_SIMULATE_SIMULATE_H

/* Runs the command; argv[0] is the subcommand's name. Returns the exit status: 0 = done without
 * differences; 1 = differences or another failure; 2 = wrong options. */
int simulate_main(int argc, char **argv);

#endif
