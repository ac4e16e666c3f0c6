/* group: an optional ability of a backend: devices of several processes compute one stage together,
 * each with a slice of every layer (tensor parallelism). machine/executor/stage_group.c makes a
 * group (event loop thread) and lets the engine thread join it; the forward pass calls sum, add and
 * gather on the engine thread. When a rank dies, compute_ops.check reports it on the other ranks. A
 * group never changes its members: after a failure, the ranks' processes end. */
#ifndef COMPUTE_GROUP_H
#define COMPUTE_GROUP_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes of the id by which the ranks of a group find each other. */
#define COMPUTE_GROUP_ID_BYTES 128

struct compute;

struct compute_group_ops {
    /* Makes the id of a new group. Only rank 0 calls it; the caller sends id_out to all ranks. */
    enum status (*make)(struct compute *c, uint8_t id_out[COMPUTE_GROUP_ID_BYTES],
                        struct error *error);
    /* Joins the group; called once per device. Blocks until all ranks have joined. Fails if a rank
     * has not joined within `timeout_ms`, or has died. */
    enum status (*join)(struct compute *c, const uint8_t id[COMPUTE_GROUP_ID_BYTES], uint32_t rank,
                        uint32_t ranks, uint32_t timeout_ms, struct error *error);
    /* y = the sum of y over the ranks: the same bits on every rank, on CPUs added in the order of
     * the ranks. After joining, every rank must make the same calls of sum, add and gather in the
     * same order with the same counts. They are queued like every operation. */
    void (*sum)(struct compute *c, size_t count, float *y);
    /* x += the sum of y over the ranks; y is overwritten. A GPU may send bfloat16. */
    void (*add)(struct compute *c, size_t count, float *y, float *x);
    /* Writes the ranks' rows of `part` side by side: all[row] has counts[rank] columns of each
     * rank. Only rank 0's `all` is written; the other ranks may pass NULL. */
    void (*gather)(struct compute *c, uint32_t row_count, const float *part, const uint32_t *counts,
                   float *all);
};

#endif
