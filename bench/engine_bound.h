/* engine_bound: the tokens per second that the machine's limits allow for a case: what the model's
 * own arithmetic and reading take at the measured rates (roofline.h), the longer of the two, as if
 * they overlapped wholly. Pure.
 *
 * What counts, of a pass over R rows (tokens of a prompt, or one token of each stream):
 * - matrices: two operations per weight and row, at the rate of 8-bit dot products; the last layer
 *   of a row that nobody samples is its K and V only, and the vocabulary is for sampled rows.
 * - attention: 4 × head_count × head_dim operations per row, layer and token it looks back on, at
 *   ENGINE_BOUND_ATTENTION's rate.
 * - memory: every weight once a pass; K and V of all cached tokens once a pass; K and V of the new
 *   rows written once.
 * What does not count, though kernels do it: scales of blocks, softmax, norms, RoPE, SiLU, packing
 * activations, the second row of refined activations (docs/numbers.md), a prompt's own K and V read
 * back (they are in a cache), and waiting for threads. A figure stays below 100 % by their cost. */
#ifndef BENCH_ENGINE_BOUND_H
#define BENCH_ENGINE_BOUND_H

#include "bench/engine_run.h"
#include "bench/roofline.h"
#include "model/model.h"

#include <stdbool.h>

/* The arithmetic of the attention kernels over a cache of integers (compute/cpu/attention_fixed.h).
 */
#define ENGINE_BOUND_ATTENTION ROOFLINE_INT16

struct engine_bound {
    double tokens_a_second; /* 0: the machine's arithmetic is not known */
    bool reads;             /* memory is the longer; else arithmetic */
    double first_share;     /* of that: the weights' (reads) or the matrices' part, 0 to 1 */
};

struct engine_bound engine_bound_of(const struct model_hyper *hyper, size_t weight_bytes,
                                    const struct roofline *roofline, const struct engine_case *c);

#endif
