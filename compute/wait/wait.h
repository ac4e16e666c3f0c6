/* wait: the seam through which the waiting backend waits, for its tests. One thread. */
#ifndef COMPUTE_WAIT_WAIT_H
#define COMPUTE_WAIT_WAIT_H

#include "compute/compute.h"

#include <stdint.h>

struct wait_time {
    int64_t (*now_ns)(void *self);
    void (*sleep_until_ns)(void *self, int64_t at_ns); /* may return late, never early */
    void *self;
};

/* In the place of the computer's own time. c is of compute_wait. */
void wait_time_set(struct compute *c, const struct wait_time *time);

/* How late a wait may have ended for the next one to make up for it. */
#define WAIT_CREDIT_NS_MAX ((int64_t)10 * 1000 * 1000)

/* The logit of token WAIT_TOKEN(vocab), where all others are 0. Known vocabularies have their end
 * tokens at their beginning or end. */
#define WAIT_LOGIT        1000.0f
#define WAIT_TOKEN(vocab) ((vocab) / 2)

#endif
