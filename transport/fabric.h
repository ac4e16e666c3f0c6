/* fabric: the part of a transport that moves KV, by UCX or by copies between devices of one host.
 * It owns the UCX context and worker, the region that peers may write, the links that write into
 * regions of peers, and the inboxes for what peers write into this region. The
 * fabric's only callback is write_wanted; the caller asks for all other results after
 * fabric_progress. The UCX transport (ucx*.c) makes every call, on the one thread that owns the
 * transport. The fabric opens no connections, sends no frames and has no timers (peers.h).
 *
 * A link writes in one of four ways:
 *
 * - Device to device (fabric_link_peer.c): both regions are memory of devices of one host, and our
 *   device can open the peer's region. Our device makes the copy, without UCX.
 * - Put: UCX writes straight into the peer's memory (shared memory, InfiniBand, CUDA IPC).
 * - Active messages of UCX, if puts are not possible: the receiving fabric copies the data of the
 *   messages into its region.
 * - Data connections (ucx_data.c), if UCX does not reach the peer: the caller sends the writes in
 *   pieces over TCP.
 *
 * An *epoch* is the writes of a link between two flushes. Messages and pieces may arrive in any
 * order, so a message or piece contains the number of its epoch. With each flush of such
 * writes, the caller sends the peer a *mark*: the number of the epoch, and how many messages or
 * pieces the epoch has. The peer's inbox reports an epoch when the epoch and all earlier epochs
 * have landed.
 *
 * The region may be a device's memory. Copies from device to device access this memory directly.
 * Puts over InfiniBand and CUDA IPC do so, too, if UCX has registered this memory. Other writes are
 * *staged* through pinned host memory: a write is copied out of the device piece by piece and sent
 * from pinned memory. A received message or piece is copied into the device, and has landed when
 * this copy is done. */
#ifndef TRANSPORT_FABRIC_H
#define TRANSPORT_FABRIC_H

#include "transport/transport.h"

struct fabric;
struct fabric_link;
struct fabric_inbox;

/* Kind of memory of a region. */
enum fabric_memory {
    FABRIC_MEMORY_HOST,
    /* Device memory that UCX has not registered. */
    FABRIC_MEMORY_DEVICE,
    FABRIC_MEMORY_CUDA, /* CUDA memory that UCX has registered. */
};

#define FABRIC_HOST_BYTES 16
/* Most bytes of data in one active message, or in one frame of a data connection. With its header,
 * a message fits one TCP segment of UCX (256 KiB). */
#define FABRIC_PIECE_BYTES_MAX ((size_t)192 << 10)

/* What a peer needs to write into a region; sent in the hand-shake. */
struct fabric_address {
    const void *worker;  /* UCX worker address. */
    size_t worker_bytes; /* 0 = UCX is not open. */
    const void *rkey;    /* Packed remote key of the region. */
    size_t rkey_bytes;   /* 0 = no key. */
    uint64_t region;     /* Address of the region in the process that owns the region. */
    enum fabric_memory memory;
    uint64_t region_bytes;
    /* Identifies the host until it reboots; all zeros = unknown. */
    uint8_t host[FABRIC_HOST_BYTES];
    const void *handle;  /* Lets devices of this host open the region. */
    size_t handle_bytes; /* Up to DEVICE_HANDLE_BYTES_MAX; 0 = no handle. */
};

/* The mark of an epoch, which a writer sends to its peer. */
struct fabric_mark {
    uint32_t epoch; /* Number of the epoch. */
    uint32_t count; /* Number of messages or pieces of the epoch. */
};

struct fabric_options {
    uint64_t region_bytes;
    /* Device that the region is allocated from; NULL = host memory. Must outlive the fabric. */
    const struct device_memory *device;
    uint32_t copy_ms; /* Milliseconds; a device copy that takes longer has failed. */
    bool share;       /* Peers on this host may open the device's memory. */
    bool encrypted;   /* Data connections are encrypted. Used only for fabric_link_path. */
    /* Most bytes of a link that UCX has not finished; 0 = 8 MiB. One put or message may always be
     * under way. */
    uint64_t window_bytes;
    const char *ucx_tls;     /* See struct transport_options. */
    const char *ucx_devices; /* See struct transport_options. */
    bool one_host;           /* See struct transport_options. */
    /* See struct transport_events. */
    bool (*write_wanted)(void *self, const struct transport_peer *peer,
                         const struct transport_request *request, uint64_t offset, uint64_t bytes);
    void *self;
};

/* Opens UCX and allocates the region. UCX stays closed if options->ucx_tls is "none", or if
 * options->ucx_tls is NULL and no transport of UCX works. Returns ST_INVALID if options->ucx_tls or
 * the environment variable CLEAVE_KV_WRITE is not valid, ST_NO_MEMORY if memory is short or may not
 * be locked for RDMA, or another error if UCX or the device fails. */
enum status fabric_open(const struct fabric_options *options, struct fabric **out,
                        struct error *error);
void fabric_close(struct fabric *fabric); /* NULL is fine. Links and inboxes become invalid. */

/* Returns the memory of the region. */
void *fabric_region(struct fabric *fabric);
/* Returns what a peer needs to write into the region; valid until fabric_close. */
const struct fabric_address *fabric_address(const struct fabric *fabric);
/* Stores where the region is, and counts of the copies that are done. */
void fabric_memory_state(const struct fabric *fabric, struct transport_memory *out);
/* Returns the descriptor of UCX to wait for; -1 = UCX is not open. */
int fabric_fd(struct fabric *fabric);
/* Returns a second descriptor to wait for: an eventfd of the region's device, which the caller
 * reads; -1 = none. */
int fabric_device_fd(struct fabric *fabric);
/* Fails links and inboxes whose device copies take longer than copy_ms; call it periodically. */
void fabric_deadlines_check(struct fabric *fabric);
/* Makes progress with sends, received messages and copies. Returns true if it did any work. Call
 * this function until it returns false, then call fabric_wait_prepare. */
bool fabric_progress(struct fabric *fabric);
/* Call this function before waiting for the descriptors. Returns false if there is work already:
 * call fabric_progress again. */
bool fabric_wait_prepare(struct fabric *fabric);

/* ---- writing into a peer's region ---- */

/* Opens a link to the peer's region. `token`: token of the inbox that the peer keeps for this
 * process (handshake.h). The link's writes travel over data connections if `by_data` is true, or if
 * neither a device nor UCX reaches the peer. The only error is ST_NO_MEMORY. */
enum status fabric_link_open(struct fabric *fabric, const struct fabric_address *peer,
                             uint64_t token, bool by_data, struct fabric_link **out,
                             struct error *error);
/* Begins to prove that UCX reaches the peer. Sends a message that the peer's inbox
 * reports (fabric_inbox_probed), then a flush. Returns false if no proof is needed: the link's
 * writes do not travel over UCX, or the peer's region is mapped into this process. */
bool fabric_link_probe(struct fabric_link *link);
/* Returns true if UCX has flushed the message of fabric_link_probe. */
bool fabric_link_probed(const struct fabric_link *link);
/* Closes a link, which is then invalid. Later progress releases the UCX objects. The fabric takes
 * over peer_socket, the socket of the connection to the peer; -1 = none. When no more writes of the
 * link can land, the fabric calls fabric_writes_end for this socket. */
void fabric_link_close(struct fabric_link *link, int peer_socket);
/* Returns how the link's writes travel, for logs, such as "ucx put over sysv" or "cuda ipc". */
const char *fabric_link_path(const struct fabric_link *link);
/* For a link over data connections: returns true if all flushes were taken (fabric_link_flushed)
 * and no write has begun since the last flush. */
bool fabric_link_idle(const struct fabric_link *link);
/* Lets the numbers of the epochs of `link` follow those of `before`, because both links write into
 * one inbox. Requires that `before` is idle, and that `link` has no write yet. */
void fabric_link_epochs_continue(struct fabric_link *link, const struct fabric_link *before);
/* Returns why our device could not open the peer's region; empty = no reason. */
const char *fabric_link_indirect_reason(const struct fabric_link *link);
/* For a link from device to device: drops the writes that wait, then waits up to 200 ms
 * (FABRIC_SETTLE_US) for the copies that the device has begun. If the device does not finish in
 * time, it is unknown whether these writes land. Call this function before other processes can
 * learn that the link is closed. NULL is fine. */
void fabric_link_copies_await(struct fabric_link *link);
/* Shuts the socket down for sending and closes it. By this end of the connection, the peer learns
 * that no more writes of this process can land. -1 is fine. */
void fabric_writes_end(int fd);
/* Returns true if the peer may be able to write into our region without help of this process: over
 * shared memory, over RDMA, or by its device. *same_host_out: true if the peer is on this host, or
 * if the id of a host is unknown. */
bool fabric_writes_directly(const struct fabric *fabric, const struct fabric_address *peer,
                            bool *same_host_out);
/* Returns ST_OK, ST_IO if the device has failed, ST_NO_MEMORY if memory ran out, or ST_UNREACHABLE
 * if the link has failed for another reason. */
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
 * write waits, or if the link has failed. */
bool fabric_link_piece_next(const struct fabric_link *link, struct fabric_piece *out);
/* Removes the piece that fabric_link_piece_next has stored. The piece's memory may then no longer
 * be valid. `bytes`: size of the piece. */
void fabric_link_piece_sent(struct fabric_link *link, size_t bytes);

/* ---- writes ---- */

/* Begins a write of `bytes` from `local`, in our region, to `remote_offset` in the peer's region.
 * Never blocks; fabric_link_failed reports errors. */
void fabric_link_write(struct fabric_link *link, const void *local, size_t bytes,
                       uint64_t remote_offset, const struct transport_request *request);
/* Begins a flush of all earlier writes; fabric_link_flushed returns the `cookie` of the flush. If
 * the result is true, the caller must send *mark_out to the peer, and call fabric_link_confirm when
 * the peer's inbox has reported that the epoch has landed. */
bool fabric_link_flush(struct fabric_link *link, uint64_t cookie, struct fabric_mark *mark_out);
/* Completes the flush of an epoch. Returns ST_INVALID if no flush waits for this epoch. */
enum status fabric_link_confirm(struct fabric_link *link, uint32_t epoch);
/* Takes the oldest flush, if it is done or `unfinished_too` is true, and stores its cookie. Returns
 * false if no flush was taken. */
bool fabric_link_flushed(struct fabric_link *link, bool unfinished_too, uint64_t *cookie_out);

/* ---- what a peer writes into our region ---- */

/* Opens an inbox. `peer` is passed on to write_wanted. The only error is ST_NO_MEMORY. */
enum status fabric_inbox_open(struct fabric *fabric, const struct transport_peer *peer,
                              struct fabric_inbox **out);
/* Waits as fabric_inbox_copies_await does, and closes the inbox. Later writes to the inbox are
 * dropped. NULL is fine. */
void fabric_inbox_close(struct fabric_inbox *inbox);
/* Returns true if a message of the peer's fabric_link_probe has arrived since the last call. */
bool fabric_inbox_probed(struct fabric_inbox *inbox);
/* Writes a piece that the peer has sent into the region. A piece outside
 * of the region fails the inbox. A piece that write_wanted refuses is dropped, and has landed. */
void fabric_inbox_write(struct fabric_inbox *inbox, const struct fabric_piece *piece);
/* Returns true if the received data that waits for the device has reached its limit. The caller
 * then does not read from data connections until the fabric has made progress. */
bool fabric_inboxes_full(const struct fabric *fabric);
/* Waits up to 200 ms (FABRIC_SETTLE_US) for received data to land in the device. If the device does
 * not finish in time, it is unknown whether the data lands. NULL is fine. */
void fabric_inbox_copies_await(struct fabric_inbox *inbox);
/* Returns the token of the inbox: a random number, by which the peer names the inbox. */
uint64_t fabric_inbox_token(const struct fabric_inbox *inbox);
/* Records how many messages or pieces an epoch has, as the peer's mark says. Returns ST_INVALID if
 * the mark is invalid, e.g. if the epoch has passed or was marked before; ST_NO_MEMORY; or the
 * first error of the inbox. */
enum status fabric_inbox_epoch_mark(struct fabric_inbox *inbox, struct fabric_mark mark,
                                    struct error *error);
/* Takes the next epoch if all its writes have landed. Returns false if no epoch was taken. */
bool fabric_inbox_landed(struct fabric_inbox *inbox, uint32_t *epoch_out);
/* Returns ST_OK, or the first error of the inbox, such as a write outside of the region. */
enum status fabric_inbox_failed(const struct fabric_inbox *inbox, struct error *error);

#endif
