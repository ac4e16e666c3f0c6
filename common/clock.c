/* clock: the system's monotonic clock. */
#include "common/clock.h"

#include <time.h>

int64_t clock_system_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t system_now_us(void *self)
{
    (void)self;
    return clock_system_ns() / 1000;
}

const struct clock clock_system = {system_now_us, 0};
