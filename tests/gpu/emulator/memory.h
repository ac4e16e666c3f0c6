/* memory: allocations of the emulated devices and of pinned host memory. Any thread. */
#ifndef TESTS_GPU_EMULATOR_MEMORY_H
#define TESTS_GPU_EMULATOR_MEMORY_H

#include "emulator.h"

#include <fcntl.h>

namespace emulated
{
constexpr int DEVICES_MAX = 16;

enum class allocation_kind { device, opened, pinned, registered };

struct allocation {
    enum allocation_kind kind;
    char *begin; /* what the program has: `bytes` from here */
    size_t bytes;
    char *area; /* whole pages */
    size_t area_bytes;
    uint64_t number;
    int device;
    bool freed;
};

cudaError_t device_take(void **pointer, size_t bytes, int device);
void poison_fill(void *pointer); /* of a new allocation */
cudaError_t device_release(void *pointer);
size_t device_used(int device);
cudaError_t host_take(void **pointer, size_t bytes);
cudaError_t host_register(void *pointer, size_t bytes);
cudaError_t host_release(void *pointer, enum allocation_kind kind);

/* What an IPC handle holds: the file of another process's device memory, and where in it. */
struct ipc_memory {
    int64_t process, file;
    uint64_t offset, area_bytes, bytes, begin;
    int32_t device;
};
static_assert(sizeof(struct ipc_memory) <= sizeof(cudaIpcMemHandle_t), "fits a handle");

/* Of the allocation that the pointer is in. */
bool memory_range(const void *pointer, uintptr_t *begin, size_t *bytes);

bool ipc_export(const void *pointer, struct ipc_memory *out);
cudaError_t ipc_import(const struct ipc_memory &from, void **pointer);
cudaError_t ipc_release(void *pointer);
} // namespace emulated

#endif
