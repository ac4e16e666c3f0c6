/* doomed: see the header. */
#include "transport/doomed.h"

#include <stdio.h>

void doomed_add(struct doomed *doomed, struct transport_peer *peer, const char *reason)
{
    for (uint32_t i = 0; i < doomed->count; i++)
        if (doomed->peers[i].peer == peer)
            return;
    if (doomed->count == DOOMED_MAX)
        return;
    struct doomed_peer *added = &doomed->peers[doomed->count++];
    added->peer = peer;
    snprintf(added->reason, sizeof(added->reason), "%.255s", reason);
}

void doomed_remove(struct doomed *doomed, const struct transport_peer *peer)
{
    for (uint32_t i = 0; i < doomed->count; i++)
        if (doomed->peers[i].peer == peer)
            doomed->peers[i] = doomed->peers[--doomed->count];
}

bool doomed_take(struct doomed *doomed, struct doomed_peer *out)
{
    if (doomed->count == 0)
        return false;
    *out = doomed->peers[0];
    doomed_remove(doomed, out->peer);
    return true;
}
