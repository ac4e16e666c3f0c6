/* engine_bound: computes the most tokens per second that the measured limits of this computer
 * (roofline.h) allow for a case of bench-engine. It computes the time of the model's arithmetic and
 * the time of the model's reads and writes of memory; the longer time gives the bound.
 * engine_results.c prints the bound. engine_bound_of keeps no state, and any thread may call this
 * function. It measures nothing.
 *
 * Counted, for a pass over R rows (tokens of a prompt, or one token of each stream):
 * - matrices: two operations per weight and row, at the rate of 8-bit dot products. In the last
 *   layer, rows that are not sampled need only K and V. Only sampled rows are multiplied by the
 *   output matrix.
 * - attention: 4 × head_count × head_dim operations per row, layer and token of the row's context
 *   (in the last layer, only for sampled rows), at the rate ENGINE_BOUND_ATTENTION.
 * - memory: a pass reads every weight once, reads K and V of all cached tokens once, and writes K
 *   and V of the new rows once. Of the experts' weights, it reads the share that the rows choose on
 *   average if all experts are equally likely. K and V are 16-bit integers with a scale per token
 *   and head.
 *
 * Not counted, although the kernels do it: scales of quantised weights, softmax, norms, RoPE, SiLU,
 * packing of activations, the second row of refined activations (docs/numbers.md), reading a
 * prompt's own K and V, and waiting for threads. Because of this work, measured rates are below the
 * bound. */
#ifndef BENCH_ENGINE_BOUND_H
#define BENCH_ENGINE_BOUND_H

#include "bench/engine_run.h"
#include "bench/roofline.h"
#include "model/forward/model.h"

#include <stdbool.h>

/* The rate of roofline.h that limits attention over a KV cache of integers
 * (compute/cpu/attention_fixed.h). */
#define ENGINE_BOUND_ATTENTION ROOFLINE_INT16

struct engine_bound {
    /* The bound. 0 = the rate of 8-bit or 16-bit dot products is not known. */
    double tokens_a_second;
    bool memory_bound; /* True: access to memory takes longer. False: arithmetic takes longer. */
    /* From 0 to 1. If `memory_bound` is true: share of the memory's time that reading the weights
     * takes. If false: share of the arithmetic's time that the matrices take. */
    double weights_share;
};

/* Returns the bound of the case `c`. weight_bytes: bytes of the model's weights in memory. Requires
 * that roofline->rates[ROOFLINE_MEMORY] is not 0. */
struct engine_bound engine_bound_of(const struct model_hyper *hyper, size_t weight_bytes,
                                    const struct roofline *roofline, const struct engine_case *c);

#endif
