/* ucx_probe: lists all transports that the installed UCX offers, including those that machines do
 * not use by default. `cleave doctor` calls it once, on the only thread of a child process. The
 * child process does not use UCX before, because UCX reads its environment variables only once per
 * process. It opens no port, connects to no peer and measures nothing. fabric_probe.c implements
 * it. */
#ifndef TRANSPORT_UCX_PROBE_H
#define TRANSPORT_UCX_PROBE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UCX_PROBE_RESOURCES_MAX 64 /* Further resources are left out. */

struct ucx_probe {
    char version[32];
    bool cuda; /* UCX can register a GPU's memory. */
    /* Names of the kinds of memory that UCX can register, separated by blanks. */
    char memory_types[96];
    uint32_t resource_count;
    char resources[UCX_PROBE_RESOURCES_MAX][32]; /* "transport/device", such as "tcp/eth0". */
};

/* Fills *out. Returns ST_IO if UCX cannot be opened: out->version is set, the rest is zero. */
enum status ucx_probe(struct ucx_probe *out, struct error *error);

#endif
