/* link_speed: latency and bandwidth of one link, from measured transfers. A machine that writes KV
 * has one struct per link (prompt_pool/push_meter.h) and reports the result. Pure: no clock and no
 * I/O; one thread owns each struct. It measures nothing, and does not know about transfers that
 * wait for the link. */
#ifndef SCHEDULER_LINK_SPEED_H
#define SCHEDULER_LINK_SPEED_H

#include "scheduler/rates.h"

/* A new transfer reduces the weight of all older ones by 1 / LINK_SPEED_TRANSFERS. */
#define LINK_SPEED_TRANSFERS 32

/* All zeros = no transfer was measured. */
struct link_speed {
    struct rates_line line; /* Through the points (bytes, time). */
    uint32_t transfers;     /* Number of transfers, up to LINK_SPEED_TRANSFERS. */
    double log_error;       /* Mean of |log(time / estimate)|. */
    double fastest;         /* Most bytes per microsecond of one transfer, its latency included. */
};

/* A transfer of n bytes takes latency_us + 1000000 × n / bytes_per_s microseconds. */
struct link_estimate {
    uint32_t latency_us;
    /* Mean error of the estimates: (exp(log_error) - 1) × 100, rounded up; at most 1000. */
    uint32_t error_percent;
    /* At most the rate of the fastest transfer. 0 = not measured. */
    uint64_t bytes_per_s;
};

/* Records a transfer. The line minimizes relative errors, so that short transfers give the latency
 * and long ones the bandwidth. Does nothing if bytes or us is 0. */
void link_speed_add(struct link_speed *speed, uint64_t bytes, uint64_t us);
/* Returns the estimate; all zeros = no transfer was measured. */
struct link_estimate link_speed_estimate(const struct link_speed *speed);

#endif
