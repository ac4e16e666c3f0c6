/* wait: the parts of the waiting backend (compute_wait in compute.h) that tests need: a clock that
 * tests can replace, and constants. The backend sleeps instead of computing (docs/profile.md).
 * Tests call wait_clock_set on the thread that opened the device. This header owns nothing. */
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
 * compute_wait opened the device, and that the device does not compute. */
void wait_clock_set(struct compute *device, const struct wait_clock *clock);

/* If the wait of a layer ends late, the wait of the next layer is shorter by the delay, but by at
 * most this number of nanoseconds. */
#define WAIT_CREDIT_NS_MAX ((int64_t)10 * 1000 * 1000)

/* The logits that the backend writes: WAIT_LOGIT for the token WAIT_TOKEN, 0 for all other tokens.
 * The token is in the middle of the vocabulary, where known vocabularies have no end token. */
#define WAIT_LOGIT               1000.0f
#define WAIT_TOKEN(vocab_tokens) ((vocab_tokens) / 2)

#endif
