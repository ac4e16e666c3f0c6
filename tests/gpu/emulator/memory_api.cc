/* memory_api: the runtime's calls that allocate and copy. */
#include "memory.h"

#include <vector>

using namespace emulated;

namespace
{
/* What a pointer in a copy points to: device memory, or host memory, pinned or not. */
enum class side { device, pinned, pageable, wrong };

enum side side_of(const void *pointer, size_t bytes)
{
    char text[256];
    enum memory_kind kind = memory_find(pointer, bytes);
    if (kind == memory_kind::device)
        return side::device;
    if (kind == memory_kind::host)
        return side::pinned;
    return pointer == nullptr || memory_describe(pointer, text, sizeof(text)) ? side::wrong
                                                                              : side::pageable;
}

bool direction_is(enum cudaMemcpyKind kind, enum side to, enum side from)
{
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return kind == cudaMemcpyDefault ||
           (to_device == (to == side::device) && from_device == (from == side::device));
}

struct shape {
    size_t to_pitch, from_pitch, width, height;
};

void copy_rows(char *to, const char *from, const struct shape &s)
{
    for (size_t row = 0; row < s.height; row++)
        memmove(to + row * s.to_pitch, from + row * s.from_pitch, s.width);
}

/* As in CUDA, pageable memory is read before the call returns, and a copy to pageable memory is
 * complete when the call returns. */
cudaError_t copy_enqueue(void *to, const void *from, const struct shape &s,
                         enum cudaMemcpyKind kind, cudaStream_t stream)
{
    cudaError_t error = ready();
    if (error != cudaSuccess || s.width * s.height == 0)
        return error;
    size_t to_bytes = s.to_pitch * (s.height - 1) + s.width;
    size_t from_bytes = s.from_pitch * (s.height - 1) + s.width;
    enum side to_side = side_of(to, to_bytes), from_side = side_of(from, from_bytes);
    if (to_side == side::wrong || from_side == side::wrong)
        return fail(cudaErrorInvalidValue);
    if (!direction_is(kind, to_side, from_side))
        return fail(cudaErrorInvalidMemcpyDirection);
    bool pageable = to_side == side::pageable || from_side == side::pageable;
    if (pageable && capturing(stream))
        return fail(cudaErrorStreamCaptureUnsupported);
    auto *target = static_cast<char *>(to);
    auto *source = static_cast<const char *>(from);
    if (from_side == side::pageable) {
        auto kept = std::make_shared<std::vector<char>>(source, source + from_bytes);
        error = enqueue(stream, work_kind::copy, [=] { copy_rows(target, kept->data(), s); });
    } else {
        error = enqueue(stream, work_kind::copy, [=] { copy_rows(target, source, s); });
    }
    if (error == cudaSuccess && to_side == side::pageable)
        error = synchronize(stream);
    return fail(error);
}

cudaError_t then_wait(cudaError_t error, cudaStream_t stream)
{
    return error != cudaSuccess ? error : fail(synchronize(stream));
}
} // namespace

extern "C" {
cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    cudaError_t error = ready();
    if (error != cudaSuccess)
        return error;
    *pointer = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    error = device_take(pointer, bytes, current_device());
    if (error == cudaSuccess)
        poison_fill(*pointer);
    return fail(error);
}

cudaError_t cudaFree(void *pointer)
{
    cudaError_t error = ready();
    if (error != cudaSuccess && error != cudaErrorLaunchFailure)
        return error;
    if (pointer == nullptr)
        return error;
    cudaError_t waited = synchronize_all();
    error = device_release(pointer);
    return fail(error != cudaSuccess ? error : waited);
}

cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t)
{
    return cudaMalloc(pointer, bytes);
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream)
{
    return fail(enqueue(stream, work_kind::copy, [=] { device_release(pointer); }));
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned)
{
    cudaError_t error = ready();
    return error != cudaSuccess ? error : fail(host_take(pointer, bytes));
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes)
{
    return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *pointer)
{
    if (pointer == nullptr)
        return cudaSuccess;
    cudaError_t waited = synchronize_all();
    cudaError_t error = host_release(pointer, allocation_kind::pinned);
    return fail(error != cudaSuccess ? error : waited);
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned)
{
    cudaError_t error = ready();
    return error != cudaSuccess ? error : fail(host_register(pointer, bytes));
}

cudaError_t cudaHostUnregister(void *pointer)
{
    return fail(host_release(pointer, allocation_kind::registered));
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
    *device = host;
    return memory_find(host, 1) == memory_kind::host ? ready() : fail(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *total_bytes = options().memory_bytes;
    *free_bytes = options().memory_bytes - device_used(current_device());
    return ready();
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    enum memory_kind kind = memory_find(pointer, 1);
    *attributes = {};
    attributes->type = kind == memory_kind::device ? cudaMemoryTypeDevice
                       : kind == memory_kind::host ? cudaMemoryTypeHost
                                                   : cudaMemoryTypeUnregistered;
    attributes->device = kind == memory_kind::device ? memory_device(pointer) : -2;
    void *plain = const_cast<void *>(pointer);
    attributes->devicePointer = kind == memory_kind::none ? nullptr : plain;
    attributes->hostPointer = kind == memory_kind::device ? nullptr : plain;
    return ready();
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return copy_enqueue(to, from, {bytes, bytes, bytes, 1}, kind, stream);
}

cudaError_t cudaMemcpyBatchAsync(void *const *to, const void *const *from, const size_t *bytes,
                                 size_t count, struct cudaMemcpyAttributes *attributes,
                                 size_t *attribute_firsts, size_t attribute_count,
                                 cudaStream_t stream)
{
    struct one {
        void *to;
        const void *from;
        size_t bytes;
    };
    cudaError_t error = ready();
    if (error != cudaSuccess)
        return error;
    if (!options().batches)
        return fail(cudaErrorNotSupported);
    if (count == 0 || attribute_count != 1 || attribute_firsts[0] != 0 || stream == nullptr ||
        attributes[0].srcAccessOrder != cudaMemcpySrcAccessOrderStream)
        return fail(cudaErrorInvalidValue);
    std::vector<struct one> list(count);
    for (size_t i = 0; i < count; i++) {
        list[count - 1 - i] = {to[i], from[i], bytes[i]};
        if (side_of(to[i], bytes[i]) != side::device || side_of(from[i], bytes[i]) != side::device)
            return fail(cudaErrorInvalidValue);
    }
    return fail(enqueue(stream, work_kind::copy, [list = std::move(list)] {
        for (const struct one &each : list)
            memmove(each.to, each.from, each.bytes);
    }));
}

static int address_range(unsigned long long *base, size_t *bytes, unsigned long long pointer)
{
    uintptr_t begin;
    if (!memory_range((const void *)(uintptr_t)pointer, &begin, bytes))
        return cudaErrorInvalidValue;
    *base = begin;
    return 0;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned,
                                             unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    bool known = strcmp(symbol, "cuMemGetAddressRange") == 0;
    *function = known ? (void *)address_range : nullptr;
    *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return ready();
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    return then_wait(cudaMemcpyAsync(to, from, bytes, kind, nullptr), nullptr);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t bytes,
                                cudaStream_t stream)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    if (width > to_pitch || width > from_pitch)
        return fail(cudaErrorInvalidValue);
    return copy_enqueue(to, from, {to_pitch, from_pitch, width, height}, kind, stream);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, enum cudaMemcpyKind kind)
{
    return then_wait(
        cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr), nullptr);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    cudaError_t error = ready();
    if (error != cudaSuccess || bytes == 0)
        return error;
    if (memory_find(to, bytes) == memory_kind::none)
        return fail(cudaErrorInvalidValue);
    return fail(enqueue(stream, work_kind::copy, [=] { memset(to, value, bytes); }));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    return then_wait(cudaMemsetAsync(to, value, bytes, nullptr), nullptr);
}

cudaError_t cudaIpcGetMemHandle(struct cudaIpcMemHandle_t *handle, void *pointer)
{
    struct ipc_memory memory;
    if (!ipc_export(pointer, &memory))
        return fail(cudaErrorInvalidValue);
    memcpy(handle->reserved, &memory, sizeof(memory));
    return ready();
}

cudaError_t cudaIpcOpenMemHandle(void **pointer, struct cudaIpcMemHandle_t handle, unsigned)
{
    struct ipc_memory memory;
    memcpy(&memory, handle.reserved, sizeof(memory));
    cudaError_t error = ready();
    return error != cudaSuccess ? error : fail(ipc_import(memory, pointer));
}

cudaError_t cudaIpcCloseMemHandle(void *pointer)
{
    cudaError_t waited = synchronize_all();
    cudaError_t error = ipc_release(pointer);
    return fail(error != cudaSuccess ? error : waited);
}
} /* extern "C" */
