/* steps: an optional ability of a backend: it records the operations of a batch (as a CUDA graph)
 * and queues all of them at once for later batches of the same shape. A step is one batch with what
 * all operations on it have in common. The device also copies the step's arrays (token ids, rows,
 * block tables) to its memory once, instead of once for each operation. The forward pass
 * (model/forward/forward.c) makes every call, on the thread that computes (compute.h). Only the
 * CUDA backend has it; the forward pass works without it. */
#ifndef COMPUTE_STEPS_H
#define COMPUTE_STEPS_H

#include "compute/batch.h"

#include <stdbool.h>
#include <stdint.h>

struct compute;

/* One step. The arrays belong to the caller and must not change until compute_steps_ops.end. */
struct compute_step {
    /* Identifies the forward pass that issues the operations. A recording is used only for steps of
     * the owner for which it was made. */
    const void *owner;
    struct compute_batch batch;
    /* Tokens of the rows that are not padding; NULL = the stage does not read tokens. */
    const uint32_t *token_ids;
    const uint32_t *logits_rows; /* Rows whose logits are wanted, in ascending order. */
    uint32_t logits_count;
    bool all_rows; /* The last layer is computed for rows without logits too. */
    /* The caller will call compute_ops.mark between the operations, so the step is not recorded. */
    bool marks_wanted;
    const void *x;       /* Residual stream: the activations that every layer adds to. */
    const void *kv_base; /* KV-cache of the stage's first layer. */
    uint32_t block_tokens;
    /* Longest context that a recording of this step is made for. If the batch has a longer context,
     * that one counts. */
    uint32_t tokens_longest;
};

struct compute_steps_ops {
    /* begin and end enclose all operations of one batch; operations that are given the step's
     * arrays find the device's copies. `begin` returns true if a step of the same shape has been
     * recorded: it then has queued all operations itself, and the caller makes none of them and
     * calls only `end`. */
    bool (*begin)(struct compute *c, const struct compute_step *step);
    void (*end)(struct compute *c);
    /* Returns the number of rows that the batch should be padded to, at most rows_max, so that
     * batches of similar sizes can use one recording; the batch's own number of rows = no padding.
     */
    uint32_t (*padded_rows)(const struct compute *c, const struct compute_step *step,
                            uint32_t rows_max);
    /* Prepares the device, so that the first batch need not. Called once, when a machine has
     * allocated everything (models, workspaces, KV) and before any batch. A GPU keeps faster copies
     * of weights in memory that is still free, and leaves a share of it for buffers that grow. */
    void (*prepare)(struct compute *c);
    /* Returns the shapes of decode steps that should be recorded before requests need them: one in
     * each call, with turn = 0, 1, 2, …: *rows_out rows (at most rows_max) with contexts of
     * *tokens_out tokens (up to about tokens_max). The caller runs a step of this shape twice, with
     * padding only. False: there are no more shapes, or recording has taken as long as loading the
     * weights did, or longer than a limit of the backend. */
    bool (*next_shape)(struct compute *c, uint32_t turn, uint32_t rows_max, uint32_t tokens_max,
                       uint32_t *rows_out, uint32_t *tokens_out);
};

#endif
