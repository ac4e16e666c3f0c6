/* fabric_internal: what fabric.c (worker, region), fabric_link.c (writing) and fabric_inbox.c
 * (being written) share. */
#ifndef TRANSPORT_FABRIC_INTERNAL_H
#define TRANSPORT_FABRIC_INTERNAL_H

#include "transport/fabric.h"

#include <ucp/api/ucp.h>

#define FABRIC_AM_WRITE   1u
#define FABRIC_OPS_SLAB   256u
#define FABRIC_EPOCHS_MAX 65536u /* flushes of one peer that wait; more is a broken peer */

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
    struct fabric_write_header header;
};

struct fabric_slab {
    struct fabric_slab *next;
    struct fabric_op ops[FABRIC_OPS_SLAB];
};

struct fabric {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_mem_h memory;
    void *region;
    uint64_t region_bytes;
    struct fabric_address address;
    int fd;
    bool messages_only; /* CLEAVE_KV_WRITE=am */
    struct fabric_link *links, *closing;
    struct fabric_inbox *inboxes;
    struct fabric_slab *slabs;
    struct fabric_op *free_ops;
    uint64_t next_token;
};

/* An op in the list *owner; NULL when there is no memory. */
struct fabric_op *fabric_op_take(struct fabric *fabric, struct fabric_op **owner);
void fabric_op_give(struct fabric_op *op);
/* The owner goes away: its ops stay with UCX, without owner. */
void fabric_ops_orphan(struct fabric_op **owner);

/* Destroys closing links whose endpoints UCX has closed; with `all`, the others as well. */
void fabric_links_reap(struct fabric *fabric, bool all);

enum status
fabric_inboxes_start(struct fabric *fabric); /* installs the handler of FABRIC_AM_WRITE */

#endif
