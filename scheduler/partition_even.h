/* partition_even: divides layers over stages in a given order so that the slowest stage is as fast
 * as possible. A machine with `"stages": N` uses it. Exact (dynamic programming; PipeDream, SOSP
 * 2019, section 3.1, without its topology). No state: any thread. machine/executor/stage_plan.c and
 * the simulator call it. It ignores devices' memory, links, replicas and latency limits:
 * tools/partition/solver/partition.h considers them. */
#ifndef SCHEDULER_PARTITION_EVEN_H
#define SCHEDULER_PARTITION_EVEN_H

#include "common/status.h"

#include <stdint.h>

/* Stage s gets the layers ends_out[s - 1] … ends_out[s] - 1 (stage 0 starts at layer 0), at least
 * one. ends_out[stage_count - 1] == layer_count.
 *
 * layer_cost: [layer_count], in any unit: times from a profile, or bytes of weights without a
 * profile (decoding reads each weight once). first_extra and last_extra are added to the first
 * stage (embedding) and the last stage (final norm, vocabulary projection, sampling). speeds:
 * [stage_count], > 0, of each stage's device; NULL = all equal. The time of a stage is the sum of
 * its costs / its speed.
 *
 * Of the splits whose slowest stage is as fast as possible, the one with the smallest sum of
 * squared stage times is taken; of these, the one whose first stages have the most layers (8 8 7 7
 * for 30 equal layers over 4 stages). So the same input gives the same split on every machine.
 * Times that differ by a factor of less than 1 + 1e-9 count as equal, so that rounding does not
 * decide.
 *
 * ST_INVALID, with nothing written: no layers, no stages, fewer layers than stages, more than
 * LIMIT_LAYERS layers, a cost that is not a number ≥ 0, a speed that is not a number > 0, or a
 * slowest stage above 1e100. */
enum status partition_even(const double *layer_cost, uint32_t layer_count, double first_extra,
                           double last_extra, const double *speeds, uint32_t stage_count,
                           uint32_t *ends_out, struct error *error);

#endif
