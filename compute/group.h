/* group: an optional ability of a backend: devices of several processes compute one stage together,
 * each with a slice of every layer (tensor parallelism). The backends cpu/ and wait/ connect ranks
 * on one host (meeting.h), the backend cuda/ connects ranks by NCCL. wait/ only connects the ranks:
 * its operations add and normalise nothing.
 *
 * One thread at a time calls the functions for a device (compute.h). A stage process
 * (machine/executor/) calls id_make on its event loop thread, and `join` on its engine thread;
 * `cleave profile` also calls both. The forward pass (model/forward/) calls the operations. The
 * caller of id_make sends the id to the other ranks. The device owns its membership in the group,
 * and leaves the group when the device is closed.
 *
 * After the process of a rank has ended, compute_ops.check returns an error on the other ranks:
 *
 *   cpu/    at the latest after the first group operation that the ended rank has not reached
 *   wait/   at the latest after the first layer_begin that the ended rank has not reached
 *   cuda/   when NCCL has reported the error
 *
 * A failed group cannot be repaired: the processes of all ranks must end. */
#ifndef COMPUTE_GROUP_H
#define COMPUTE_GROUP_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes of the id with which the ranks of a group find each other. */
#define COMPUTE_GROUP_ID_BYTES 128

struct compute;

/* Rows that are normalised over the columns of all ranks. */
struct compute_group_norm {
    const float *weight; /* [cols] */
    uint32_t cols;       /* Columns of this rank. */
    uint32_t cols_all;   /* Columns of all ranks. */
    float *x;            /* [rows × cols] */
};
/* Most arrays of rows in one call of compute_group_ops.norm: q and k. */
#define COMPUTE_GROUP_NORMS_MAX 2

struct compute_group_ops {
    /* Makes the id of a new group. Rank 0 calls id_make before `join`. On failure, *error has the
     * reason. */
    enum status (*id_make)(struct compute *c, uint8_t id_out[COMPUTE_GROUP_ID_BYTES],
                           struct error *error);
    /* Joins the group `id` as rank `rank` of `ranks`. May be called once per device. Blocks until
     * all ranks have joined. Returns ST_TIMED_OUT if a rank has not joined within `timeout_ms`;
     * ST_UNREACHABLE if a rank has ended, has left the group or no longer waits for the other
     * ranks, or if NCCL fails; or ST_NO_MEMORY. cpu/ and wait/ also return ST_MISMATCH if a rank
     * joins twice or the ranks give different numbers of ranks, and ST_INVALID for an id of another
     * kind of group, a rank out of range or too many ranks. cuda/ also returns ST_UNSUPPORTED if
     * NCCL is missing or too old, and ST_IO if the GPU has failed. */
    enum status (*join)(struct compute *c, const uint8_t id[COMPUTE_GROUP_ID_BYTES], uint32_t rank,
                        uint32_t ranks, uint32_t timeout_ms, struct error *error);

    /* The functions below are operations (operations.h). Every rank must make the same calls of
     * these functions, in the same order and with the same counts. */

    /* Replaces the `count` floats of y by their sums over all ranks, with the same bits on every
     * rank. */
    void (*sum)(struct compute *c, size_t count, float *y);
    /* Adds to x the sums of y over all ranks; y may be overwritten. A GPU may send y rounded to
     * bfloat16. */
    void (*sum_add)(struct compute *c, size_t count, float *y, float *x);
    /* RMSNorm (compute_ops.norm), in place, of each of `count` (1 to COMPUTE_GROUP_NORMS_MAX)
     * arrays of rows. mean(x²) is the mean over the row's columns of all ranks. */
    void (*norm)(struct compute *c, const struct compute_group_norm *norms, uint32_t count,
                 float epsilon, uint32_t row_count);
    /* Joins the columns of all ranks: row r of `rows_out` is row r of rank 0's `part` (counts[0]
     * columns), then row r of rank 1's `part` (counts[1] columns), and so on. Only rank 0 gets
     * `rows_out`; the other ranks may pass NULL. */
    void (*gather)(struct compute *c, uint32_t row_count, const float *part, const uint32_t *counts,
                   float *rows_out);
};

#endif
