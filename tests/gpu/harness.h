/* harness: the common part of all tests of CUDA kernels, on a device and on the emulator: buffers
 * in device memory, random numbers from a seed, and comparisons with a reference. A test's main()
 * is
 *
 *     gpu::begin();                          // skips the test (77) if there is no device
 *     …compute a reference, launch, gpu::expect_near(…) for many shapes…
 *     return gpu::finish();                  // waits, reads the last error, prints the totals
 *
 * A failed comparison prints the place and the difference, and the test goes on with the next
 * shape; finish() then returns 1. On a device CLEAVE_GPU_LARGE=1 adds shapes that would take too
 * long on the emulator. The test's main thread makes all calls. The harness has no references: each
 * test computes its own. */
#ifndef TESTS_GPU_HARNESS_H
#define TESTS_GPU_HARNESS_H

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#define GPU_CHECK(call) gpu::check((call), #call, __FILE__, __LINE__)

namespace gpu
{
void begin();
int finish();
bool large(); /* Returns true if the test shall also use shapes that are slow on the emulator. */
/* Ends the test if `error` is an error. GPU_CHECK calls it. */
void check(cudaError_t error, const char *call, const char *file, int line);
/* Records a failure and prints its text; the test continues. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Random numbers that depend only on the seed and on the number of earlier draws. */
class random
{
  public:
    explicit random(uint64_t seed) : state(seed * 2 + 1)
    {
    }
    uint32_t bits();
    uint32_t below(uint32_t limit);
    float uniform(float low, float high);
    float normal(); /* Mean 0, variance 1, |x| < 4. */

  private:
    uint64_t next();
    uint64_t state;
};

uint64_t seed(); /* Returns CLEAVE_SEED, or a new seed. begin() prints the seed. */

/* `count` elements of device memory, freed at the end of the scope. */
template <class T> class buffer
{
  public:
    explicit buffer(size_t count) : size(count)
    {
        GPU_CHECK(cudaMalloc(&data, count * sizeof(T)));
    }
    explicit buffer(const std::vector<T> &from) : buffer(from.size())
    {
        put(from);
    }
    ~buffer()
    {
        GPU_CHECK(cudaFree(data));
    }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;

    void put(const std::vector<T> &from)
    {
        GPU_CHECK(cudaMemcpy(data, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    std::vector<T> get() const /* Waits for all streams. */
    {
        std::vector<T> to(size);
        GPU_CHECK(cudaDeviceSynchronize());
        GPU_CHECK(cudaMemcpy(to.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost));
        return to;
    }
    operator T *() const
    {
        return data;
    }
    T *data;
    size_t size;
};

/* Compares element by element: |got - want| ≤ absolute + relative · |want|. A NaN is never near.
 * what: shape and kernel, for the message. */
struct tolerance {
    double absolute, relative;
};
bool expect_near(const char *what, const std::vector<float> &got, const std::vector<float> &want,
                 struct tolerance tolerance);
/* The same with a limit for each element: |got - want| ≤ limit. */
bool expect_within(const char *what, const std::vector<float> &got, const std::vector<float> &want,
                   const std::vector<double> &limits);
/* Compares bit for bit. */
bool expect_equal(const char *what, const void *got, const void *want, size_t bytes);
} // namespace gpu

#endif
