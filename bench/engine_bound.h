/* engine_bound: the tokens per second that the limits of this computer allow for a case of
 * bench-engine. The bound is the longer of two times at the measured rates (roofline.h): the time
 * of the model's arithmetic, and the time of reading its data, as if both overlapped completely.
 * The tables of engine_results.c print the bound. Any thread may call: the function has no state.
 * It measures nothing.
 *
 * Counted, for a pass over R rows (tokens of a prompt, or one token of each stream):
 * - matrices: two operations per weight and row, at the rate of 8-bit dot products. In the last
 *   layer, a row that is not sampled needs only K and V, and only sampled rows need the vocabulary.
 * - attention: 4 × head_count × head_dim operations per row, layer and token of its context, at the
 *   rate ENGINE_BOUND_ATTENTION.
 * - memory: every weight once per pass, K and V of all cached tokens once per pass, and K and V of
 *   the new rows written once. K and V are 16-bit integers with a scale per token and head.
 *
 * Not counted, although the kernels do it: scales of blocks, softmax, norms, RoPE, SiLU, packing of
 * activations, the second row of refined activations (docs/numbers.md), reading a prompt's own K
 * and V (they are in a cache), and waiting for threads. So a measured figure stays below 100 % of
 * the bound. */
#ifndef BENCH_ENGINE_BOUND_H
#define BENCH_ENGINE_BOUND_H

#include "bench/engine_run.h"
#include "bench/roofline.h"
#include "model/forward/model.h"

#include <stdbool.h>

/* Arithmetic of the attention kernels over a KV cache of integers (compute/cpu/attention_fixed.h).
 */
#define ENGINE_BOUND_ATTENTION ROOFLINE_INT16

struct engine_bound {
    /* The bound. 0 = the rate of 8-bit or 16-bit dot products is not known. */
    double tokens_a_second;
    bool reads; /* True: reading memory takes longer. False: arithmetic takes longer. */
    /* Part of the longer time, from 0 to 1, that the weights' reading takes (if `reads` is true) or
     * that the matrices' arithmetic takes (if `reads` is false). */
    double first_share;
};

/* Returns the bound of the case `c`. weight_bytes: bytes of the model's weights in memory. Requires
 * that roofline->rates[ROOFLINE_MEMORY] is not 0. */
struct engine_bound engine_bound_of(const struct model_hyper *hyper, size_t weight_bytes,
                                    const struct roofline *roofline, const struct engine_case *c);

#endif
