/* device: the emulated devices, their properties, and the runtime's error state. */
#include "memory.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace emulated
{
namespace
{
thread_local int device_of_thread;
thread_local cudaError_t error_of_thread;
std::atomic<int> failed_for_good;

uint64_t number_from(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text == nullptr || text[0] == 0 ? otherwise : strtoull(text, nullptr, 0);
}

struct options read_options()
{
    struct options o;
    const char *text = getenv("CUDA_EMULATED_NAME");
    o.name = text != nullptr ? text : "Emulated GPU";
    text = getenv("CUDA_EMULATED_DRIVER");
    o.driver = text == nullptr || strcmp(text, "none") != 0;
    text = getenv("CUDA_EMULATED_IPC");
    o.ipc = text == nullptr || strcmp(text, "none") != 0;
    text = getenv("CUDA_EMULATED_BATCHES");
    o.batches = text == nullptr || strcmp(text, "none") != 0;
    text = getenv("CUDA_EMULATED_PROGRESS");
    o.lazy = text != nullptr && strcmp(text, "lazy") == 0;
    text = getenv("CUDA_EMULATED_LEAKS");
    o.leaks_fail = text == nullptr || strcmp(text, "report") != 0;
    text = getenv("CUDA_EMULATED_CAPABILITY");
    if (text == nullptr || sscanf(text, "%d.%d", &o.major, &o.minor) != 2) {
        o.major = 9;
        o.minor = 0;
    }
    o.devices = (int)number_from("CUDA_EMULATED_DEVICES", 1);
    if (o.devices > DEVICES_MAX)
        stop("CUDA_EMULATED_DEVICES: at most %d", DEVICES_MAX);
    o.multiprocessors = (int)number_from("CUDA_EMULATED_MULTIPROCESSORS", 8);
    o.memory_bytes = number_from("CUDA_EMULATED_MEMORY", (uint64_t)8 << 30);
    o.fail_launch = number_from("CUDA_EMULATED_FAIL_LAUNCH", 0);
    text = getenv("CUDA_EMULATED_FAIL_LAUNCH");
    text = text != nullptr ? strchr(text, '@') : nullptr;
    o.fail_device = text != nullptr ? atoi(text + 1) : -1;
    o.order = number_from("CUDA_EMULATED_ORDER", 0);
    return o;
}
} // namespace

const struct options &options()
{
    static const struct options o = read_options();
    return o;
}

void stop(const char *format, ...)
{
    char text[1280];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    fflush(stdout);
    fprintf(stderr, "emulated CUDA: %s\n", text);
    abort();
}

cudaError_t fail(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        error_of_thread = error;
    return error;
}

void fail_for_good(cudaError_t error)
{
    int none = 0;
    failed_for_good.compare_exchange_strong(none, error);
}

cudaError_t ready()
{
    if (!options().driver)
        return fail(cudaErrorInsufficientDriver);
    if (options().devices == 0)
        return fail(cudaErrorNoDevice);
    return failed_for_good != 0 ? fail((cudaError_t)failed_for_good.load()) : cudaSuccess;
}

int current_device()
{
    return device_of_thread;
}
} // namespace emulated

using namespace emulated;

namespace
{
const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "driver version is insufficient for runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no device is there"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "not ready"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the memory is already registered"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "the memory is not registered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "a kernel failed"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
};
} // namespace

extern "C" {
const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &e : errors) {
        if (e.error == error)
            return e.name;
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &e : errors) {
        if (e.error == error)
            return e.text;
    }
    return "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = error_of_thread;
    error_of_thread = cudaSuccess;
    return failed_for_good != 0 ? (cudaError_t)failed_for_good.load() : error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return failed_for_good != 0 ? (cudaError_t)failed_for_good.load() : error_of_thread;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = options().driver ? CUDART_VERSION : 0; /* Without a driver the runtime returns 0. */
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    cudaError_t error = ready();
    if (error == cudaSuccess)
        *count = options().devices;
    return error;
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = ready();
    if (error != cudaSuccess)
        return error;
    if (device < 0 || device >= options().devices)
        return fail(cudaErrorInvalidDevice);
    device_of_thread = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = device_of_thread;
    return ready();
}

cudaError_t cudaSetDeviceFlags(unsigned)
{
    return ready();
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    cudaError_t error = ready();
    if (error != cudaSuccess)
        return error;
    if (device < 0 || device >= options().devices)
        return fail(cudaErrorInvalidDevice);
    struct cudaDeviceProp p = {};
    snprintf(p.name, sizeof(p.name), "%s", options().name.c_str());
    p.uuid.bytes[0] = (char)device;
    p.totalGlobalMem = options().memory_bytes;
    p.sharedMemPerBlock = 48 << 10;
    p.sharedMemPerBlockOptin = 227 << 10;
    p.sharedMemPerMultiprocessor = 228 << 10;
    p.regsPerBlock = 65536;
    p.warpSize = 32;
    p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiProcessor = 2048;
    p.multiProcessorCount = options().multiprocessors;
    p.major = options().major;
    p.minor = options().minor;
    p.l2CacheSize = 50 << 20;
    p.memoryBusWidth = 6144;
    p.pciBusID = device + 1;
    p.unifiedAddressing = 1;
    p.asyncEngineCount = 2;
    *properties = p;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error != cudaSuccess)
        return error;
    const std::map<int, int> values = {
        {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
        {cudaDevAttrMaxSharedMemoryPerBlock, (int)p.sharedMemPerBlock},
        {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
        {cudaDevAttrIntegrated, 0},
        {cudaDevAttrL2CacheSize, p.l2CacheSize},
        {cudaDevAttrMemoryClockRate, 3201000},
        {cudaDevAttrGlobalMemoryBusWidth, p.memoryBusWidth},
        {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
        {cudaDevAttrComputeCapabilityMajor, p.major},
        {cudaDevAttrComputeCapabilityMinor, p.minor},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, (int)p.sharedMemPerMultiprocessor},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, (int)p.sharedMemPerBlockOptin},
    };
    auto found = values.find(attribute);
    if (found == values.end())
        return fail(cudaErrorInvalidValue);
    *value = found->second;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device)
{
    snprintf(id, (size_t)length, "0000:%02x:00.0", device + 1);
    return ready();
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return ready();
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    *can = device != peer;
    return ready();
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned)
{
    return ready();
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = ready();
    return error != cudaSuccess ? error : fail(synchronize_all());
}

cudaError_t cudaDeviceReset(void)
{
    return cudaDeviceSynchronize();
}
} /* extern "C" */
