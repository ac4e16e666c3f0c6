/* profile: the command `cleave profile`, which measures a model on this host's devices and links,
 * and writes the profile that partitioner and simulator read (common/profile.h, docs/profile.md).
 */
#ifndef BENCH_PROFILE_H
#define BENCH_PROFILE_H

#include "common/profile.h"

#include <stdio.h>

/* argv[0] is the subcommand's name. Returns the exit status: 0; 1 = a failure; 2 = wrong options.
 */
int profile_main(int argc, char **argv);

/* Prints a profile as tables. */
void profile_print(const struct profile *p, FILE *file);

#endif
