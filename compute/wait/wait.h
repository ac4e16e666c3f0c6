/* wait: lets tests replace the clock of the waiting backend (compute_wait), and declares constants
 * of this backend, which tests read. Only tests call wait_clock_set, before the device computes.
 * This part owns nothing. The backend itself is declared in compute.h (docs/profile.md). */
#ifndef COMPUTE_WAIT_WAIT_H
#define COMPUTE_WAIT_WAIT_H

#include "compute/compute.h"

#include <stdint.h>

/* A clock, and the function that waits on it. The thread that computes batches calls both. */
struct wait_clock {
    int64_t (*now_ns)(void *self);                     /* Monotonic nanoseconds. */
    void (*sleep_until_ns)(void *self, int64_t at_ns); /* May return late, but never early. */
    void *self;
};

/* Makes device c use this clock instead of the system's; copies *clock. Requires that c was opened
 * by compute_wait. */
void wait_clock_set(struct compute *c, const struct wait_clock *clock);

/* A wait that ends late makes the next wait shorter, by at most this many nanoseconds. */
#define WAIT_CREDIT_NS_MAX ((int64_t)10 * 1000 * 1000)

/* In a vocabulary of `vocab` tokens, token WAIT_TOKEN(vocab) gets the logit WAIT_LOGIT; all other
 * tokens get 0. Known vocabularies have their end tokens at the beginning or the end, so this token
 * never ends an answer. */
#define WAIT_LOGIT        1000.0f
#define WAIT_TOKEN(vocab) ((vocab) / 2)

#endif
