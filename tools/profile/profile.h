/* profile: the command `cleave profile`, which measures a model on this host's devices and links,
 * and writes the profile that partitioner and simulator read (profile/profile.h, docs/profile.md).
 */
#ifndef TOOLS_PROFILE_PROFILE_H
#define TOOLS_PROFILE_PROFILE_H

#include "profile/profile.h"

#include <stdio.h>

/* argv[0] is the subcommand's name. Returns the exit status: 0; 1 = a failure; 2 = wrong options.
 */
int profile_main(int argc, char **argv);

/* Prints a profile as tables. */
void profile_print(const struct profile *p, FILE *file);

#endif
