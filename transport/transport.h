/* transport: connections between the processes of a cluster, and one-sided writes of KV into a
 * peer's memory.
 *
 * Each connection has a TCP socket, on which control messages travel in order. The hand-shake
 * travels on this socket too, and the end of the socket shows at once that a process has died. KV
 * travels from device to device if both regions are in devices of one host; else over UCX (shared
 * memory, InfiniBand); else, if UCX does not reach the peer, over further TCP sockets (data
 * connections). With a cluster key, TCP sockets carry TLS.
 * docs/transport.md explains why a connection has two channels. A transport without a region, such
 * as the gateway's, does not open UCX.
 *
 * Machines, stage processes, the gateway, `cleave profile`, `cleave doctor` and benchmarks have
 * transports. One thread, usually an event loop, owns a transport and makes every call. Callbacks
 * run only inside transport_progress. The transport does not interpret messages (message.h does)
 * and makes no decision about requests: a write of KV is an offset and a size in a region. */
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

enum transport_role { TRANSPORT_GATEWAY = 1, TRANSPORT_MACHINE = 2 };

/* Which of LongRoPE's two lists of factors a machine computes with. The config chooses the list
 * (scheduler/context_tokens_max), so equal model files do not mean equal KV. */
enum transport_rope_list {
    TRANSPORT_ROPE_LIST_NONE, /* Another rotary embedding, or a gateway. */
    TRANSPORT_ROPE_LIST_SHORT,
    TRANSPORT_ROPE_LIST_LONG,
    TRANSPORT_ROPE_LIST_COUNT
};

/* What a process sends about itself in the hand-shake. Identities are compared before any message
 * is delivered. Between two machines, all fields from metadata_hash to rope_list must be equal.
 * Between a gateway and a machine, only metadata_hash must be equal, unless the gateway's is 0. In
 * addition, both processes must speak a common version of the protocol (protocol.h) and use the
 * same formats of hashes, two machines also the same format of KV (common/formats.h). A mismatch
 * ends the connection on both sides with ST_MISMATCH; the text names what differs and both
 * values. */
struct transport_identity {
    char name[LIMIT_NAME_BYTES];
    enum transport_role role;
    /* Hash of the model file's metadata and tensor table; 0 = a gateway that serves two versions of
     * its model (a model update) and compares the hashes itself. */
    uint64_t metadata_hash;
    struct digest model_hash; /* Hash of metadata and weights; zero for a gateway. */
    uint32_t layer_count;
    uint32_t block_tokens;
    /* Size of one layer of a block with all KV heads, even if the process holds only some. */
    uint64_t block_bytes;
    char kv_dtype[8]; /* How K and V are stored, such as "i16", with its NUL. */
    enum transport_rope_list rope_list;
};

/* A peer's KV region, from its hand-shake. bytes 0 = no region: gateways, and heads of machines
 * with stages, whose stage processes have the blocks. A head with tiers has a region for its stage
 * processes only (machine/executor/staging.h). */
struct transport_region_info {
    uint64_t bytes;
    uint32_t block_count;
    uint64_t layer_stride_bytes;
};

struct transport;
struct transport_peer;

/* The request that a write of KV belongs to, so that the receiver can check the write; id 0 = no
 * request, for writes of other data. */
struct transport_request {
    uint64_t id;
    uint32_t generation;
};

struct transport_events {
    /* The hand-shake is done: messages and writes may be sent. transport_peer_user is what
     * transport_connect was given, or NULL for a peer that connected to us. */
    void (*peer_up)(void *self, struct transport_peer *peer);
    /* The connection has ended, or could not be opened. `why` is the reason: ST_UNREACHABLE,
     * ST_MISMATCH, ST_TIMED_OUT or another error; `text` names the peer's address or name.
     * Unfinished flushes are reported before this event. No other event for this peer follows,
     * except writes_ended, and the pointer is invalid after return. */
    void (*peer_down)(void *self, struct transport_peer *peer, enum status why, const char *text);
    /* A message has arrived. `data` is aligned to 8 bytes and valid during the call. */
    void (*message)(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes);
    /* ST_OK: every write to `peer` before transport_flush(…, cookie) is in the peer's memory, or
     * the peer has dropped it (write_wanted). Any other status: it is unknown which of these writes
     * are, and peer_down follows. */
    void (*flushed)(void *self, struct transport_peer *peer, uint64_t cookie, enum status status);
    /* Returns false for a write into our region that must be dropped; the flush of a dropped write
     * succeeds. Called for writes that arrive as active messages of UCX or over data connections,
     * not for those that the peer makes in our memory itself (shared memory, RDMA, a device). NULL
     * = every write inside the region is accepted. */
    bool (*write_wanted)(void *self, const struct transport_peer *peer,
                         const struct transport_request *request, uint64_t offset, uint64_t bytes);
    /* No write over the connection with this number can land any more. Called only if
     * transport_writes_await has returned true for the connection. */
    void (*writes_ended)(void *self, uint64_t number);
    /* Our writes to `peer` travelled over data connections, and now travel over UCX
     * (transport_peer_path). Writes and flushes that are under way continue. NULL = not
     * reported. */
    void (*path_changed)(void *self, struct transport_peer *peer);
};

struct transport_options {
    struct transport_identity identity;
    struct transport_events events;
    void *self; /* First argument of the events. */
    /* Highest version of the protocol to speak; 0 = TRANSPORT_PROTOCOL_VERSION, or what the
     * environment variable CLEAVE_PROTOCOL says, by which tests run a process as an older one. */
    uint32_t protocol_version;
    /* Size of the memory that peers may write; 0 = no region and no UCX (a gateway). */
    uint64_t region_bytes;
    /* Device whose memory the region is, used until transport_close; NULL = host memory. A copy
     * into or out of the device that takes longer than silence_ms fails the connection. */
    const struct device_memory *device;
    /* The layout of the region, which peers get in struct transport_region_info. */
    uint32_t block_count;
    uint64_t layer_stride_bytes;
    /* UCX_TLS: the transports that UCX may use, such as "tcp". NULL = shared memory, and between
     * hosts RDMA hardware. "none" = UCX is not opened. A peer that UCX does not reach is written
     * over data connections. */
    const char *ucx_tls;
    /* UCX_NET_DEVICES. NULL = the active RDMA devices of this host, or with ucx_tls all devices. */
    const char *ucx_devices;
    /* All peers are on this host, so UCX uses no network device except loopback. */
    bool one_host;
    /* Number of data connections to a peer whose KV does not travel over UCX; 0 = 2. */
    uint32_t data_connections;
    /* Most bytes on their way to a peer: sent over data connections and not yet taken by the peer,
     * or given to UCX and not yet finished; 0 = 8 MiB. */
    uint64_t data_window_bytes;
    uint32_t heartbeat_ms; /* A ping is sent if nothing was sent for this time; 0 = 1000. */
    uint32_t silence_ms;   /* A peer is down if nothing was received for this time; 0 = 5000. */
    uint32_t connect_ms;   /* Time for connecting and the hand-shake; 0 = 5000. */
    /* Time in which UCX must carry a first message to a peer and flush it; after that, writes to
     * the peer travel over data connections. 0 = 2000. */
    uint32_t link_ms;
    /* Time after which UCX is tried again for such a peer. Each failure doubles the time, up to 16
     * × link_retry_ms. 0 = 60,000. */
    uint32_t link_retry_ms;
    /* The cluster's keys, copied. Each side proves that it has one of them before anything else is
     * read, and sockets are encrypted. NULL = no key and no encryption: peers that have a key are
     * refused, and no peer may open a device's memory. */
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

/* Copies of one direction. */
struct transport_copy_counts {
    uint64_t bytes;
    uint64_t copies;
    int64_t busy_us; /* Time in which at least one copy was under way. */
};

/* The memory of our region, and the copies made so far. */
struct transport_memory {
    enum transport_memory_way way;
    /* For device memory: why the way is not TRANSPORT_WAY_DIRECT, or why peers cannot open the
     * region. Otherwise empty. */
    char why[128];
    /* Indexed by enum device_direction. */
    struct transport_copy_counts copy_counts[DEVICE_DIRECTIONS];
};

/* An implementation. Each function is described at the function transport_… of the same name
 * below. */
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

/* Most data connections to one peer. */
#define TRANSPORT_DATA_CONNECTIONS_MAX 16u

/* Returns true if UCX with these transports (transport_options.ucx_tls) may open a port without
 * access control: any computer that reaches the port could read and write the memory of this
 * process. */
bool transport_ucx_exposes(const char *ucx_tls);

/* Opens a transport without connections; *options is copied. An error says what failed. */
enum status transport_open(const struct transport_ops *ops, const struct transport_options *options,
                           struct transport **out, struct error *error);
/* Closes every connection without calling peer_down, and frees the region. NULL is fine. */
void transport_close(struct transport *t);

/* Accepts peers on "host:port" (IPv4, name or [IPv6]; port 0 = any free port). Call it at most
 * once. bound_out receives the numeric address and the port in use. Errors name the address
 * ("listen on 127.0.0.1:7400: address already in use"). */
enum status transport_listen(struct transport *t, const char *address,
                             char bound_out[LIMIT_ADDRESS_BYTES], struct error *error);

/* Begins to connect. Returns ST_OK: *out is the peer, and transport_progress later calls peer_up or
 * peer_down; after peer_up, peer_down may follow. Returns ST_INVALID if the address is not
 * "host:port" or memory is short: no callback follows. */
enum status transport_connect(struct transport *t, const char *address, void *user,
                              struct transport_peer **out, struct error *error);
/* Ends a connection. No event follows on this side, except writes_ended if transport_writes_await
 * has returned true; the other side gets peer_down. */
void transport_disconnect(struct transport *t, struct transport_peer *peer);

/* Sets the metadata_hash of our identity. Hand-shakes that are not finished use it; connections
 * that are up stay. */
void transport_metadata_hash_set(struct transport *t, uint64_t metadata_hash);

/* Replaces the cluster's keys. Connections stay up: if the key that was proved last on a connection
 * is not the first key, both sides prove the first key to each other. If the key that was proved
 * last is no longer among the keys, the connection goes down unless the peer proves one of the keys
 * within connect_ms. Requires that the transport was opened with keys. On an error nothing has
 * changed. */
enum status transport_keys_set(struct transport *t, const struct secret_keys *keys,
                               struct error *error);

/* Return the identity and the region of a peer; zero before the hand-shake. */
const struct transport_identity *transport_peer_identity(const struct transport_peer *peer);
const struct transport_region_info *transport_peer_region(const struct transport_peer *peer);
/* Returns the version of the protocol that the connection uses: the highest one that both sides
 * speak; 0 before the hand-shake. */
uint32_t transport_peer_version(const struct transport_peer *peer);
/* Returns true if the highest versions of both sides are equal. */
bool transport_peer_versions_equal(const struct transport_peer *peer);
/* Returns how writes travel, for logs and /metrics, such as "ucx put over sysv", "messages over
 * tls" or "cuda ipc". */
const char *transport_peer_path(const struct transport_peer *peer);
/* Returns why writes do not travel in a better way, such as that UCX did not reach the peer. Empty
 * = no reason. */
const char *transport_peer_note(const struct transport_peer *peer);
/* Returns the number of the connection, from 1, which no other connection of the transport has. */
uint64_t transport_peer_number(const struct transport_peer *peer);
/* Call it in peer_down, or just before transport_disconnect. Returns true if writes of the peer may
 * still land after the connection has ended: the peer writes into our memory itself (shared memory,
 * RDMA, a device), and has not closed the connection. `writes_ended` is then called when the
 * process of the peer has ended its writes and closed the connection, or has died; never, if the
 * network within this host has failed. */
bool transport_writes_await(struct transport *t, struct transport_peer *peer);
/* Return and set the caller's pointer that transport_connect was given; NULL at first for a peer
 * that has connected to us. */
void *transport_peer_user(const struct transport_peer *peer);
void transport_peer_set_user(struct transport_peer *peer, void *user);

/* Queues one message of at most LIMIT_MESSAGE_BYTES; the data is copied. Returns ST_NO_RESOURCE if
 * 64 MiB wait because the peer does not read: the caller should disconnect the peer. Returns
 * ST_TOO_LARGE for a larger message. After any other error the peer is not up or goes down. */
enum status transport_send(struct transport *t, struct transport_peer *peer, const void *data,
                           size_t bytes);

/* Begins a one-sided write of `bytes` from `local`, which lies in our own region, to
 * `remote_offset` in the peer's region. `local` must not change until a later flush has been
 * reported. No effect if `bytes` is 0. Returns ST_INVALID if the write is outside of the peer's
 * region, ST_UNREACHABLE if the peer is not up or goes down. */
enum status transport_write(struct transport *t, struct transport_peer *peer, const void *local,
                            size_t bytes, uint64_t remote_offset);
/* Does what transport_write does, for data of a request. */
enum status transport_write_for(struct transport *t, struct transport_peer *peer, const void *local,
                                size_t bytes, uint64_t remote_offset,
                                const struct transport_request *request);
/* Asks for a `flushed` event when all earlier writes to `peer` are in its memory. If the peer is
 * going down already, only peer_down follows. Requires that the peer has a region. */
void transport_flush(struct transport *t, struct transport_peer *peer, uint64_t cookie);

/* Returns the memory of our region, page-aligned and zeroed at first: host memory, or memory of
 * options.device. NULL = no region. */
void *transport_region(struct transport *t);
/* Stores the kind of memory of our region and the copies made so far. */
void transport_memory(struct transport *t, struct transport_memory *out);
/* Returns "host", "direct", "staged" or, for TRANSPORT_WAY_PEER, "ipc". */
const char *transport_memory_way_name(enum transport_memory_way way);

/* Returns a descriptor that is readable when transport_progress has work to do. Add it to an epoll,
 * level-triggered. */
int transport_fd(struct transport *t);
/* Does all work that is possible without waiting, calls the events, and arms the descriptor. Call
 * it when the descriptor is readable, and after calls that send or write. Returns after about 5 ms
 * at the latest; if work is left, the descriptor is readable. With a device, the end of a
 * connection may take up to 200 ms, for copies that have begun. Must not be called from an event.
 */
void transport_progress(struct transport *t);

#endif
