/* ranks: the processes of a group, for tests: each runs the same function, and their devices join
 * as often as they open one. */
#ifndef TESTS_MODEL_RANKS_H
#define TESTS_MODEL_RANKS_H

#include "compute/compute.h"

struct ranks_board;

struct ranks { /* as one process sees them */
    uint32_t rank, ranks;
    uint32_t joined; /* groups until now */
    struct ranks_board *board;
};

/* Forks: the caller has no threads. Returns when all have come back from fn; a rank that does not
 * fails the test. */
void ranks_run(uint32_t ranks, void (*fn)(struct ranks *r, void *context), void *context);

/* By all ranks, each with a device of its own. */
void ranks_join(struct ranks *r, const struct compute_ops *ops, struct compute *c);

#endif
