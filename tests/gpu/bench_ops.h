/* bench_ops: measures how long each operation of a batch takes, without a profiler. It calls every
 * operation of a device eight times in a row, and then waits for the device. bench_model calls it
 * for one device, on its main thread; the state is global. The sum of the times is not the time of
 * a batch: in the measurement, no operations overlap, and small products find their weights in the
 * L2 cache from the second call on. The results of the model are wrong during a measurement. */
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
