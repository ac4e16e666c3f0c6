/* profile_delay: two times of this process's threads, from Linux's schedstat: how long the threads
 * could run but waited for a core, and how long they did not run for any reason. step.c owns the
 * struct and calls the functions on the main thread. Any thread may call profile_delay_us. This
 * part only reports times: points.c decides which samples the waits have disturbed. */
#ifndef TOOLS_PROFILE_DELAY_H
#define TOOLS_PROFILE_DELAY_H

#include <stdint.h>

#define PROFILE_DELAY_THREADS_MAX 512

struct profile_delay {
    int count;                            /* Threads that are observed. */
    int files[PROFILE_DELAY_THREADS_MAX]; /* [count]: the threads' open schedstat files. */
    /* [count]: time that the threads had run when profile_delay_begin was called. */
    uint64_t ran_ns[PROFILE_DELAY_THREADS_MAX];
};

/* Observes the present threads of this process, except the calling thread; at most
 * PROFILE_DELAY_THREADS_MAX. If the kernel has no schedstat, all times are 0. */
void profile_delay_open(struct profile_delay *d);
void profile_delay_close(struct profile_delay *d);

/* Returns how many microseconds the observed threads have waited for a core since each thread
 * began, as a sum over the threads. A wait counts once it has ended. */
double profile_delay_us(const struct profile_delay *d);

/* Starts a measurement of profile_delay_idle_us. */
void profile_delay_begin(struct profile_delay *d);
/* Returns the time since profile_delay_begin in which the observed threads did not run, for any
 * reason, as a sum over the threads. us: microseconds since profile_delay_begin. */
double profile_delay_idle_us(const struct profile_delay *d, double us);

#endif
