/* clock: where time comes from. machine/, server/ and membership/ are given a `struct clock`, and
 * schedulers and pools the time in microseconds, so that tests and the simulator can set the time.
 * Other code reads clock_system directly: to measure a duration, and for the time limits of
 * transport/, compute/ and tools/. Any thread may read a clock. A clock sets no timers, does not
 * wait and knows no calendar. */
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
