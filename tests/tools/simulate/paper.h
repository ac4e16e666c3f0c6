/* paper: what tests of the simulator share that use the machines of Splitwise's paper: the paths of
 * its performance table and of deploy/hardware, and numbers drawn from a seed. The test sets
 * `seed`, and calls the functions on its main thread; paper_open comes first and makes the scratch
 * folder. */
#ifndef TESTS_TOOLS_SIMULATE_PAPER_H
#define TESTS_TOOLS_SIMULATE_PAPER_H

#include "common/random.h"
#include "tests/tools/simulate/scratch.h"

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static char table[1200];
static char hardware[1200];
static uint64_t seed;
static uint64_t draws;

/* Returns a number below `below`, which depends on `seed` and on the number of draws before. */
static inline uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(seed, draws++) % below);
}

static inline void paper_open(void)
{
    const char *source = getenv("CLEAVE_SOURCE");
    source = source != NULL ? source : ".";
    snprintf(table, sizeof(table), "%s/tests/data/splitwise/perf_model.csv", source);
    snprintf(hardware, sizeof(hardware), "%s/deploy/hardware", source);
    CHECK(mkdtemp(scratch) != NULL);
}

#endif
