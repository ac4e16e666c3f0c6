/* fabric: moves KV: the UCX part of a transport, and copies between devices of one host. It owns
 * one UCX worker, the region that peers may write, a link for each peer whose region we write, and
 * an inbox for each peer that writes into our region. It owns every UCX object. It never calls
 * back: the caller polls after fabric_progress. The caller (ucx.c) handles connections, frames and
 * time. One thread makes every call. Only files of this folder include it.
 *
 * A write takes one of three ways, chosen per link. The first is used where it is possible, else
 * the choice between the other two depends on the transport that UCX has picked:
 * - Device to device (fabric_link_peer.c): both regions are memory of devices of one host, and our
 *   device can open the peer's region. Our device makes the copy, without UCX.
 * - Put: UCX writes straight into the remote memory (shared memory, InfiniBand). ucp_ep_flush
 *   reports when the data is there.
 * - Active messages, for TCP: the receiving fabric copies them into its region. UCX does not
 *   promise their order, so each message carries an epoch: the number of flushes issued before it.
 *   For a flush, the caller sends the peer a mark (the epoch and the number of its messages). The
 *   peer's inbox reports when an epoch and all epochs before it have landed.
 *
 * The region may be a device's memory. Where UCX has registered it, puts read and write it
 * directly. Everywhere else its bytes are staged through pinned host memory (fabric_staging.c): a
 * write is copied out of the device piece by piece and sent from pinned memory; a received message
 * is copied into the device, and counts as landed when that copy is done. */
#ifndef TRANSPORT_FABRIC_H
#define TRANSPORT_FABRIC_H

#include "transport/transport.h"

struct fabric;
struct fabric_link;
struct fabric_inbox;

/* Kind of memory of a region, as its writers must know it. */
enum fabric_memory {
    FABRIC_MEMORY_HOST,
    FABRIC_MEMORY_DEVICE, /* Memory of a device that UCX does not know: written by messages only. */
    FABRIC_MEMORY_CUDA,   /* Memory of a device that UCX has registered. */
};

#define FABRIC_HOST_BYTES 16
/* A write by messages is sent in pieces that fit one TCP segment of UCX (256 KiB), with the eager
 * protocol. Rendezvous is hardly faster, and lands in the region without calling our handler: even
 * after its connection has ended. */
#define FABRIC_PIECE_BYTES_MAX ((size_t)192 << 10)

/* Everything that a peer needs to write to us. The hand-shake carries it. Valid until
 * fabric_close. */
struct fabric_address {
    const void *worker; /* UCX worker address. */
    size_t worker_bytes;
    const void *rkey; /* Packed remote key of the region. */
    size_t rkey_bytes;
    uint64_t region; /* Address of the region in our process. */
    enum fabric_memory memory;
    uint64_t region_bytes;
    /* Identifies the host until it reboots; all zeros = unknown. */
    uint8_t host[FABRIC_HOST_BYTES];
    const void *handle;  /* Lets devices of this host open the region. */
    size_t handle_bytes; /* Up to DEVICE_HANDLE_BYTES_MAX; 0 = no handle. */
};

/* What a writer reports about a flushed epoch. */
struct fabric_mark {
    uint32_t epoch;
    uint32_t count; /* Number of messages of the epoch. */
};

struct fabric_options {
    uint64_t region_bytes;
    /* Device that the region is allocated from; NULL = host memory. Must outlive the fabric. */
    const struct device_memory *device;
    uint32_t copy_ms; /* A device copy that takes longer has failed. */
    bool share;       /* Peers on this host may open the device's memory. */
    bool encrypted;   /* Data connections are encrypted; for the name of the path. */
    /* Most bytes of a link that UCX has been given and has not finished; 0 = 8 MiB. */
    uint64_t window_bytes;
    /* See struct transport_options. */
    const char *ucx_tls;
    const char *ucx_devices;
    bool one_host;
    /* See struct transport_events. */
    bool (*write_wanted)(void *self, const struct transport_peer *peer,
                         const struct transport_request *request, uint64_t offset, uint64_t bytes);
    void *self;
};

enum status fabric_open(const struct fabric_options *options, struct fabric **out,
                        struct error *error);
void fabric_close(struct fabric *fabric); /* NULL is fine. Links and inboxes become invalid. */

void *fabric_region(struct fabric *fabric);
const struct fabric_address *fabric_address(const struct fabric *fabric);
/* Reports the kind of memory, why it is staged, and what copies took. */
void fabric_memory_state(const struct fabric *fabric, struct transport_memory *out);
/* Descriptor of UCX; -1 = UCX is not open. */
int fabric_fd(struct fabric *fabric);
/* A second descriptor to wait for: an eventfd of the region's device, which the caller reads; -1 =
 * none. */
int fabric_device_fd(struct fabric *fabric);
/* Fails links and inboxes whose device copies take too long. Call it periodically. */
void fabric_tick(struct fabric *fabric);
/* Returns whether anything was done. Call it until it returns false, then call fabric_arm. */
bool fabric_progress(struct fabric *fabric);
/* Returns true if the descriptor will become readable when there is work; false if there is already
 * more work, so that fabric_progress must be called again. */
bool fabric_arm(struct fabric *fabric);

/* ---- writing into a peer's region ---- */

/* Opens a link to the peer's region. `token` names the inbox that the peer keeps for us. `own`: the
 * link's writes travel over data connections, even if UCX may reach the peer. */
enum status fabric_link_open(struct fabric *fabric, const struct fabric_address *peer,
                             uint64_t token, bool own, struct fabric_link **out,
                             struct error *error);
/* Begins the proof that UCX reaches the peer over a network: an endpoint counts as open before it
 * has exchanged a byte. Sends a message that the peer's inbox reports (fabric_inbox_probed), and a
 * flush behind it. Returns false if there is nothing to prove: the link does not use UCX, or the
 * peer's region is mapped here. */
bool fabric_link_probe(struct fabric_link *link);
/* True if UCX has flushed the probe: the peer's hardware or worker has taken it. */
bool fabric_link_probed(const struct fabric_link *link);
/* The caller may not use the link afterwards. Later progress releases its UCX part. `fd` is a
 * descriptor of the connection to the peer (-1 = none), which is shut down for sending and closed
 * when no write of the link can land any more: so the end of the connection tells the peer. */
void fabric_link_close(struct fabric_link *link, int fd);
/* How the link's writes travel, for logs: "ucx put over sysv", "cuda ipc". */
const char *fabric_link_path(const struct fabric_link *link);
/* True if every write of the link has landed and every flush has been taken. */
bool fabric_link_idle(const struct fabric_link *link);
/* `link` takes the place of `before`, which is idle: the peer's inbox goes on counting epochs. Call
 * it before the first write of `link`. */
void fabric_link_follow(struct fabric_link *link, const struct fabric_link *before);
/* Why the device of a peer of this host is not written device to device; empty = it is, or there is
 * no such device. */
const char *fabric_link_note(const struct fabric_link *link);
/* Drops the writes that wait, then waits up to FABRIC_SETTLE_US for the copies that the device has
 * already been given (device to device only). Call it before other processes can learn that the
 * link is gone. If the device does not finish in time, it is unknown whether these writes land.
 * NULL is fine. */
void fabric_link_settle(struct fabric_link *link);
/* Shuts the connection down for sending and closes the descriptor: our writes have ended. -1 is
 * fine. */
void fabric_writes_end(int fd);
/* True if the peer may write into our region without us: it has mapped our memory, or uses RDMA.
 * *same_host_out: whether it is a process of this host, as far as is known. */
bool fabric_writes_directly(const struct fabric *fabric, const struct fabric_address *peer,
                            bool *same_host_out);
/* ST_OK, or the error that UCX or the device has reported on the link, with a text. */
enum status fabric_link_failed(const struct fabric_link *link, struct error *error);

/* ---- links over data connections ---- */

/* True if UCX does not reach the peer: the caller sends the link's writes over connections of its
 * own, and the receiver gives them to fabric_inbox_write. */
bool fabric_link_by_data(const struct fabric_link *link);

struct fabric_piece {
    struct transport_request request;
    uint64_t offset; /* In the peer's region. */
    uint32_t epoch;
    const uint8_t *memory;
    size_t bytes; /* FABRIC_PIECE_BYTES_MAX at most. */
};
/* Reads the next piece to send, in the order of the writes. Returns false if there is none. */
bool fabric_link_piece(const struct fabric_link *link, struct fabric_piece *out);
/* The caller has sent or copied the piece that fabric_link_piece returned; `bytes` is its size. */
void fabric_link_piece_sent(struct fabric_link *link, size_t bytes);

/* ---- writes ---- */

/* Begins a write. Never blocks; errors show in fabric_link_failed. `local` lies in our region. */
void fabric_link_write(struct fabric_link *link, const void *local, size_t bytes,
                       uint64_t remote_offset, const struct transport_request *request);
/* Begins a flush of all writes so far. If it returns true, the caller must send *mark_out to the
 * peer, and call fabric_link_confirm when the peer's inbox reports that the epoch has landed. */
bool fabric_link_flush(struct fabric_link *link, uint64_t cookie, struct fabric_mark *mark_out);
/* ST_INVALID = no flush awaits this epoch. */
enum status fabric_link_confirm(struct fabric_link *link, uint32_t epoch);
/* Takes the oldest flush if it is done, or in any case if `any` is set. Returns false if there is
 * none. Flushes are reported in the order of the calls. */
bool fabric_link_flushed(struct fabric_link *link, bool any, uint64_t *cookie_out);

/* ---- what a peer writes into our region ---- */

/* peer: first argument but one of write_wanted. */
enum status fabric_inbox_open(struct fabric *fabric, const struct transport_peer *peer,
                              struct fabric_inbox **out);
/* Later writes to this inbox are dropped. NULL is fine. */
void fabric_inbox_close(struct fabric_inbox *inbox);
/* Returns true once after a probe of the peer's link has arrived. */
bool fabric_inbox_probed(struct fabric_inbox *inbox);
/* Writes what the peer has sent over a data connection. A write outside of the region fails the
 * inbox. A write that is not wanted counts as landed, and is dropped. */
void fabric_inbox_write(struct fabric_inbox *inbox, const struct fabric_piece *piece);
/* True if so much received data waits for the device that the caller must read no more of it from
 * data connections until the fabric has made progress. */
bool fabric_inboxes_full(const struct fabric *fabric);
/* Waits up to FABRIC_SETTLE_US for received data to land in the device. If the device does not
 * finish in time, it is unknown whether the data lands. After this call nothing of the inbox lands
 * until the next progress. NULL is fine. */
void fabric_inbox_settle(struct fabric_inbox *inbox);
/* The number that the peer puts into each message for this inbox. */
uint64_t fabric_inbox_token(const struct fabric_inbox *inbox);
/* Records how many messages an epoch has, as the peer's mark says. Returns ST_INVALID if the epoch
 * has passed or was marked before. */
enum status fabric_inbox_mark(struct fabric_inbox *inbox, struct fabric_mark mark,
                              struct error *error);
/* Takes the next epoch that has landed completely. Returns false if there is none. */
bool fabric_inbox_landed(struct fabric_inbox *inbox, uint32_t *epoch_out);
/* ST_OK, or the first error: a write outside of the region or in a wrong epoch, or a failed device
 * copy. */
enum status fabric_inbox_failed(const struct fabric_inbox *inbox, struct error *error);

#endif
