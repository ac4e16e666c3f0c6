/* profile_options: the command line of `cleave profile`. Texts point into the arguments. */
#ifndef BENCH_PROFILE_OPTIONS_H
#define BENCH_PROFILE_OPTIONS_H

#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

#define PROFILE_OPTIONS_MAX 8 /* Most numbers of threads, and most links to other hosts. */

struct profile_options {
    const char *model; /* NULL = the default config's model. */
    const char *device;
    char host[LIMIT_ADDRESS_BYTES];
    const char *out;
    const char *add; /* Profile to extend; NULL = begin a new one. */
    uint32_t threads[PROFILE_OPTIONS_MAX];
    uint32_t threads_count;
    /* Devices of the same kind to keep busy in a second measurement; 0 = no second measurement. */
    uint32_t beside;
    const char *peers[PROFILE_OPTIONS_MAX]; /* Addresses of links to other hosts. */
    uint32_t peers_count;
    const char *serve_link; /* Serve the other end of links on this address; NULL = measure. */
    const char *key_file;
    const char *tls;
    double seconds;
    bool quick;
    bool links; /* True: measure the links inside this host. */
    bool devices;
};

/* Returns -1, or the exit status if the process shall end. */
int profile_options_read(int argc, char **argv, struct profile_options *out);

#endif
