/* ranks: the processes of a group (tensor parallelism), for tests. Each process runs the same
 * function, and its devices join the group each time a device is opened. The test's main thread
 * calls ranks_run; each rank's main thread calls ranks_join. It starts no machine and splits no
 * weights: the model does. */
#ifndef TESTS_MODEL_FORWARD_RANKS_H
#define TESTS_MODEL_FORWARD_RANKS_H

#include "compute/compute.h"

struct ranks_board;

/* The group as one process sees it. */
struct ranks {
    uint32_t rank, ranks;      /* This process's rank, and the number of ranks. */
    uint32_t joined;           /* Number of groups so far. */
    struct ranks_board *board; /* Memory that the processes share, with the groups' ids. */
};

/* Forks the processes and returns when all have returned from fn. A rank that does not return fails
 * the test. Requires that the caller has no threads. */
void ranks_run(uint32_t ranks, void (*fn)(struct ranks *r, void *context), void *context);

/* Joins the next group. All ranks call it, each with its own device, and wait for each other. Fails
 * the test after 30 s. */
void ranks_join(struct ranks *r, const struct compute_ops *ops, struct compute *c);

#endif
