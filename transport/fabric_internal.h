/* fabric_internal: the structs and functions that the files of the fabric share:
 *
 *   fabric.c              context, settings and worker of UCX
 *   fabric_select.c       the transports and devices that UCX may use
 *   fabric_region.c       the memory of the region
 *   fabric_link.c         writing into a peer's region
 *   fabric_link_staged.c  writing from a device's memory, through pinned memory
 *   fabric_link_peer.c    writing from one device into another device of the same host
 *   fabric_link_data.c    writing over data connections, without UCX
 *   fabric_inbox.c        what peers write into our region
 *   fabric_staging.c      copies of a device's region, slots of pinned memory
 *
 * The functions run on the one thread that owns the transport. Connections, frames and timers are
 * not here (peers.h). */
#ifndef TRANSPORT_FABRIC_INTERNAL_H
#define TRANSPORT_FABRIC_INTERNAL_H

#include "transport/fabric.h"

#include <ucp/api/ucp.h>

/* An *epoch* is the writes of a link between two flushes (fabric.h). The *token* of an inbox is a
 * random number, by which the peer names the inbox in messages. */

/* Ids of UCX active messages. The header of PROBE (fabric_link_probe) is the token of the inbox. */
#define FABRIC_AM_WRITE 1u
#define FABRIC_AM_PROBE 2u
#define FABRIC_OPS_SLAB 256u /* Ops in a slab. */
/* Most epochs that an inbox keeps. A link fails if FABRIC_EPOCHS_MAX / 2 of its flushes wait. */
#define FABRIC_EPOCHS_MAX 65536u
/* Longest wait for copies that were begun. */
#define FABRIC_SETTLE_US 200000
/* Time between two checks of the copies counts towards FABRIC_SETTLE_US only up to this limit,
 * because a longer gap means that this process was paused. */
#define FABRIC_SETTLE_STEP_US 10000

/* Precedes the data of an active message. Must not change until UCX has finished the send. */
struct fabric_write_header {
    uint64_t token;      /* Token of the receiver's inbox. */
    uint64_t offset;     /* Offset in the receiver's region. */
    uint64_t request_id; /* See struct transport_request. */
    uint32_t request_generation;
    uint32_t epoch; /* Number of the write's epoch. */
};
_Static_assert(sizeof(struct fabric_write_header) == 32, "wire size");

/* A write, probe or flush that was given to UCX. If an endpoint fails, UCX may keep a pointer to an
 * op for ever. So ops live until the fabric closes. */
struct fabric_op {
    struct fabric_op *next; /* Next in the link's list while in flight, else in the free list. */
    /* Where the pointer to this op is in the link's list; NULL = not in flight. */
    struct fabric_op **list_link;
    struct fabric *fabric;
    struct fabric_link *link;          /* NULL = the link is closed. */
    uint64_t number;                   /* Number of the flush. */
    bool is_flush;                     /* A flush of fabric_link_flush. */
    bool is_probe;                     /* The flush of fabric_link_probe. */
    struct fabric_slot *slot;          /* Slot that `bytes` are sent from; NULL = none. */
    size_t bytes;                      /* Bytes of the write; 0 = a flush or probe. */
    struct fabric_write_header header; /* Header of a message. */
};

struct fabric_slab {
    struct fabric_slab *next;
    struct fabric_op ops[FABRIC_OPS_SLAB];
};

/* ---- copies of a device: to and from pinned memory, and to other devices ---- */

/* A piece of pinned memory. `users` counts the link or the fabric that fills the slot, and the
 * copies and sends that use the slot. */
struct fabric_slot {
    struct fabric_slot *next; /* Next in the free list. */
    struct fabric *fabric;
    uint8_t *memory;   /* FABRIC_PIECE_BYTES_MAX bytes */
    size_t used_bytes; /* Bytes of `memory` that are taken, from its start. */
    uint32_t users;
};

/* A copy that was given to the device. */
struct fabric_copy {
    int64_t begun_us;         /* Time at which the device got the copy. */
    uint64_t number;          /* The device's number of the copy. */
    struct fabric_slot *slot; /* NULL = the copy goes to a peer's device, without a slot. */
    uint8_t *memory;          /* The copy's place in the slot. */
    size_t bytes;
    uint64_t offset;                  /* Outgoing: offset in the peer's region. */
    struct transport_request request; /* Outgoing: the request of the data. */
    uint32_t epoch;                   /* Number of the write's epoch. */
    /* Outgoing: the link that sends the data; NULL = the link is closed. */
    struct fabric_link *link;
    struct fabric_inbox *inbox; /* Incoming: the inbox; NULL = the inbox is closed. */
};

/* The copies of one direction. */
struct fabric_copies {
    /* Ring: copy n, first <= n < first + count, is at n % capacity. */
    struct fabric_copy *ring;
    uint64_t first, count, capacity;
    /* Number of the last copy for which the device was asked to wake us. */
    uint64_t wake_number;
    int64_t busy_since_us; /* Time since which `count` is not 0; not valid if `count` is 0. */
    struct transport_copy_counts copy_counts; /* Copies that are done. */
};

/* A peer's region, opened by our device for a link. After the link is closed, the region stays open
 * until the copies to it are done. */
struct fabric_import {
    struct fabric_import *next;
    uint8_t *memory;
    uint64_t last_copy_number; /* The device's number of the last copy to this region. */
    /* Socket of the connection to the peer, closed when no more writes of this link can land; -1 =
     * none. */
    int peer_socket;
};

struct fabric_chunk;

struct fabric_staging {
    const struct device_memory *device;
    int64_t copy_us; /* A copy that takes longer has failed. */
    struct fabric_copies copies[DEVICE_DIRECTIONS];
    /* free_slots: unused slots. landing: the slot that received messages are copied to. */
    struct fabric_slot *free_slots, *landing;
    struct fabric_chunk *chunks;   /* Pinned memory, in which the slots are. */
    uint64_t landing_bytes;        /* Received bytes that are not in the device yet. */
    struct fabric_import *closing; /* Imports whose links are closed. */
};

/* The settings of UCX: transports and devices. */
struct fabric_selection {
    /* The caller has named the transports: opening fails if they do not work. */
    bool transports_named;
    bool ucx_off;      /* UCX is not opened. */
    bool rdma;         /* RDMA devices may write the region. */
    bool soft_roce;    /* UCX may use RDMA devices, and one of this host's is soft-RoCE. */
    char tls[192];     /* UCX_TLS */
    char devices[512]; /* UCX_NET_DEVICES; empty = not set. */
};

struct fabric {
    ucp_context_h context; /* NULL = UCX is not open; then `worker` is NULL, too. */
    ucp_worker_h worker;
    ucp_mem_h registration; /* UCX's registration of the region; NULL = not registered. */
    void *region;
    uint64_t region_bytes;
    bool encrypted;        /* Data connections are encrypted. */
    uint64_t window_bytes; /* See struct fabric_options. */
    bool (*write_wanted)(void *self, const struct transport_peer *peer,
                         const struct transport_request *request, uint64_t offset, uint64_t bytes);
    void *self;        /* First argument of write_wanted. */
    bool plain_region; /* The region is host memory that UCX did not allocate. */
    struct fabric_address address;
    int fd;                         /* -1 = UCX is not open. */
    bool host_known;                /* address.host is set. */
    bool beyond_shared_memory;      /* UCX may have transports other than shared memory. */
    bool messages_only;             /* CLEAVE_KV_WRITE=am: write by messages only. */
    bool ucx_only;                  /* CLEAVE_KV_WRITE is set: no copies device to device. */
    struct fabric_staging *staging; /* NULL = the region is host memory. */
    /* Why UCX has not registered a device's region, and why the region is not shared; empty = no
     * reason. */
    char staged_why[128];
    struct device_handle handle; /* Handle of the region; 0 bytes = the region is not shared. */
    /* links: open links. closing: closed links that fabric_links_reap has not freed yet.
     * leftover_links: links whose endpoints UCX had not closed when the fabric closed. */
    struct fabric_link *links, *closing, *leftover_links;
    struct fabric_inbox *inboxes;
    struct fabric_slab *slabs;
    struct fabric_op *free_ops;
};

/* A flush whose cookie fabric_link_flushed has not returned to the caller yet. */
struct link_flush {
    uint64_t cookie; /* See fabric_link_flush. */
    bool done;
    /* Device to device: number of the copy that completes the flush; 0 = not known yet. */
    uint64_t after_copy;
};

/* A write that waits for its copy out of the device, or a flush that waits behind such writes. */
struct staged_write {
    struct transport_request request;
    const uint8_t *local;
    size_t bytes;
    uint64_t offset;
    uint32_t epoch;
    bool is_flush;
    uint64_t number; /* Number of the flush. */
};

/* A write that waits for a data connection or for room in window_bytes, or a flush of puts that
 * waits behind such writes. */
struct data_write {
    struct transport_request request;
    const uint8_t *memory;
    size_t bytes;
    uint64_t offset;
    uint32_t epoch;
    struct fabric_slot *slot; /* Slot that the bytes are sent from; NULL = none. */
    /* Initial value of `bytes`, which decreases with each piece that is sent; 0 = no slot. */
    size_t slot_bytes;
    bool is_flush;
    uint64_t number; /* Number of the flush. */
};

/* A ring: entry n is at n % capacity. */
struct data_queue {
    struct data_write *writes;
    uint64_t first, count, capacity;
};

/* Writing into the region of one peer. */
struct fabric_link {
    struct fabric *fabric;
    struct fabric_link *next;
    ucp_ep_h ep;
    ucp_rkey_h rkey;        /* NULL = UCX cannot put into the peer's region. */
    uint64_t remote_region; /* Address of the peer's region in the peer's process. */
    uint64_t token;         /* Token of the peer's inbox for this process. */
    /* UCX or our device writes into the peer's memory; false = writes are messages or pieces. */
    bool direct;
    bool by_data; /* Writes travel over data connections. */
    bool shared;  /* UCX has mapped the peer's region into this process; no probe is needed. */
    bool probed;  /* See fabric_link_probed. */
    /* Writes go through pinned memory, or from device to device if `import` is set. */
    bool staged;
    struct fabric_import *import; /* The peer's region, opened by our device; NULL = not opened. */
    char way_text[64];            /* How writes travel, for people, e.g. "ucx put over rc". */
    char indirect_reason[160];    /* See fabric_link_indirect_reason. */
    struct fabric_op *ops;
    struct data_queue queue;  /* Writes that wait for a data connection, or for the window. */
    uint64_t under_way_bytes; /* Bytes that UCX has taken and not finished. */
    /* Messages or pieces since the last flush; 0 if `direct` is true. */
    uint32_t epoch_writes;
    /* Ring: flush n, which ends epoch n, is at n % flush_capacity. */
    struct link_flush *flushes;
    uint64_t flush_first, flush_count, flush_capacity;
    struct staged_write *staged_writes; /* Ring: entry n is at n % waiting_capacity. */
    uint64_t waiting_first, waiting_count, waiting_capacity;
    struct fabric_slot *slot; /* Slot that the next pieces are copied into; NULL = none. */
    /* copying_bytes: bytes that are being copied by our device. sending_bytes: bytes in slots that
     * are being sent. */
    size_t copying_bytes, sending_bytes;
    ucs_status_t failure; /* First error except those of the device; UCS_OK = none. */
    /* ST_OK, or the error of a copy: the device has failed, or memory ran out. */
    enum status device_failed;
    struct error device_failure; /* Text of the error device_failed. */
    /* In fabric.closing: UCX's close request; NULL = UCX has closed the endpoint. */
    void *close_request;
    /* Socket of the connection to the peer, closed when no more writes of this link can land; -1 =
     * none. */
    int peer_socket;
};

/* fabric_region.c: allocates the region, in a device's memory if the options say so. Registers the
 * region with UCX if UCX is open and can do so. */
enum status fabric_region_open(struct fabric *fabric, const struct fabric_options *options,
                               struct error *error);
/* Ends UCX's registration of the region, if there is one. */
void fabric_region_unmap(struct fabric *fabric);
/* Frees a region that UCX did not allocate, and the pinned memory. Call this function when the
 * worker can no longer send: it is destroyed, or it is kept until the process ends and
 * ucp_worker_progress is never called again (worker_leave in fabric.c). */
void fabric_region_free(struct fabric *fabric);

/* Takes a free op and puts it into the list *owner. Returns NULL if there is no memory. */
struct fabric_op *fabric_op_take(struct fabric *fabric, struct fabric_op **owner);
/* Puts an op that UCX has finished into the free list, and releases its slot. */
void fabric_op_give(struct fabric_op *op);
/* Removes all ops from the list *owner, because the link closes. UCX may still finish the ops. */
void fabric_ops_orphan(struct fabric_op **owner);

/* Frees closing links whose endpoints are closed. `all`: moves the others to leftover_links. */
void fabric_links_reap(struct fabric *fabric, bool all);
/* Frees fabric->leftover_links, after the worker is destroyed. */
void fabric_links_left_close(struct fabric *fabric);

enum status fabric_inboxes_start(struct fabric *fabric); /* Installs the handlers of messages. */
/* Counts a message as landed, because its copy into the device is done. `copy` NULL = failed. */
void fabric_inbox_copied(struct fabric_inbox *inbox, const struct fabric_copy *copy);
/* Records the first error of an inbox (fabric_inbox_failed). */
void fabric_inbox_fail(struct fabric_inbox *inbox, enum status why, const char *text);

/* fabric_link.c: sends by message, put or data connection. A slot that is not NULL is released when
 * the data is sent. */
void fabric_link_send(struct fabric_link *link, const struct data_write *write);
/* Begins UCX's flush of the puts, for flush `number` of the link. */
void fabric_link_flush_put(struct fabric_link *link, uint64_t number);
/* Records the error of a link; the link then sends nothing more. */
void fabric_link_fail(struct fabric_link *link, ucs_status_t status);

/* fabric_select.c: chooses the transports and devices of UCX. */
void fabric_selection_make(const struct fabric_options *options, struct fabric_selection *out);

/* fabric_link.c: gives UCX the writes that waited for the window. True = UCX got a write. */
bool fabric_link_window_pump(struct fabric_link *link);

/* fabric_link_data.c: queues a write. If memory is short, fails the link and releases the slot. */
void fabric_link_data_add(struct fabric_link *link, const struct data_write *write);
/* Takes the oldest write out of the queue; false = none. The caller releases the write's slot. */
bool fabric_link_data_take(struct fabric_link *link, struct data_write *out);
/* Drops the queued writes and frees the queue, because the link closes. */
void fabric_link_data_close(struct fabric_link *link);

/* fabric_link_staged.c */
/* Queues a write or a flush behind the earlier writes that wait for the device. */
void fabric_link_stage(struct fabric_link *link, const struct staged_write *write);
/* Begins the copies and flushes that wait, until the link's limit of bytes under way is reached.
 * Returns true if it changed anything. */
bool fabric_link_pump(struct fabric_link *link);
/* Handles a finished copy of this link: sends the data that was copied into pinned memory. */
void fabric_link_copied(struct fabric_link *link, const struct fabric_copy *copy);
/* Drops the staged writes, and removes the link from its copies, because the link closes. */
void fabric_link_unstage(struct fabric_link *link);
/* Returns true if fabric_link_failed returns an error; writes no text. */
bool fabric_link_failing(const struct fabric_link *link);
/* Returns the oldest staged write or flush; NULL = none, or the link has failed. */
struct staged_write *fabric_link_staged_first(struct fabric_link *link);
/* Removes the oldest staged write or flush. */
void fabric_link_staged_remove(struct fabric_link *link);

/* fabric_link_peer.c */
/* Lets peers of this host open a device's region, if the device can share memory. A failure is
 * harmless: its text is added to fabric->staged_why. */
void fabric_share(struct fabric *fabric);
/* Opens the peer's region by our device and returns true. Returns false if that is not possible,
 * with the reason in link->indirect_reason if the device refused. */
bool fabric_link_import(struct fabric_link *link, const struct fabric_address *peer);
/* Does the work of fabric_link_pump for a link from device to device. */
bool fabric_link_peer_pump(struct fabric_link *link);
/* Completes the flushes that waited for this finished copy. */
void fabric_link_peer_copied(struct fabric_link *link, const struct fabric_copy *copy);
/* Moves the import of a link from device to device to staging->closing, with `peer_socket`, which
 * is closed when all copies to the region are done. Returns false, and does not use `peer_socket`,
 * for other links. */
bool fabric_link_import_release(struct fabric_link *link, int peer_socket);
/* Reads an id of this host, which is equal in all containers of the host and changes when the host
 * reboots. Returns false if there is no id. */
bool fabric_host_read(uint8_t out[FABRIC_HOST_BYTES]);
/* For closed links: closes each imported region when all copies to it are done. With `all`, closes
 * all of them. */
void fabric_imports_reap(struct fabric *fabric, bool all);

/* fabric_staging.c */
/* Opens fabric->staging for options->device. Returns ST_NO_MEMORY on failure. */
enum status fabric_staging_open(struct fabric *fabric, const struct fabric_options *options);
/* Requires that no send and no copy is under way. */
void fabric_staging_close(struct fabric *fabric);
/* Returns memory for `bytes` bytes in *slot. If *slot is NULL or has too little memory left, the
 * function first drops *slot and stores a free slot in *slot. Returns NULL, and sets *slot to NULL,
 * if there is no memory. Requires bytes <= FABRIC_PIECE_BYTES_MAX. */
uint8_t *fabric_slot_memory(struct fabric *fabric, struct fabric_slot **slot, size_t bytes);
void fabric_slot_drop(struct fabric_slot *slot); /* Removes one user of the slot. NULL is fine. */
/* Queues a copy between the device address `device` and copy->memory. The copy is a user of
 * copy->slot until the copy is done. */
enum status fabric_staging_copy(struct fabric *fabric, enum device_direction direction,
                                void *device, struct fabric_copy copy, struct error *error);
/* Queues a copy of `count` runs of bytes to a peer's region, for the link copy->link. Stores the
 * device's number of the copy. */
enum status fabric_staging_copy_runs(struct fabric *fabric, const struct device_run *runs,
                                     uint32_t count, struct fabric_copy copy, uint64_t *number_out,
                                     struct error *error);
/* Handles finished copies and begins copies that wait. Returns true if it did any work. */
bool fabric_staging_progress(struct fabric *fabric);
/* Makes progress with copies until *copies_left is 0 or FABRIC_SETTLE_US have passed. Each finished
 * copy decreases *copies_left: by its bytes for a link, by 1 for an inbox. */
void fabric_staging_settle(struct fabric *fabric, const size_t *copies_left);
/* Asks the device to wake us when its copies are done. Returns false if fabric_staging_full returns
 * true: UCX must then not be armed. */
bool fabric_staging_arm(struct fabric *fabric);
/* Fails links and inboxes with copies that take longer than copy_us. */
void fabric_staging_tick(struct fabric *fabric);
/* Returns true if too much received data waits for the device: UCX must not deliver more. */
bool fabric_staging_full(const struct fabric *fabric);
/* Returns the device's number of the oldest copy that is not done; UINT64_MAX = all are done. */
uint64_t fabric_copies_oldest(const struct fabric_copies *copies);
/* Removes a link or an inbox from all copies, because it closes. The other argument is NULL. */
void fabric_staging_forget(struct fabric *fabric, const struct fabric_link *link,
                           const struct fabric_inbox *inbox);

#endif
