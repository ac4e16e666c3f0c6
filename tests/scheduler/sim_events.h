/* sim_events: what is on its way in a simulated cluster, in the order of time; what was said at the
 * same time comes in the order in which it was said. */
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
    uint64_t serial;
    enum kind kind;
    uint32_t machine;
    uint32_t life; /* of the machine that it goes to or comes from */
    uint32_t request;
    uint32_t generation;
    uint32_t value;
};

void sim_events_reset(void);
uint32_t sim_events_count(void);
/* At event->at_us. */
void sim_events_add(const struct event *event);
struct event sim_events_next(void); /* there is one */

#endif
