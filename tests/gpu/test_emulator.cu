/* Goal: the emulator finds bugs that a device may not show, and names their place; and it computes
 * what CUDA's documentation says.
 *
 * Method: each case runs in a process of its own. A planted bug must end it with a message that has
 * the kernel's name, block and thread; the same without the bug must pass. */
#include "compute/cuda/launch.cuh"
#include "compute/cuda/ptx.cuh"
#include "tests/check.h"
#include "tests/gpu/children.h"

#include <cuda_fp8.h>

#define GOOD(call) CHECKF((call) == cudaSuccess, "%s", cudaGetErrorString(cudaPeekAtLastError()))

namespace
{
template <class T> T *device(size_t count)
{
    T *memory;
    GOOD(cudaMalloc(&memory, count * sizeof(T)));
    return memory;
}

template <class T> T *pinned(size_t count)
{
    T *memory;
    GOOD(cudaMallocHost(&memory, count * sizeof(T)));
    return memory;
}

/* Requires that `run` aborts with a message that contains all these words. */
void expect_stop(const char *name, const std::function<int()> &run,
                 std::initializer_list<const char *> words, const char *environment = "")
{
    struct child_end end = child_run(environment, run);
    CHECKF(end.aborted(), "%s went on: status %d, %s", name, end.status, end.text.c_str());
    for (const char *word : words)
        CHECKF(end.says(word), "%s: no \"%s\" in: %s", name, word, end.text.c_str());
}

void expect_pass(const char *name, const std::function<int()> &run, const char *environment = "")
{
    struct child_end end = child_run(environment, run);
    CHECKF(end.exited(0), "%s: status %d, %s", name, end.status, end.text.c_str());
}

__global__ void some_sync(int limit)
{
    if ((int)threadIdx.x < limit)
        __syncthreads();
}

__global__ void two_syncs(bool apart)
{
    if (apart && threadIdx.x == 7)
        __syncthreads();
    else
        __syncthreads();
}

__global__ void some_shuffle(unsigned limit, int *out)
{
    int value = (int)threadIdx.x;
    if (threadIdx.x < limit)
        value = __shfl_xor_sync(0xffffffffu, value, 1);
    out[threadIdx.x] = value;
}

__global__ void wrong_mask(int *out)
{
    out[threadIdx.x] = __shfl_sync(0x0000ffffu, 1, 0);
}

__global__ void two_masks(int *out)
{
    unsigned mask = threadIdx.x % 2 == 0 ? 0xffffffffu : 0xaaaaaaaau;
    out[threadIdx.x] = __any_sync(mask, 1);
}

/* Writes one element behind each array. */
__global__ void beyond(float *global, unsigned index, unsigned shared_index)
{
    CUDA_SHARED(float, shared);
    shared[shared_index] = 1;
    if (blockIdx.x == 2 && threadIdx.x == 3)
        global[index] = shared[shared_index];
}

/* Thread t reads what the next thread wrote. Without the barrier the value is not written yet. */
__global__ void neighbours(bool barrier, float *out)
{
    __shared__ float fixed[64];
    CUDA_SHARED(float, dynamic);
    fixed[threadIdx.x] = (float)threadIdx.x;
    dynamic[threadIdx.x] = (float)threadIdx.x;
    if (barrier)
        __syncthreads();
    unsigned next = (threadIdx.x + 1) % 64;
    out[threadIdx.x] = fixed[next] + dynamic[next];
}

__global__ void copy_late(bool wait, const uint32_t *from, uint32_t *to)
{
    __shared__ __align__(16) uint32_t shared[128];
    ptx_cp_async_16(shared + 4 * threadIdx.x, from + 4 * threadIdx.x);
    ptx_cp_async_commit();
    if (wait)
        ptx_cp_async_wait<0>();
    __syncwarp();
    to[threadIdx.x] = shared[threadIdx.x];
}

/* Reads two numbers at once from an odd index; then the last element of a fixed array and the one
 * behind it. */
__global__ void not_aligned(const float *from, float *to, unsigned at)
{
    float2 two = *reinterpret_cast<const float2 *>(from + at);
    to[threadIdx.x] = two.x + two.y;
}

__global__ void beyond_array(float *to, unsigned at)
{
    __shared__ float shared[32];
    shared[threadIdx.x + at] = 1;
    to[threadIdx.x] = shared[threadIdx.x];
}

__global__ void fill(float *out, float value)
{
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void add(const float *a, float b, float *out)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = a[i] + b;
}

int run_neighbours(bool barrier)
{
    float *out = device<float>(64);
    float host[64];
    int good = 0;
    CUDA_LAUNCH(neighbours, 1, 64, 64 * sizeof(float), nullptr, barrier, out);
    CUDA_LAUNCH(neighbours, 1, 64, 64 * sizeof(float), nullptr, barrier, out);
    GOOD(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < 64; i++)
        good += host[i] == 2 * (float)((i + 1) % 64);
    GOOD(cudaFree(out));
    return good == 64 ? 0 : 1;
}

int run_copy_late(bool wait)
{
    uint32_t host[128], got[32];
    for (unsigned i = 0; i < 128; i++)
        host[i] = i * 3;
    uint32_t *from = device<uint32_t>(128), *to = device<uint32_t>(32);
    GOOD(cudaMemcpy(from, host, sizeof(host), cudaMemcpyHostToDevice));
    CUDA_LAUNCH(copy_late, 1, 32, 0, nullptr, wait, from, to);
    GOOD(cudaMemcpy(got, to, sizeof(got), cudaMemcpyDeviceToHost));
    GOOD(cudaFree(from));
    GOOD(cudaFree(to));
    return memcmp(got, host, sizeof(got)) == 0 ? 0 : 1;
}

void test_threads()
{
    auto sync = [](int limit) {
        return [=] {
            CUDA_LAUNCH(some_sync, dim3(1, 2), dim3(16, 4), 0, nullptr, limit);
            return (int)cudaDeviceSynchronize();
        };
    };
    expect_pass("a barrier", sync(16));
    expect_stop("a barrier that some miss", sync(5),
                {"kernel some_sync", "block (0,0,0)", "__syncthreads", "(5,0,0) has ended"});
    auto apart = [](bool yes) {
        return [=] {
            CUDA_LAUNCH(two_syncs, 1, 32, 0, nullptr, yes);
            return (int)cudaDeviceSynchronize();
        };
    };
    expect_pass("one barrier", apart(false));
    expect_stop("two barriers", apart(true), {"kernel two_syncs", "__syncthreads", "waits in"});
    auto shuffle = [](void (*kernel)(unsigned, int *), unsigned limit) {
        return [=] {
            int *out = device<int>(32);
            CUDA_LAUNCH(kernel, 1, 32, 0, nullptr, limit, out);
            GOOD(cudaDeviceSynchronize());
            return (int)cudaFree(out);
        };
    };
    expect_pass("a shuffle", shuffle(some_shuffle, 32));
    expect_stop("a shuffle that some miss", shuffle(some_shuffle, 20),
                {"__shfl_xor_sync", "mask ffffffff", "(20,0,0) has ended"});
    auto masks = [](void (*kernel)(int *)) {
        return [=] {
            int *out = device<int>(32);
            CUDA_LAUNCH(kernel, 1, 32, 0, nullptr, out);
            return (int)cudaDeviceSynchronize();
        };
    };
    expect_stop("a mask without the lane", masks(wrong_mask),
                {"lane 16 is not", "thread (16,0,0)"});
    expect_stop("diverged masks", masks(two_masks), {"mask ffffffff", "mask aaaaaaaa"});
    for (const char *order :
         {"CUDA_EMULATED_ORDER=0", "CUDA_EMULATED_ORDER=1", "CUDA_EMULATED_ORDER=99"})
        expect_pass(
            "neighbours", [] { return run_neighbours(true); }, order);
    CHECK(child_run("", [] { return run_neighbours(false); }).exited(1));
    expect_pass("a copy that is waited for", [] { return run_copy_late(true); });
    CHECK(child_run("", [] { return run_copy_late(false); }).exited(1));
}

int run_beyond(unsigned index, unsigned shared_index)
{
    float *memory = device<float>(64);
    CUDA_LAUNCH(beyond, 4, 32, 128, nullptr, memory, index, shared_index);
    GOOD(cudaDeviceSynchronize());
    return (int)cudaFree(memory);
}

int run_not_aligned(unsigned at)
{
    float *memory = device<float>(64);
    CUDA_LAUNCH(fill, 1, 64, 0, nullptr, memory, 1.0f);
    CUDA_LAUNCH(not_aligned, 1, 32, 0, nullptr, memory, memory, at);
    GOOD(cudaDeviceSynchronize());
    return (int)cudaFree(memory);
}

int run_beyond_array(unsigned at)
{
    float *memory = device<float>(64);
    CUDA_LAUNCH(beyond_array, 1, 32, 0, nullptr, memory, at);
    GOOD(cudaDeviceSynchronize());
    return (int)cudaFree(memory);
}

void test_memory(const char *keys)
{
    expect_pass(
        "two numbers", [] { return run_not_aligned(4); }, keys);
    expect_stop(
        "two numbers, not aligned", [] { return run_not_aligned(5); },
        {"kernel not_aligned", "thread (0,0,0)", "not aligned"}, keys);
    expect_pass(
        "an array", [] { return run_beyond_array(0); }, keys);
    expect_stop(
        "beyond an array", [] { return run_beyond_array(1); },
        {"kernel beyond_array", "thread (31,0,0)", "beyond an array"}, keys);
    expect_pass(
        "within", [] { return run_beyond(63, 31); }, keys);
    expect_stop(
        "beyond global memory", [] { return run_beyond(64, 0); },
        {"kernel beyond", "block (2,0,0)", "thread (3,0,0)", "0 bytes past the end"}, keys);
    expect_stop(
        "beyond shared memory", [] { return run_beyond(0, 32); },
        {"kernel beyond", "block (0,0,0)", "dynamic shared memory"}, keys);
    expect_stop(
        "the host reads",
        [] {
            volatile float *memory = device<float>(64);
            return memory[5] > 0;
        },
        {"the host touched device memory", "byte 20 of allocation 1 of 256 bytes"}, keys);
    expect_stop(
        "the host reads after a kernel",
        [] {
            volatile float *memory = device<float>(64);
            CUDA_LAUNCH(fill, 1, 64, 0, nullptr, (float *)memory, 1.0f);
            GOOD(cudaDeviceSynchronize());
            return memory[0] > 0;
        },
        {"the host touched device memory"}, keys);
    expect_stop(
        "freed",
        [] {
            float *memory = device<float>(64);
            GOOD(cudaFree(memory));
            float *other = device<float>(64);
            CUDA_LAUNCH(add, 1, 64, 0, nullptr, other, 1.0f, other);
            GOOD(cudaDeviceSynchronize());
            CUDA_LAUNCH(fill, 1, 64, 0, nullptr, memory, 1.0f);
            return (int)cudaDeviceSynchronize();
        },
        {"kernel fill", "neither device memory nor pinned"}, keys);
    expect_stop(
        "a pointer of the host",
        [] {
            float host[64] = {};
            CUDA_LAUNCH(fill, 1, 64, 0, nullptr, host, 1.0f);
            return (int)cudaDeviceSynchronize();
        },
        {"kernel fill", "argument 1"}, keys);
    expect_stop(
        "a write between end and guard",
        [] {
            char *memory = device<char>(100);
            CUDA_LAUNCH(fill, 1, 26, 0, nullptr, (float *)memory, 0.0f);
            return (int)cudaFree(memory);
        },
        {"was written", "past its end"}, keys);
    struct child_end leak = child_run(keys, [] { return device<float>(10) == nullptr; });
    CHECKF(leak.exited(98) && leak.says("leaked 40 bytes in 1 allocation"), "%s",
           leak.text.c_str());
}

int run_late_copy()
{
    float *memory = device<float>(64), *host = pinned<float>(64);
    cudaStream_t stream;
    GOOD(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    host[0] = 5;
    CUDA_LAUNCH(fill, 1, 64, 0, stream, memory, 1.0f);
    GOOD(cudaMemcpyAsync(host, memory, 256, cudaMemcpyDeviceToHost, stream));
    CHECK(host[0] == 5); /* The program has not waited yet. */
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    CHECK(host[0] == 5);
    GOOD(cudaStreamSynchronize(stream));
    CHECK(host[0] == 1 && host[63] == 1);
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
    GOOD(cudaStreamDestroy(stream));
    GOOD(cudaFreeHost(host));
    return (int)cudaFree(memory);
}

/* One stream writes and another one reads, with or without an event between them. */
int run_two_streams(bool event_between)
{
    float *memory = device<float>(64), *host = pinned<float>(64);
    cudaStream_t writes, reads;
    cudaEvent_t written;
    GOOD(cudaStreamCreateWithFlags(&writes, cudaStreamNonBlocking));
    GOOD(cudaStreamCreateWithFlags(&reads, cudaStreamNonBlocking));
    GOOD(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
    CUDA_LAUNCH(fill, 1, 64, 0, writes, memory, 1.0f);
    GOOD(cudaEventRecord(written, writes));
    if (event_between)
        GOOD(cudaStreamWaitEvent(reads, written));
    GOOD(cudaMemcpyAsync(host, memory, 256, cudaMemcpyDeviceToHost, reads));
    GOOD(cudaStreamSynchronize(reads));
    bool seen = host[0] == 1;
    GOOD(cudaEventSynchronize(written));
    GOOD(cudaStreamDestroy(writes));
    GOOD(cudaStreamDestroy(reads));
    GOOD(cudaEventDestroy(written));
    GOOD(cudaFreeHost(host));
    GOOD(cudaFree(memory));
    return seen ? 0 : 1;
}

void note(void *data)
{
    __atomic_store_n(static_cast<int *>(data), 1, __ATOMIC_SEQ_CST);
}

int run_host_function()
{
    static int called;
    float *memory = device<float>(64);
    cudaStream_t stream;
    GOOD(cudaStreamCreate(&stream));
    CUDA_LAUNCH(fill, 1, 64, 0, stream, memory, 1.0f);
    GOOD(cudaLaunchHostFunc(stream, note, &called));
    while (__atomic_load_n(&called, __ATOMIC_SEQ_CST) == 0)
        usleep(100); /* No call of CUDA. */
    GOOD(cudaStreamDestroy(stream));
    return (int)cudaFree(memory);
}

int run_graph()
{
    float *memory = device<float>(64), *host = pinned<float>(64);
    cudaStream_t stream, other;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    GOOD(cudaStreamCreate(&stream));
    GOOD(cudaStreamCreate(&other));
    GOOD(cudaEventCreate(&fork));
    GOOD(cudaEventCreate(&join));
    GOOD(cudaMemset(memory, 0, 256));
    GOOD(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CUDA_LAUNCH(add, 1, 64, 0, stream, memory, 2.0f, memory);
    GOOD(cudaEventRecord(fork, stream));
    GOOD(cudaStreamWaitEvent(other, fork));
    CUDA_LAUNCH(add, 1, 64, 0, other, memory, 3.0f, memory);
    GOOD(cudaEventRecord(join, other));
    GOOD(cudaStreamWaitEvent(stream, join));
    GOOD(cudaStreamEndCapture(stream, &graph));
    GOOD(cudaGraphInstantiate(&exec, graph));
    GOOD(cudaGraphDestroy(graph));
    GOOD(cudaGraphLaunch(exec, stream));
    GOOD(cudaGraphLaunch(exec, stream));
    GOOD(cudaMemcpyAsync(host, memory, 256, cudaMemcpyDeviceToHost, stream));
    GOOD(cudaStreamSynchronize(stream));
    /* The graph ran twice; nothing ran while it was recorded. */
    CHECK(host[0] == 10 && host[63] == 10);
    GOOD(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    cudaGetLastError();
    GOOD(cudaGraphExecDestroy(exec));
    GOOD(cudaEventDestroy(fork));
    GOOD(cudaEventDestroy(join));
    GOOD(cudaStreamDestroy(stream));
    GOOD(cudaStreamDestroy(other));
    GOOD(cudaFreeHost(host));
    return (int)cudaFree(memory);
}

void test_streams()
{
    expect_pass("a copy that is late", run_late_copy);
    expect_pass("an event between streams", [] { return run_two_streams(true); });
    CHECK(child_run("", [] { return run_two_streams(false); }).exited(1));
    expect_pass("a host function", run_host_function);
    expect_pass("a graph", run_graph);
}

void test_faults()
{
    expect_pass(
        "no device",
        [] {
            int count = 5;
            CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 0);
            return 0;
        },
        "CUDA_EMULATED_DEVICES=0");
    expect_pass(
        "no driver",
        [] {
            void *memory;
            int count;
            CHECK((int)cudaGetDeviceCount(&count) == 35);
            CHECK(cudaMalloc(&memory, 16) == cudaErrorInsufficientDriver);
            return 0;
        },
        "CUDA_EMULATED_DRIVER=none");
    expect_pass(
        "two devices",
        [] {
            struct cudaDeviceProp properties;
            GOOD(cudaSetDevice(1));
            CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
            GOOD(cudaGetDeviceProperties(&properties, 1));
            CHECK(strcmp(properties.name, "Test") == 0 && properties.major == 7);
            return 0;
        },
        "CUDA_EMULATED_DEVICES=2 CUDA_EMULATED_NAME=Test CUDA_EMULATED_CAPABILITY=7.5");
    expect_pass(
        "out of memory",
        [] {
            void *memory, *more;
            GOOD(cudaMalloc(&memory, 600000));
            CHECK(cudaMalloc(&more, 600000) == cudaErrorMemoryAllocation);
            CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
            CHECK(cudaGetLastError() == cudaSuccess);
            GOOD(cudaFree(memory));
            GOOD(cudaMalloc(&more, 600000));
            return (int)cudaFree(more);
        },
        "CUDA_EMULATED_MEMORY=1000000");
    expect_pass(
        "a launch that fails",
        [] {
            float *memory = device<float>(64);
            CUDA_LAUNCH(fill, 1, 64, 0, nullptr, memory, 1.0f);
            GOOD(cudaDeviceSynchronize());
            CUDA_LAUNCH(fill, 1, 64, 0, nullptr, memory, 1.0f);
            GOOD(cudaGetLastError()); /* The error is reported by a later call. */
            CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
            CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
            cudaFree(memory);
            return 0;
        },
        "CUDA_EMULATED_FAIL_LAUNCH=2 CUDA_EMULATED_LEAKS=report");
    expect_pass("a block that is too large", [] {
        CUDA_LAUNCH(some_sync, 1, 1025, 0, nullptr, 0);
        CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
        CUDA_LAUNCH(some_sync, 1, 32, 49153, nullptr, 0);
        CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
        GOOD(cudaFuncSetAttribute(some_sync, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
        CUDA_LAUNCH(some_sync, 1, 32, 49153, nullptr, 0);
        GOOD(cudaGetLastError());
        return (int)cudaDeviceSynchronize();
    });
}

/* One process fills memory, and another one adds to it through a handle. */
int run_ipc()
{
    int ways[2][2];
    CHECK(pipe(ways[0]) == 0 && pipe(ways[1]) == 0);
    pid_t process = fork();
    struct cudaIpcMemHandle_t handle;
    char done = 0;
    if (process == 0) {
        float *memory;
        CHECK(read(ways[0][0], &handle, sizeof(handle)) == (ssize_t)sizeof(handle));
        GOOD(cudaIpcOpenMemHandle((void **)&memory, handle, cudaIpcMemLazyEnablePeerAccess));
        CUDA_LAUNCH(add, 1, 64, 0, nullptr, memory, 2.0f, memory);
        GOOD(cudaDeviceSynchronize());
        GOOD(cudaIpcCloseMemHandle(memory));
        CHECK(write(ways[1][1], &done, 1) == 1);
        exit(0);
    }
    float *memory = device<float>(64), host[64];
    CUDA_LAUNCH(fill, 1, 64, 0, nullptr, memory, 1.0f);
    GOOD(cudaDeviceSynchronize());
    GOOD(cudaIpcGetMemHandle(&handle, memory));
    CHECK(write(ways[0][1], &handle, sizeof(handle)) == (ssize_t)sizeof(handle));
    CHECK(read(ways[1][0], &done, 1) == 1);
    int status;
    CHECK(waitpid(process, &status, 0) == process && status == 0);
    GOOD(cudaMemcpy(host, memory, sizeof(host), cudaMemcpyDeviceToHost));
    CHECK(host[0] == 3 && host[63] == 3);
    return (int)cudaFree(memory);
}

void test_numbers()
{
    CHECK(__byte_perm(0x33221100u, 0x77665544u, 0x7250u) == 0x77225500u);
    CHECK(__byte_perm(0x80000000u, 0, 0xb000u) == 0xff000000u);
    CHECK(__dp4a(0x01ff02fe, 0x05060708, 10) == 10 + 5 - 6 + 14 - 16);
    CHECK(__clz(1) == 31 && __clz(0) == 32 && __ffs(8) == 4 && __popc(0xf0f0u) == 8);
    CHECK(__brev(1) == 0x80000000u && __funnelshift_r(0x11223344u, 0x55667788u, 8) == 0x88112233u);
    CHECK(__bfloat16_as_ushort(__float2bfloat16(1.00390625f)) == 0x3f80); /* a tie, to even */
    CHECK(__bfloat16_as_ushort(__float2bfloat16(1.01171875f)) == 0x3f82);
    CHECK(__half_as_ushort(__float2half(65504.0f)) == 0x7bff);
    for (int code = 0; code < 256; code++) {
        float value = emulated_from_e4m3((unsigned char)code);
        CHECK(std::isnan(value) || emulated_to_e4m3(value) == code);
    }
    CHECK(emulated_to_e4m3(1e9f) == 0x7e && emulated_to_e4m3(1.0625f) == 0x38);
    CHECK(emulated_to_e4m3(1.1875f) == 0x3a && emulated_to_e4m3(0.0009765625f) == 0);
}
} // namespace

int main()
{
    setvbuf(stdout, nullptr, _IOLBF, 0);
    test_numbers();
    test_threads();
    test_memory("");
    test_memory("CUDA_EMULATED_KEYS=0"); /* as on a CPU without protection keys */
    test_streams();
    test_faults();
    expect_pass("memory between processes", run_ipc);
    return 0;
}
