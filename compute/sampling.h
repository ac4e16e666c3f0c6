/* sampling: an optional ability of a backend: it chooses tokens where the logits are, so that no
 * logits are copied to the host. The rules are those of model/forward/sampler.h: a device gives the same
 * token as the host for the same logits. */
#ifndef COMPUTE_SAMPLING_H
#define COMPUTE_SAMPLING_H

#include "common/sampling.h"

#include <stdbool.h>
#include <stdint.h>

#define COMPUTE_SAMPLES_MAX 256
#define COMPUTE_SAMPLE_DRAW UINT32_MAX

struct compute;

/* One token to choose from one row of logits. */
struct compute_sample {
    struct sampling sampling;
    uint32_t position; /* Position of the new token. */
    /* This token is taken instead of a draw, and its log-probability reported;
     * COMPUTE_SAMPLE_DRAW = draw a token. */
    uint32_t forced_token;
    uint32_t masked_count;
    uint32_t masked[SAMPLING_ENDS_MAX]; /* Ids that must not be drawn. */
};

struct compute_sampled {
    /* The device cannot decide (nearly flat logits have too many candidates): the host must. */
    bool undecided;
    struct sampled sampled;
};

struct compute_sampling_ops {
    /* Chooses a token from each of `count` (≤ COMPUTE_SAMPLES_MAX) rows of logits [count × vocab]
     * in the device's memory. Returns when the tokens are in sampled_out. */
    void (*sample)(struct compute *c, const float *logits, uint32_t vocab,
                   const struct compute_sample *samples, uint32_t count,
                   struct compute_sampled *sampled_out);
};

#endif
