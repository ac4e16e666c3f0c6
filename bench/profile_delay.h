/* profile_delay: how long this process's threads were ready to run and did not, because the cores
 * were others': what tells a disturbed measurement from a good one. One thread. */
#ifndef BENCH_PROFILE_DELAY_H
#define BENCH_PROFILE_DELAY_H

#define PROFILE_DELAY_THREADS_MAX 512

struct profile_delay {
    int count;
    int files[PROFILE_DELAY_THREADS_MAX]; /* of each thread */
};

/* Of the threads that there are now. A kernel that does not say: no thread ever waits. */
void profile_delay_open(struct profile_delay *d);
void profile_delay_close(struct profile_delay *d);

/* Of all of them, so far. */
double profile_delay_us(const struct profile_delay *d);

#endif
