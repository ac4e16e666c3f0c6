/* memory: allocations of the emulated devices and of pinned host memory, for the emulator's own .cc
 * files. Any CPU thread may call; a lock protects the table. It catches wrong accesses (memory.cc
 * explains how) but does not describe them: fault.cc does. */
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
    char *begin; /* [bytes]: the part that the program uses. */
    size_t bytes;
    char *area; /* [area_bytes]: the whole pages of the allocation. */
    size_t area_bytes;
    uint64_t number;
    int device;
    bool freed;
};

cudaError_t device_take(void **pointer, size_t bytes, int device);
/* Fills a new allocation with 0xff, a NaN in every float format. */
void poison_fill(void *pointer);
cudaError_t device_release(void *pointer);
size_t device_used(int device);
cudaError_t host_take(void **pointer, size_t bytes);
cudaError_t host_register(void *pointer, size_t bytes);
cudaError_t host_release(void *pointer, enum allocation_kind kind);

/* The contents of an IPC handle: the file with another process's device memory, and the place in
 * it. */
struct ipc_memory {
    int64_t process, file;
    uint64_t offset, area_bytes, bytes, begin;
    int32_t device;
};
static_assert(sizeof(struct ipc_memory) <= sizeof(cudaIpcMemHandle_t), "fits a handle");

/* Stores the range of the allocation that contains the pointer. Returns false if there is none. */
bool memory_range(const void *pointer, uintptr_t *begin, size_t *bytes);

bool ipc_export(const void *pointer, struct ipc_memory *out);
cudaError_t ipc_import(const struct ipc_memory &from, void **pointer);
cudaError_t ipc_release(void *pointer);
} // namespace emulated

#endif
