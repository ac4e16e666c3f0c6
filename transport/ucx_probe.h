/* ucx_probe: reports what the installed UCX can do. `cleave doctor` calls it, in a process of its
 * own and on one thread, because it opens UCX as a transport does and closes it again: no other
 * part of the process may have UCX open. It connects to no peer and measures nothing.
 * fabric_probe.c implements it. */
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
    char memory_types[96];
    uint32_t resource_count;
    char resources[UCX_PROBE_RESOURCES_MAX][32]; /* "transport/device", such as "tcp/eth0". */
};

/* `tls` and `devices` are as in struct transport_options. out->version is set even after an
 * error. */
enum status ucx_probe(const char *tls, const char *devices, struct ucx_probe *out,
                      struct error *error);

#endif
