/* simulate: `cleave simulate`, which runs the cluster-level scheduler without a cluster. So far it
 * gives a gateway's event log to the scheduler again (replay_log.h). */
#ifndef SIMULATOR_SIMULATE_H
#define SIMULATOR_SIMULATE_H

/* argv[0] is the subcommand's name. Returns the exit status: 0 when the same was decided, 1 when
 * something else was, 2 for wrong options or a file that is no event log. */
int simulate_main(int argc, char **argv);

#endif
