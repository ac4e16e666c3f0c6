/* profile_delay: how long this process's threads were ready to run and did not, because the cores
 * were others': what tells a disturbed measurement from a good one. One thread calls; another one
 * may read profile_delay_us meanwhile. */
#ifndef BENCH_PROFILE_DELAY_H
#define BENCH_PROFILE_DELAY_H

#include <stdint.h>

#define PROFILE_DELAY_THREADS_MAX 512

struct profile_delay {
    int count;
    int files[PROFILE_DELAY_THREADS_MAX];       /* of each thread but the one that opened it */
    uint64_t ran_ns[PROFILE_DELAY_THREADS_MAX]; /* at the beginning */
};

/* Of the threads that there are now. A kernel that does not say: no thread ever waits. */
void profile_delay_open(struct profile_delay *d);
void profile_delay_close(struct profile_delay *d);

/* Of all of them, so far. A thread that still waits is not counted before it runs. */
double profile_delay_us(const struct profile_delay *d);

/* A measurement begins; and for how long of its `us` each of them did not run, for whatever reason,
 * in all. */
void profile_delay_begin(struct profile_delay *d);
double profile_delay_idle_us(const struct profile_delay *d, double us);

#endif
