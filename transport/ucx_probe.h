/* ucx_probe: lists what the installed UCX offers: its version, the transports that UCX_TLS in the
 * environment permits, and the kinds of memory that it can register. `cleave doctor` calls the
 * function, on the only thread of a child process; fabric_probe.c has the code. The function keeps
 * no state, opens no port, connects to no peer and measures nothing. */
#ifndef TRANSPORT_UCX_PROBE_H
#define TRANSPORT_UCX_PROBE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UCX_PROBE_RESOURCES_MAX 64 /* Most entries of ucx_probe.resources. */

struct ucx_probe {
    char version[32]; /* Version of UCX, such as "1.13.1". */
    bool cuda;        /* UCX can register the memory of CUDA devices. */
    /* Names of the kinds of memory that UCX can register, separated by blanks. */
    char memory_types[96];
    uint32_t resource_count; /* Entries of `resources`; UCX may offer more than fit. */
    char resources[UCX_PROBE_RESOURCES_MAX][32]; /* "transport/device", such as "tcp/eth0". */
};

/* Fills *out. Requires that this process has not used UCX before, because UCX reads its environment
 * variables only once in a process. Returns ST_IO if UCX cannot be opened; then out->version is set
 * and all other fields are 0. */
enum status ucx_probe(struct ucx_probe *out, struct error *error);

#endif
