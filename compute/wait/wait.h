/* wait: what tests need of the waiting backend (compute_wait), which sleeps instead of computing
 * (docs/profile.md): a clock that tests can replace, and constants. Only tests call wait_clock_set,
 * on the thread that opened the device, before the device computes. wait.c implements the backend;
 * compute.h declares it. This header owns nothing. */
#ifndef COMPUTE_WAIT_WAIT_H
#define COMPUTE_WAIT_WAIT_H

#include "compute/compute.h"

#include <stdint.h>

/* A clock. The thread that computes batches calls both functions. */
struct wait_clock {
    int64_t (*now_ns)(void *self); /* Returns monotonic nanoseconds. */
    /* Returns when now_ns is at_ns or later. */
    void (*sleep_until_ns)(void *self, int64_t at_ns);
    void *self; /* First argument of both functions. */
};

/* Makes a device use this clock instead of the system's clock. *clock is copied. Requires that
 * compute_wait opened the device. */
void wait_clock_set(struct compute *device, const struct wait_clock *clock);

/* If the wait of a layer ends late, the next layer's wait is shorter by this delay, but by at most
 * this number of nanoseconds. */
#define WAIT_CREDIT_NS_MAX ((int64_t)10 * 1000 * 1000)

/* The logits that the backend writes: WAIT_LOGIT for the token WAIT_TOKEN, 0 for all other tokens.
 * Known vocabularies have their end tokens at the beginning or the end, so WAIT_TOKEN does not end
 * an answer. */
#define WAIT_LOGIT               1000.0f
#define WAIT_TOKEN(vocab_tokens) ((vocab_tokens) / 2)

#endif
