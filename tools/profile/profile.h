/* profile: the subcommand `cleave profile`. It measures a model on a device of this host, and links
 * inside this host and to other hosts, and writes the times to a profile (profile/profile.h,
 * docs/profile.md). main.c calls profile_main on the main thread; profile_main owns the profile.
 * The subcommand does not split layers and does not simulate. */
#ifndef TOOLS_PROFILE_PROFILE_H
#define TOOLS_PROFILE_PROFILE_H

#include "profile/profile.h"

#include <stdio.h>

/* Runs the subcommand; argv[0] is its name. Returns the exit status: 0 = done; 1 = a failure; 2 =
 * wrong options. With --serve-link, writes no profile and returns only on an error. */
int profile_main(int argc, char **argv);

/* Prints a profile as tables. */
void profile_print(const struct profile *p, FILE *file);

#endif
