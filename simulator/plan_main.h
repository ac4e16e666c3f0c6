/* plan_main: the command `cleave plan`: how many machines of which kind, for prompts and for
 * tokens. */
#ifndef SIMULATOR_PLAN_MAIN_H
#define SIMULATOR_PLAN_MAIN_H

/* argv[0] is the subcommand's name. Exit status: 0: there is a plan for each cluster; 1: for one of
 * them there is none; 2: an error. */
int plan_main(int argc, char **argv);

#endif
