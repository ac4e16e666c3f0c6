/* profile_link: measures writes between two processes, i.e. how fast KV and activations move
 * between machines. Inside this host, a child process is the other end: once over the transport
 * that UCX chooses, and once over TCP. To measure the link to another host, a `cleave profile
 * --serve-link` must run there. profile.c calls this part on the main thread of `cleave profile`.
 * `cleave doctor` (paths.c) calls profile_links_measure in a check process. This part measures no
 * model. */
#ifndef TOOLS_PROFILE_LINK_H
#define TOOLS_PROFILE_LINK_H

#include "tools/profile/device.h"

#include <stdio.h>

struct profile_link_options {
    const char *host;    /* Name of this host in the profile. */
    const char *ucx_tls; /* transport_options.ucx_tls for the link to another host. */
    /* Keys of the link; both ends need at least one key in common. NULL = no keys at both ends. */
    const struct secret_keys *keys;
    /* GPU in whose memory this end, and a child process, have their regions; NULL = the host's
     * memory. NULL for profile_link_serve. */
    const char *device;
    bool quick;     /* Use a smaller region: 8 MiB instead of 64 MiB. */
    double seconds; /* Time for all measurements of one call. */
    /* Not NULL, except for profile_link_serve, which does not call it. */
    profile_progress_call progress;
    void *self; /* First argument of `progress`. */
};

/* Adds the links inside this host to p->links: one over the transport that UCX chooses and one over
 * TCP, or only one if UCX chooses TCP. Requires that the process has no other threads yet, because
 * the function forks a child process for each transport. ST_TOO_LARGE: the profile is full. Other
 * errors say what failed. */
enum status profile_links_measure(struct profile *p, const struct profile_link_options *options,
                                  struct error *error);

/* Adds to p->links the link to the host where profile_link_serve listens on `address`.
 * ST_TOO_LARGE: the profile is full. Other errors name the address. */
enum status profile_link_measure(struct profile *p, const struct profile_link_options *options,
                                 const char *address, struct error *error);

/* Listens on `address`, prints the bound address to `out`, and serves as the other end of links
 * until the process is killed. Returns only on an error. */
enum status profile_link_serve(const struct profile_link_options *options, const char *address,
                               FILE *out, struct error *error);

#endif
