/* transport_loopback: what a test may do to transports of one process that are opened with
 * &transport_loopback. They find each other by the exact string given to transport_listen (port 0
 * is not special) and deliver in the order of calls, each transport's events in its own
 * transport_progress: an event that a callback causes is delivered by the next call. Writes are
 * copied at the last legal moment, just before their flush is reported, so that a source that
 * changes too early is noticed. All transports of a process belong to one thread. Time does not
 * pass here: no heartbeats, no deadlines. */
#ifndef TRANSPORT_TRANSPORT_LOOPBACK_H
#define TRANSPORT_TRANSPORT_LOOPBACK_H

#include "transport/transport.h"

/* Keeps writes to `peer` and their flushes back until it is called with false. */
void transport_loopback_hold(struct transport *t, struct transport_peer *peer, bool hold);

/* The connection breaks, as when the other process dies: both sides get peer_down (ST_UNREACHABLE),
 * after what had been sent before. */
void transport_loopback_drop(struct transport *t, struct transport_peer *peer);

/* The link goes dark: from now on all that either side sends or writes is lost, and nobody is told.
 */
void transport_loopback_cut(struct transport *t, struct transport_peer *peer);

/* The silence of a cut (or healthy) link has lasted too long: both sides get peer_down
 * (ST_TIMED_OUT). */
void transport_loopback_time_out(struct transport *t, struct transport_peer *peer);

/* Bytes that have been copied into this transport's region by writes of peers. */
uint64_t transport_loopback_landed_bytes(struct transport *t);

#endif
