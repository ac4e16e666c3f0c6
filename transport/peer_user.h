/* peer_user: a struct that a process of a machine stores as the `user` of each of its connections
 * (transport_peer_user). It holds the kind of the peer, and the object that represents the peer.
 * The event functions of the process choose the handler by the kind; the handler finds its object.
 * Only the event loop thread that owns the transport sets and reads it. The gateway does not use
 * struct peer_user: its `user` is a struct fleet_machine. A peer_user owns neither the peer nor the
 * object. */
#ifndef TRANSPORT_PEER_USER_H
#define TRANSPORT_PEER_USER_H

#include "transport/transport.h"

#include <stddef.h>

enum peer_kind {
    /* Peers that have connected to this process: */
    PEER_NEW, /* The connection is not up yet, or the peer was refused when it came up. */
    PEER_GATEWAY,
    PEER_WRITER,         /* A machine, or a stage process of it, that writes KV. */
    PEER_HEAD,           /* The head of this stage process. */
    PEER_STAGE_PREVIOUS, /* A process of the stage before this one. */
    /* Peers to which this process has connected: */
    PEER_LINK, /* A token machine; the object is a link of prompt_links. */
    /* A process that stores a token machine's KV; the object is its entry in kv_targets. */
    PEER_TARGET,
    PEER_STAGE, /* A stage process of this machine. */
    PEER_KIND_COUNT,
};

struct peer_user {
    enum peer_kind kind;
    void *object; /* NULL = none. */
};

/* Returns the kind of the peer; a peer whose `user` is not set yet is PEER_NEW. */
static inline enum peer_kind peer_kind_of(const struct transport_peer *peer)
{
    const struct peer_user *user = transport_peer_user(peer);
    return user != NULL ? user->kind : PEER_NEW;
}

/* Returns the object that stands for the peer. Requires that the `user` of the peer is set. */
static inline void *peer_object_of(const struct transport_peer *peer)
{
    const struct peer_user *user = transport_peer_user(peer);
    return user->object;
}

#endif
