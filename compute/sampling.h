/* sampling: an optional ability of a backend: it chooses tokens where the logits are, so that no
 * logits are copied to the host. The rules are those of model/sampler.h: a device gives the same
 * token as the host for the same logits. */
#ifndef COMPUTE_SAMPLING_H
#define COMPUTE_SAMPLING_H

#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

#define COMPUTE_MASKED_MAX  16
#define COMPUTE_SAMPLES_MAX 256
#define COMPUTE_SAMPLE_DRAW UINT32_MAX

struct compute;

/* One token to choose from one row of logits. */
struct compute_sample {
    float temperature; /* 0 = always the most likely token. */
    float top_p;
    float min_p;
    uint32_t top_k;
    uint64_t seed;
    uint32_t position; /* Position of the new token. */
    /* Number of alternatives to report; 0 = only the token's own log-probability; -1 = none. */
    int32_t logprobs;
    /* This token is taken instead of a draw, and its log-probability reported;
     * COMPUTE_SAMPLE_DRAW = draw a token. */
    uint32_t forced_token;
    uint32_t masked_count;
    uint32_t masked[COMPUTE_MASKED_MAX]; /* Tokens that must not be chosen. */
};

struct compute_sampled {
    /* The kernel cannot decide this row (nearly flat logits): the host must. */
    bool undecided;
    uint32_t id;
    float logprob;
    uint32_t top_count;
    uint32_t top_ids[LIMIT_LOGPROBS]; /* The most likely token is first. */
    float top_logprobs[LIMIT_LOGPROBS];
};

struct compute_sampling_ops {
    /* Chooses a token from each of `count` (≤ COMPUTE_SAMPLES_MAX) rows of logits [count × vocab]
     * in the device's memory. Returns when the tokens are in sampled_out. */
    void (*sample)(struct compute *c, const float *logits, uint32_t vocab,
                   const struct compute_sample *samples, uint32_t count,
                   struct compute_sampled *sampled_out);
};

#endif
