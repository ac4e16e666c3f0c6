/* peers: what ucx.c (life of a transport, its calls, its loop), ucx_peer.c (life of one connection)
 * and ucx_greet.c (its begin: proofs and hand-shake) share. Included by these only. */
#ifndef TRANSPORT_PEERS_H
#define TRANSPORT_PEERS_H

#include "transport/auth.h"
#include "transport/fabric.h"
#include "transport/handshake.h"
#include "transport/stream.h"
#include "transport/transport_internal.h"

#include <netdb.h>

enum peer_state {
    PEER_CONNECTING, /* the socket is not connected yet, or is to be opened */
    PEER_GREETING,   /* the peer's HELLO is awaited */
    PEER_UP,
    PEER_DEAD, /* in the graveyard until nobody can hold the pointer */
};

enum frame_kind {
    FRAME_HELLO = 1,
    FRAME_REFUSE,  /* struct wire_refuse: no, and why */
    FRAME_MESSAGE, /* transport_send */
    FRAME_PING,    /* empty: I am alive */
    FRAME_FLUSH,   /* struct fabric_mark: tell me when this epoch has landed */
    FRAME_FLUSHED, /* uint32_t epoch, padding: it has */
    FRAME_AUTH,    /* these three: auth.h */
    FRAME_AUTH_REPLY,
    FRAME_AUTH_PROOF,
};

/* While PEER_GREETING: what is awaited. */
enum greeting_step {
    GREETING_HELLO,
    GREETING_AUTH,
    GREETING_AUTH_REPLY,
    GREETING_AUTH_PROOF,
};

struct peer {
    struct transport_peer base;
    struct ucx *ucx;
    struct peer *next;
    enum peer_state state;
    enum greeting_step step;
    struct auth_exchange auth; /* with a key: what both sides said */
    bool accepted;
    struct stream stream;
    bool watched_write;                   /* EPOLLOUT is on */
    struct addrinfo *addresses, *address; /* to try; the one being tried */
    int64_t begun_us, heard_us, sent_us;
    struct fabric_link *link; /* NULL until the first write on an accepted connection */
    struct fabric_inbox *inbox;
    uint8_t *hello; /* copy of the peer's HELLO: `greeting` points into it */
    struct handshake greeting;
    enum status failing; /* ST_OK: it is not; else it goes down in this or the next progress */
    struct error why;
};

struct ucx {
    struct transport_options options;
    bool has_key;
    uint8_t key[TRANSPORT_KEY_BYTES];
    struct fabric *fabric; /* NULL without region */
    struct peer *peers, *graveyard;
    uint32_t accepted_greeting; /* strangers that have not shaken hands */
    int epoll_fd, listen_fd, timer_fd, more_fd, device_fd;
    bool more; /* more_fd is set */
    bool listen_paused, in_progress;
    bool ticking, tick; /* the timer runs; it has run out */
    int64_t now_us;
};

/* Makes transport_fd readable: there is something to do that no descriptor tells. */
void ucx_more(struct ucx *ucx);

struct peer *peer_connect(struct ucx *ucx, const char *address, void *user, struct error *error);
void peer_accept(struct ucx *ucx, int fd);
/* Without callback. The memory stays until the next progress. */
void peer_end(struct peer *peer);

/* The peer goes down with this reason (the first counts), from progress. */
void peer_fail(struct peer *peer, enum status why, const struct error *error);

/* Its socket has something. */
void peer_ready(struct peer *peer, uint32_t epoll_events);
/* Flushes that are done, epochs that have landed, links that failed. True: there was something. */
bool peer_settle(struct peer *peer);
/* Reports and ends a failing peer. */
void peer_finish(struct peer *peer);
/* Deadlines and heartbeats. */
void peer_tick(struct peer *peer);

/* --- ucx_greet.c --- */

/* The socket is connected, or was accepted: begins the greeting. */
void peer_greet(struct peer *peer);
/* A frame of a peer that is not up yet. */
void peer_greet_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes);
/* The most that a frame may have now: a stranger makes us hold little. */
size_t peer_greet_bytes_max(const struct peer *peer);
/* It has not proved our key yet, and went wrong: says so in *error, which has how. */
void peer_greet_explain(const struct peer *peer, struct error *error);
/* Tells the peer why, and fails it. */
void peer_refuse(struct peer *peer, enum status why, const struct error *error);
/* It has refused us. */
void peer_refused(struct peer *peer, const uint8_t *data, size_t bytes);

enum status peer_send(struct peer *peer, enum frame_kind kind, const void *data, size_t bytes);
/* The link for writing, opened if need be; NULL: the peer is failing. */
struct fabric_link *peer_link(struct peer *peer);

#endif
