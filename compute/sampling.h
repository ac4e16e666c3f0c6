/* sampling: an optional ability of a backend: the device chooses tokens itself, so that logits are
 * seldom copied to the host. The engine (machine/executor/) calls `sample` on the engine thread.
 * The device follows the rules of model/forward/sampler.h. From equal logits, the device and the
 * host choose the same token, except with top_p if a sum of weights is within rounding errors of
 * the limit. This part does not decide when an answer ends. */
#ifndef COMPUTE_SAMPLING_H
#define COMPUTE_SAMPLING_H

#include "common/sampling.h"

#include <stdbool.h>
#include <stdint.h>

#define COMPUTE_SAMPLES_MAX 256        /* Most rows of one call. */
#define COMPUTE_SAMPLE_DRAW UINT32_MAX /* No forced token. */

struct compute;

/* A change of one logit before the draw (model/forward/logit_edits.h). First `add` is added. If the
 * sum is above 0, the sum is divided by `divide`, otherwise multiplied by `divide`. Then `subtract`
 * is subtracted. */
struct compute_edit {
    uint32_t id; /* The token. */
    float add;   /* -INFINITY = the token is not drawn. */
    float divide;
    float subtract;
};

/* One token to choose from one row of logits. */
struct compute_sample {
    struct sampling sampling; /* The request's rules. */
    uint32_t position;        /* Position of the new token. */
    /* Token that the device reports instead of a drawn token; COMPUTE_SAMPLE_DRAW = draw a token.
     */
    uint32_t forced_token;
    uint32_t masked_count;              /* Number of ids in `masked`. */
    uint32_t masked[SAMPLING_ENDS_MAX]; /* Ids that must not be drawn. */
    /* The row's edits: entries [edit_first, edit_first + edit_count) of `edits` in the call. */
    uint32_t edit_first;
    uint32_t edit_count;
};

/* The token of one row. */
struct compute_sampled {
    /* True: the host must choose the token, or compute the log-probabilities of a forced token,
     * because the device cannot sort all candidates. */
    bool undecided;
    struct sampled sampled;
};

struct compute_sampling_ops {
    /* Chooses a token from each of `count` (≤ COMPUTE_SAMPLES_MAX) rows of logits [count × vocab]
     * in the device's memory. Rows with edits are changed during the call and restored before
     * `sample` returns. All other arrays are in host memory. Requires that no id occurs twice in
     * one row's edits, and that all ids of edits are below `vocab`. Returns when the tokens are in
     * sampled_out. If the device has failed, writes zeros. */
    void (*sample)(struct compute *c, float *logits, uint32_t vocab,
                   const struct compute_sample *samples, uint32_t count,
                   const struct compute_edit *edits, uint32_t edit_count,
                   struct compute_sampled *sampled_out);
};

#endif
