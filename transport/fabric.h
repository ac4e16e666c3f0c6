/* fabric: the part of a transport that moves KV, by UCX or by copies between devices of one host.
 * It owns all UCX objects (with one worker), the region that peers may write, a link for each peer
 * whose region this process writes, and an inbox for each peer that writes into this region. The
 * fabric's only callback is write_wanted; the caller asks for all other results after
 * fabric_progress. The UCX transport (ucx*.c) makes every call, on the one thread that owns the
 * transport. The fabric handles no connections, frames or timers (peers.h).
 *
 * A link writes in one of four ways: from device to device if the devices allow it; over data
 * connections if UCX does not reach the peer; otherwise by puts or by active messages, as the
 * transport that UCX has chosen allows:
 *
 * - Device to device (fabric_link_peer.c): both regions are memory of devices of one host, and our
 *   device can open the peer's region. Our device makes the copy, without UCX.
 * - Put: UCX writes straight into the remote memory (shared memory, InfiniBand, CUDA IPC).
 *   ucp_ep_flush reports when the data is there.
 * - Active messages, for TCP: the receiving fabric copies them into its region. UCX does not
 *   promise their order, so each message has an epoch: the number of flushes before it. With each
 *   flush, the caller sends the peer a mark: the epoch and the number of its messages. The peer's
 *   inbox reports when all messages of an epoch and of all epochs before it have landed.
 * - Data connections (ucx_data.c): the caller sends the pieces of the writes over TCP. The pieces
 *   have epochs and marks as active messages do.
 *
 * The region may be a device's memory. If UCX has registered this memory, puts read and write it
 * directly. Otherwise the bytes are staged through pinned host memory (fabric_staging.c): a write
 * is copied out of the device piece by piece and sent from pinned memory; a received message is
 * copied into the device, and counts as landed when this copy is done. */
#ifndef TRANSPORT_FABRIC_H
#define TRANSPORT_FABRIC_H

#include "transport/transport.h"

struct fabric;
struct fabric_link;
struct fabric_inbox;

/* Kind of memory of a region. Peers that write into the region read it. */
enum fabric_memory {
    FABRIC_MEMORY_HOST,
    /* Memory of a device that UCX has not registered: peers write it by messages, or from device to
     * device. */
    FABRIC_MEMORY_DEVICE,
    FABRIC_MEMORY_CUDA, /* Memory of a device that UCX has registered. */
};

#define FABRIC_HOST_BYTES 16
/* Most bytes of one message or of one frame of a data connection. A piece fits one TCP segment of
 * UCX (256 KiB) and is sent with the eager protocol. The rendezvous protocol is hardly faster, and
 * writes into the region without calling our handler, even after the connection has ended. */
#define FABRIC_PIECE_BYTES_MAX ((size_t)192 << 10)

/* What a peer needs to write into a region. These fields are sent in the hand-shake. The pointers
 * of our own address are valid until fabric_close. The pointers of a received address point into
 * the frame in which the address has arrived. */
struct fabric_address {
    const void *worker; /* UCX worker address. */
    size_t worker_bytes;
    const void *rkey; /* Packed remote key of the region. */
    size_t rkey_bytes;
    uint64_t region; /* Address of the region in its process. */
    enum fabric_memory memory;
    uint64_t region_bytes;
    /* Identifies the host until it reboots; all zeros = unknown. */
    uint8_t host[FABRIC_HOST_BYTES];
    const void *handle;  /* Lets devices of this host open the region. */
    size_t handle_bytes; /* Up to DEVICE_HANDLE_BYTES_MAX; 0 = no handle. */
};

/* What a writer sends to its peer about a flushed epoch. */
struct fabric_mark {
    uint32_t epoch;
    uint32_t count; /* Number of messages of the epoch. */
};

struct fabric_options {
    uint64_t region_bytes;
    /* Device that the region is allocated from; NULL = host memory. Must outlive the fabric. */
    const struct device_memory *device;
    uint32_t copy_ms; /* Milliseconds; a device copy that takes longer has failed. */
    bool share;       /* Peers on this host may open the device's memory. */
    bool encrypted;   /* Data connections are encrypted. Used only for fabric_link_path. */
    /* Most bytes of a link that UCX has taken and not finished; 0 = 8 MiB. */
    uint64_t window_bytes;
    const char *ucx_tls;     /* See struct transport_options. */
    const char *ucx_devices; /* See struct transport_options. */
    bool one_host;           /* See struct transport_options. */
    /* See struct transport_events. */
    bool (*write_wanted)(void *self, const struct transport_peer *peer,
                         const struct transport_request *request, uint64_t offset, uint64_t bytes);
    void *self;
};

/* Opens UCX and allocates the region. UCX stays closed if options->ucx_tls is "none", or if this
 * host offers neither shared memory nor RDMA to it. */
enum status fabric_open(const struct fabric_options *options, struct fabric **out,
                        struct error *error);
void fabric_close(struct fabric *fabric); /* NULL is fine. Links and inboxes become invalid. */

/* Returns the memory of the region. */
void *fabric_region(struct fabric *fabric);
/* Returns what a peer needs to write into the region. */
const struct fabric_address *fabric_address(const struct fabric *fabric);
/* Stores the kind of memory, the reason if it is staged, and the bytes and times of copies. */
void fabric_memory_state(const struct fabric *fabric, struct transport_memory *out);
/* Returns the descriptor of UCX to wait for; -1 = UCX is not open. */
int fabric_fd(struct fabric *fabric);
/* Returns a second descriptor to wait for: an eventfd of the region's device, which the caller
 * reads; -1 = none. */
int fabric_device_fd(struct fabric *fabric);
/* Fails links and inboxes whose device copies take longer than copy_ms. Call this function
 * periodically. */
void fabric_deadlines_check(struct fabric *fabric);
/* Makes progress with sends, received messages and copies. Returns true if it did any work. Call it
 * until it returns false, then call fabric_wait_prepare. */
bool fabric_progress(struct fabric *fabric);
/* Returns true if the descriptors will become readable when there is work; false if there is work
 * already, so that fabric_progress must be called again. */
bool fabric_wait_prepare(struct fabric *fabric);

/* ---- writing into a peer's region ---- */

/* Opens a link to the peer's region. `token`: token of the inbox that the peer keeps for this
 * process (handshake.h). `by_data`: the link's writes travel over data connections, even if UCX
 * could reach the peer. */
enum status fabric_link_open(struct fabric *fabric, const struct fabric_address *peer,
                             uint64_t token, bool by_data, struct fabric_link **out,
                             struct error *error);
/* Begins to prove that UCX reaches the peer over a network. The proof is needed because UCX reports
 * an endpoint as open before it has exchanged a byte. Sends a message that the peer's inbox reports
 * (fabric_inbox_probed), then a flush. Returns false if no proof is needed: the link's writes do
 * not travel over UCX, or the peer's region is mapped into this process. */
bool fabric_link_probe(struct fabric_link *link);
/* Returns true if UCX has flushed the message of fabric_link_probe: the peer's hardware or worker
 * has taken it. */
bool fabric_link_probed(const struct fabric_link *link);
/* Closes a link; the caller may not use it afterwards. Later progress releases the UCX objects.
 * `fd` is the socket of the connection to the peer, which the fabric takes over; -1 = none. When no
 * write of the link can land any more, the fabric calls fabric_writes_end for `fd`, so the peer
 * learns this from the end of the connection. */
void fabric_link_close(struct fabric_link *link, int fd);
/* Returns a text that says how the link's writes travel, for logs: "ucx put over sysv", "cuda
 * ipc". */
const char *fabric_link_path(const struct fabric_link *link);
/* Returns true if every flush of the link has been taken (fabric_link_flushed) and no write has
 * begun since the last flush. Writes by put and from device to device count only from the next
 * flush on. */
bool fabric_link_idle(const struct fabric_link *link);
/* Makes `link` continue the epochs of `before`, which must be idle, because the peer's inbox goes
 * on counting. Call this function before the first write of `link`. */
void fabric_link_epochs_continue(struct fabric_link *link, const struct fabric_link *before);
/* Returns why the link to a device on this host does not write from device to device; empty = the
 * link does, or the peer has no device on this host. */
const char *fabric_link_indirect_reason(const struct fabric_link *link);
/* For a link from device to device: drops the writes that wait, then waits up to 200 ms
 * (FABRIC_SETTLE_US) for the copies that the device has begun. If the device does not finish in
 * time, it is unknown whether these writes land. Call this function before other processes can
 * learn that the link is closed. NULL is fine. */
void fabric_link_copies_await(struct fabric_link *link);
/* Shuts the socket down for sending and closes it. The peer then knows that the writes of this
 * process have ended. -1 is fine. */
void fabric_writes_end(int fd);
/* Returns true if the peer may write into our region without help of this process: the peer or its
 * device has mapped our memory, or the peer uses RDMA. *same_host_out: true if the peer is on this
 * host, or may be on this host because the id of one of the two hosts is unknown. */
bool fabric_writes_directly(const struct fabric *fabric, const struct fabric_address *peer,
                            bool *same_host_out);
/* Returns ST_OK, ST_IO if a device copy has failed, ST_NO_MEMORY if memory ran out, or
 * ST_UNREACHABLE if the link has failed for another reason. */
enum status fabric_link_failed(const struct fabric_link *link, struct error *error);

/* ---- links over data connections ---- */

/* Returns true if the link's writes travel over data connections: the caller reads them with
 * fabric_link_piece_next, and the receiving process calls fabric_inbox_write. */
bool fabric_link_by_data(const struct fabric_link *link);

/* A piece of a write that travels over a data connection. */
struct fabric_piece {
    struct transport_request request;
    uint64_t offset; /* Offset in the receiver's region. */
    uint32_t epoch;
    const uint8_t *memory;
    size_t bytes; /* FABRIC_PIECE_BYTES_MAX at most. */
};
/* Stores the next piece to send, in the order of the writes, without taking it. Returns false if no
 * write waits. */
bool fabric_link_piece_next(const struct fabric_link *link, struct fabric_piece *out);
/* Removes the piece that fabric_link_piece_next stored, because the caller has sent or copied it.
 * `bytes`: its size. */
void fabric_link_piece_sent(struct fabric_link *link, size_t bytes);

/* ---- writes ---- */

/* Begins a write of `bytes` from `local`, in our region, to `remote_offset` in the peer's region.
 * Never blocks; fabric_link_failed reports errors. */
void fabric_link_write(struct fabric_link *link, const void *local, size_t bytes,
                       uint64_t remote_offset, const struct transport_request *request);
/* Begins a flush of all writes so far; fabric_link_flushed reports its `cookie`. If this returns
 * true, the caller must send *mark_out to the peer, and call fabric_link_confirm when the peer's
 * inbox has reported that the epoch has landed. */
bool fabric_link_flush(struct fabric_link *link, uint64_t cookie, struct fabric_mark *mark_out);
/* Completes the flush of an epoch. Returns ST_INVALID if no flush waits for this epoch. */
enum status fabric_link_confirm(struct fabric_link *link, uint32_t epoch);
/* Takes the oldest flush if it is done; with `unfinished_too`, even if it is not done. Returns
 * false if no flush was taken. Flushes are taken in the order of the calls of fabric_link_flush. */
bool fabric_link_flushed(struct fabric_link *link, bool unfinished_too, uint64_t *cookie_out);

/* ---- what a peer writes into our region ---- */

/* Opens an inbox. `peer` is passed on to write_wanted. */
enum status fabric_inbox_open(struct fabric *fabric, const struct transport_peer *peer,
                              struct fabric_inbox **out);
/* Closes an inbox: later writes to it are dropped. NULL is fine. */
void fabric_inbox_close(struct fabric_inbox *inbox);
/* Returns true once after a message of the peer's fabric_link_probe has arrived. */
bool fabric_inbox_probed(struct fabric_inbox *inbox);
/* Writes a piece, which the peer has sent over a data connection, into the region. A piece outside
 * of the region fails the inbox. A piece that write_wanted refuses is dropped, and counts as
 * landed. */
void fabric_inbox_write(struct fabric_inbox *inbox, const struct fabric_piece *piece);
/* Returns true if the received data that waits for the device has reached its limit. The caller
 * then does not read from data connections until the fabric has made progress. */
bool fabric_inboxes_full(const struct fabric *fabric);
/* Waits up to 200 ms (FABRIC_SETTLE_US) for received data to land in the device. If the device does
 * not finish in time, it is unknown whether the data lands. Until the next fabric_progress, no
 * further data of the inbox lands. NULL is fine. */
void fabric_inbox_copies_await(struct fabric_inbox *inbox);
/* Returns the number that the peer puts into each message for this inbox. */
uint64_t fabric_inbox_token(const struct fabric_inbox *inbox);
/* Records how many messages an epoch has, as the peer's mark says. Returns ST_INVALID if the epoch
 * has passed, was marked before or is too far ahead. */
enum status fabric_inbox_epoch_mark(struct fabric_inbox *inbox, struct fabric_mark mark,
                                    struct error *error);
/* Takes the next epoch that has landed completely. Returns false if no such epoch is left. */
bool fabric_inbox_landed(struct fabric_inbox *inbox, uint32_t *epoch_out);
/* Returns ST_OK, or the first error of the inbox, such as a write outside of the region. */
enum status fabric_inbox_failed(const struct fabric_inbox *inbox, struct error *error);

#endif
