/* transport_loopback: lets tests control transports that are opened with &transport_loopback. All
 * of them are in one process and belong to one thread. They find each other by the exact string
 * given to transport_listen (port 0 is not special). Events are delivered in the order of the
 * calls, in the receiving transport's own transport_progress; an event that a callback causes is
 * delivered by the next call. Writes are copied at the last legal moment, just before their flush
 * is reported, so that a source that changes too early is noticed. There is no time: no heartbeats,
 * no deadlines. The tests of kvcache/, prompt_pool/, machine/ and server/ use it. It opens no
 * socket and checks no keys: the tests of transport_ucx do. */
#ifndef TESTS_TRANSPORT_LOOPBACK_H
#define TESTS_TRANSPORT_LOOPBACK_H

#include "transport/transport.h"

extern const struct transport_ops transport_loopback;

/* Keeps back writes to `peer` and their flushes (hold = true), or releases them (hold = false). */
void transport_loopback_hold(struct transport *t, struct transport_peer *peer, bool hold);

/* Breaks the connection, as when the other process dies: both sides get peer_down (ST_UNREACHABLE)
 * after everything that was sent before. */
void transport_loopback_drop(struct transport *t, struct transport_peer *peer);

/* Makes the connection lose everything that either side sends or writes after this call, without
 * telling either side. */
void transport_loopback_cut(struct transport *t, struct transport_peer *peer);

/* Ends a connection as if it had been silent for too long: both sides get peer_down
 * (ST_TIMED_OUT). */
void transport_loopback_time_out(struct transport *t, struct transport_peer *peer);

/* Returns the bytes that peers' writes have put into this transport's region. */
uint64_t transport_loopback_landed_bytes(struct transport *t);

#endif
