/* clock: where time comes from. Code that makes decisions takes a `struct clock` (or the time in
 * microseconds) and never asks the system, so that the simulator and tests can set the time. Any
 * thread may read a clock. It does not wait and knows no calendar. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stdint.h>

struct clock {
    int64_t (*now_us)(void *self); /* Monotonic microseconds since an arbitrary start. */
    void *self;
};

/* CLOCK_MONOTONIC of this host. Any thread may use it. */
extern const struct clock clock_system;

/* The same clock in nanoseconds, for durations that are too short for microseconds. */
int64_t clock_system_ns(void);

static inline int64_t clock_now_us(const struct clock *clock)
{
    return clock->now_us(clock->self);
}

#endif
