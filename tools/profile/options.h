/* profile_options: the command line of `cleave profile`. Texts point into the arguments. */
#ifndef TOOLS_PROFILE_OPTIONS_H
#define TOOLS_PROFILE_OPTIONS_H

#include "common/limits.h"
#include "common/options.h"

#include <stdbool.h>
#include <stdint.h>

struct profile_options {
    const char *model; /* NULL = the default config's model. */
    const char *device;
    const char *host_name; /* NULL = this host's name. */
    char host[LIMIT_ADDRESS_BYTES];
    const char *out;
    const char *add; /* Profile to extend; NULL = begin a new one. */
    struct option_wholes threads;
    /* Devices of the same kind to keep busy in a second measurement; 0 = no second measurement. */
    uint64_t beside;
    struct option_texts peers; /* Addresses of links to other hosts. */
    const char *serve_link;    /* Serve the other end of links on this address; NULL = measure. */
    const char *key_file;
    const char *tls;
    double seconds; /* 0 = not given. */
    bool quick;
    bool no_links; /* Do not measure the links inside this host. */
    bool no_devices;
};

extern const struct option_table profile_options_table;

#endif
