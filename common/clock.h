/* clock: where time comes from. The event loops of machine/ and server/, and membership/, get a
 * `struct clock` when they are opened. Schedulers and pools get the time in microseconds as an
 * argument. Because of both, tests and the simulator can set the time. Code that only measures
 * durations or waits with a time limit reads clock_system directly. Any thread may read a clock. A
 * clock sets no timers, does not wait and knows no calendar. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stdint.h>

struct clock {
    /* Returns microseconds since an arbitrary start; they never decrease. */
    int64_t (*now_us)(void *self);
    void *self; /* Argument of now_us. */
};

/* CLOCK_MONOTONIC of this host. */
extern const struct clock clock_system;

/* Returns CLOCK_MONOTONIC in nanoseconds, for durations that are too short for microseconds. */
int64_t clock_system_ns(void);

/* Returns the clock's time in microseconds. */
static inline int64_t clock_now_us(const struct clock *clock)
{
    return clock->now_us(clock->self);
}

#endif
