/* peers: shared by ucx.c (life of a transport, its calls and loop), ucx_peer.c (life of one
 * connection), ucx_greet.c (start of a connection: proofs and hand-shake), ucx_prove.c (whether UCX
 * reaches the peer), ucx_linger.c (its end),
 * ucx_key.c (another cluster key for connections that are up) and ucx_data.c (data connections).
 * Only these files include it. The one thread that owns the transport runs all of it. It moves no
 * KV itself (fabric.h) and gives messages no meaning (message.h). */
#ifndef TRANSPORT_PEERS_H
#define TRANSPORT_PEERS_H

#include "transport/address.h"
#include "transport/auth.h"
#include "transport/fabric.h"
#include "transport/handshake.h"
#include "transport/names.h"
#include "transport/stream.h"
#include "transport/transport_internal.h"

enum peer_state {
    PEER_CONNECTING, /* The host is being looked up, or the socket is not connected yet. */
    PEER_GREETING,   /* Before the peer's HELLO; see enum greeting_step. */
    PEER_PROVING,    /* Both HELLOs are exchanged. The connecting side proves its link. */
    PEER_UP,
    /* The connection has ended here, but its peer may still write into our memory: the socket stays
     * until the other side closes it (see ucx_linger.c). */
    PEER_LINGERING,
    PEER_DEAD, /* In the graveyard until no caller can hold the pointer. */
};

enum frame_kind {
    FRAME_HELLO = 1,
    FRAME_REFUSE,  /* struct wire_refuse: the connection is refused, with the reason. */
    FRAME_MESSAGE, /* Payload of transport_send. */
    FRAME_PING,    /* No payload: proof that the sender is alive. */
    FRAME_FLUSH,   /* struct fabric_mark: report when this epoch has landed. */
    FRAME_FLUSHED, /* uint32_t epoch, then padding: the epoch has landed. */
    FRAME_AUTH,    /* See auth.h for the three AUTH kinds. */
    FRAME_AUTH_REPLY,
    FRAME_AUTH_PROOF,
    FRAME_DATA_WANTED, /* No payload: open data connections, because the sender wants to write. */
    FRAME_DATA,        /* See ucx_data.c for the frames of data connections. */
    FRAME_WRITE,
    FRAME_TAKEN,
    FRAME_KEY,       /* struct wire_key of ucx_key.c: the sender proves a cluster key. */
    FRAME_KEY_REPLY, /* As FRAME_KEY: the receiver of FRAME_KEY proves the same key. */
    FRAME_LINK_SEEN, /* No payload: a probe of the receiver's link has arrived. */
    /* No payload: the connecting side has a link that works, or writes nothing. Both sides are
     * up. */
    FRAME_LINK_READY,
};

/* The frame that is awaited while PEER_GREETING. */
enum greeting_step {
    GREETING_HELLO,
    GREETING_TLS, /* No frame: the TLS hand-shake is under way. */
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
    struct auth_exchange auth;           /* With a key: what both sides have said of themselves. */
    uint8_t key_id[SECRET_KEY_ID_BYTES]; /* The cluster key that the peer has proved last. */
    int64_t key_by_us; /* When the peer must have proved a present key; 0 = no limit. */
    bool accepted;
    struct stream stream;
    uint32_t watched;               /* The epoll events that the socket is watched for. */
    bool resolving;                 /* `host` is being looked up. */
    struct address host;            /* Where to connect to. */
    struct address_found addresses; /* The addresses to try … */
    uint32_t address;               /* … and the index of the one being tried. */
    int64_t begun_us, heard_us, sent_us;
    int64_t proving_us;       /* When PEER_PROVING began. */
    bool link_seen;           /* The peer has received the probe of our link or candidate. */
    struct fabric_link *link; /* On an accepted connection: NULL until the first write. */
    /* A link over UCX that is being proved while `link` goes over data connections; NULL = none. */
    struct fabric_link *candidate;
    int64_t retry_us;     /* When the next candidate is opened; 0 = never. */
    uint32_t retry_in_ms; /* How long after the latest failure that is. */
    struct fabric_inbox *inbox;
    uint8_t *hello; /* Copy of the peer's HELLO; `greeting` points into it. */
    struct handshake greeting;
    /* A data connection: the connection that it belongs to. NULL = not a data connection. */
    struct peer *control;
    uint32_t data_count; /* Data connections that belong to this one. */
    bool data_opened;    /* Data connections were opened or asked for. */
    bool read_paused;    /* A data connection: too much received data waits for the device. */
    /* There is work of which epoll does not know: received data in the stream, or a step of the TLS
     * hand-shake. */
    bool input_left;
    /* A data connection: bytes of WRITE frames, sent and known to have been taken by the peer;
     * received, and reported to the peer. */
    uint64_t sent_bytes, taken_bytes, received_bytes, reported_bytes;
    /* ST_OK = not failing. Else the peer goes down in this or the next progress. */
    enum status failing;
    struct error why;
    bool writes_directly; /* See fabric_writes_directly. */
    bool same_host;
    bool writes_awaited; /* The caller awaits writes_ended. */
};

struct ucx {
    struct transport_options options;
    bool has_key;
    struct secret_keys keys;
    struct tls_keys *tls_keys; /* NULL = no key. */
    uint32_t handshakes_left;  /* Steps of TLS hand-shakes that this iteration may still make. */
    int64_t turn_end_us;       /* When progress returns. */
    struct fabric *fabric;     /* NULL = no region. */
    struct names *names;
    struct peer *peers, *lingering, *graveyard;
    uint32_t lingering_count;
    uint64_t connections;       /* Number of the latest connection. */
    uint32_t accepted_greeting; /* Accepted peers that have not finished the hand-shake. */
    int epoll_fd, listen_fd, timer_fd, more_fd, device_fd;
    bool more; /* more_fd is readable. */
    bool listen_paused, in_progress;
    bool ticking, tick; /* The timer runs; the timer has expired. */
    int64_t now_us;
};

/* Makes transport_fd readable because there is work that no other descriptor reports. */
void ucx_more(struct ucx *ucx);

/* ---- ucx_linger.c ---- */

/* True if no further connections may linger. */
bool linger_full(const struct ucx *ucx);
/* See transport_writes_await. */
bool linger_await(struct peer *peer);
/* Ends the socket and the link of a peer that ends. The peer's state is then PEER_LINGERING or
 * PEER_DEAD. */
void linger_begin(struct peer *peer);
/* Handles an event of the socket of a peer that lingers. */
void linger_ready(struct peer *peer);
void linger_close(struct ucx *ucx); /* The transport closes. */

/* ---- ucx_peer.c ---- */

/* Begins to connect. Returns NULL for an unusable address or without memory; later failures are
 * reported as peer_down. */
struct peer *peer_connect(struct ucx *ucx, const char *address, void *user, struct error *error);
/* Connects if the addresses of the peer's host are known now. */
void peer_resolve(struct peer *peer);
/* Takes over an accepted socket and begins its greeting. */
void peer_accept(struct ucx *ucx, int fd);
/* Ends the connection without a callback. The peer's memory stays valid until the next progress. */
void peer_end(struct peer *peer);

/* Marks the peer as failing. Progress reports peer_down with this reason; the first reason
 * counts. */
void peer_fail(struct peer *peer, enum status why, const struct error *error);

/* Handles an event of the peer's socket. */
void peer_ready(struct peer *peer, uint32_t epoll_events);
/* Reports finished flushes, confirms landed epochs and detects failed links. Returns whether
 * anything happened. */
bool peer_settle(struct peer *peer);
/* Reports peer_down for a failing peer and ends it. */
void peer_finish(struct peer *peer);
/* Has epoll watch the socket for what the peer waits for. */
void peer_watch(struct peer *peer);
/* Checks deadlines and sends heartbeats. */
void peer_tick(struct peer *peer);

/* ---- ucx_greet.c ---- */

/* Continues the TLS hand-shake. Returns true if frames can be read. */
bool peer_greet_tls(struct peer *peer);
/* Begins the greeting. Requires a connected or accepted socket. */
void peer_greet(struct peer *peer);
/* Handles a frame of a peer that is not up yet. */
void peer_greet_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes);
/* The largest frame that the peer may send now. It is small for a stranger. */
size_t peer_greet_bytes_max(const struct peer *peer);
/* Refuses a peer that began TLS with a process that has no key. */
void peer_greet_foreign(struct peer *peer);
/* Text for both logs when a peer has another key. */
#define PEER_KEYS_DIFFER "the cluster keys differ (cluster/key_file)"
/* Adds to the error of a failing peer that the peer has not proved the cluster key yet. */
void peer_greet_explain(const struct peer *peer, struct error *error);
/* Sends REFUSE with the reason, and marks the peer as failing. */
void peer_refuse(struct peer *peer, enum status why, const struct error *error);
/* Handles REFUSE from the peer. */
void peer_refused(struct peer *peer, const uint8_t *data, size_t bytes);

/* ---- ucx_prove.c ---- */

/* Both HELLOs are exchanged: begins to prove the link that this side writes over, if any. */
void prove_begin(struct peer *peer);
/* Handles a frame of a peer that is PEER_PROVING. */
void prove_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes);
/* Takes what UCX did. Returns whether anything happened. */
bool prove_settle(struct peer *peer);
/* Checks the time that the proof may take. */
void prove_tick(struct peer *peer);
/* For peers that are up: replaces a link over data connections by one over UCX once UCX reaches the
 * peer. */
void prove_again_tick(struct peer *peer);
/* Takes what UCX did with the candidate, or reports a probe of the peer's. Returns whether anything
 * happened. */
bool prove_again_settle(struct peer *peer);
/* Closes the candidate, if there is one. */
void prove_again_end(struct peer *peer);

/* ---- ucx_key.c ---- */

/* Replaces the cluster keys; see transport_keys_set. */
enum status ucx_keys_set(struct ucx *ucx, const struct secret_keys *keys, struct error *error);
/* Returns the key that the peer has proved; NULL = the key is gone. */
const struct secret_key *peer_key(const struct peer *peer);
/* A peer has come up, or the keys have changed: if the key that the peer has proved last is not the
 * first one, sends a proof of the first key. If that key is gone, sets key_by_us. */
void peer_key_renew(struct peer *peer);
/* Handles KEY and KEY_REPLY of a peer that is up. */
void peer_key_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes);
/* Fails a peer that has not proved a present key in time. */
void peer_key_tick(struct peer *peer);

/* ---- ucx_data.c ---- */

/* Opens the data connections of a connection that is up, or asks the other side to. */
void data_open(struct peer *control);
/* Sends DATA: the key is proved on the data connection that this side has opened. */
void data_begin(struct peer *peer);
/* Handles DATA, which makes an accepted connection a data connection. */
void data_accept(struct peer *peer, const uint8_t *data, size_t bytes);
/* A connection ends: it leaves its control connection, and its data connections end. */
void data_detach(struct peer *peer);
void data_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes);
size_t data_frame_bytes_max(void);
/* False while received data must stay in the network. */
bool data_may_receive(const struct peer *peer);
void data_received(struct peer *peer); /* All data that was there has been read. */
/* Sends what waits for a data connection. Returns whether anything was done. */
bool data_send_waiting(struct peer *peer);

/* Queues a frame. On an error other than a full queue for FRAME_MESSAGE, the peer is marked as
 * failing. */
enum status peer_send(struct peer *peer, enum frame_kind kind, const void *data, size_t bytes);
/* Opens the link for writing to the peer. `own`: without UCX. Returns NULL if it cannot; then the
 * peer is failing. */
struct fabric_link *peer_link_open(struct peer *peer, bool own);
/* Returns the link for writing to the peer, opened on first use. Returns NULL if the peer is
 * failing. */
struct fabric_link *peer_link(struct peer *peer);

#endif
