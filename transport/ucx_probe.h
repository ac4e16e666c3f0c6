/* ucx_probe: what UCX is here, for people (`cleave doctor`). Opens UCX as a transport would and
 * closes it again; call it where nothing else of UCX is open. */
#ifndef TRANSPORT_UCX_PROBE_H
#define TRANSPORT_UCX_PROBE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UCX_PROBE_RESOURCES_MAX 64

struct ucx_probe {
    char version[32];
    bool cuda; /* it can register a GPU's memory */
    char memory_types[96];
    uint32_t resource_count;
    char resources[UCX_PROBE_RESOURCES_MAX][32]; /* transport/device, such as "tcp/eth0" */
};

/* `tls`, `devices`: as in struct transport_options. *out has the version also after an error. */
enum status ucx_probe(const char *tls, const char *devices, struct ucx_probe *out,
                      struct error *error);

#endif
