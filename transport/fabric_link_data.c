/* fabric_link_data: the queue of a link. Writes to a peer that UCX does not reach wait here until
 * the caller takes them, piece by piece, and sends them over the data connections to the peer.
 * Writes over UCX wait here for room in window_bytes. See fabric.h. */
#include "transport/fabric_internal.h"

#include <stdlib.h>

void fabric_link_data_add(struct fabric_link *link, const struct data_write *write)
{
    struct data_queue *queue = &link->queue;
    if (queue->count == queue->capacity) {
        uint64_t capacity = queue->capacity > 0 ? queue->capacity * 2 : 64;
        struct data_write *writes = calloc(capacity, sizeof(*writes));
        if (writes == NULL) {
            fabric_link_fail(link, UCS_ERR_NO_MEMORY);
            fabric_slot_drop(write->slot);
            return;
        }
        for (uint64_t n = queue->first; n < queue->first + queue->count; n++)
            writes[n % capacity] = queue->writes[n % queue->capacity];
        free(queue->writes);
        queue->writes = writes;
        queue->capacity = capacity;
    }
    queue->writes[(queue->first + queue->count++) % queue->capacity] = *write;
}

bool fabric_link_by_data(const struct fabric_link *link)
{
    return link->by_data;
}

bool fabric_link_piece_next(const struct fabric_link *link, struct fabric_piece *out)
{
    const struct data_queue *queue = &link->queue;
    if (queue->count == 0 || fabric_link_failing(link))
        return false;
    const struct data_write *write = &queue->writes[queue->first % queue->capacity];
    *out = (struct fabric_piece){
        .request = write->request,
        .offset = write->offset,
        .epoch = write->epoch,
        .memory = write->memory,
        .bytes = write->bytes < FABRIC_PIECE_BYTES_MAX ? write->bytes : FABRIC_PIECE_BYTES_MAX,
    };
    return true;
}

bool fabric_link_data_take(struct fabric_link *link, struct data_write *out)
{
    struct data_queue *queue = &link->queue;
    if (queue->count == 0)
        return false;
    *out = queue->writes[queue->first % queue->capacity];
    queue->first++;
    queue->count--;
    return true;
}

/* Drops the oldest write. */
static bool queue_next(struct fabric_link *link)
{
    struct data_write write;
    if (!fabric_link_data_take(link, &write))
        return false;
    if (write.slot != NULL)
        link->sending_bytes -= write.slot_bytes;
    fabric_slot_drop(write.slot);
    return true;
}

void fabric_link_piece_sent(struct fabric_link *link, size_t bytes)
{
    struct data_queue *queue = &link->queue;
    struct data_write *write = &queue->writes[queue->first % queue->capacity];
    write->memory += bytes;
    write->offset += bytes;
    write->bytes -= bytes;
    if (write->bytes == 0)
        (void)queue_next(link);
}

void fabric_link_data_close(struct fabric_link *link)
{
    while (queue_next(link))
        ;
    free(link->queue.writes);
    link->queue.writes = NULL;
}
