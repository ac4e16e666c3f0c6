/* event_heap: see the header. */
#include "tools/simulate/event_heap.h"

#include <assert.h>
#include <stdlib.h>

void event_heap_init(struct event_heap *heap)
{
    *heap = (struct event_heap){0};
}

void event_heap_done(struct event_heap *heap)
{
    free(heap->items);
    free(heap->positions);
    event_heap_init(heap);
}

enum status event_heap_reserve(struct event_heap *heap, uint32_t capacity)
{
    if (capacity <= heap->capacity)
        return ST_OK;
    struct event_heap_item *items = realloc(heap->items, capacity * sizeof(items[0]));
    if (items == NULL)
        return ST_NO_MEMORY;
    heap->items = items;
    uint32_t *positions = realloc(heap->positions, capacity * sizeof(positions[0]));
    if (positions == NULL)
        return ST_NO_MEMORY;
    heap->positions = positions;
    for (uint32_t id = heap->capacity; id < capacity; id++)
        positions[id] = EVENT_HEAP_NONE;
    heap->capacity = capacity;
    return ST_OK;
}

static bool sooner(const struct event_heap_item *a, const struct event_heap_item *b)
{
    return a->at_s != b->at_s ? a->at_s < b->at_s : a->serial < b->serial;
}

static void item_set(struct event_heap *heap, uint32_t place, const struct event_heap_item *item)
{
    heap->items[place] = *item;
    heap->positions[item->id] = place;
}

static void rise(struct event_heap *heap, uint32_t place, const struct event_heap_item *item)
{
    while (place > 0 && sooner(item, &heap->items[(place - 1) / 2])) {
        item_set(heap, place, &heap->items[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    item_set(heap, place, item);
}

static void sink(struct event_heap *heap, uint32_t place, const struct event_heap_item *item)
{
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child + 1 < heap->count && sooner(&heap->items[child + 1], &heap->items[child]))
            child++;
        if (child >= heap->count || !sooner(&heap->items[child], item))
            break;
        item_set(heap, place, &heap->items[child]);
        place = child;
    }
    item_set(heap, place, item);
}

void event_heap_put(struct event_heap *heap, uint32_t id, double at_s)
{
    assert(id < heap->capacity);
    const struct event_heap_item item = {.at_s = at_s, .serial = heap->serial++, .id = id};
    uint32_t place = heap->positions[id];
    if (place == EVENT_HEAP_NONE)
        rise(heap, heap->count++, &item);
    else if (sooner(&item, &heap->items[place]))
        rise(heap, place, &item);
    else
        sink(heap, place, &item);
}

bool event_heap_first(const struct event_heap *heap, uint32_t *id_out, double *at_s_out)
{
    if (heap->count == 0)
        return false;
    *id_out = heap->items[0].id;
    *at_s_out = heap->items[0].at_s;
    return true;
}

void event_heap_remove(struct event_heap *heap, uint32_t id)
{
    assert(id < heap->capacity);
    uint32_t place = heap->positions[id];
    if (place == EVENT_HEAP_NONE)
        return;
    const struct event_heap_item gone = heap->items[place];
    const struct event_heap_item last = heap->items[--heap->count];
    heap->positions[id] = EVENT_HEAP_NONE;
    if (place == heap->count)
        return;
    if (sooner(&last, &gone))
        rise(heap, place, &last);
    else
        sink(heap, place, &last);
}

void event_heap_pop(struct event_heap *heap)
{
    assert(heap->count > 0);
    event_heap_remove(heap, heap->items[0].id);
}
