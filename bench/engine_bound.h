/* engine_bound: the tokens per second that the machine's limits allow for a case. The limit is the
 * longer of two times at the measured rates (roofline.h): the time of the model's arithmetic and
 * the time of reading its data, as if both overlapped completely. Pure.
 *
 * Counted, for a pass over R rows (tokens of a prompt, or one token of each stream):
 * - matrices: two operations per weight and row, at the rate of 8-bit dot products. In the last
 *   layer, a row that is not sampled needs only K and V, and only sampled rows need the vocabulary.
 * - attention: 4 × head_count × head_dim operations per row, layer and token of its context, at the
 *   rate ENGINE_BOUND_ATTENTION.
 * - memory: every weight once per pass, K and V of all cached tokens once per pass, and K and V of
 *   the new rows written once.
 *
 * Not counted, although the kernels do it: scales of blocks, softmax, norms, RoPE, SiLU, packing of
 * activations, the second row of refined activations (docs/numbers.md), reading a prompt's own K
 * and V (they are in a cache), and waiting for threads. So a measured figure stays below 100 %. */
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
    double tokens_a_second; /* 0 = the machine's arithmetic rate is not known. */
    bool reads;             /* True: reading memory takes longer. False: arithmetic takes longer. */
    /* Share of that time, 0 to 1: of the weights (reads) or of the matrices (arithmetic). */
    double first_share;
};

struct engine_bound engine_bound_of(const struct model_hyper *hyper, size_t weight_bytes,
                                    const struct roofline *roofline, const struct engine_case *c);

#endif
