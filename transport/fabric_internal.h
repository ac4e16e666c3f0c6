/* fabric_internal: what fabric.c (worker), fabric_region.c (the region), fabric_link.c (writing),
 * fabric_link_staged.c (writing what a device has), fabric_link_peer.c (device to device),
 * fabric_inbox.c (being written) and fabric_staging.c (copies of a device's region) share. */
#ifndef TRANSPORT_FABRIC_INTERNAL_H
#define TRANSPORT_FABRIC_INTERNAL_H

#include "transport/fabric.h"

#include <ucp/api/ucp.h>

#define FABRIC_AM_WRITE 1u
#define FABRIC_OPS_SLAB 256u
/* A write by message is sent in pieces that fit one TCP segment of UCX (256 KiB), eagerly.
 * Rendezvous is hardly faster, but lands in the region without asking us: after its connection has
 * ended as well. */
#define FABRIC_PIECE      ((size_t)192 << 10)
#define FABRIC_EPOCHS_MAX 65536u /* flushes of one peer that wait; more is a broken peer */
/* Copies that were begun take less than a millisecond. One that takes so long comes from a device
 * that computes nothing either. */
#define FABRIC_SETTLE_US 200000
/* A pause of this process, in which it cannot see that they are done, counts no longer. */
#define FABRIC_SETTLE_LOOK_US 10000

/* Before the data of a write by active message. UCX reads it until the send is done. */
struct fabric_write_header {
    uint64_t token;
    uint64_t offset;
    uint32_t epoch;
    uint32_t padding;
};
_Static_assert(sizeof(struct fabric_write_header) == 24, "wire size");

/* A write or flush that UCX has not finished. UCX keeps a pointer to it and does not call back
 * every operation of an endpoint that failed, so ops live in slabs until the fabric closes; those
 * of a closed link have no owner. The few that are never called back are not used again. */
struct fabric_op {
    struct fabric_op *next;     /* of the link while in flight, else of the free list */
    struct fabric_op **link_at; /* what points at it while in flight, else NULL */
    struct fabric *fabric;
    struct fabric_link *link; /* NULL once it is closed */
    uint64_t number;          /* of a flush: its place */
    bool is_flush;
    struct fabric_slot *slot; /* what it sends from, so many bytes, or NULL */
    size_t bytes;
    struct fabric_write_header header;
};

struct fabric_slab {
    struct fabric_slab *next;
    struct fabric_op ops[FABRIC_OPS_SLAB];
};

/* ---- copies of a device: to and from pinned memory, and to other devices ---- */

/* A piece of pinned memory. Copies and sends that use it hold it. */
struct fabric_slot {
    struct fabric_slot *next; /* of the free list */
    struct fabric *fabric;
    uint8_t *memory; /* FABRIC_PIECE bytes */
    size_t used;
    uint32_t users;
};

/* A copy that the device has been given. */
struct fabric_copy {
    int64_t at_us;
    uint64_t number;
    struct fabric_slot *slot; /* NULL: to another device */
    uint8_t *memory;          /* in the slot */
    size_t bytes;
    uint64_t offset; /* out: in the peer's region */
    uint32_t epoch;
    struct fabric_link *link;   /* out: who sends it; NULL: it is closed */
    struct fabric_inbox *inbox; /* in; likewise */
};

struct fabric_copies {        /* of one direction */
    struct fabric_copy *ring; /* copy n is at n % capacity */
    uint64_t first, count, capacity;
    uint64_t woken; /* we will be woken when the copies up to this one are done */
    int64_t busy_since_us;
    struct transport_copied copied;
};

/* A peer's region, opened by our device: of a link, or waiting for the copies of one that is gone.
 */
struct fabric_import {
    struct fabric_import *next;
    uint8_t *memory;
    uint64_t last; /* the last copy to it */
};

struct fabric_chunk;

struct fabric_staging {
    const struct device_memory *device;
    int64_t copy_us; /* a copy that takes longer has failed */
    struct fabric_copies copies[DEVICE_DIRECTIONS];
    struct fabric_slot *free_slots, *landing; /* landing: what messages are put into */
    struct fabric_chunk *chunks;
    uint64_t landing_bytes; /* come, and not in the device yet */
    struct fabric_import *closing;
};

struct fabric {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_mem_h memory;
    void *region;
    uint64_t region_bytes;
    struct fabric_address address;
    int fd;
    bool messages_only;             /* CLEAVE_KV_WRITE=am */
    bool ucx_only;                  /* that, or put */
    struct fabric_staging *staging; /* NULL: the region is the host's */
    char staged_why[128];           /* why a device's region is not registered; empty: it is */
    struct device_handle handle;    /* of the region; bytes 0: it is not shared */
    struct fabric_link *links, *closing;
    struct fabric_inbox *inboxes;
    struct fabric_slab *slabs;
    struct fabric_op *free_ops;
    uint64_t next_token;
};

struct link_flush {
    uint64_t cookie;
    bool done;
    uint64_t after; /* device to device: done with this copy; 0: not known yet */
};

/* What waits for the device: a write, or a flush, which comes behind the writes. */
struct staged_write {
    const uint8_t *local;
    size_t bytes;
    uint64_t offset;
    uint32_t epoch;
    bool is_flush;
    uint64_t number; /* of the flush */
};

struct fabric_link {
    struct fabric *fabric;
    struct fabric_link *next;
    ucp_ep_h ep;
    ucp_rkey_h rkey; /* NULL: the peer's region is written by message only */
    uint64_t remote_region;
    uint64_t token;
    bool put;
    bool staged;                  /* through pinned memory, or device to device: */
    struct fabric_import *import; /* NULL: not */
    char path[64];
    char note[160];
    struct fabric_op *ops;
    uint32_t epoch_writes;      /* since the last flush */
    struct link_flush *flushes; /* ring: flush n is at n % capacity; n is its epoch as well */
    uint64_t first, count, capacity;
    struct staged_write *waiting; /* ring, likewise */
    uint64_t waiting_first, waiting_count, waiting_capacity;
    struct fabric_slot *slot;            /* that the next pieces go into, or NULL */
    size_t copying_bytes, sending_bytes; /* of the pieces that have left `waiting` */
    ucs_status_t failure;
    struct error device_failure; /* empty: none */
    void *close_request;         /* of a closing link: NULL when UCX is done */
};

/* fabric_region.c: *fabric has its context. */
enum status fabric_region_open(struct fabric *fabric, const struct fabric_options *options,
                               struct error *error);
void fabric_region_unmap(struct fabric *fabric); /* while the context is open */
/* After the worker, which may send from the pinned memory: what is a device's. */
void fabric_region_free(struct fabric *fabric);

/* An op in the list *owner; NULL when there is no memory. */
struct fabric_op *fabric_op_take(struct fabric *fabric, struct fabric_op **owner);
void fabric_op_give(struct fabric_op *op);
/* The owner goes away: its ops stay with UCX, without owner. */
void fabric_ops_orphan(struct fabric_op **owner);

/* Destroys closing links whose endpoints UCX has closed; with `all`, the others as well. */
void fabric_links_reap(struct fabric *fabric, bool all);

enum status
fabric_inboxes_start(struct fabric *fabric); /* installs the handler of FABRIC_AM_WRITE */
/* A message of the inbox is in the device; NULL: it never will be. */
void fabric_inbox_copied(struct fabric_inbox *inbox, const struct fabric_copy *copy);
void fabric_inbox_fail(struct fabric_inbox *inbox, enum status why, const char *text);

/* Messages and puts of fabric_link.c; `slot`, if not NULL, is held until it is sent. */
void fabric_link_send(struct fabric_link *link, const void *memory, size_t bytes,
                      uint64_t remote_offset, uint32_t epoch, struct fabric_slot *slot);
void fabric_link_flush_put(struct fabric_link *link, uint64_t number);
void fabric_link_fail(struct fabric_link *link, ucs_status_t status);
void fabric_link_flush_done(struct fabric_link *link, uint64_t number);

/* fabric_link_staged.c */
void fabric_link_stage(struct fabric_link *link, const struct staged_write *write);
bool fabric_link_pump(struct fabric_link *link); /* what the slots have room for */
void fabric_link_copied(struct fabric_link *link, const struct fabric_copy *copy);
void fabric_link_unstage(struct fabric_link *link); /* it closes */
bool fabric_link_failing(const struct fabric_link *link);
struct staged_write *fabric_link_next(struct fabric_link *link); /* that waits; NULL */
void fabric_link_next_done(struct fabric_link *link);

/* fabric_link_peer.c */
/* Of the region, for peers of this computer. An error is no harm: fabric->staged_why has it. */
void fabric_share(struct fabric *fabric);
/* Opens the peer's region, if it can: false, with link->note if that is worth a word. */
bool fabric_link_import(struct fabric_link *link, const struct fabric_address *peer);
bool fabric_link_peer_pump(struct fabric_link *link);
void fabric_link_peer_copied(struct fabric_link *link, const struct fabric_copy *copy);
void fabric_link_peer_close(struct fabric_link *link);
/* Closes what links that are gone had opened; with `all`, though copies may be under way. */
void fabric_imports_reap(struct fabric *fabric, bool all);

/* fabric_staging.c */
enum status fabric_staging_open(struct fabric *fabric, const struct fabric_options *options);
void fabric_staging_close(struct fabric *fabric); /* nobody sends or copies any more */
/* Room for `bytes` in *slot, or in a new one that takes its place; NULL: no memory. */
uint8_t *fabric_slot_room(struct fabric *fabric, struct fabric_slot **slot, size_t bytes);
void fabric_slot_drop(struct fabric_slot *slot); /* one user less; NULL is fine */
/* Queues a copy between `device` and copy->memory, whose slot it holds. */
enum status fabric_staging_copy(struct fabric *fabric, enum device_direction direction,
                                void *device, struct fabric_copy copy, struct error *error);
/* Likewise of runs to a peer's region, one copy of copy->link. Its number is in *number_out. */
enum status fabric_staging_copy_runs(struct fabric *fabric, const struct device_run *runs,
                                     uint32_t count, struct fabric_copy copy, uint64_t *number_out,
                                     struct error *error);
bool fabric_staging_progress(struct fabric *fabric);
/* Goes on with copies until `*left`, which they count down as they are done, is 0, but no longer
 * than FABRIC_SETTLE_US. */
void fabric_staging_settle(struct fabric *fabric, const size_t *left);
/* The device will wake us; false: and UCX is not to, before it has. */
bool fabric_staging_arm(struct fabric *fabric);
void fabric_staging_tick(struct fabric *fabric);
/* So much has come that UCX is not to bring more. */
bool fabric_staging_full(const struct fabric *fabric);
void fabric_staging_forget(struct fabric *fabric, const struct fabric_link *link,
                           const struct fabric_inbox *inbox);

#endif
