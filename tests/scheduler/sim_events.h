/* sim_events: the queue of a simulated cluster's events (messages that arrive, batches that end),
 * in the order of time. Events of equal time are returned in the order in which they were added.
 * test_simulation.c and test_sharing.c call it on their one thread; there is one set of events per
 * process. It handles no events: the test does. */
#ifndef TESTS_SCHEDULER_SIM_EVENTS_H
#define TESTS_SCHEDULER_SIM_EVENTS_H

#include <stdint.h>

#define SIM_EVENTS_MAX 4096

enum kind {
    MESSAGE_RESERVE,
    MESSAGE_RESERVED,
    MESSAGE_PROMPT,
    MESSAGE_FIRST,
    MESSAGE_KV,
    MESSAGE_PREFILLED,
    MESSAGE_END,
    MESSAGE_PREEMPTED,
    MESSAGE_YIELDED,
    MESSAGE_CANCEL,
    MESSAGE_ROLE,
    BATCH_END,
};

struct event {
    int64_t at_us;
    uint64_t serial; /* Order of the additions; set by sim_events_add. */
    enum kind kind;
    uint32_t machine;
    uint32_t machine_starts; /* Life (number of starts) of the machine that sends or receives it. */
    uint32_t request;
    uint32_t generation;
    uint32_t value; /* A number that depends on `kind`. */
};

void sim_events_reset(void);
uint32_t sim_events_count(void);
/* Adds an event that is due at event->at_us. */
void sim_events_add(const struct event *event);
struct event sim_events_next(void); /* Removes the first event. Requires an event. */

#endif
