/* clock: where time comes from. Code that decides by time is given a `struct clock`, or the time in
 * microseconds (schedulers), so that tests and the simulator can set the time. Code that only
 * measures a duration, and transport/, read clock_system directly. Any thread may read a clock. A
 * clock sets no timers, does not wait and knows no calendar. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stdint.h>

struct clock {
    int64_t (*now_us)(void *self); /* Monotonic microseconds since an arbitrary start. */
    void *self;                    /* Argument of now_us. */
};

/* CLOCK_MONOTONIC of this host. Any thread may use it. */
extern const struct clock clock_system;

/* CLOCK_MONOTONIC in nanoseconds, for durations that are too short for microseconds. */
int64_t clock_system_ns(void);

/* Returns the clock's time in microseconds. */
static inline int64_t clock_now_us(const struct clock *clock)
{
    return clock->now_us(clock->self);
}

#endif
