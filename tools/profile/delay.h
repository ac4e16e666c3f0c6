/* profile_delay: how long this process's threads were ready to run but did not, because other
 * processes had the cores. It tells a disturbed measurement from a good one. One thread calls;
 * another thread may call profile_delay_us meanwhile. */
#ifndef TOOLS_PROFILE_DELAY_H
#define TOOLS_PROFILE_DELAY_H

#include <stdint.h>

#define PROFILE_DELAY_THREADS_MAX 512

struct profile_delay {
    int count;
    /* Open files of all threads except the one that called profile_delay_open. */
    int files[PROFILE_DELAY_THREADS_MAX];
    /* Time that each thread had run at profile_delay_begin. */
    uint64_t ran_ns[PROFILE_DELAY_THREADS_MAX];
};

/* Opens the existing threads, except the calling one. If the kernel has no schedstat, no thread
 * ever seems to wait. */
void profile_delay_open(struct profile_delay *d);
void profile_delay_close(struct profile_delay *d);

/* Returns the sum of all waits so far. A thread's current wait is counted only after it ends. */
double profile_delay_us(const struct profile_delay *d);

/* begin: starts a measurement. idle_us: returns how long the threads did not run, for any reason,
 * in a measurement of `us` microseconds; the sum over the threads. */
void profile_delay_begin(struct profile_delay *d);
double profile_delay_idle_us(const struct profile_delay *d, double us);

#endif
