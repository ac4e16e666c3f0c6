/* peers: the structs of a UCX transport and of its connections, and the functions that the files of
 * this transport share: ucx.c (the transport's calls and event loop), ucx_peer.c (life of one
 * connection), ucx_greet.c (start of a connection: proofs and hand-shake), ucx_prove.c (proof that
 * UCX reaches the peer), ucx_linger.c (end of a connection), ucx_key.c (change of the cluster key
 * of connections that are up) and ucx_data.c (data connections).
 *
 * A control connection carries messages. If UCX does not reach the peer, the control connection
 * gets data connections, which carry KV over TCP. A struct ucx owns its connections. Each
 * connection owns its socket; each control connection also owns its links and its inbox. The link
 * writes KV into the peer's region, and the inbox receives what the peer writes into our region.
 * The fabric chooses how KV travels (fabric.h). These files do not read messages (message.h).
 *
 * A probe is a first message over UCX, which proves that a link reaches the peer.
 *
 * The one thread that owns the transport makes every call. */
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
    /* A control connection on which HELLO has arrived. The connecting side may have to prove that
     * its link works. The accepting side waits for FRAME_LINK_READY (ucx_prove.c). */
    PEER_PROVING,
    PEER_UP,
    /* The connection has ended, but the peer may still write into our memory (ucx_linger.c). */
    PEER_LINGERING,
    /* The connection has ended for good. The struct stays valid until the next progress. */
    PEER_DEAD,
};

enum frame_kind {
    FRAME_HELLO = 1, /* See handshake.h. */
    FRAME_REFUSE,    /* struct wire_refuse: why the sender ends the connection. */
    FRAME_MESSAGE,   /* Payload of transport_send. */
    FRAME_PING,      /* No payload: proof that the sender is alive. */
    /* struct fabric_mark: send FLUSHED when the writes of this epoch (fabric.h) have landed. */
    FRAME_FLUSH,
    FRAME_FLUSHED, /* uint32_t epoch, then uint32_t 0: the writes of this epoch have landed. */
    FRAME_AUTH,    /* See auth.h for AUTH, AUTH_REPLY and AUTH_PROOF. */
    FRAME_AUTH_REPLY,
    FRAME_AUTH_PROOF,
    /* No payload: open data connections, because the sender of this frame wants to write. */
    FRAME_DATA_WANTED,
    FRAME_DATA, /* See ucx_data.c for DATA, WRITE and TAKEN, the frames of data connections. */
    FRAME_WRITE,
    FRAME_TAKEN,
    FRAME_KEY,       /* struct wire_key of ucx_key.c: the sender proves a cluster key. */
    FRAME_KEY_REPLY, /* struct wire_key: the receiver of FRAME_KEY proves this key, too. */
    FRAME_LINK_SEEN, /* No payload: the probe that the receiver of this frame sent has arrived. */
    /* No payload: the connecting side, which sends this frame, is up. */
    FRAME_LINK_READY,
};

/* The frame that a peer in PEER_GREETING must send next, unless it sends REFUSE. */
enum greeting_step {
    GREETING_HELLO, /* HELLO, or DATA on a data connection. */
    GREETING_TLS,   /* No frame yet: the TLS hand-shake is under way. */
    GREETING_AUTH,
    GREETING_AUTH_REPLY,
    GREETING_AUTH_PROOF,
};

/* A connection: a control connection or a data connection. */
struct peer {
    struct transport_peer base;
    struct ucx *ucx;
    struct peer *next; /* Next in the same list of struct ucx. */
    enum peer_state state;
    enum greeting_step step; /* Used in PEER_GREETING. */
    /* With a cluster key: what the proofs of both sides cover. */
    struct auth_exchange auth_exchange;
    uint8_t key_id[SECRET_KEY_ID_BYTES]; /* Id of the cluster key that the peer has proved last. */
    int64_t key_by_us; /* Deadline for the proof of a key in ucx.keys; 0 = none. */
    bool accepted;     /* The peer has connected to us. */
    struct stream stream;
    uint32_t epoll_events; /* Epoll events that the socket is watched for. */
    /* If this side has connected: */
    bool resolving;                 /* resolver_find is looking up `host`. */
    struct address host;            /* Host and port to connect to. */
    struct address_found addresses; /* Socket addresses of `host`. */
    uint32_t address_index;         /* Index in `addresses` of the address that is tried now. */
    /* begun_us: time at which the connection began. heard_us: time at which bytes were received
     * last. sent_us: time at which peer_send last sent a frame. */
    int64_t begun_us, heard_us, sent_us;
    int64_t proving_us; /* Time at which PEER_PROVING or the proof of `candidate` began. */
    /* LINK_SEEN has arrived; false again when a candidate is opened. LINK_SEEN may also answer the
     * probe of a link that was closed. */
    bool link_seen;
    struct fabric_link *link; /* The link for writing to the peer; NULL = not open. */
    /* A link over UCX that is being proved while `link` uses data connections; NULL = none. */
    struct fabric_link *candidate;
    int64_t retry_us;        /* Time from which a candidate may be opened; 0 = never. */
    uint32_t retry_pause_ms; /* Time from the last failure to retry_us; 0 = no failure yet. */
    /* What the peer writes into our region; NULL = none. */
    struct fabric_inbox *inbox;
    uint8_t *hello_frame; /* Copy of the peer's HELLO; hello_fields points into this copy. */
    struct handshake hello_fields;
    /* Data connection: its control connection. NULL = this is a control connection. */
    struct peer *control;
    uint32_t data_count; /* Control connection: number of its data connections. */
    /* Control connection: a side has opened its data connections, or we have sent DATA_WANTED. */
    bool data_opened;
    /* Data connection: it is not read now (data_connection_may_receive). */
    bool read_paused;
    /* Work is left that epoll does not report: received data in the stream's buffer, or a step of
     * the TLS hand-shake. */
    bool input_left;
    /* Data connection, payloads of WRITE frames. sent_bytes: bytes that were sent. taken_bytes:
     * sent bytes that the peer has reported as taken. received_bytes: bytes that were received.
     * reported_bytes: received bytes that we have reported as taken. */
    uint64_t sent_bytes, taken_bytes, received_bytes, reported_bytes;
    /* ST_OK = the connection works. Any error: progress will call peer_failure_report. */
    enum status failing;
    struct error failure; /* Why the connection is failing. */
    bool writes_directly; /* See fabric_writes_directly. */
    bool same_host;       /* The peer is, or may be, on this host (fabric_writes_directly). */
    bool writes_awaited;  /* The connection will linger (PEER_LINGERING) when it has ended. */
};

/* A transport. */
struct ucx {
    struct transport_options options;
    bool has_key; /* The transport was opened with cluster keys. */
    struct secret_keys keys;
    struct tls_keys *tls_keys; /* NULL = no cluster key. */
    /* Number of steps of TLS hand-shakes that this iteration may still make. */
    uint32_t handshakes_left;
    int64_t turn_end_us;   /* Time from which progress begins no more work. */
    struct fabric *fabric; /* NULL = no region. */
    struct resolver *resolver;
    /* Lists of the connections. lingering: connections in PEER_LINGERING; ended_peers: connections
     * in PEER_DEAD; peers: all other connections, the newest first. */
    struct peer *peers, *lingering, *ended_peers;
    uint32_t lingering_count;
    uint64_t connections;       /* Number of the connection that began last. */
    uint32_t accepted_greeting; /* Accepted connections in PEER_GREETING. */
    /* epoll_fd watches the other descriptors and all sockets. listen_fd: -1 = none. more_fd: see
     * ucx_work_signal. device_fd: see fabric_device_fd; -1 = none. */
    int epoll_fd, listen_fd, timer_fd, more_fd, device_fd;
    bool work_signalled; /* more_fd is readable (ucx_work_signal). */
    /* Index of the epoll event with which the next iteration begins: 0, or the first event that the
     * last iteration left. */
    uint32_t event_first;
    /* listen_paused: no connection is accepted until the next timer event, because descriptors or
     * memory are short. in_progress: transport_progress is running. */
    bool listen_paused, in_progress;
    bool timer_runs, timer_expired; /* timer_expired: deadlines must be checked. */
    /* Time at which an iteration of progress last began or ended, or of the last call of
     * transport_open, transport_connect or transport_keys_set. */
    int64_t now_us;
};

/* Makes transport_fd readable. Call this function when work is left that no descriptor reports. */
void ucx_work_signal(struct ucx *ucx);

/* ---- ucx_linger.c ---- */

/* Returns true if the largest number of connections (256) linger. */
bool linger_full(const struct ucx *ucx);
/* See transport_writes_await. */
bool linger_await(struct peer *peer);
/* Ends the stream and the links of a peer whose connection ends. The socket is closed for sending
 * when the writes of this side have ended. Sets the state to PEER_LINGERING, and keeps the socket
 * open for reading, if writes_awaited is true and there is a socket; else sets PEER_DEAD. */
void linger_begin(struct peer *peer);
/* Reads and drops what has arrived from a lingering peer. If the peer has closed or reset the
 * connection, or if the socket has failed, ends the connection and calls the event writes_ended.
 * Exception: if the peer is on this host and the socket has failed without a reset, there is no
 * event. */
void linger_socket_ready(struct peer *peer);
/* Closes all lingering connections without an event, because the transport closes. */
void linger_close(struct ucx *ucx);

/* ---- ucx_peer.c ---- */

/* Begins to connect. Returns NULL with an error if the address is invalid or memory is short. Any
 * later failure marks the peer as failing (peer_fail). */
struct peer *peer_connect(struct ucx *ucx, const char *address, void *user, struct error *error);
/* Continues a look-up of the peer's host. If the look-up has ended, connects or marks the peer as
 * failing. Does nothing if there is no look-up. */
void peer_resolve(struct peer *peer);
/* Begins a connection with an accepted socket, and takes over the socket. Closes the socket if
 * memory is short. */
void peer_accept(struct ucx *ucx, int fd);
/* Ends the connection, and with a control connection its data connections, without an event. The
 * struct stays valid until the next progress. */
void peer_end(struct peer *peer);

/* Marks the peer as failing. Progress then ends the connection (peer_failure_report). Only the
 * first reason is kept. No effect if the connection has ended. */
void peer_fail(struct peer *peer, enum status why, const struct error *error);

/* Handles epoll events of the peer's socket. */
void peer_socket_ready(struct peer *peer, uint32_t epoll_events);
/* Does the work of a connection that no event of its socket reports, such as finished flushes,
 * landed epochs, failed links, proofs and queued KV. Returns true if anything changed. */
bool peer_progress(struct peer *peer);
/* Ends a failing connection. Of a control connection, first reports the unfinished flushes, then
 * peer_down. Of a data connection, marks the control connection as failing, too. */
void peer_failure_report(struct peer *peer);
/* Sets the epoll events of the socket to those that the peer needs now. */
void peer_epoll_update(struct peer *peer);
/* Call this function at each timer event. Fails a peer whose deadline has passed, sends a PING if
 * it is time, and continues the look-up of the host and the search for a faster link. */
void peer_deadlines_check(struct peer *peer);

/* ---- ucx_greet.c ---- */

/* Continues the TLS hand-shake. Returns true if frames can be read now: the hand-shake is done, or
 * the other side does not speak TLS. */
bool peer_greet_tls(struct peer *peer);
/* Begins the greeting: TLS if there is a cluster key; else the connecting side sends HELLO or DATA.
 * Requires a connected or accepted socket. */
void peer_greet(struct peer *peer);
/* Handles a frame of a peer in PEER_GREETING. */
void peer_greet_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes);
/* Returns the largest payload in bytes that a peer that is not up may send now. With a cluster key,
 * the limit is lower until the peer has proved the key. */
size_t peer_greet_bytes_max(const struct peer *peer);
/* Refuses a peer that has a cluster key, because this process has none. */
void peer_greet_foreign(struct peer *peer);
/* Error text of both sides when their cluster keys differ. */
#define PEER_KEYS_DIFFER "the cluster keys differ (cluster/key_file)"
/* If the peer has not proved the cluster key yet, says so in `error`. */
void peer_greet_explain(const struct peer *peer, struct error *error);
/* Sends REFUSE with the reason, and marks the peer as failing. */
void peer_refuse(struct peer *peer, enum status why, const struct error *error);
/* Handles REFUSE: marks the peer as failing with the reason that the peer has sent. */
void peer_refused(struct peer *peer, const uint8_t *data, size_t bytes);

/* ---- ucx_prove.c ---- */

/* Begins PEER_PROVING. Call this function when the peer's HELLO has arrived. The connecting side
 * opens its link if both sides have a region. If the link needs no proof, or if there is no link,
 * the connecting side is up at once. */
void prove_begin(struct peer *peer);
/* Handles a frame of a peer in PEER_PROVING. */
void prove_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes);
/* In PEER_PROVING: continues the proof after progress of UCX. Returns true if anything changed. */
bool prove_progress(struct peer *peer);
/* In PEER_PROVING: replaces a link whose proof takes longer than link_ms by a link over data
 * connections. Fails a peer that has been proving for longer than connect_ms + link_ms. */
void prove_deadline_check(struct peer *peer);
/* In PEER_UP: opens a candidate when it is time to try UCX again, and closes a candidate whose
 * proof takes longer than link_ms. */
void prove_again_tick(struct peer *peer);
/* In PEER_UP, after progress of UCX. The connecting side continues the proof of the candidate, and
 * replaces the link by a proved candidate when no write of the link is under way. The accepting
 * side sends LINK_SEEN if a probe of the peer has arrived. Returns true if anything changed. */
bool prove_again_progress(struct peer *peer);
/* Closes the candidate, if there is one. */
void prove_again_end(struct peer *peer);

/* ---- ucx_key.c ---- */

/* Replaces the cluster keys; see transport_keys_set. */
enum status ucx_keys_set(struct ucx *ucx, const struct secret_keys *keys, struct error *error);
/* Returns the key that the peer has proved last; NULL = ucx->keys does not have this key. */
const struct secret_key *peer_key(const struct peer *peer);
/* Call this function when a peer has come up, or when the keys have changed. If the key that the
 * peer has proved last is not our first key, sends a proof of our first key. If ucx->keys does not
 * have the proved key, also sets key_by_us. */
void peer_key_renew(struct peer *peer);
/* Handles KEY and KEY_REPLY of a peer that is up. A frame with an unknown key is ignored. */
void peer_key_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes);
/* Fails a peer that has not proved a key of ucx->keys by key_by_us. */
void peer_key_tick(struct peer *peer);

/* ---- ucx_data.c ---- */

/* Opens the data connections of a control connection that is up. If the peer has connected to us,
 * asks the peer to open them. No effect if data_opened is true. */
void data_connections_open(struct peer *control);
/* Sends DATA, after the proofs, on a data connection that this side has opened. */
void data_connection_begin(struct peer *peer);
/* Handles DATA, which makes an accepted connection a data connection of the control connection that
 * the frame names. Refuses the peer if this control connection does not exist or is full. */
void data_connection_accept(struct peer *peer, const uint8_t *data, size_t bytes);
/* Call this function when a connection ends. Removes a data connection from its control connection,
 * or ends the data connections of a control connection. */
void data_connections_release(struct peer *peer);
/* Handles a frame of a data connection. */
void data_connection_frame(struct peer *peer, uint32_t kind, const uint8_t *data, size_t bytes);
/* Returns the largest payload in bytes of a frame of a data connection. */
size_t data_connection_frame_bytes_max(void);
/* Returns false while the data connection must not be read: too much received data waits for the
 * device, or the control connection is failing or not up. */
bool data_connection_may_receive(const struct peer *peer);
/* Sends TAKEN if bytes were received since the last TAKEN. */
void data_connection_received(struct peer *peer);
/* Sends writes of the control connection's link over this data connection, and ends a pause in
 * reading if data_connection_may_receive returns true. Returns true if anything changed. */
bool data_connection_send(struct peer *peer);

/* ---- ucx_peer.c ---- */

/* Sends or queues a frame (stream_send). An error marks the peer as failing, except ST_NO_RESOURCE
 * for FRAME_MESSAGE. */
enum status peer_send(struct peer *peer, enum frame_kind kind, const void *data, size_t bytes);
/* Opens the link for writing to the peer, and sets the peer's path and note. `by_data`: the writes
 * must travel over data connections. On an error returns NULL and marks the peer as failing. */
struct fabric_link *peer_link_open(struct peer *peer, bool by_data);
/* Returns the link for writing to the peer, and opens it on the first call. Returns NULL if the
 * peer is failing. Requires that both sides have a region. */
struct fabric_link *peer_link(struct peer *peer);

#endif
