/* bench_ops: where the time of a batch goes, without a profiler: every operation of a device is
 * called some times in a row and waited for. What is told is the throughput of each on its own:
 * small products find their weights in L2 the second time, and nothing overlaps, so the sum is not
 * a step's time; what stands out is. One device, one thread. */
#ifndef TESTS_GPU_BENCH_OPS_H
#define TESTS_GPU_BENCH_OPS_H

#include "compute/compute.h"

/* The same operations, which bench_ops_begin makes slow. */
const struct compute_ops *bench_ops_wrap(const struct compute_ops *base);
void bench_ops_begin(void);
/* Prints a line for each kind since then: "op NAME KIND us TIME calls COUNT". */
void bench_ops_end(const char *name);

#endif
