/* wait: lets tests replace the clock of the waiting backend (compute_wait), and declares constants
 * that tests compare with. Only tests call wait_time_set, on the thread that computes, before the
 * device computes. The backend itself is described in compute.h and docs/profile.md. */
#ifndef COMPUTE_WAIT_WAIT_H
#define COMPUTE_WAIT_WAIT_H

#include "compute/compute.h"

#include <stdint.h>

/* A clock that a device waits by. */
struct wait_time {
    int64_t (*now_ns)(void *self);                     /* Monotonic nanoseconds. */
    void (*sleep_until_ns)(void *self, int64_t at_ns); /* May return late, but never early. */
    void *self;
};

/* Replaces the system's clock; *time is copied. Requires that c was opened by compute_wait. */
void wait_time_set(struct compute *c, const struct wait_time *time);

/* A wait that ends late makes the next wait shorter, by at most this many nanoseconds. */
#define WAIT_CREDIT_NS_MAX ((int64_t)10 * 1000 * 1000)

/* Token WAIT_TOKEN(vocab) gets the logit WAIT_LOGIT, all other tokens get 0. This token is no end
 * token in the known vocabularies, which have their end tokens at the beginning or the end. */
#define WAIT_LOGIT        1000.0f
#define WAIT_TOKEN(vocab) ((vocab) / 2)

#endif
