/* paths: which replica of each stage a request uses (PipeDream's "7-1": seven replicas of the first
 * stage, one of the second). A path is one replica of each stage. Requests take the paths in a
 * fixed cycle, and a request keeps its path, because its KV is there. The assignment is
 * deterministic: the n-th request of a machine always gets the same path.
 *
 * Each stage assigns its requests by smooth weighted round robin: every replica gets requests in
 * proportion to its speed, spread evenly. All stages advance by one step per request, so stages
 * with equally many replicas of equal speed go together, and the number of paths stays small.
 *
 * Speeds may be in any unit. Shares are exact if the common cycle of all stages has at most
 * SCHED_PATHS_CYCLE requests; otherwise the shares of a stage with unequal speeds are rounded to
 * parts of 1/60. Pure, no allocation. machine/executor/stage_plan.c opens the paths; both pools
 * take paths on the machine's event loop thread, and so does the simulator on its own. Not
 * thread-safe. It does not know which replicas are busy: a replica that is slower than its speed
 * says makes its paths wait. */
#ifndef SCHEDULER_PATHS_H
#define SCHEDULER_PATHS_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

#define SCHED_PATHS_CYCLE 1024

struct sched_paths_stage {
    uint32_t replica_count; /* ≥ 1 */
    const uint32_t *speeds; /* [replica_count], each ≥ 1: requests of one size per unit of time. */
};

struct sched_paths {
    uint32_t stage_count;
    uint32_t path_count;
    uint32_t cycle_count;             /* Requests after which the assignment repeats. */
    uint32_t next;                    /* Next position in the cycle. */
    uint8_t cycle[SCHED_PATHS_CYCLE]; /* Path of each request of the cycle. */
    uint8_t replicas[LIMIT_STAGE_PATHS][LIMIT_STAGES];
};

/* Paths are numbered in the order of their first use. ST_INVALID: no stage, no replica, or a speed
 * of 0. ST_TOO_LARGE: more than LIMIT_STAGES replicas in all, or more than LIMIT_STAGE_PATHS
 * different paths. Replica counts with a small common multiple make fewer paths (7 and 3 make 21
 * paths, 6 and 3 make 6). */
enum status sched_paths_open(const struct sched_paths_stage *stages, uint32_t stage_count,
                             struct sched_paths *out);
uint32_t sched_paths_replica(const struct sched_paths *paths, uint32_t path, uint32_t stage);
/* Returns the path of the next request. */
uint32_t sched_paths_next(struct sched_paths *paths);

#endif
