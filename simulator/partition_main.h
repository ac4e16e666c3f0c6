/* partition_main: `cleave partition`, which splits a model's layers over the devices of a cluster
 * by what a profile says they take. It measures and starts nothing. */
#ifndef SIMULATOR_PARTITION_MAIN_H
#define SIMULATOR_PARTITION_MAIN_H

/* argv[0] is the subcommand's name. Returns the exit status: 0 with a plan for each phase, 1 if
 * there is none (nothing fits, or a limit cannot be kept), 2 for wrong options or files. */
int partition_main(int argc, char **argv);

#endif
