/* doomed: a list of peers that will be disconnected, each with the reason. While a message of a
 * peer is handled, functions on the stack still use the peer. So the peer is added to this list,
 * and disconnected later. A machine or stage process owns a list and calls the functions on its
 * event loop thread. The list disconnects no peer itself and allocates nothing. */
#ifndef TRANSPORT_DOOMED_H
#define TRANSPORT_DOOMED_H

#include "transport/transport.h"

#include <stdbool.h>

/* Most entries; doomed_add adds nothing to a full list. */
#define DOOMED_MAX 16

struct doomed_peer {
    struct transport_peer *peer;
    char reason[256];
};

struct doomed {
    uint32_t count;
    struct doomed_peer peers[DOOMED_MAX];
};

/* Adds a peer. If the peer is already in the list, its first reason stays. */
void doomed_add(struct doomed *doomed, struct transport_peer *peer, const char *reason);
/* Removes a peer that went down by itself or that the caller disconnects now. */
void doomed_remove(struct doomed *doomed, const struct transport_peer *peer);
/* Moves an entry from the list to *out; the caller disconnects the peer. False = empty list. */
bool doomed_take(struct doomed *doomed, struct doomed_peer *out);

#endif
