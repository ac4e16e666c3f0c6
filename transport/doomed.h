/* doomed: a list of peers that will be disconnected, each with the reason. While a message of a
 * peer is handled, functions on the stack still use the peer. So the peer is added to this list,
 * and disconnected later. A machine or stage process owns a list and calls the functions on its
 * event loop thread. The list disconnects no peer itself and allocates nothing: the links of the
 * list and the reasons are in the peers, so any number of peers fits. */
#ifndef TRANSPORT_DOOMED_H
#define TRANSPORT_DOOMED_H

#include "transport/transport.h"

/* All zeros = empty. A list with peers must stay at its address. */
struct doomed {
    struct transport_peer *first; /* NULL = the list is empty. */
    struct transport_peer **end;  /* Where the next peer is added; NULL = at `first`. */
};

/* Adds a peer to the end of the list. If the peer is already in a list, its first reason stays. */
void doomed_add(struct doomed *doomed, struct transport_peer *peer, const char *reason);
/* Removes a peer from its list, if it is in one. The owner of the list calls the function for a
 * peer that went down by itself; transport_disconnect calls the function, too. */
void doomed_remove(struct transport_peer *peer);
/* Removes the first peer from the list and returns it; the caller disconnects the peer. NULL = the
 * list is empty. */
struct transport_peer *doomed_take(struct doomed *doomed);
/* Returns the reason of a peer that doomed_take returned; valid as long as the peer. */
const char *doomed_reason(const struct transport_peer *peer);

#endif
