/* low_rank: products with low-rank matrices (LoRA) for rows that want them. Types only; the devices
 * that can do it have compute_ops.low_rank. Any thread. */
#ifndef COMPUTE_LOW_RANK_H
#define COMPUTE_LOW_RANK_H

#include "compute/batch.h"
#include "compute/objects.h"

#define COMPUTE_LOW_RANK_MAX 512 /* Largest rank. */

/* Two matrices whose product has few ranks, in host memory. */
struct compute_low_rank {
    uint32_t rank;     /* 0 = no product. */
    const float *down; /* [rank × columns]: A. */
    const float *up;   /* [rank × rows]: B, transposed, times the adapter's scale. */
};

/* The products of one matrix of a layer with each of the model's adapters. */
struct compute_low_ranks {
    /* [number of adapters]; sequence.adapter is 1 + the index. NULL = no adapter changes the
     * matrix. */
    const struct compute_low_rank *each;
    uint32_t rows; /* Elements of a result. */
};

#endif
