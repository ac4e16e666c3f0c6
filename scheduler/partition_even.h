/* partition_even: divides the layers of a model over the stages of a machine so that the slowest
 * stage is as fast as possible. machine/executor/ and the simulator call the function, which keeps
 * no state; any thread may call it. The result is exact (dynamic programming; PipeDream, SOSP 2019,
 * section 3.1, without its topology). The function does not consider memory, links, replicas or
 * latency limits; tools/partition/solver/partition.h does. */
#ifndef SCHEDULER_PARTITION_EVEN_H
#define SCHEDULER_PARTITION_EVEN_H

#include "common/status.h"

#include <stdint.h>

/* Stores in ends_out[s] the layer after the last layer of stage s. Each stage has at least one
 * layer; stage 0 starts at layer 0, and ends_out[stage_count - 1] == layer_count.
 *
 * layer_cost: [layer_count], the cost of each layer in any unit. first_extra is added to the cost
 * of the first stage (looking up the tokens' vectors), last_extra to the cost of the last stage
 * (vocabulary projection, sampling). speeds: [stage_count], the speed of each stage's device; NULL
 * = all equal. The time of a stage is its cost divided by its speed.
 *
 * Of several splits with an equally fast slowest stage, the split with the smallest sum of squared
 * stage times is taken. If several splits are left, the split whose first stages have the most
 * layers is taken (8 8 7 7 for 30 equal layers over 4 stages). Times that differ by a factor of
 * less than 1 + 1e-9 count as equal, so that rounding does not decide.
 *
 * Returns ST_INVALID, and stores nothing in ends_out, unless 1 ≤ stage_count ≤ layer_count ≤
 * LIMIT_LAYERS, the costs are finite and ≥ 0, the speeds are finite and > 0, and the time of the
 * slowest stage is at most 1e100. */
enum status partition_even(const double *layer_cost, uint32_t layer_count, double first_extra,
                           double last_extra, const double *speeds, uint32_t stage_count,
                           uint32_t *ends_out, struct error *error);

#endif
