/* clock: the seam through which time comes in. Code that decides anything takes a `struct clock`
 * (or the time itself, in microseconds) and never asks the system, so that simulator and tests set
 * the time. */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stdint.h>

struct clock {
    int64_t (*now_us)(void *self); /* monotonic microseconds from an arbitrary start */
    void *self;
};

/* CLOCK_MONOTONIC of this computer. Any thread. */
extern const struct clock clock_system;

/* The same clock in nanoseconds, for durations of what is too short for microseconds. */
int64_t clock_system_ns(void);

static inline int64_t clock_now_us(const struct clock *clock)
{
    return clock->now_us(clock->self);
}

#endif
