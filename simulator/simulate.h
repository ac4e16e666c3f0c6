/* simulate: `cleave simulate`, which runs the cluster-level scheduler without a cluster: over
 * machines that the reference's simulator would have, for the cases of a directory of its results
 * (reference.h); or over a gateway's event log (replay_log.h). */
#ifndef SIMULATOR_SIMULATE_H
#define SIMULATOR_SIMULATE_H

/* argv[0] is the subcommand's name. Returns the exit status: 0 when the same came out, 1 when
 * something else did, 2 for wrong options or a file that is none of its kind. */
int simulate_main(int argc, char **argv);

#endif
