/* event_heap: what is due next on virtual time. Events are dense ids, each at one time at most: an
 * event that moves (a run of iterations that is cut) is put again, and nothing stale stays behind.
 * Equal times come out in the order in which they were put. A binary heap over arrays that grow as
 * needed, and never per event. One thread. */
#ifndef SIMULATOR_EVENT_HEAP_H
#define SIMULATOR_EVENT_HEAP_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct event_heap_item {
    double at_s;
    uint64_t serial; /* of the put */
    uint32_t id;
};

struct event_heap {
    struct event_heap_item *items; /* the heap */
    uint32_t *places;              /* [room]: where an id is in items; EVENT_HEAP_NONE: nowhere */
    uint32_t count;
    uint32_t room; /* ids < room are known */
    uint64_t serial;
};

#define EVENT_HEAP_NONE UINT32_MAX

void event_heap_init(struct event_heap *heap);
void event_heap_done(struct event_heap *heap);

/* Ids below `room` may be put from now on. ST_NO_MEMORY: as before. */
enum status event_heap_reserve(struct event_heap *heap, uint32_t room);

/* `id` is due at `at_s`, whether it was due at another time before or not at all. */
void event_heap_put(struct event_heap *heap, uint32_t id, double at_s);
/* It is not due any more; nothing happens if it was not. */
void event_heap_remove(struct event_heap *heap, uint32_t id);
/* False: nothing is due. Otherwise the first one, which stays. */
bool event_heap_first(const struct event_heap *heap, uint32_t *id_out, double *at_s_out);
/* Takes the first one away. There is one. */
void event_heap_pop(struct event_heap *heap);

#endif
