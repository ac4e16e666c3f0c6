/* plan_main: the command `cleave plan`. It finds how many machines of which kind a cluster needs
 * for prompts and for tokens, by simulating mixes of machines. The program's main() calls it on the
 * main thread; the search starts worker threads (search.h). It measures nothing and starts no
 * machine. */
#ifndef TOOLS_PLAN_MAIN_H
#define TOOLS_PLAN_MAIN_H

/* argv[0] is the subcommand's name. Returns the exit status: 0 = a plan for each cluster; 1 = a
 * cluster has no plan, or another failure; 2 = wrong options. */
int plan_main(int argc, char **argv);

#endif
