/* partition_even: layers over stages in a given order, so that the slowest stage is as fast as it
 * can be: what a machine with `"stages": N` does. Exact (dynamic programming; PipeDream, SOSP 2019,
 * section 3.1, without its topology). Pure; any thread. Where devices, memory, links, replicas or a
 * latency count, partition.h finds the split. */
#ifndef SCHEDULER_PARTITION_EVEN_H
#define SCHEDULER_PARTITION_EVEN_H

#include "common/status.h"

#include <stdint.h>

/* Stage s gets the layers ends_out[s - 1] … ends_out[s] - 1 (from 0 for the first one), at least
 * one; ends_out[stage_count - 1] == layer_count.
 *
 * layer_cost: of each layer, in any unit: times from a profile, or bytes of weights where there is
 * none (decoding reads each of them once). first_extra and last_extra come on top of the first
 * stage's (embedding) and the last one's (final norm, vocabulary projection, sampling). A stage's
 * time is the sum of its costs / its speed. speeds: of each stage's device, > 0; NULL: all equal.
 *
 * Of the splits whose slowest stage is as fast as possible the one with the least sum of squared
 * stage times is taken, of these the one whose first stages have the most layers (8 8 7 7 for 30
 * equal layers over 4): the same input gives the same split on every machine. Times that differ by
 * less than 1e-9 of themselves are equal, so that no rounding decides.
 *
 * ST_INVALID, and nothing is written: fewer layers than stages, none of either, more than
 * LIMIT_LAYERS, or a cost that is no number ≥ 0, or a speed that is none > 0. */
enum status partition_even(const double *layer_cost, uint32_t layer_count, double first_extra,
                           double last_extra, const double *speeds, uint32_t stage_count,
                           uint32_t *ends_out, struct error *error);

#endif
