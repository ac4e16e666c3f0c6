/* Goal: events are returned in the order of time, and events of equal time in the order in which
 * they were added. An event that is added again has only its last time. Method: random operations
 * compared with a plain array that is searched. */
#include "tools/simulate/event_heap.h"

#include "common/random.h"
#include "tests/check.h"

#define IDS 200

struct plain {
    bool due;
    double at_s;
    uint64_t serial;
};

static struct plain plain[IDS];
static uint64_t draws;
static uint64_t seed;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static uint32_t plain_first(void)
{
    uint32_t first = IDS;
    for (uint32_t i = 0; i < IDS; i++)
        if (plain[i].due &&
            (first == IDS || plain[i].at_s < plain[first].at_s ||
             (plain[i].at_s == plain[first].at_s && plain[i].serial < plain[first].serial)))
            first = i;
    return first;
}

int main(void)
{
    struct event_heap heap;
    uint64_t serial = 0;
    uint32_t room = 0;
    seed = test_seed();
    event_heap_init(&heap);
    for (int step = 0; step < 50000; step++) {
        uint32_t id;
        double at_s;
        if (step % 1000 == 0 && room < IDS)
            room += 20;
        CHECK(event_heap_reserve(&heap, room) == ST_OK);
        if (draw(100) < 5) {
            id = draw(room);
            event_heap_remove(&heap, id);
            plain[id].due = false;
        } else if (draw(100) < 60) {
            id = draw(room);
            at_s = draw(50);
            plain[id] = (struct plain){.due = true, .at_s = at_s, .serial = serial};
            serial++;
            event_heap_put(&heap, id, at_s);
        } else if (event_heap_first(&heap, &id, &at_s)) {
            CHECKF(id == plain_first(), "step %d: %u, want %u", step, id, plain_first());
            CHECK(at_s == plain[id].at_s);
            event_heap_pop(&heap);
            plain[id].due = false;
        } else {
            CHECK(plain_first() == IDS);
        }
    }
    event_heap_done(&heap);
    return 0;
}
