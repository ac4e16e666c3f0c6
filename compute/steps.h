/* steps: an optional ability of a backend: the device records the operations of a batch (as a CUDA
 * graph), and queues all of them at once for later batches of the same shape. A step is one batch
 * with the arrays that its operations share (token ids, rows, block tables). The device copies
 * these arrays to its memory once, instead of once for each operation.
 *
 * The forward pass (model/forward/) calls these functions, one thread at a time for each device
 * (compute.h), and works without this ability. The device owns the recordings. */
#ifndef COMPUTE_STEPS_H
#define COMPUTE_STEPS_H

#include "compute/batch.h"

#include <stdbool.h>
#include <stdint.h>

struct compute;

/* One step. The arrays belong to the caller and must not change until compute_steps_ops.end. */
struct compute_step {
    /* Identifies the forward pass that issues the operations. The device uses a recording only for
     * steps with the same owner. Not NULL. */
    const void *owner;
    struct compute_batch batch;
    /* Token ids of the rows that are not padding; NULL = the stage does not read tokens. */
    const uint32_t *token_ids;
    /* Rows whose logits the caller reads, in ascending order: logits_count minus the number of
     * padding rows. In a step with logits, each padding row also gets logits, which the caller does
     * not read. */
    const uint32_t *logits_rows;
    uint32_t logits_count; /* Number of rows with logits, including padding rows. */
    /* True: the last layer is computed for all rows, also for rows without logits. */
    bool all_rows;
    /* True: the step is not recorded. Required if the caller calls compute_ops.mark within the
     * step, or if the operations of the step use different block tables (several layer groups). */
    bool is_unrecordable;
    const void *residual; /* Residual stream: the activations that every layer adds to. */
    const void *kv_base;  /* KV-cache of the first layer. */
    uint32_t block_tokens;
    /* A recording of this step must be usable for contexts of this length, in tokens, and for the
     * contexts of the batch. */
    uint32_t context_tokens_max;
};

struct compute_steps_ops {
    /* The operations between `begin` and `end` belong to the step. An operation that gets an array
     * of the step uses the device's copy of the array. If a step of the same shape has been
     * recorded, `begin` queues all operations itself and returns true: the caller then calls no
     * operation, only `end`. */
    bool (*begin)(struct compute *c, const struct compute_step *step);
    void (*end)(struct compute *c);
    /* Returns the number of rows, at most rows_max, to which the caller pads the batch, so that
     * batches of similar sizes use one recording. The batch's own number of rows = no padding. */
    uint32_t (*padded_rows)(const struct compute *c, const struct compute_step *step,
                            uint32_t rows_max);
    /* Prepares the device, so that the first batch is not slower than later batches. Call it after
     * models, workspaces and KV have been allocated, and before the first batch. A GPU makes copies
     * of quantised weights that are faster to multiply. The copies may take most of the free
     * memory. */
    void (*prepare)(struct compute *c);
    /* Stores the shape of the next decode step that the device wants to record before requests need
     * the step: *rows_out rows (at most rows_max) with contexts of up to *tokens_out tokens. The
     * caller then runs a step of this shape twice, with padding only. tokens_max: longest context
     * that requests can have; *tokens_out may be greater. `index` is 0 in the first call, 1 in the
     * second call, and so on. Returns false if there are no more shapes, if recording has taken too
     * long, or if the device has failed. */
    bool (*next_shape)(struct compute *c, uint32_t index, uint32_t rows_max, uint32_t tokens_max,
                       uint32_t *rows_out, uint32_t *tokens_out);
};

#endif
