/* peer_user: says what a connection of a machine or a stage process is for. Such a process sets a
 * struct peer_user as the `user` of a connection (transport_peer_user). The kind of the peer says
 * which function handles an event of the connection.
 *
 * The parts of machines and stage processes use these structs on the one event loop thread that
 * owns the transport. A peer_user owns neither the peer nor the object. */
#ifndef TRANSPORT_PEER_USER_H
#define TRANSPORT_PEER_USER_H

#include "transport/transport.h"

#include <stddef.h>

enum peer_kind {
    /* Peers that have connected to this process: */
    /* The connection is not up yet, or this process refuses the peer. */
    PEER_NEW,
    PEER_GATEWAY,
    PEER_WRITER,         /* A process of a machine that writes KV into this machine. */
    PEER_HEAD,           /* The head of this stage process. */
    PEER_STAGE_PREVIOUS, /* A process of the previous stage. */
    /* Peers to which this process has connected: */
    PEER_LINK, /* A token machine; the object is a link (prompt_pool/prompt_links.c). */
    /* A process that stores KV of a token machine; the object is a struct target_process
     * (kvcache/kv_targets.c). */
    PEER_TARGET,
    /* In a head: a stage process; the object is a struct stage_process. In a stage process: a
     * process of the next stage; the object is a struct stage_next. */
    PEER_STAGE,
    PEER_KIND_COUNT,
};

struct peer_user {
    enum peer_kind kind;
    void *object; /* Represents a peer to which this process has connected; NULL = none. */
};

/* Returns the kind of the peer; PEER_NEW if the `user` of the connection is not set. */
static inline enum peer_kind peer_kind_of(const struct transport_peer *peer)
{
    const struct peer_user *user = transport_peer_user(peer);
    return user != NULL ? user->kind : PEER_NEW;
}

/* Returns the object that represents the peer. Requires that the connection has a `user`. */
static inline void *peer_object_of(const struct transport_peer *peer)
{
    const struct peer_user *user = transport_peer_user(peer);
    return user->object;
}

#endif
