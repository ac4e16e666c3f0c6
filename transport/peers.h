/* peers: the structs of a UCX transport and its connections, shared by ucx.c (the transport's calls
 * and event loop), ucx_peer.c (life of one connection), ucx_greet.c (start of a connection: proofs
 * and hand-shake), ucx_prove.c (the proof that UCX reaches the peer), ucx_linger.c (end of a
 * connection), ucx_key.c (another cluster key for connections that are up) and ucx_data.c (data
 * connections). Only these files and tests include it. They run on the one thread that owns the
 * transport. They move no KV themselves (fabric.h) and do not read messages (message.h). */
#ifndef TRANSPORT_PEERS_H
#define TRANSPORT_PEERS_H

#include "transport/address.h"
#include "transport/auth.h"
#include "transport/fabric.h"
#include "transport/handshake.h"
#include "transport/resolver.h"
#include "transport/stream.h"
#include "transport/transport_internal.h"

enum peer_state {
    PEER_CONNECTING, /* The host is being looked up, or the socket is not connected yet. */
    PEER_GREETING,   /* Proofs and HELLO are not done; see enum greeting_step. */
    /* Both sides have sent HELLO. The connecting side proves that its link works (ucx_prove.c). */
    PEER_PROVING,
    PEER_UP,
    /* The connection has ended for our caller, but the peer may still write into our memory: the
     * socket stays open until the peer closes it (ucx_linger.c). */
    PEER_LINGERING,
    /* The connection has ended. The struct stays in ucx.ended_peers until no function can hold a
     * pointer to it. */
    PEER_DEAD,
};

enum frame_kind {
    FRAME_HELLO = 1,
    FRAME_REFUSE,  /* struct wire_refuse: the connection is refused, with the reason. */
    FRAME_MESSAGE, /* Payload of transport_send. */
    FRAME_PING,    /* No payload: proof that the sender is alive. */
    FRAME_FLUSH,   /* struct fabric_mark: send FLUSHED when this epoch has landed. */
    FRAME_FLUSHED, /* uint32_t epoch, then padding: the epoch has landed. */
    FRAME_AUTH,    /* See auth.h for the three AUTH kinds. */
    FRAME_AUTH_REPLY,
    FRAME_AUTH_PROOF,
    /* No payload: open data connections, because the sender of this frame wants to write. */
    FRAME_DATA_WANTED,
    FRAME_DATA, /* See ucx_data.c for the frames of data connections. */
    FRAME_WRITE,
    FRAME_TAKEN,
    FRAME_KEY,       /* struct wire_key of ucx_key.c: the sender proves a cluster key. */
    FRAME_KEY_REPLY, /* struct wire_key: the receiver of FRAME_KEY proves this key, too. */
    FRAME_LINK_SEEN, /* No payload: the message of the receiver's fabric_link_probe has arrived. */
    /* No payload, sent by the connecting side: its link works, or it writes nothing. Both sides are
     * now up. */
    FRAME_LINK_READY,
};

/* The frame that a peer in PEER_GREETING must send next. */
enum greeting_step {
    GREETING_HELLO,
    GREETING_TLS, /* No frame yet: the TLS hand-shake is under way. */
    GREETING_AUTH,
    GREETING_AUTH_REPLY,
    GREETING_AUTH_PROOF,
};

/* A connection: a control connection or a data connection. */
struct peer {
    struct transport_peer base;
    struct ucx *ucx;
    struct peer *next;
    enum peer_state state;
    enum greeting_step step;
    /* With a cluster key: names, roles and nonces of both sides. */
    struct auth_exchange auth_exchange;
    uint8_t key_id[SECRET_KEY_ID_BYTES]; /* The cluster key that the peer has proved last. */
    int64_t key_by_us; /* Deadline for the proof of a key in ucx.keys; 0 = none. */
    bool accepted;     /* The peer has connected to us. */
    struct stream stream;
    uint32_t epoll_events;          /* Epoll events that the socket is watched for. */
    bool resolving;                 /* resolver_find is looking up `host`. */
    struct address host;            /* Host and port to connect to. */
    struct address_found addresses; /* Socket addresses of `host`. */
    uint32_t address_index;         /* Index in `addresses` of the address that is tried now. */
    /* Times at which the connection began, at which bytes were received last, and at which a frame
     * was sent last. */
    int64_t begun_us, heard_us, sent_us;
    int64_t proving_us; /* Time at which PEER_PROVING began. */
    bool link_seen;     /* The peer has received the probe of `link` or `candidate`. */
    /* Writes to the peer. On an accepted connection: NULL until the first write. */
    struct fabric_link *link;
    /* A link over UCX that is being proved while the writes of `link` travel over data connections;
     * NULL = none. */
    struct fabric_link *candidate;
    int64_t retry_us;        /* Time at which the next candidate is opened; 0 = never. */
    uint32_t retry_pause_ms; /* Time from the last failure to retry_us. */
    struct fabric_inbox *inbox;
    uint8_t *hello_frame; /* Copy of the peer's HELLO; hello_fields points into this copy. */
    struct handshake hello_fields;
    /* Data connection: the control connection that it belongs to. NULL = this is a control
     * connection. */
    struct peer *control;
    uint32_t data_count; /* Control connection: number of its data connections. */
    /* Data connections were opened, or the peer was asked to open them. */
    bool data_opened;
    /* Data connection: it is not read now (data_connection_may_receive). */
    bool read_paused;
    /* Work is left that epoll does not report: received data in the stream's buffer, or a step of
     * the TLS hand-shake. */
    bool input_left;
    /* Data connection: bytes of WRITE frames that were sent, and that the peer has reported as
     * taken; bytes that were received, and that we have reported as taken. */
    uint64_t sent_bytes, taken_bytes, received_bytes, reported_bytes;
    /* ST_OK = the connection works. Any error: peer_failure_report ends it in this or the next
     * progress. */
    enum status failing;
    struct error failure;
    bool writes_directly; /* See fabric_writes_directly. */
    bool same_host;       /* The peer is, or may be, on this host (fabric_writes_directly). */
    bool writes_awaited;  /* The caller waits for the event writes_ended. */
};

/* A transport. */
struct ucx {
    struct transport_options options;
    bool has_key;
    struct secret_keys keys;
    struct tls_keys *tls_keys; /* NULL = no key. */
    /* Number of steps of TLS hand-shakes that this iteration may still make. */
    uint32_t handshakes_left;
    int64_t turn_end_us;   /* Time at which progress returns at the latest. */
    struct fabric *fabric; /* NULL = no region. */
    struct resolver *resolver;
    struct peer *peers, *lingering, *ended_peers;
    uint32_t lingering_count;
    uint64_t connections;       /* Number of the connection that began last. */
    uint32_t accepted_greeting; /* Accepted peers that have not finished the hand-shake. */
    int epoll_fd, listen_fd, timer_fd, more_fd, device_fd;
    bool work_signalled; /* more_fd is readable (ucx_work_signal). */
    bool listen_paused, in_progress;
    bool timer_runs, timer_expired; /* timer_expired: deadlines must be checked. */
    int64_t now_us;                 /* Time at which this call or iteration of progress began. */
};

/* Makes transport_fd readable. Call it when work is left that no other descriptor reports. */
void ucx_work_signal(struct ucx *ucx);

/* ---- ucx_linger.c ---- */

/* Returns true if as many connections linger as may linger. */
bool linger_full(const struct ucx *ucx);
/* See transport_writes_await. */
bool linger_await(struct peer *peer);
/* Closes the link and the socket of a peer whose connection ends; the socket of a peer that lingers
 * stays open for reading. Sets the peer's state to PEER_LINGERING or PEER_DEAD. */
void linger_begin(struct peer *peer);
/* Handles an epoll event of a lingering peer's socket. */
void linger_socket_ready(struct peer *peer);
/* Closes all lingering connections, because the transport closes. */
void linger_close(struct ucx *ucx);

/* ---- ucx_peer.c ---- */

/* Begins to connect. Returns NULL with an error if the address is invalid or memory is short; later
 * failures are reported as peer_down. */
struct peer *peer_connect(struct ucx *ucx, const char *address, void *user, struct error *error);
/* Continues the look-up of the peer's host, and connects if the addresses are known now. */
void peer_resolve(struct peer *peer);
/* Takes over an accepted socket and begins its greeting. */
void peer_accept(struct ucx *ucx, int fd);
/* Ends the connection without a callback. The peer's memory stays valid at least until the next
 * progress. */
void peer_end(struct peer *peer);

/* Marks the peer as failing. Progress reports peer_down with this reason; the first reason
 * counts. */
void peer_fail(struct peer *peer, enum status why, const struct error *error);

/* Handles epoll events of the peer's socket. */
void peer_socket_ready(struct peer *peer, uint32_t epoll_events);
/* Reports finished flushes, confirms landed epochs and detects failed links. Returns true if
 * anything changed. */
bool peer_progress(struct peer *peer);
/* Reports peer_down for a failing peer and ends it. */
void peer_failure_report(struct peer *peer);
/* Sets the epoll events of the socket to those that the peer needs now. */
void peer_epoll_update(struct peer *peer);
/* Checks deadlines and sends heartbeats. */
void peer_deadlines_check(struct peer *peer);

/* ---- ucx_greet.c ---- */

/* Continues the TLS hand-shake. Returns true if frames can be read. */
bool peer_greet_tls(struct peer *peer);
/* Begins the greeting. Requires a connected or accepted socket. */
void peer_greet(struct peer *peer);
/* Handles a frame of a peer that is not up yet. */
void peer_greet_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes);
/* Returns the largest payload in bytes that the peer may send now: less before the peer has proved
 * the key. */
size_t peer_greet_bytes_max(const struct peer *peer);
/* Refuses a peer that began TLS with a process that has no key. */
void peer_greet_foreign(struct peer *peer);
/* Error text of both sides when their cluster keys differ. */
#define PEER_KEYS_DIFFER "the cluster keys differ (cluster/key_file)"
/* Adds to the error of a failing peer that the peer has not proved the cluster key yet. */
void peer_greet_explain(const struct peer *peer, struct error *error);
/* Sends REFUSE with the reason, and marks the peer as failing. */
void peer_refuse(struct peer *peer, enum status why, const struct error *error);
/* Handles REFUSE from the peer. */
void peer_refused(struct peer *peer, const uint8_t *data, size_t bytes);

/* ---- ucx_prove.c ---- */

/* Begins to prove the link of this side, if it has one. Call it when both HELLOs are exchanged. */
void prove_begin(struct peer *peer);
/* Handles a frame of a peer that is PEER_PROVING. */
void prove_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes);
/* Continues the proof after progress of UCX. Returns true if anything changed. */
bool prove_progress(struct peer *peer);
/* Ends a proof that takes longer than link_ms. */
void prove_deadline_check(struct peer *peer);
/* For peers that are up with a link over data connections: opens a candidate when it is time to try
 * UCX again, and closes one that takes longer than link_ms. */
void prove_again_tick(struct peer *peer);
/* Continues the proof of the candidate after progress of UCX, and replaces the link by a proved
 * candidate. Sends LINK_SEEN if a probe of the peer has arrived. Returns true if anything
 * changed. */
bool prove_again_progress(struct peer *peer);
/* Closes the candidate, if there is one. */
void prove_again_end(struct peer *peer);

/* ---- ucx_key.c ---- */

/* Replaces the cluster keys; see transport_keys_set. */
enum status ucx_keys_set(struct ucx *ucx, const struct secret_keys *keys, struct error *error);
/* Returns the key that the peer has proved last; NULL = the key was removed from ucx->keys. */
const struct secret_key *peer_key(const struct peer *peer);
/* If the key that the peer has proved last is not our first key, sends a proof of the first key. If
 * the proved key was removed, sets key_by_us. Call it when a peer has come up or the keys have
 * changed. */
void peer_key_renew(struct peer *peer);
/* Handles KEY and KEY_REPLY of a peer that is up. */
void peer_key_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes);
/* Fails a peer that has not proved a key of ucx->keys by key_by_us. */
void peer_key_tick(struct peer *peer);

/* ---- ucx_data.c ---- */

/* Opens the data connections of a control connection that is up. If the peer has connected to us,
 * asks the peer to open them. */
void data_connections_open(struct peer *control);
/* Sends DATA on a data connection that this side has opened. Call it after the proofs. */
void data_connection_begin(struct peer *peer);
/* Handles DATA, which makes an accepted connection a data connection. */
void data_connection_accept(struct peer *peer, const uint8_t *data, size_t bytes);
/* Call it when a connection ends. Removes a data connection from its control connection; ends the
 * data connections of a control connection. */
void data_connections_release(struct peer *peer);
/* Handles a frame of a data connection. */
void data_connection_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes);
/* Returns the largest payload in bytes of a frame of a data connection. */
size_t data_connection_frame_bytes_max(void);
/* Returns false while the data connection must not be read: too much received data waits for the
 * device, or the control connection is not up. */
bool data_connection_may_receive(const struct peer *peer);
/* Reports to the peer the bytes that were received since the last report. */
void data_connection_received(struct peer *peer);
/* Sends writes that wait for a data connection. Returns true if anything changed. */
bool data_connections_send(struct peer *peer);

/* Sends or queues a frame. Any error except ST_NO_RESOURCE for FRAME_MESSAGE marks the peer as
 * failing. */
enum status peer_send(struct peer *peer, enum frame_kind kind, const void *data, size_t bytes);
/* Opens the link for writing to the peer. `by_data`: over data connections. On an error returns
 * NULL and marks the peer as failing. */
struct fabric_link *peer_link_open(struct peer *peer, bool by_data);
/* Returns the link for writing to the peer, opened on first use. Returns NULL if the peer is
 * failing. */
struct fabric_link *peer_link(struct peer *peer);

#endif
