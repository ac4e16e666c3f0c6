/* profile_link: how fast writes go between two processes: what KV and activations take from machine
 * to machine. Inside this computer as UCX chooses to carry them and over TCP; to another one where
 * the same program waits for it. */
#ifndef BENCH_PROFILE_LINK_H
#define BENCH_PROFILE_LINK_H

#include "bench/profile_device.h"

#include <stdio.h>

struct profile_link_options {
    const char *host;   /* this computer's, in the profile */
    const char *tls;    /* UCX_TLS to another computer; NULL: UCX's choice */
    const uint8_t *key; /* TRANSPORT_KEY_BYTES, the same on both sides; NULL: none */
    const char *device; /* the GPU whose memory is read and written; NULL: the host's */
    bool quick;
    double seconds; /* for all that one call measures */
    profile_progress_call progress;
    void *self;
};

/* Adds this computer's own to p->links. Starts a child for each: before the process has threads. */
enum status profile_links_measure(struct profile *p, const struct profile_link_options *options,
                                  struct error *error);

/* Adds the one to the computer where profile_link_serve listens at `address`. */
enum status profile_link_measure(struct profile *p, const struct profile_link_options *options,
                                 const char *address, struct error *error);

/* Says on `out` where it listens, and is the other end until the process is killed. */
enum status profile_link_serve(const struct profile_link_options *options, const char *address,
                               FILE *out, struct error *error);

#endif
