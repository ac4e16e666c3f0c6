/* ucx_probe: lists all transports that the installed UCX offers, including those that machines do
 * not use by default. `cleave doctor` calls it, in a process of its own and on one thread, because
 * UCX reads its environment once: no other part of the process may have UCX open. It opens no port,
 * connects to no peer and measures nothing. fabric_probe.c implements it. */
#ifndef TRANSPORT_UCX_PROBE_H
#define TRANSPORT_UCX_PROBE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UCX_PROBE_RESOURCES_MAX 64

struct ucx_probe {
    char version[32];
    bool cuda; /* UCX can register a GPU's memory. */
    /* Names of the kinds of memory that UCX can register. */
    char memory_types[96];
    uint32_t resource_count;
    char resources[UCX_PROBE_RESOURCES_MAX][32]; /* "transport/device", such as "tcp/eth0". */
};

/* Fills *out. Sets out->version even on an error. */
enum status ucx_probe(struct ucx_probe *out, struct error *error);

#endif
