/* wait: lets tests replace the clock of the waiting backend (compute_wait). One thread. */
#ifndef COMPUTE_WAIT_WAIT_H
#define COMPUTE_WAIT_WAIT_H

#include "compute/compute.h"

#include <stdint.h>

struct wait_time {
    int64_t (*now_ns)(void *self);
    void (*sleep_until_ns)(void *self, int64_t at_ns); /* May return late, but never early. */
    void *self;
};

/* Replaces the system's clock. c must belong to compute_wait. */
void wait_time_set(struct compute *c, const struct wait_time *time);

/* A wait that ends late makes the next one shorter, by at most this much. */
#define WAIT_CREDIT_NS_MAX ((int64_t)10 * 1000 * 1000)

/* Token WAIT_TOKEN(vocab) gets the logit WAIT_LOGIT, all other tokens get 0. It is never an end
 * token, because known vocabularies have their end tokens at the beginning or the end. */
#define WAIT_LOGIT        1000.0f
#define WAIT_TOKEN(vocab) ((vocab) / 2)

#endif
