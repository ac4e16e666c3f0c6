/* batch: the rows that a device computes together, and the sequences that the rows belong to. */
#ifndef COMPUTE_BATCH_H
#define COMPUTE_BATCH_H

#include <stdint.h>

/* One sequence's share of a batch. Rows [first_row, first_row + row_count) are its tokens at
 * positions [first_position, first_position + row_count). Attention of a row reads all positions up
 * to the row's own. */
struct compute_sequence {
    uint32_t first_row;
    uint32_t row_count;
    uint32_t first_position;
    /* Block ids; entry i holds positions from i * block_tokens on. Read during the call only. */
    const uint32_t *blocks;
};

struct compute_batch {
    /* Rows after the last sequence's are padding: they may hold anything, and their K and V are not
     * stored (struct compute_steps_ops). */
    uint32_t row_count;
    uint32_t sequence_count;
    const struct compute_sequence *sequences; /* Ordered by first_row, without gaps. */
};

#endif
