/* low_rank: types for products with low-rank matrices (LoRA), for rows whose sequence has an
 * adapter. model/forward/ fills in these types and owns the matrices, which are in the device's
 * memory (compute_ops.memory_allocate); compute_ops.low_rank (operations.h) reads the matrices.
 * Types only: no functions, no threads. */
#ifndef COMPUTE_LOW_RANK_H
#define COMPUTE_LOW_RANK_H

#include "compute/batch.h"
#include "compute/objects.h"

#define COMPUTE_LOW_RANK_MAX 512 /* Largest rank. */

/* What an adapter changes in one weight matrix W [rows × columns]: products with W become products
 * with W + scale · B · A. A and B are in the device's memory. */
struct compute_low_rank {
    uint32_t rank;     /* 0 = this adapter does not change W. */
    const float *down; /* [rank × columns]: A. */
    const float *up;   /* [rank × rows]: B, transposed, times the adapter's scale. */
};

/* What each of the model's adapters changes in one weight matrix of a layer. */
struct compute_low_ranks {
    /* [number of adapters], in the device's memory. compute_sequence.adapter is 1 + the index in
     * this array. NULL = no adapter changes the matrix. */
    const struct compute_low_rank *by_adapter;
    uint32_t rows;     /* Rows of the weight matrix. */
    uint32_t rank_max; /* Largest `rank` in by_adapter. */
};

#endif
