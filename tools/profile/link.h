/* profile_link: measures writes between two processes, i.e. how fast KV and activations move
 * between machines. The other process is a child process, or `cleave profile --serve-link` on
 * another host. `cleave profile` and `cleave doctor` call the functions on the main thread of a
 * process. The functions close what they open. They measure no model. */
#ifndef TOOLS_PROFILE_LINK_H
#define TOOLS_PROFILE_LINK_H

#include "tools/profile/device.h"

#include <stdio.h>

struct profile_link_options {
    const char *host;    /* Name of this host in the profile. */
    const char *ucx_tls; /* transport_options.ucx_tls for the link to another host. */
    /* Keys of the link. The two ends need a common key. NULL = neither end has keys. */
    const struct secret_keys *keys;
    /* GPU whose memory has the regions of this process and of a child process; NULL = the regions
     * are in the host's memory. */
    const char *device;
    bool quick;                     /* Use a smaller region: 8 MiB instead of 64 MiB. */
    double seconds;                 /* Time for all measurements of one call. */
    profile_progress_call progress; /* Not called by profile_link_serve. */
    void *self;                     /* First argument of `progress`. */
};

/* Adds the links inside this host to p->links: one over the transport that UCX chooses, and one
 * over TCP unless UCX chooses TCP. Requires that the process has no other threads, because the
 * function forks. ST_TOO_LARGE: the profile is full. Other errors are those of processes, devices
 * and transport. */
enum status profile_links_measure(struct profile *p, const struct profile_link_options *options,
                                  struct error *error);

/* Adds to p->links the link to the host where profile_link_serve listens on `address`.
 * ST_TOO_LARGE: the profile is full. ST_MISMATCH: the other end is not a `cleave profile`. Other
 * errors are those of the device and the transport. */
enum status profile_link_measure(struct profile *p, const struct profile_link_options *options,
                                 const char *address, struct error *error);

/* Listens on `address`, prints the bound address to `out`, and serves as the other end of links.
 * Returns only on an error. */
enum status profile_link_serve(const struct profile_link_options *options, const char *address,
                               FILE *out, struct error *error);

#endif
