/* event_heap: the future events of a simulation, ordered by virtual time, as a binary heap. An
 * event is a small number (id) and is in the heap at most once: putting the event again moves it to
 * the new time. Events with equal times are returned in the order in which they were put. Memory
 * grows only in event_heap_reserve. A simulation owns its heap, and calls the functions on one
 * thread. The heap does not know what an event does. */
#ifndef TOOLS_SIMULATE_EVENT_HEAP_H
#define TOOLS_SIMULATE_EVENT_HEAP_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

struct event_heap_item {
    double at_s;     /* Virtual time of the event. */
    uint64_t serial; /* Number of the put, which orders events with equal times. */
    uint32_t id;
};

struct event_heap {
    struct event_heap_item *items; /* The heap, in the usual array form. */
    /* [capacity]: index of each id in items; EVENT_HEAP_NONE = not in the heap. */
    uint32_t *positions;
    uint32_t count;
    uint32_t capacity; /* Ids must be below this number. */
    uint64_t serial;   /* Number of puts. */
};

#define EVENT_HEAP_NONE UINT32_MAX

/* Makes an empty heap that allows no ids. */
void event_heap_init(struct event_heap *heap);
/* Frees the memory; the heap is empty again. */
void event_heap_done(struct event_heap *heap);

/* Allows ids below `capacity`. Returns ST_NO_MEMORY, with the heap unchanged, on failure. */
enum status event_heap_reserve(struct event_heap *heap, uint32_t capacity);

/* Puts event `id` into the heap with the time at_s. If the event is in the heap already, moves the
 * event to this time. */
void event_heap_put(struct event_heap *heap, uint32_t id, double at_s);
/* Removes event `id` from the heap. Does nothing if the event is not in the heap. */
void event_heap_remove(struct event_heap *heap, uint32_t id);
/* Stores the first event and its time. The event stays in the heap. Returns false if the heap is
 * empty. */
bool event_heap_first(const struct event_heap *heap, uint32_t *id_out, double *at_s_out);
/* Removes the first event. Requires that the heap is not empty. */
void event_heap_pop(struct event_heap *heap);

#endif
