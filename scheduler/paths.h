/* paths: chooses which replica of each stage a request uses. A path is a list of replicas, one of
 * each stage. The requests of a machine get paths in a fixed cycle. On a machine, a request keeps
 * its path, because the replicas of the path have its KV. machine/executor/ makes the paths when a
 * machine starts; prompt_pool/ and token_pool/ take paths on the machine's event loop thread; the
 * simulator makes and takes paths on its thread. Not thread-safe. Pure: no I/O, no allocation. The
 * functions do not know which replicas are busy.
 *
 * Each stage chooses its replicas by smooth weighted round robin: every replica gets requests in
 * proportion to its speed, spread evenly over the cycle. All stages advance by one step for each
 * request.
 *
 * Speeds may be in any unit. The replicas' shares are exact if the cycles of all stages together
 * repeat after at most SCHED_PATHS_CYCLE requests. Otherwise the shares of a stage with unequal
 * speeds are rounded to multiples of 1/60. */
#ifndef SCHEDULER_PATHS_H
#define SCHEDULER_PATHS_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

#define SCHED_PATHS_CYCLE 1024 /* Most requests of a cycle. */

/* The replicas of one stage. */
struct sched_paths_stage {
    uint32_t replica_count; /* ≥ 1 */
    const uint32_t *speeds; /* Speed of each replica, [replica_count], each ≥ 1. */
};

struct sched_paths {
    uint32_t stage_count;
    uint32_t path_count;
    uint32_t cycle_count;             /* Requests of a cycle. */
    uint32_t next_position;           /* Next position in the cycle. */
    uint8_t cycle[SCHED_PATHS_CYCLE]; /* Path of each request of the cycle. */
    /* [path][stage]: index of the replica. */
    uint8_t replicas[LIMIT_STAGE_PATHS][LIMIT_STAGE_PROCESSES];
};

/* Computes the paths, which are numbered in the order of their first use. Returns ST_INVALID for no
 * stage, no replica or a speed of 0; ST_TOO_LARGE for more than LIMIT_STAGE_PROCESSES replicas in
 * all, for more than LIMIT_STAGE_PATHS different paths, or if the cycle is longer than
 * SCHED_PATHS_CYCLE even with rounded shares. After an error, *out is not valid. Replica counts
 * with a small common multiple make fewer paths: 6 and 3 make 6 paths, 5 and 3 make 15. */
enum status sched_paths_open(const struct sched_paths_stage *stages, uint32_t stage_count,
                             struct sched_paths *out);
/* Returns the index of the replica of the stage on the path. */
uint32_t sched_paths_replica(const struct sched_paths *paths, uint32_t path, uint32_t stage);
/* Returns the path of the next request, and advances the cycle. */
uint32_t sched_paths_next(struct sched_paths *paths);

#endif
