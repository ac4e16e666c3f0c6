/* low_rank: types for products with low-rank matrices (LoRA), for rows whose sequence has an
 * adapter. model/forward/adapters.c fills them when a model is opened and owns the matrices, which
 * are in the device's memory (compute_ops.memory_take). compute_ops.low_rank (operations.h) reads
 * them, on the engine thread and the backend's worker threads. Types only: no functions. */
#ifndef COMPUTE_LOW_RANK_H
#define COMPUTE_LOW_RANK_H

#include "compute/batch.h"
#include "compute/objects.h"

#define COMPUTE_LOW_RANK_MAX 512 /* Largest rank. */

/* Two matrices in the device's memory. Their product, [rows × columns], is added to a weight matrix
 * of this size. */
struct compute_low_rank {
    uint32_t rank;     /* 0 = this adapter does not change the matrix. */
    const float *down; /* [rank × columns]: A. */
    const float *up;   /* [rank × rows]: B, transposed, times the adapter's scale. */
};

/* The products of one matrix of a layer with each of the model's adapters. */
struct compute_low_ranks {
    /* [number of adapters], in the device's memory; sequence.adapter is 1 + the index. NULL = no
     * adapter changes the matrix. */
    const struct compute_low_rank *by_adapter;
    uint32_t rows;     /* Elements of a result. */
    uint32_t rank_max; /* Largest rank of an adapter. */
};

#endif
