/* bench_ops: measures where the time of a batch goes, without a profiler. Every operation of a
 * device is called eight times in a row, and the device is waited for. bench_model calls it for one
 * device, on its main thread; the state is global. Each time is that of an operation alone: small
 * products find their weights in the L2 cache the second time, and nothing overlaps, so the sum is
 * not the time of a batch. The results of the model are wrong while it measures. */
#ifndef TESTS_GPU_BENCH_OPS_H
#define TESTS_GPU_BENCH_OPS_H

#include "compute/compute.h"

/* Returns the operations of `base` with measurements, which bench_ops_begin starts. One wrapper
 * exists per process. */
const struct compute_ops *bench_ops_wrap(const struct compute_ops *base);
void bench_ops_begin(void);
/* Ends the measurements, and prints a line for each kind of operation: "op NAME KIND us TIME calls
 * COUNT". */
void bench_ops_end(const char *name);

#endif
