/* partition_main: the command `cleave partition`. It splits a model's layers over the devices of a
 * cluster by the times of a profile, and prints the split of each phase. The program's main() calls
 * partition_main on the main thread. The command measures nothing and starts no machine. */
#ifndef TOOLS_PARTITION_MAIN_H
#define TOOLS_PARTITION_MAIN_H

/* Runs the command; argv[0] is the subcommand's name. Returns the exit status: 0 = done; 1 = a
 * wanted phase has no plan, or another failure; 2 = wrong options. */
int partition_main(int argc, char **argv);

#endif
