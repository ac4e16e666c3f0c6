/* profile_link: measures writes between two processes, i.e. how fast KV and activations move
 * between machines. Inside this host: over the transport that UCX chooses, and over TCP. To another
 * host: a `cleave profile --serve-link` must run there. One thread. */
#ifndef TOOLS_PROFILE_LINK_H
#define TOOLS_PROFILE_LINK_H

#include "tools/profile/device.h"

#include <stdio.h>

struct profile_link_options {
    const char *host;   /* Name of this host in the profile. */
    const char *tls;    /* UCX_TLS for the link to another host; NULL = UCX chooses. */
    const uint8_t *key; /* TRANSPORT_KEY_BYTES bytes, equal at both ends; NULL = none. */
    const char *device; /* GPU whose memory is read and written; NULL = the host's memory. */
    bool quick;
    double seconds; /* Time for everything that one call measures. */
    profile_progress_call progress;
    void *self;
};

/* Adds this host's own links to p->links. Requires that the process has no threads yet, because it
 * forks a child for each link. */
enum status profile_links_measure(struct profile *p, const struct profile_link_options *options,
                                  struct error *error);

/* Adds the link to the host where profile_link_serve listens on `address`. */
enum status profile_link_measure(struct profile *p, const struct profile_link_options *options,
                                 const char *address, struct error *error);

/* Prints the address to `out` and serves as the other end of links until the process is killed. */
enum status profile_link_serve(const struct profile_link_options *options, const char *address,
                               FILE *out, struct error *error);

#endif
