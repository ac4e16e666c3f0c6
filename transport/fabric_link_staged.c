/* fabric_link_staged: writes from a region in a device's memory. They wait here, are copied piece
 * by piece into slots of pinned memory, and are sent from there; or they are copied to another
 * device (fabric_link_peer.c). See fabric_staging.c. */
#include "transport/fabric_internal.h"

#include <stdlib.h>

/* Most bytes of one link that are being copied or sent. Eight pieces keep the device and the
 * network busy, and limit what a peer that does not read can occupy. */
#define UNDER_WAY_BYTES_MAX (8 * FABRIC_PIECE_BYTES_MAX)

void fabric_link_stage(struct fabric_link *link, const struct staged_write *write)
{
    if (link->waiting_count == link->waiting_capacity) {
        uint64_t capacity = link->waiting_capacity > 0 ? link->waiting_capacity * 2 : 64;
        struct staged_write *waiting = calloc(capacity, sizeof(*waiting));
        if (waiting == NULL) {
            fabric_link_fail(link, UCS_ERR_NO_MEMORY);
            return;
        }
        for (uint64_t n = link->waiting_first; n < link->waiting_first + link->waiting_count; n++)
            waiting[n % capacity] = link->staged_writes[n % link->waiting_capacity];
        free(link->staged_writes);
        link->staged_writes = waiting;
        link->waiting_capacity = capacity;
    }
    link->staged_writes[(link->waiting_first + link->waiting_count++) % link->waiting_capacity] =
        *write;
    /* Otherwise the write waits for more writes, which are then copied in one batch. */
    if (link->import == NULL || write->is_flush || link->waiting_count >= DEVICE_RUNS_MAX)
        (void)fabric_link_pump(link);
}

bool fabric_link_failing(const struct fabric_link *link)
{
    return link->failure != UCS_OK || link->device_failed != ST_OK;
}

struct staged_write *fabric_link_staged_first(struct fabric_link *link)
{
    if (link->waiting_count == 0 || fabric_link_failing(link))
        return NULL;
    return &link->staged_writes[link->waiting_first % link->waiting_capacity];
}

void fabric_link_staged_remove(struct fabric_link *link)
{
    link->waiting_first++;
    link->waiting_count--;
}

/* Begins the copy of the next piece. Returns false if the link has failed. */
static bool piece_begin(struct fabric_link *link, struct staged_write *write)
{
    struct fabric_copy copy = {
        .bytes = write->bytes < FABRIC_PIECE_BYTES_MAX ? write->bytes : FABRIC_PIECE_BYTES_MAX,
        .offset = write->offset,
        .request = write->request,
        .epoch = write->epoch,
        .link = link,
    };
    copy.memory = fabric_slot_memory(link->fabric, &link->slot, copy.bytes);
    copy.slot = link->slot;
    if (copy.memory == NULL) {
        link->device_failed =
            error_set(&link->device_failure, ST_NO_MEMORY, "%s: no pinned memory for its KV",
                      link->fabric->staging->device->name);
        return false;
    }
    enum status status = fabric_staging_copy(
        link->fabric, DEVICE_TO_HOST, (void *)(uintptr_t)write->local, copy, &link->device_failure);
    if (status != ST_OK) {
        link->device_failed = status;
        return false;
    }
    link->copying_bytes += copy.bytes;
    write->local += copy.bytes;
    write->offset += copy.bytes;
    write->bytes -= copy.bytes;
    return true;
}

bool fabric_link_pump(struct fabric_link *link)
{
    struct staged_write *write;
    bool did = false;
    if (link->import != NULL)
        return fabric_link_peer_pump(link);
    while ((write = fabric_link_staged_first(link)) != NULL) {
        /* The writes before the flush have not been given to UCX yet. */
        if (write->is_flush && link->copying_bytes > 0)
            return did;
        if (!write->is_flush && link->copying_bytes + link->sending_bytes >= UNDER_WAY_BYTES_MAX)
            return did;
        if (write->is_flush)
            fabric_link_flush_put(link, write->number);
        else if (!piece_begin(link, write))
            return true;
        did = true;
        if (write->bytes == 0)
            fabric_link_staged_remove(link);
    }
    return did;
}

void fabric_link_copied(struct fabric_link *link, const struct fabric_copy *copy)
{
    link->copying_bytes -= copy->bytes;
    if (fabric_link_failing(link))
        return;
    if (link->import != NULL) {
        fabric_link_peer_copied(link, copy);
        return;
    }
    link->sending_bytes += copy->bytes;
    copy->slot->users++;
    const struct data_write write = {.request = copy->request,
                                     .memory = copy->memory,
                                     .bytes = copy->bytes,
                                     .offset = copy->offset,
                                     .epoch = copy->epoch,
                                     .slot = copy->slot,
                                     .slot_bytes = copy->bytes};
    fabric_link_send(link, &write);
}

void fabric_link_unstage(struct fabric_link *link)
{
    fabric_staging_forget(link->fabric, link, NULL);
    fabric_slot_drop(link->slot);
    link->slot = NULL;
    free(link->staged_writes);
    link->staged_writes = NULL;
    link->waiting_count = 0;
}
