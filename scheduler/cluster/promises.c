/* cluster_promises: the places in the queue that are kept for refused clients, which were told when
 * to come again (admission.c). A client is recognised by the identity of its request
 * (sched_event.identity). A place is kept from the promised time until the client has come, for at
 * most PROMISE_KEPT_US: Retry-After is in whole seconds, so an obedient client comes up to a second
 * later than promised. Promises are in the order of their times, because each is later than the one
 * before it. */
#include "scheduler/cluster/state.h"

#define PROMISE_KEPT_US  2000000
#define PROMISE_EARLY_US 1000000 /* A client that comes this much too early also gets its place. */

static uint32_t ring_index(const struct promises *p, uint32_t i)
{
    return (p->first + i) % PROMISES_MAX;
}

/* Returns true if the client has come, or comes too late for its place. */
static bool is_over(const struct promise *promise, int64_t now_us)
{
    return promise->identity == 0 || promise->at_us + PROMISE_KEPT_US < now_us;
}

static void over_forget(struct promises *p, int64_t now_us)
{
    while (p->count > 0 && is_over(&p->ring[p->first], now_us)) {
        p->first = ring_index(p, 1);
        p->count--;
    }
}

void cluster_promise_add(struct sched_cluster *sc, uint64_t identity, int64_t at_us)
{
    struct promises *p = &sc->admission.promises;
    over_forget(p, sc->now_us);
    if (identity != 0 && p->count < PROMISES_MAX)
        p->ring[ring_index(p, p->count++)] = (struct promise){.identity = identity, .at_us = at_us};
}

bool cluster_promise_take(struct sched_cluster *sc, uint64_t identity)
{
    struct promises *p = &sc->admission.promises;
    over_forget(p, sc->now_us);
    for (uint32_t i = 0; identity != 0 && i < p->count; i++) {
        struct promise *promise = &p->ring[ring_index(p, i)];
        if (promise->at_us > sc->now_us + PROMISE_EARLY_US)
            return false;
        if (promise->identity == identity) {
            promise->identity = 0;
            return true;
        }
    }
    return false;
}

uint32_t cluster_promises_due(const struct sched_cluster *sc)
{
    const struct promises *p = &sc->admission.promises;
    uint32_t due = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const struct promise *promise = &p->ring[ring_index(p, i)];
        if (promise->at_us > sc->now_us)
            break;
        due += !is_over(promise, sc->now_us);
    }
    return due;
}
