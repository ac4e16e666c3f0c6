/* link_speed: estimates latency and bandwidth of one link from measured transfers. prompt_pool/ has
 * one struct per link on the machine's event loop thread (push_meter.h). Pure: no clock and no I/O.
 * The functions measure nothing, and do not know which transfers wait for the link. */
#ifndef SCHEDULER_LINK_SPEED_H
#define SCHEDULER_LINK_SPEED_H

#include "scheduler/rates.h"

/* A new transfer reduces the weight of each older transfer by the part 1 / LINK_SPEED_TRANSFERS. */
#define LINK_SPEED_TRANSFERS 32

/* All zeros = no transfer was measured. */
struct link_speed {
    struct rates_line line;  /* Through the points (bytes, microseconds). */
    struct rates_line large; /* The same, but transfers smaller than mean_bytes count less. */
    uint32_t transfers;      /* Number of recorded transfers, at most LINK_SPEED_TRANSFERS. */
    double mean_bytes;       /* Mean size of the transfers; older transfers count less. */
    double log_error;        /* Mean of |log(time / estimated time)|; older transfers count less. */
    /* Greatest bytes / time of a recorded transfer; the time includes the latency. */
    double fastest_bytes_per_us;
};

/* A transfer of n bytes takes latency_us + 1000000 × n / bytes_per_s microseconds. */
struct link_estimate {
    uint32_t latency_us;
    /* Mean error of the estimates: (exp(log_error) - 1) × 100, rounded up; at most 1000. */
    uint32_t error_percent;
    /* At most the rate of link_speed.fastest_bytes_per_us; 0 = not measured. */
    uint64_t bytes_per_s;
};

/* Records a transfer of `bytes` bytes that took `us` microseconds. 0 bytes or 0 us: no effect. */
void link_speed_add(struct link_speed *speed, uint64_t bytes, uint64_t us);
/* Returns the estimate; all zeros = no transfer was measured. */
struct link_estimate link_speed_estimate(const struct link_speed *speed);

#endif
