/* transport_internal: the structs behind the opaque types of transport.h, and the comparison of
 * identities. transport.c, handshake.c and the implementations of transport_ops (ucx*.c; in tests,
 * loopback) share them. Only files of this folder and tests include it. Everything runs on the one
 * thread that owns the transport. It does not describe connections, frames or memory of an
 * implementation. */
#ifndef TRANSPORT_TRANSPORT_INTERNAL_H
#define TRANSPORT_TRANSPORT_INTERNAL_H

#include "transport/transport.h"

struct transport {
    const struct transport_ops *ops;
    void *impl;
};

/* The part of a peer that transport_peer_… functions read. First member of the peer struct of each
 * implementation. */
struct transport_peer {
    struct transport_identity identity; /* Zero until the hand-shake. */
    struct transport_region_info region;
    uint32_t version;                  /* See transport_peer_version. */
    bool versions_equal;               /* See transport_peer_versions_equal. */
    char address[LIMIT_ADDRESS_BYTES]; /* Where the peer listens or connects from, for texts. */
    char path[64];                     /* See transport_peer_path. */
    char note[160];                    /* See transport_peer_note. */
    void *user;                        /* See transport_peer_user. */
    uint64_t number;                   /* See transport_peer_number. */
};

/* Compares two identities. Returns ST_OK, or ST_MISMATCH with a text that names the field and both
 * values, those of `first` before those of `second`. Both sides call it with the connecting side as
 * `first`. The accepting side finds a mismatch first and sends its text to the other side, so that
 * both logs have the same text. */
enum status transport_identity_check(const struct transport_identity *first,
                                     const struct transport_identity *second, struct error *error);

#endif
