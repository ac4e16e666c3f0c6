/* attention_cpu: the CPU backend's storing of K and V and its attention, as a reference for
 * test_attention_cpu.cu, which calls it on its main thread. It needs no GPU and compares nothing.
 */
#ifndef TESTS_GPU_ATTENTION_CPU_H
#define TESTS_GPU_ATTENTION_CPU_H

#include "compute/compute.h"

/* Stores k and v of the batch's rows [rows × KV heads × dimensions of a key], without rotating
 * them, into kv, which is memory of the host; v is not used if the cache is latent. Then computes
 * `out` [rows × head_count × dimensions of a value]. Uses the portable C code. */
void attention_cpu_run(const struct compute_batch *batch, const struct compute_kv *kv,
                       uint32_t head_count, const struct compute_attention *parameters,
                       const float *q, const float *k, const float *v, float *out);

#endif
