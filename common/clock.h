/* clock: the monotonic clock of the host, and an interface with which tests replace this clock.
 * Most parts whose decisions depend on the time get a `struct clock`, or the time as an argument.
 * Any thread may read a clock. A clock sets no timers, does not wait and knows no calendar. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stdint.h>

struct clock {
    /* Returns microseconds since an arbitrary start. The result never decreases. */
    int64_t (*now_us)(void *self);
    void *self; /* Argument of now_us. */
};

/* CLOCK_MONOTONIC of this host. */
extern const struct clock clock_system;

/* Returns CLOCK_MONOTONIC in nanoseconds. */
int64_t clock_system_ns(void);

/* Calls the clock's now_us. */
static inline int64_t clock_now_us(const struct clock *clock)
{
    return clock->now_us(clock->self);
}

#endif
