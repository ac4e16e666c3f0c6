/* profile: `cleave profile`: measures a model on this computer's devices and links and writes the
 * profile that partitioner and simulator read (common/profile.h, docs/profile.md). */
#ifndef BENCH_PROFILE_H
#define BENCH_PROFILE_H

#include "common/profile.h"

#include <stdio.h>

/* argv[0] is the subcommand's name. Returns the exit status: 0, 1 if something failed, 2 for wrong
 * options. */
int profile_main(int argc, char **argv);

/* Tables for people. */
void profile_print(const struct profile *p, FILE *file);

#endif
