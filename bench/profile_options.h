/* profile_options: the command line of `cleave profile`. Texts are the command line's own. */
#ifndef BENCH_PROFILE_OPTIONS_H
#define BENCH_PROFILE_OPTIONS_H

#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

#define PROFILE_OPTIONS_MAX 8 /* numbers of threads; links to other computers */

struct profile_options {
    const char *model; /* NULL: the config's default */
    const char *device;
    char host[LIMIT_ADDRESS_BYTES];
    const char *out;
    const char *add; /* NULL: a profile of its own */
    uint32_t threads[PROFILE_OPTIONS_MAX];
    uint32_t threads_count;
    uint32_t beside;                        /* devices of the same kind that are busy meanwhile */
    const char *peers[PROFILE_OPTIONS_MAX]; /* where links end on other computers */
    uint32_t peers_count;
    const char *serve_link; /* NULL: it measures */
    const char *key_file;
    const char *tls;
    double seconds;
    bool quick;
    bool links; /* of this computer */
    bool devices;
};

/* -1, or the exit status of a process that has nothing more to do. */
int profile_options_read(int argc, char **argv, struct profile_options *out);

#endif
