#include "tests/scheduler/sim_events.h"

#include "tests/check.h"

#include <stdbool.h>

static struct event heap[SIM_EVENTS_MAX];
static uint32_t heap_count;
static uint64_t serials;

static bool sooner(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->serial < b->serial;
}

void sim_events_reset(void)
{
    heap_count = 0;
    serials = 0;
}

uint32_t sim_events_count(void)
{
    return heap_count;
}

void sim_events_add(const struct event *event)
{
    struct event added = *event;
    CHECK(heap_count < SIM_EVENTS_MAX);
    added.serial = serials++;
    uint32_t at = heap_count++;
    for (; at > 0 && sooner(&added, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = added;
}

struct event sim_events_next(void)
{
    struct event first = heap[0];
    struct event moved = heap[--heap_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < heap_count && sooner(&heap[child + 1], &heap[child]))
            child++;
        if (child >= heap_count || !sooner(&heap[child], &moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
    return first;
}
