/* profile_delay: how long this process's threads were ready to run but did not run, because other
 * processes had the cores. With these times, `cleave profile` counts and avoids disturbed samples.
 * step.c opens the struct and reads it on its caller's thread; stamps.c calls profile_delay_us on
 * that thread and on the engine's. Linux counts the times (schedstat); this part reads them, and
 * drops no sample. */
#ifndef TOOLS_PROFILE_DELAY_H
#define TOOLS_PROFILE_DELAY_H

#include <stdint.h>

#define PROFILE_DELAY_THREADS_MAX 512

struct profile_delay {
    int count;
    /* [count]: open schedstat files of all threads, except the thread that called
     * profile_delay_open. */
    int files[PROFILE_DELAY_THREADS_MAX];
    /* [count]: time that each thread had run at profile_delay_begin. */
    uint64_t ran_ns[PROFILE_DELAY_THREADS_MAX];
};

/* Opens the schedstat files of all threads that exist now, except the calling thread; at most
 * PROFILE_DELAY_THREADS_MAX. If the kernel has no schedstat, no thread ever seems to wait. */
void profile_delay_open(struct profile_delay *d);
void profile_delay_close(struct profile_delay *d);

/* Returns the sum of all waits so far, over all opened threads. A wait is counted only after it
 * ends. */
double profile_delay_us(const struct profile_delay *d);

/* Starts a measurement of profile_delay_idle_us. */
void profile_delay_begin(struct profile_delay *d);
/* Returns how long the threads did not run, for any reason, since profile_delay_begin: the sum over
 * the threads. us: microseconds since profile_delay_begin, which the caller has measured. */
double profile_delay_idle_us(const struct profile_delay *d, double us);

#endif
