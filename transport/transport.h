/* transport: connections between the processes of a cluster, and one-sided writes of KV into a
 * peer's memory. A transport owns its connections and its region: the memory that peers may write.
 * A flush tells the writing side when its earlier writes are in the peer's memory. The transport
 * calls the user's functions (struct transport_events) inside transport_progress only.
 *
 * Gateways, machines, stage processes and tools open transports. One thread, usually an event loop,
 * owns a transport and makes every call. The transport does not read messages (message.h does) and
 * decides nothing about requests: a write of KV is an offset and a size in a region.
 *
 * Each connection has a TCP socket. Control messages travel on this socket in order, and the end of
 * the socket shows that a process has died. KV travels in the first of these ways that works: by
 * copies between devices of one host; over UCX (shared memory, InfiniBand); over separate TCP
 * sockets (data connections). With a cluster key, TCP sockets carry TLS. A transport without a
 * region, such as the gateway's, does not open UCX. */
#ifndef TRANSPORT_TRANSPORT_H
#define TRANSPORT_TRANSPORT_H

#include "common/device_memory.h"
#include "common/digest.h"
#include "common/limits.h"
#include "common/secret_keys.h"
#include "common/status.h"
#include "transport/protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a process is. TRANSPORT_MACHINE: any process that is not a gateway, also a stage process. */
enum transport_role { TRANSPORT_GATEWAY = 1, TRANSPORT_MACHINE = 2 };

/* LongRoPE has two lists of factors, and a machine computes with one of them. The config chooses
 * the list (scheduler/context_tokens_max), so equal model files do not mean equal KV. */
enum transport_rope_list {
    TRANSPORT_ROPE_LIST_NONE, /* A rotary embedding without such lists, or a gateway. */
    TRANSPORT_ROPE_LIST_SHORT,
    TRANSPORT_ROPE_LIST_LONG,
    TRANSPORT_ROPE_LIST_COUNT
};

/* What a process sends about itself in the hand-shake, with which a connection begins
 * (handshake.h). Identities are compared before any message is delivered. Between two machines, all
 * fields from metadata_hash to rope_list must be equal. Between a gateway and a machine, only
 * metadata_hash must be equal, unless one of the two hashes is 0. A connection also needs a common
 * version of the protocol (protocol.h) and equal formats of hashes, and between two machines equal
 * formats of KV (common/formats.h). A mismatch ends the connection on both sides with ST_MISMATCH.
 * The text names what differs and both values. */
struct transport_identity {
    char name[LIMIT_NAME_BYTES]; /* Name of the process in the cluster. */
    enum transport_role role;
    /* Hash of the model file's metadata and tensor table; 0 = the transport does not compare the
     * hashes, because the gateway does. */
    uint64_t metadata_hash;
    struct digest model_hash; /* Hash of metadata and weights; zero for a gateway. */
    uint32_t layer_count;
    uint32_t block_tokens;
    /* Size of one layer of a block with all KV heads, even if the process holds only some. */
    uint64_t block_bytes;
    char kv_dtype[8]; /* How K and V are stored, such as "i16", with its NUL. */
    enum transport_rope_list rope_list;
};

/* A peer's region, from its hand-shake. */
struct transport_region_info {
    uint64_t bytes;              /* Size of the region; 0 = the peer has no region. */
    uint32_t block_count;        /* Number of blocks in the region. */
    uint64_t layer_stride_bytes; /* Distance between the starts of consecutive layers. */
};

struct transport;
struct transport_peer; /* A connection and the process at its other end. */

/* The request that a write belongs to, by which the receiver can check the write; id 0 = none. */
struct transport_request {
    uint64_t id;
    uint32_t generation;
};

/* Functions of the transport's user. `self` is transport_options.self. */
struct transport_events {
    /* The connection is up: messages and writes may be sent. */
    void (*peer_up)(void *self, struct transport_peer *peer);
    /* The connection has ended, or did not come up (peer_up was not called). Either side may have
     * begun the connection. `why`: ST_UNREACHABLE, ST_MISMATCH, ST_TIMED_OUT or another error.
     * `text`: the name or address of the peer, and the reason. Unfinished flushes are reported
     * before this event. After this event, `peer` is invalid, and no event of the connection
     * follows except writes_ended. */
    void (*peer_down)(void *self, struct transport_peer *peer, enum status why, const char *text);
    /* A message has arrived. `data` is aligned to 8 bytes and valid during the call. */
    void (*message)(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes);
    /* A flush has ended. `cookie`: the number that transport_flush was given. ST_OK: every write to
     * `peer` before that transport_flush is in the peer's memory, or the peer has dropped it
     * (write_wanted). Any other status: it is unknown which of these writes have landed, and the
     * connection is ending. */
    void (*flushed)(void *self, struct transport_peer *peer, uint64_t cookie, enum status status);
    /* A piece of a write into our region has arrived: `bytes` at `offset` of the region. Returns
     * false if the piece must be dropped; the flush of a dropped write succeeds. Called if this
     * process copies the piece into the region (active messages of UCX, data connections). Not
     * called if the peer writes into our memory itself (shared memory, RDMA, a device). NULL =
     * every write inside the region is accepted. */
    bool (*write_wanted)(void *self, const struct transport_peer *peer,
                         const struct transport_request *request, uint64_t offset, uint64_t bytes);
    /* No write over the connection with this number (transport_peer_number) can still land; see
     * transport_writes_await. */
    void (*writes_ended)(void *self, uint64_t number);
    /* Our writes to `peer` travelled over data connections. From now on, writes travel over UCX
     * (transport_peer_path). NULL = not reported. */
    void (*path_changed)(void *self, struct transport_peer *peer);
};

struct transport_options {
    struct transport_identity identity;
    struct transport_events events;
    void *self; /* First argument of the events. */
    /* Highest version of the protocol to speak. 0 = the version in the environment variable
     * CLEAVE_PROTOCOL (for tests), or without this variable TRANSPORT_PROTOCOL_VERSION. */
    uint32_t protocol_version;
    /* Size of the region; 0 = no region and no UCX. */
    uint64_t region_bytes;
    /* The region is memory of this device, which must outlive the transport; NULL = host memory. A
     * copy into or out of the device that takes longer than silence_ms fails the connection. */
    const struct device_memory *device;
    /* Layout of the region. The transport only sends it to peers (struct transport_region_info). */
    uint32_t block_count;
    uint64_t layer_stride_bytes;
    /* UCX_TLS: the transports that UCX may use, such as "tcp". NULL = shared memory, RDMA hardware,
     * and CUDA if `device` is CUDA memory. "none" = UCX is not opened. */
    const char *ucx_tls;
    /* UCX_NET_DEVICES: the network devices that UCX may use. NULL or empty = the active RDMA
     * devices of this host, or with ucx_tls all devices. */
    const char *ucx_devices;
    /* All peers are on this host: UCX uses no network device except loopback. */
    bool one_host;
    /* Number of data connections to a peer that UCX does not reach, at most
     * TRANSPORT_DATA_CONNECTIONS_MAX; 0 = 2. */
    uint32_t data_connections;
    /* Limit of the bytes on their way to a peer: sent over data connections and not yet taken by
     * the peer, or given to UCX and not yet finished. One piece per data connection, or one write
     * over UCX, may always be on its way. 0 = 8 MiB. */
    uint64_t data_window_bytes;
    uint32_t heartbeat_ms; /* A ping is sent if nothing was sent for this time; 0 = 1000. */
    uint32_t silence_ms;   /* A peer is down if nothing was received for this time; 0 = 5000. */
    uint32_t connect_ms;   /* Time for look-up, connecting and hand-shake; 0 = 5000. */
    /* Time in which UCX must carry a first message to a peer to which we have connected; otherwise
     * writes to the peer travel over data connections. 0 = 2000. */
    uint32_t link_ms;
    /* Time after which UCX is tried again for a peer to which UCX carried no message. Each failure
     * doubles the time, up to 16 × link_retry_ms. 0 = 60,000. */
    uint32_t link_retry_ms;
    /* The cluster's keys, copied. Sockets are encrypted, and both sides prove that they have one of
     * these keys before the connection is up. NULL = no key and no encryption: peers that have a
     * key are refused, and no peer may open a device's memory. */
    const struct secret_keys *keys;
};

/* Where our region is, and how data is copied into and out of the region. */
enum transport_memory_way {
    TRANSPORT_WAY_HOST, /* The region is host memory. */
    /* Device memory, which UCX reads and writes if the transport to the peer allows it. */
    TRANSPORT_WAY_DIRECT,
    TRANSPORT_WAY_STAGED, /* Device memory; all data goes through pinned host memory. */
    /* Device memory; devices of this host copy into each other's memory, all other data goes
     * through pinned host memory. */
    TRANSPORT_WAY_PEER,
};

/* Copies in one direction between a region in device memory and other memory. */
struct transport_copy_counts {
    uint64_t bytes;
    uint64_t copies;
    int64_t busy_us; /* Time in which at least one copy was under way. */
};

/* Where our region is, and counts of the copies that are done. */
struct transport_memory {
    enum transport_memory_way way;
    /* For device memory: why `way` is not TRANSPORT_WAY_DIRECT, or why the device could not share
     * the region with peers; empty = neither. For host memory: empty. */
    char why[128];
    /* Indexed by enum device_direction. */
    struct transport_copy_counts copy_counts[DEVICE_DIRECTIONS];
};

/* An implementation of a transport. The function transport_NAME below describes the function NAME;
 * transport_write_for describes `write`. `impl` is what `open` has stored in *impl_out. */
struct transport_ops {
    const char *name;
    enum status (*open)(const struct transport_options *options, void **impl_out,
                        struct error *error);
    void (*close)(void *impl);
    enum status (*listen)(void *impl, const char *address, char bound_out[LIMIT_ADDRESS_BYTES],
                          struct error *error);
    enum status (*connect)(void *impl, const char *address, void *user, struct transport_peer **out,
                           struct error *error);
    void (*disconnect)(void *impl, struct transport_peer *peer);
    enum status (*send)(void *impl, struct transport_peer *peer, const void *data, size_t bytes);
    enum status (*write)(void *impl, struct transport_peer *peer, const void *local, size_t bytes,
                         uint64_t remote_offset, const struct transport_request *request);
    void (*flush)(void *impl, struct transport_peer *peer, uint64_t cookie);
    void *(*region)(void *impl);
    int (*fd)(void *impl);
    void (*progress)(void *impl);
    void (*metadata_hash_set)(void *impl, uint64_t metadata_hash);
    void (*memory)(void *impl, struct transport_memory *out);
    bool (*writes_await)(void *impl, struct transport_peer *peer);
    enum status (*keys_set)(void *impl, const struct secret_keys *keys, struct error *error);
};

/* The implementation over UCX and TCP (ucx.c). */
extern const struct transport_ops transport_ucx;

/* Most data connections of one control connection. */
#define TRANSPORT_DATA_CONNECTIONS_MAX 16u

/* Returns true if UCX with these transports (transport_options.ucx_tls) may open a port without
 * access control, or if a transport is unknown. Any computer that reaches such a port could read
 * and write the memory of this process. NULL = the default transports, which open no such port. */
bool transport_ucx_exposes(const char *ucx_tls);

/* Opens a transport without connections; *options is copied. The caller calls transport_close.
 * Returns ST_INVALID for a protocol version that this program does not speak, or if ucx_tls or the
 * environment variable CLEAVE_KV_WRITE is not valid; another error if memory, descriptors, the
 * keys, UCX or the device fail. */
enum status transport_open(const struct transport_ops *ops, const struct transport_options *options,
                           struct transport **out, struct error *error);
/* Closes all connections without events, and frees the region. Waits up to 2 s until UCX has closed
 * its endpoints. NULL is accepted. Must not be called from an event. */
void transport_close(struct transport *t);

/* Begins to accept peers on "host:port" (IPv4, name or [IPv6]; port 0 = any free port). Requires
 * that the transport does not listen yet. Blocks while a host name is looked up. bound_out receives
 * the numeric address and the port in use. Returns the errors of address_listen (address.h). */
enum status transport_listen(struct transport *t, const char *address,
                             char bound_out[LIMIT_ADDRESS_BYTES], struct error *error);

/* Begins to connect to "host:port". `user`: what transport_peer_user returns. ST_OK: *out is the
 * peer, and transport_progress later calls peer_up or peer_down. ST_INVALID: the address is not
 * "host:port", or memory is short; no event follows. */
enum status transport_connect(struct transport *t, const char *address, void *user,
                              struct transport_peer **out, struct error *error);
/* Ends a connection. The other side gets peer_down. On this side, `peer` is then invalid, and no
 * event of the connection follows except writes_ended (transport_writes_await). */
void transport_disconnect(struct transport *t, struct transport_peer *peer);

/* Sets the metadata_hash of our identity, for later hand-shakes. Connections that are up stay. */
void transport_metadata_hash_set(struct transport *t, uint64_t metadata_hash);

/* Replaces the cluster's keys. Requires that the transport was opened with keys; `keys` is copied.
 * A connection that is up stays up if `keys` has the key that the peer has proved last. Otherwise,
 * the connection goes down unless the peer proves one of `keys` within connect_ms. Returns
 * ST_NO_MEMORY, or ST_UNSUPPORTED if GnuTLS fails; nothing has then changed. */
enum status transport_keys_set(struct transport *t, const struct secret_keys *keys,
                               struct error *error);

/* Returns the identity of a peer; zero before the hand-shake. Valid as long as the peer. */
const struct transport_identity *transport_peer_identity(const struct transport_peer *peer);
/* Returns the region of a peer; zero before the hand-shake. Valid as long as the peer. */
const struct transport_region_info *transport_peer_region(const struct transport_peer *peer);
/* Returns the version of the protocol that the connection uses: the highest version that both sides
 * speak; 0 before the hand-shake. */
uint32_t transport_peer_version(const struct transport_peer *peer);
/* Returns true if the highest versions of both sides are equal. */
bool transport_peer_versions_equal(const struct transport_peer *peer);
/* Returns how writes to the peer travel, for logs and /metrics, such as "ucx put over sysv",
 * "messages over tls", "cuda ipc" or "messages only" (no writes). */
const char *transport_peer_path(const struct transport_peer *peer);
/* Returns why writes to the peer do not travel in a faster way, for example because UCX does not
 * reach the peer. Empty = no reason is known. */
const char *transport_peer_note(const struct transport_peer *peer);
/* Returns the number of the connection, from 1, which no other connection of the transport has. */
uint64_t transport_peer_number(const struct transport_peer *peer);
/* Call this function in peer_down, or just before transport_disconnect. Returns true if writes of
 * the peer may still land after the connection has ended: the peer writes into our memory itself
 * (shared memory, RDMA, a device), and has not closed or reset the connection. A peer on another
 * host whose socket has failed counts as dead: the result is false.
 *
 * If the result is true, the event writes_ended follows when the peer has ended its writes and
 * closed the connection, or has died or counts as dead. The event does not follow if the socket of
 * a peer on this host has failed or fails later (except by a reset), or if the transport is closed
 * first. */
bool transport_writes_await(struct transport *t, struct transport_peer *peer);
/* Returns a pointer of the caller: the pointer of the last transport_peer_set_user; before that,
 * the `user` of transport_connect, or NULL for a peer that has connected to us. */
void *transport_peer_user(const struct transport_peer *peer);
/* Sets the pointer that transport_peer_user returns. */
void transport_peer_set_user(struct transport_peer *peer, void *user);

/* Sends or queues one message of at most LIMIT_MESSAGE_BYTES; `data` is copied. Returns
 * ST_NO_RESOURCE if 64 MiB wait because the peer does not read them: the caller should disconnect
 * the peer. Returns ST_TOO_LARGE for a larger message. After any other error the peer is not up or
 * goes down. */
enum status transport_send(struct transport *t, struct transport_peer *peer, const void *data,
                           size_t bytes);

/* Begins a one-sided write of `bytes` bytes from `local`, which must be in our own region, to
 * `remote_offset` in the peer's region. The bytes at `local` must not change until a later flush
 * has been reported. 0 bytes have no effect. Returns ST_INVALID if the write is not inside the
 * peer's region, ST_UNREACHABLE if the peer is not up or goes down. */
enum status transport_write(struct transport *t, struct transport_peer *peer, const void *local,
                            size_t bytes, uint64_t remote_offset);
/* Does what transport_write does, and names the request of the data for the peer's write_wanted. */
enum status transport_write_for(struct transport *t, struct transport_peer *peer, const void *local,
                                size_t bytes, uint64_t remote_offset,
                                const struct transport_request *request);
/* Asks for the event `flushed` when all earlier writes to `peer` are in the peer's memory.
 * `cookie`: any number, which the event repeats. Requires that the peer is up and that both sides
 * have a region. If the peer goes down, peer_down may follow without `flushed`. */
void transport_flush(struct transport *t, struct transport_peer *peer, uint64_t cookie);

/* Returns the memory of our region (host memory, or memory of options.device), page-aligned and
 * zeroed at first; NULL = no region. */
void *transport_region(struct transport *t);
/* Stores where our region is, and counts of the copies that are done. */
void transport_memory(struct transport *t, struct transport_memory *out);
/* Returns "host", "direct", "staged" or, for TRANSPORT_WAY_PEER, "ipc". */
const char *transport_memory_way_name(enum transport_memory_way way);

/* Returns a descriptor for epoll (level-triggered): readable if transport_progress has work. */
int transport_fd(struct transport *t);
/* Does the work that is possible without waiting, and calls the events. Call this function when the
 * descriptor is readable, and after calls that send or write. Begins no more work after about 5 ms;
 * the descriptor stays readable if work is left. If the region is a device's memory and a
 * connection ends, this function, transport_disconnect and transport_close may wait for copies that
 * have begun: up to 200 ms for received data, and up to 200 ms for copies to another device. Must
 * not be called from an event. */
void transport_progress(struct transport *t);

#endif
