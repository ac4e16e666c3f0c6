/* doomed: peers that are to be disconnected, and why. A peer is named while something of it is
 * being read, and disconnected later, when nobody has it in hand. No locks, no allocation. */
#ifndef TRANSPORT_DOOMED_H
#define TRANSPORT_DOOMED_H

#include "transport/transport.h"

#include <stdbool.h>

#define DOOMED_MAX 16 /* more are named again, by what they do next */

struct doomed_peer {
    struct transport_peer *peer;
    char why[256];
};

struct doomed {
    uint32_t count;
    struct doomed_peer peers[DOOMED_MAX];
};

/* The first reason stays. */
void doomed_add(struct doomed *doomed, struct transport_peer *peer, const char *why);
/* It is gone by itself, or will be now. */
void doomed_remove(struct doomed *doomed, const struct transport_peer *peer);
/* Takes one out, to be disconnected; false: there is none. */
bool doomed_take(struct doomed *doomed, struct doomed_peer *out);

#endif
