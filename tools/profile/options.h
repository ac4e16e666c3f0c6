/* profile_options: the command line of `cleave profile`, as values. profile.c owns the struct, and
 * fills it from the table on the main thread (options_start). The struct's texts point into argv or
 * to default values; only `host` is a copy. This part opens no files. */
#ifndef TOOLS_PROFILE_OPTIONS_H
#define TOOLS_PROFILE_OPTIONS_H

#include "common/limits.h"
#include "common/options.h"

#include <stdbool.h>
#include <stdint.h>

struct profile_options {
    const char *model;     /* Path of the model; NULL = the default config's model. */
    const char *device;    /* Device to measure, as in a config. */
    const char *host_name; /* --host; NULL = not given. */
    /* Name of this host in the profile: host_name, or the first 31 bytes of the system's name. */
    char host[LIMIT_ADDRESS_BYTES];
    const char *out;              /* File for the profile; "-" = standard output. */
    const char *add;              /* Profile to extend; NULL = begin a new one. */
    struct option_wholes threads; /* Numbers of threads to measure the device with. */
    struct option_wholes ranks;   /* Numbers of ranks to measure the device with. */
    /* Devices of the same kind to keep busy in a second measurement; 0 = no second measurement. */
    uint64_t busy_devices;
    struct option_texts peers; /* Addresses where other hosts run --serve-link. */
    /* Address on which this process is the other end of links that other hosts measure; NULL = this
     * process measures. */
    const char *serve_link;
    const char *key_file; /* File with the key of all links; NULL = no key. */
    const char *ucx_tls;  /* UCX_TLS for links to other hosts; NULL = the transport's default. */
    double seconds;       /* Time for all measurements of devices and links. */
    bool quick;           /* Measure few points (points.h), each at least once. */
    bool no_links;        /* Do not measure the links inside this host. */
    bool no_devices;      /* Measure links only. */
};

extern const struct option_table profile_options_table;

#endif
