/* partition_main: the command `cleave partition`, which splits a model's layers over the devices of
 * a cluster by the times of a profile, and prints the split of each phase. main.c calls it on the
 * main thread. It measures nothing and starts nothing: `cleave profile` measures, and a config with
 * the printed stages starts the machine. */
#ifndef TOOLS_PARTITION_MAIN_H
#define TOOLS_PARTITION_MAIN_H

/* Runs the command; argv[0] is the subcommand's name. Returns the exit status: 0 = a plan for each
 * wanted phase; 2 = wrong options; 1 = a phase has no plan (nothing fits, or the limit cannot be
 * kept), or another failure. */
int partition_main(int argc, char **argv);

#endif
