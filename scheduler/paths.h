/* paths: which replica of each stage a request runs on, where stages of a machine are replicated
 * (PipeDream's "7-1": seven replicas of the first stage, one of the second). A *path* is one
 * replica of each stage; requests take the paths in a fixed cycle, and a request keeps its path,
 * for its KV is there. Deterministic: the n-th request of a machine has the path that it has.
 *
 * Each stage by itself hands its requests out in smooth weighted round robin: every replica's turn
 * comes by its speed, spread evenly. All stages take a step for each request, so stages with as
 * many replicas of one speed go together, and there are no more paths than their cycles make.
 *
 * Speeds may be in any unit. Shares are exact where the cycle of all stages together is no longer
 * than SCHED_PATHS_CYCLE requests; else a stage with unequal speeds shares in parts of 1/60. Pure,
 * no allocation. It does not know who is busy: a replica that is slower than its speed says makes
 * its paths wait. */
#ifndef SCHEDULER_PATHS_H
#define SCHEDULER_PATHS_H

#include "common/limits.h"
#include "common/status.h"

#include <stdint.h>

#define SCHED_PATHS_CYCLE 1024

struct sched_paths_stage {
    uint32_t replica_count; /* ≥ 1 */
    const uint32_t *speeds; /* [replica_count], each ≥ 1: requests of one size in some time */
};

struct sched_paths {
    uint32_t stage_count;
    uint32_t path_count;
    uint32_t cycle_count;             /* requests, after which all begins again */
    uint32_t next;                    /* of the cycle */
    uint8_t cycle[SCHED_PATHS_CYCLE]; /* path of each of its requests */
    uint8_t replicas[LIMIT_STAGE_PATHS][LIMIT_STAGES];
};

/* Paths are numbered in the order in which they come first. ST_INVALID: no stage, no replica, or a
 * speed of 0. ST_TOO_LARGE: more than LIMIT_STAGES replicas in all, or more than LIMIT_STAGE_PATHS
 * different paths: the replica counts of stages must go together better (7 and 3 make 21 paths, 6
 * and 3 make 6). */
enum status sched_paths_open(const struct sched_paths_stage *stages, uint32_t stage_count,
                             struct sched_paths *out);
uint32_t sched_paths_replica(const struct sched_paths *paths, uint32_t path, uint32_t stage);
/* The path of the next request. */
uint32_t sched_paths_next(struct sched_paths *paths);

#endif
