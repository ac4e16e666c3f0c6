/* profile_delay: how long this process's threads were ready to run but waited for a core. With
 * these times, `cleave profile` counts and avoids disturbed samples. step.c owns the struct and
 * calls the functions on its caller's thread; stamps.c calls profile_delay_us on that thread and on
 * the threads of the engine and of the device. Linux counts the times (schedstat). This part reads
 * them and drops no sample. */
#ifndef TOOLS_PROFILE_DELAY_H
#define TOOLS_PROFILE_DELAY_H

#include <stdint.h>

#define PROFILE_DELAY_THREADS_MAX 512

struct profile_delay {
    int count; /* Threads that are observed. */
    /* [count]: open schedstat files of all threads, except the thread that called
     * profile_delay_open. */
    int files[PROFILE_DELAY_THREADS_MAX];
    /* [count]: time that each thread had run when profile_delay_begin was called. */
    uint64_t ran_ns[PROFILE_DELAY_THREADS_MAX];
};

/* Observes the threads of this process that exist now, except the calling thread; at most
 * PROFILE_DELAY_THREADS_MAX of them. If the kernel has no schedstat, all times are 0. */
void profile_delay_open(struct profile_delay *d);
void profile_delay_close(struct profile_delay *d);

/* Returns the sum of all waits for a core so far, over the observed threads. A wait is counted only
 * after it ends. */
double profile_delay_us(const struct profile_delay *d);

/* Starts a measurement of profile_delay_idle_us. */
void profile_delay_begin(struct profile_delay *d);
/* Returns how long the observed threads did not run since profile_delay_begin, for any reason: the
 * sum over the threads. us: microseconds since profile_delay_begin. */
double profile_delay_idle_us(const struct profile_delay *d, double us);

#endif
