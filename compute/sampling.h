/* sampling: an optional ability of a backend: it chooses tokens where the logits are, so that
 * logits are seldom copied to the host. The engine of a machine or of `cleave profile` calls it on
 * the engine thread; only the CUDA backend has it. A device follows the rules of
 * model/forward/sampler.h: it gives the same token as the host for the same logits. (With top_p the
 * tokens may differ if the sum of the weights is within rounding errors of the limit.) It does not
 * decide when an answer ends (machine/answer.c does). */
#ifndef COMPUTE_SAMPLING_H
#define COMPUTE_SAMPLING_H

#include "common/sampling.h"

#include <stdbool.h>
#include <stdint.h>

#define COMPUTE_SAMPLES_MAX 256        /* Rows of one call. */
#define COMPUTE_SAMPLE_DRAW UINT32_MAX /* No forced token. */

struct compute;

/* A change of one logit before the draw: `add` is added; a result above 0 is divided by `divide`,
 * any other is multiplied by it; then `subtract` is subtracted (model/forward/logit_edits.h). add
 * -INFINITY = the token is not drawn. */
struct compute_edit {
    uint32_t id;
    float add;
    float divide;
    float subtract;
};

/* One token to choose from one row of logits. */
struct compute_sample {
    struct sampling sampling; /* The request's rules. */
    uint32_t position;        /* Position of the new token. */
    /* Token that is taken instead of a draw, so that its log-probability is reported;
     * COMPUTE_SAMPLE_DRAW = draw a token. */
    uint32_t forced_token;
    uint32_t masked_count;              /* Number of ids in `masked`. */
    uint32_t masked[SAMPLING_ENDS_MAX]; /* Ids that must not be drawn. */
    /* The row's edits: entries [edit_first, edit_first + edit_count) of `edits` in the call. */
    uint32_t edit_first;
    uint32_t edit_count;
};

/* The token of one row. */
struct compute_sampled {
    /* The device cannot decide (nearly flat logits have too many candidates): the host must. */
    bool undecided;
    struct sampled sampled;
};

struct compute_sampling_ops {
    /* Chooses a token from each of `count` (≤ COMPUTE_SAMPLES_MAX) rows of logits [count × vocab]
     * in the device's memory. Rows with edits are changed during the call and restored before it
     * returns. edits[0..edit_count) are in the host's memory; the ids of one row are different and
     * below `vocab`. Returns when the tokens are in sampled_out. */
    void (*sample)(struct compute *c, float *logits, uint32_t vocab,
                   const struct compute_sample *samples, uint32_t count,
                   const struct compute_edit *edits, uint32_t edit_count,
                   struct compute_sampled *sampled_out);
};

#endif
