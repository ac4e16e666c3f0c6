/* plan_main: the command `cleave plan`. It finds how many machines, and of which kind, a cluster
 * needs for prompts and for tokens, by simulating mixes of machines. The program's main.c calls
 * plan_main on the main thread; the search starts worker threads (search.h). The command measures
 * nothing and starts no machine. */
#ifndef TOOLS_PLAN_MAIN_H
#define TOOLS_PLAN_MAIN_H

/* Runs the command; argv[0] is the subcommand's name. Returns the exit status: 0 = done; 1 = a cell
 * (search.h) has no plan, or another failure; 2 = wrong options. */
int plan_main(int argc, char **argv);

#endif
