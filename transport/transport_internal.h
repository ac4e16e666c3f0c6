/* transport_internal: the structs behind the opaque types of transport.h, and the comparison of
 * identities. transport.c makes struct transport. Implementations of transport_ops (transport_ucx
 * in ucx*.c; loopback in tests) fill struct transport_peer; the functions transport_peer_… of
 * transport.c return the fields, and transport_peer_set_user replaces `user`. All these functions
 * run on the one thread that owns the transport. Connections, frames and memory belong to the
 * implementations (peers.h, fabric.h). */
#ifndef TRANSPORT_TRANSPORT_INTERNAL_H
#define TRANSPORT_TRANSPORT_INTERNAL_H

#include "transport/transport.h"

struct transport {
    const struct transport_ops *ops;
    void *impl; /* State of the implementation; the first argument of each of `ops`. */
};

/* What the functions transport_peer_… return about a connection. An implementation represents a
 * connection by a struct of its own, whose first member is a struct transport_peer. */
struct transport_peer {
    struct transport_identity identity;  /* Zero before the hand-shake. */
    struct transport_region_info region; /* Zero before the hand-shake. */
    uint32_t version;                    /* See transport_peer_version. */
    bool versions_equal;                 /* See transport_peer_versions_equal. */
    /* For logs and error texts: the address to which we connect, or the address of a peer that has
     * connected to us. */
    char address[LIMIT_ADDRESS_BYTES];
    char path[64];  /* How writes to the peer travel, such as "ucx put over sysv". */
    char note[160]; /* Why writes do not travel in a faster way; empty = not known. */
    void *user;     /* See transport_peer_user. */
    /* Number of the connection, from 1; no other connection of the transport has this number. */
    uint64_t number;
    /* Used by doomed.c: the list (NULL = the peer is in no list), the pointer in the list that
     * points to this peer, the next peer of the list, and the reason. */
    struct doomed *doomed_in;
    struct transport_peer **doomed_at;
    struct transport_peer *doomed_next;
    char doomed_reason[256];
};

/* Compares two identities as described at struct transport_identity; handshake_check compares
 * versions and formats. Returns ST_OK, or ST_MISMATCH with a text that names the field and both
 * values, first the value of `first`. `first`: the identity of the side that has connected. */
enum status transport_identity_check(const struct transport_identity *first,
                                     const struct transport_identity *second, struct error *error);

#endif
