/* transport: connections between the processes of a cluster, and one-sided writes of KV into a
 * peer's memory.
 *
 * Each pair of processes has one connection. Control messages travel in order on a TCP socket,
 * which also carries the hand-shake and tells at once when a process has died; KV travels over UCX
 * (shared memory, TCP, InfiniBand), whose endpoint is made from the worker address that the
 * hand-shake brought, or from device to device where both are of one computer. Why two channels:
 * docs/transport.md. A peer that only exchanges messages (the gateway) opens no UCX at all.
 *
 * One event loop thread owns a transport and makes every call. Callbacks run inside
 * transport_progress only. It does not know requests: messages are bytes (message.h gives them
 * meaning), and KV is (offset, bytes) in a region. */
#ifndef TRANSPORT_TRANSPORT_H
#define TRANSPORT_TRANSPORT_H

#include "common/device_memory.h"
#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRANSPORT_PROTOCOL_VERSION 9
#define TRANSPORT_KEY_BYTES        32

enum transport_role { TRANSPORT_GATEWAY = 1, TRANSPORT_MACHINE = 2 };

/* What each side says of itself and what is compared before any message is delivered. Between two
 * machines all of metadata_hash … kv_dtype and the protocol version must be equal; with a gateway,
 * which reads no weights, only metadata_hash and the protocol version. A mismatch ends the
 * connection on both sides with ST_MISMATCH and a text that names the field and both values. */
struct transport_identity {
    char name[LIMIT_NAME_BYTES];
    enum transport_role role;
    uint64_t metadata_hash; /* of the model file's metadata and tensor table; 0: of a gateway that
                               serves two models and compares by itself */
    uint64_t model_hash;    /* of that and the weights; 0: of a gateway */
    uint32_t layer_count;
    uint32_t block_tokens;
    uint64_t block_bytes; /* of one layer, with all KV heads: whatever part of them it has */
    char kv_dtype[8];     /* "i16", NUL included: how K and V are stored */
};

/* A peer's KV region, as its hand-shake described it (bytes 0: it has none; the blocks of a machine
 * with stages are in the regions of these). */
struct transport_region_info {
    uint64_t bytes;
    uint32_t block_count;
    uint64_t layer_stride_bytes;
};

struct transport;
struct transport_peer;

struct transport_events {
    /* The hand-shake is done: messages and writes may be sent. `user` is what connect was given, or
     * NULL for a peer that connected to us; transport_peer_set_user changes it. */
    void (*peer_up)(void *self, struct transport_peer *peer);
    /* The connection ended, or never came up (why: ST_UNREACHABLE, ST_MISMATCH, ST_TIMED_OUT …;
     * text names the peer's address or name). No callback for this peer follows; unflushed writes
     * will not be reported. The pointer is invalid after return. */
    void (*peer_down)(void *self, struct transport_peer *peer, enum status why, const char *text);
    void (*message)(void *self, struct transport_peer *peer, const uint8_t *data, size_t bytes);
    /* Every write to `peer` that was issued before transport_flush(…, cookie) is in the peer's
     * memory (ST_OK), or cannot be known to be (any other status; the peer goes down next). */
    void (*flushed)(void *self, struct transport_peer *peer, uint64_t cookie, enum status status);
};

struct transport_options {
    struct transport_identity identity;
    struct transport_events events;
    void *self;            /* given to the events */
    uint64_t region_bytes; /* memory that peers may write; 0: none and no UCX (a gateway) */
    /* Whose memory the region is (kept, and used as long as the transport lives); NULL: the host's.
     * A copy in or out of it that takes longer than silence_ms fails the connection. */
    const struct device_memory *device;
    uint32_t block_count; /* told to peers (struct transport_region_info) */
    uint64_t layer_stride_bytes;
    const char *ucx_tls;     /* UCX_TLS for this transport, such as "tcp"; NULL: UCX's choice */
    const char *ucx_devices; /* UCX_NET_DEVICES; "lo" keeps UCX's own sockets off the network */
    uint32_t heartbeat_ms;   /* a ping after so much silence; 0: 1000 */
    uint32_t silence_ms;     /* a peer that is silent for so long is down; 0: 5000 */
    uint32_t connect_ms;     /* connect and hand-shake must be done by then; 0: 5000 */
    /* The cluster's key (copied): every peer proves that it has the same one, and we prove it to
     * them, before anything else is read. NULL: none, and peers that have one are refused; then
     * nobody is let into a device's memory. */
    const uint8_t *key;
};

/* Where our region is, how peers' writes and ours go in and out of it, and what that took. */
enum transport_way {
    TRANSPORT_WAY_HOST,   /* the region is the host's memory */
    TRANSPORT_WAY_DIRECT, /* a device's, which UCX writes and reads where a peer's path allows it */
    TRANSPORT_WAY_STAGED, /* a device's: all goes through pinned memory of the host */
    TRANSPORT_WAY_PEER,   /* likewise, but devices of this computer copy into each other's memory */
};

struct transport_copied {
    uint64_t bytes;
    uint64_t copies;
    int64_t busy_us; /* some copy was under way */
};

struct transport_memory {
    enum transport_way way;
    char why[128];                                     /* not direct; else empty */
    struct transport_copied copied[DEVICE_DIRECTIONS]; /* by enum device_direction */
};

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
                         uint64_t remote_offset);
    void (*flush)(void *impl, struct transport_peer *peer, uint64_t cookie);
    void *(*region)(void *impl);
    int (*fd)(void *impl);
    void (*progress)(void *impl);
    void (*expect)(void *impl, uint64_t metadata_hash);
    void (*memory)(void *impl, struct transport_memory *out);
};

extern const struct transport_ops transport_ucx;
/* In one process, for tests: transports that name each other by the address given to listen.
 * Deterministic; can be told to delay, drop and cut (transport_loopback.h). */
extern const struct transport_ops transport_loopback;

enum status transport_open(const struct transport_ops *ops, const struct transport_options *options,
                           struct transport **out, struct error *error);
/* Closes every connection (no peer_down is called) and frees the region. NULL is fine. */
void transport_close(struct transport *t);

/* Accepts peers on "host:port" (IPv4, name or [IPv6]; port 0: any). bound_out says which. Errors
 * name the address ("listen on 127.0.0.1:7400: address already in use"). */
enum status transport_listen(struct transport *t, const char *address,
                             char bound_out[LIMIT_ADDRESS_BYTES], struct error *error);

/* Begins to connect: exactly one of peer_up or peer_down follows, later, from transport_progress.
 */
enum status transport_connect(struct transport *t, const char *address, void *user,
                              struct transport_peer **out, struct error *error);
/* Ends a connection on purpose: no callback follows; the other side sees peer_down. */
void transport_disconnect(struct transport *t, struct transport_peer *peer);

/* The metadata_hash of our identity, for connections that begin from now on. */
void transport_expect(struct transport *t, uint64_t metadata_hash);

const struct transport_identity *transport_peer_identity(const struct transport_peer *peer);
const struct transport_region_info *transport_peer_region(const struct transport_peer *peer);
const char *transport_peer_address(const struct transport_peer *peer);
/* How writes travel: "ucx put over posix", "ucx am over tcp", "cuda ipc", "loopback". For logs and
 * /metrics. */
const char *transport_peer_path(const struct transport_peer *peer);
/* Why writes to a peer of this computer do not go from device to device, though both sides would;
 * empty: they do, or could not. */
const char *transport_peer_note(const struct transport_peer *peer);
void *transport_peer_user(const struct transport_peer *peer);
void transport_peer_set_user(struct transport_peer *peer, void *user);

/* Queues one message (copied; up to LIMIT_MESSAGE_BYTES). ST_NO_RESOURCE: the peer has not read for
 * so long that the queue limit (64 MiB) is reached: treat it as failed. ST_UNREACHABLE: it is going
 * down. */
enum status transport_send(struct transport *t, struct transport_peer *peer, const void *data,
                           size_t bytes);

/* Begins a one-sided write of `bytes` from `local` (inside our own region) to offset remote_offset
 * of the peer's region. `local` must stay unchanged until a later flush has been reported.
 * ST_INVALID: outside of the peer's region. */
enum status transport_write(struct transport *t, struct transport_peer *peer, const void *local,
                            size_t bytes, uint64_t remote_offset);
void transport_flush(struct transport *t, struct transport_peer *peer, uint64_t cookie);

/* Our region's memory (page-aligned, zeroed, readable by compute: the host's or options.device's),
 * or NULL. */
void *transport_region(struct transport *t);
void transport_memory(struct transport *t, struct transport_memory *out);
const char *transport_way_name(enum transport_way way); /* "host", "direct", "staged", "ipc" */

/* A descriptor that becomes readable when there is something to do (put it in an epoll,
 * level-triggered). */
int transport_fd(struct transport *t);
/* Does all that can be done without waiting and calls the events; leaves the descriptor armed. Call
 * it when the descriptor is readable, and after calls that send or write. Never blocks. */
void transport_progress(struct transport *t);

#endif
