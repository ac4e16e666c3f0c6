/* clock: the system's monotonic clock behind the seam. */
#include "common/clock.h"

#include <time.h>

static int64_t system_now_us(void *self)
{
    (void)self;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

const struct clock clock_system = {system_now_us, 0};
