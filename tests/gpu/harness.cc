/* harness: see the header. */
#include "harness.h"

#include <cmath>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace gpu
{
namespace
{
uint64_t compared, failures;
double worst_ratio; /* The largest ratio of an error to its tolerance. */
char worst_what[256];
} // namespace

uint64_t seed()
{
    static uint64_t value = [] {
        const char *given = getenv("CLEAVE_SEED");
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return given != nullptr ? strtoull(given, nullptr, 0)
                                : (uint64_t)now.tv_nsec * 2654435761u + (uint64_t)now.tv_sec;
    }();
    return value;
}

bool large()
{
    const char *text = getenv("CLEAVE_GPU_LARGE");
    return text != nullptr && strcmp(text, "0") != 0;
}

void begin()
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
#if defined(CUDA_EMULATED) && defined(__AVX2__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        printf("SKIP: the emulated kernels are compiled for AVX2\n");
        exit(77);
    }
#endif
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        printf("SKIP: no CUDA device: %s\n", cudaGetErrorString(error));
        exit(77);
    }
    struct cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties", __FILE__, __LINE__);
    printf("seed: CLEAVE_SEED=%llu\n%s, compute capability %d.%d\n", (unsigned long long)seed(),
           properties.name, properties.major, properties.minor);
}

int finish()
{
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", __FILE__, __LINE__);
    check(cudaGetLastError(), "cudaGetLastError", __FILE__, __LINE__);
    printf("%llu comparisons, %llu failed; the closest used %.2f of its tolerance: %s\n",
           (unsigned long long)compared, (unsigned long long)failures, worst_ratio, worst_what);
    return failures > 0 || compared == 0;
}

void check(cudaError_t error, const char *call, const char *file, int line)
{
    if (error == cudaSuccess)
        return;
    printf("%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(error));
    exit(1);
}

void fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    failures++;
}

uint64_t random::next()
{
    state += 0x9e3779b97f4a7c15u; /* splitmix64 (Steele et al. 2014) */
    uint64_t z = state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t random::bits()
{
    return (uint32_t)(next() >> 32);
}

uint32_t random::below(uint32_t limit)
{
    return (uint32_t)((uint64_t)bits() * limit >> 32);
}

float random::uniform(float low, float high)
{
    return low + (high - low) * ((float)(bits() >> 8) * 0x1p-24f);
}

float random::normal()
{
    uint64_t z = next(); /* Four numbers of 16 bits, each of variance 2^32 / 12. */
    int32_t sum = (int32_t)(z & 0xffff) + (int32_t)(z >> 16 & 0xffff) +
                  (int32_t)(z >> 32 & 0xffff) + (int32_t)(z >> 48) - 2 * 65535;
    return (float)sum * (1.7320508f / 65536.0f);
}

bool expect_near(const char *what, const std::vector<float> &got, const std::vector<float> &want,
                 struct tolerance tolerance)
{
    std::vector<double> limits;
    limits.reserve(want.size());
    for (float value : want)
        limits.push_back(tolerance.absolute + tolerance.relative * std::fabs((double)value));
    return expect_within(what, got, want, limits);
}

bool expect_within(const char *what, const std::vector<float> &got, const std::vector<float> &want,
                   const std::vector<double> &limits)
{
    compared++;
    if (got.size() != want.size()) {
        fail("%s: %zu values instead of %zu", what, got.size(), want.size());
        return false;
    }
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < got.size(); i++) {
        double limit = limits[i], error = std::fabs((double)got[i] - want[i]);
        bool same = got[i] == want[i]; /* Also for infinities. */
        if (!same && !(error <= limit) && wrong++ == 0)
            first = i;
        if (!same && error <= limit && error / limit > worst_ratio) {
            worst_ratio = error / limit;
            snprintf(worst_what, sizeof(worst_what), "%s", what);
        }
    }
    if (wrong > 0)
        fail("%s: %zu of %zu values differ; the first is [%zu]: %g instead of %g", what, wrong,
             got.size(), first, (double)got[first], (double)want[first]);
    return wrong == 0;
}

bool expect_equal(const char *what, const void *got, const void *want, size_t bytes)
{
    compared++;
    const auto *a = static_cast<const unsigned char *>(got);
    const auto *b = static_cast<const unsigned char *>(want);
    for (size_t i = 0; i < bytes; i++) {
        if (a[i] != b[i]) {
            fail("%s: byte %zu of %zu is %02x instead of %02x", what, i, bytes, a[i], b[i]);
            return false;
        }
    }
    return true;
}
} // namespace gpu
