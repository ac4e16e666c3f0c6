/* transport_internal: shared by transport.c and the implementations behind transport_ops. Only
 * files of this folder include it. */
#ifndef TRANSPORT_TRANSPORT_INTERNAL_H
#define TRANSPORT_TRANSPORT_INTERNAL_H

#include "transport/transport.h"

struct transport {
    const struct transport_ops *ops;
    void *impl;
};

/* The part of a peer that callers can query. First member of each implementation's peer. */
struct transport_peer {
    struct transport_identity identity; /* Zero until the hand-shake. */
    struct transport_region_info region;
    char address[LIMIT_ADDRESS_BYTES];
    char path[64];
    char note[160];
    void *user;
};

/* Compares two identities. Returns ST_OK, or ST_MISMATCH with a text that names the field and both
 * values, first before second. So one side makes the text and sends it to the other. */
enum status transport_identity_check(const struct transport_identity *first,
                                     const struct transport_identity *second, struct error *error);

#endif
