/* profile: the command `cleave profile`, which measures a model on this host's device, and links
 * inside this host and to other hosts. It writes the profile that the partitioner and the simulator
 * read (profile/profile.h, docs/profile.md). main.c calls it on the main thread. It does not split
 * layers and does not simulate. */
#ifndef TOOLS_PROFILE_PROFILE_H
#define TOOLS_PROFILE_PROFILE_H

#include "profile/profile.h"

#include <stdio.h>

/* argv[0] is the subcommand's name. Returns the exit status: 0 = the profile was written; 1 = a
 * failure; 2 = wrong options. With --serve-link it writes no profile: it serves until the process
 * is killed, or until an error. */
int profile_main(int argc, char **argv);

/* Prints a profile as tables (print.c). profile.c calls it after the measurements. */
void profile_print(const struct profile *p, FILE *file);

#endif
