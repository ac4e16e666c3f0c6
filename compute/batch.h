/* batch: the rows that a device computes together, and the sequences that the rows belong to. The
 * caller of an operation fills in the batch and owns the arrays; the backend reads them during the
 * call. Data only: no functions, no threads. A batch has no activations and no request ids. */
#ifndef COMPUTE_BATCH_H
#define COMPUTE_BATCH_H

#include <stdint.h>

/* The part of one sequence (the tokens of one request) in a batch. Rows [first_row, first_row +
 * row_count) of the batch are the tokens of the sequence at positions [first_position,
 * first_position + row_count). */
struct compute_sequence {
    uint32_t first_row;
    uint32_t row_count;
    uint32_t first_position;
    uint32_t adapter; /* 1 + the index of the low-rank adapter; 0 = none (compute/low_rank.h). */
    /* Block ids: block blocks[i] holds the KV of positions i * block_tokens to (i + 1) *
     * block_tokens - 1. */
    const uint32_t *blocks;
    /* Entries from the block table of one layer group (common/layer_groups.h) to the table of the
     * next group: the table of group g begins at blocks + g * group_stride. Backends ignore this
     * field: in a batch for a backend, `blocks` is the table of the layer's group. */
    uint32_t group_stride;
};

struct compute_batch {
    /* Number of rows, including padding. Padding rows follow the rows of the last sequence and may
     * hold any values (compute_steps_ops.padded_rows). Their K and V are not stored. */
    uint32_t row_count;
    uint32_t sequence_count;
    const struct compute_sequence *sequences; /* Ordered by first_row, without gaps. */
};

#endif
