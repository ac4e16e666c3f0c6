/* doomed: see the header. */
#include "transport/doomed.h"

#include "transport/transport_internal.h"

#include <stdio.h>

void doomed_add(struct doomed *doomed, struct transport_peer *peer, const char *reason)
{
    struct transport_peer **at = doomed->end != NULL ? doomed->end : &doomed->first;
    if (peer->doomed_in != NULL)
        return;
    *at = peer;
    peer->doomed_in = doomed;
    peer->doomed_at = at;
    doomed->end = &peer->doomed_next;
    snprintf(peer->doomed_reason, sizeof(peer->doomed_reason), "%.255s", reason);
}

void doomed_remove(struct transport_peer *peer)
{
    if (peer->doomed_in == NULL)
        return;
    *peer->doomed_at = peer->doomed_next;
    if (peer->doomed_next != NULL)
        peer->doomed_next->doomed_at = peer->doomed_at;
    else
        peer->doomed_in->end = peer->doomed_at;
    peer->doomed_in = NULL;
    peer->doomed_at = NULL;
    peer->doomed_next = NULL;
}

struct transport_peer *doomed_take(struct doomed *doomed)
{
    struct transport_peer *peer = doomed->first;
    if (peer != NULL)
        doomed_remove(peer);
    return peer;
}

const char *doomed_reason(const struct transport_peer *peer)
{
    return peer->doomed_reason;
}
