/* timing: measures how long work takes on a device. bench_device calls it on its main thread. It
 * uses CUDA events, so the time of the host is not counted. */
#ifndef TESTS_GPU_TIMING_H
#define TESTS_GPU_TIMING_H

#include "tests/gpu/harness.h"

#include <algorithm>
#include <functional>

namespace gpu
{
/* Returns the milliseconds of one call: the median of `runs` runs, each with `calls` calls in a
 * row, after two runs that are not counted. */
inline double median_ms(cudaStream_t stream, const std::function<void()> &call, int calls, int runs)
{
    cudaEvent_t begin, end;
    std::vector<double> times;
    GPU_CHECK(cudaEventCreate(&begin));
    GPU_CHECK(cudaEventCreate(&end));
    for (int run = -2; run < runs; run++) {
        float ms;
        GPU_CHECK(cudaEventRecord(begin, stream));
        for (int i = 0; i < calls; i++)
            call();
        GPU_CHECK(cudaEventRecord(end, stream));
        GPU_CHECK(cudaEventSynchronize(end));
        GPU_CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (run >= 0)
            times.push_back((double)ms / calls);
    }
    GPU_CHECK(cudaEventDestroy(begin));
    GPU_CHECK(cudaEventDestroy(end));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}
} // namespace gpu

#endif
