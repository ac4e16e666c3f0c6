/* emulator: what the emulator's own .cc files share: options, errors, memory, running kernels,
 * streams. A .cu file never includes it. Any CPU thread of the program may call: memory.cc and
 * stream.cc lock their state. It does not model time: nothing here has a speed. */
#ifndef TESTS_GPU_EMULATOR_EMULATOR_H
#define TESTS_GPU_EMULATOR_EMULATOR_H

#include "cuda_runtime.h"

#include <string>

namespace emulated
{
/* Options from the environment, read once; docs/gpu.md lists them.
 *   CUDA_EMULATED_DEVICES=2           number of devices; 0 = none
 *   CUDA_EMULATED_DRIVER=none         behave as if there were no driver, or one that is too old
 *   CUDA_EMULATED_NAME=TEXT           name of the devices
 *   CUDA_EMULATED_CAPABILITY=9.0      compute capability of the devices
 *   CUDA_EMULATED_MULTIPROCESSORS=8
 *   CUDA_EMULATED_MEMORY=BYTES        memory of each device; larger allocations are refused
 *   CUDA_EMULATED_FAIL_LAUNCH=N       launch N of a kernel fails, counted from 1;
 *                                     N@D: counts only the launches on device D
 *   CUDA_EMULATED_IPC=none            memory of other processes cannot be opened
 *   CUDA_EMULATED_BATCHES=none        the driver takes no lists of copies
 *   CUDA_EMULATED_ORDER=SEED          order of blocks and threads: 0 = ascending (the default),
 *                                     1 = descending, others = random
 *   CUDA_EMULATED_PROGRESS=lazy       host functions also run only when a thread waits
 *   CUDA_EMULATED_LEAKS=report        memory left at exit is printed but is no failure */
struct options {
    int devices;
    bool driver;
    std::string name;
    int major, minor, multiprocessors;
    size_t memory_bytes;
    uint64_t fail_launch;
    int fail_device; /* -1 = any device. */
    uint64_t order;
    bool lazy;
    bool ipc, batches;
    bool leaks_fail;
};
const struct options &options();

/* Prints the text and ends the process. For errors that are bugs of the program under test. */
[[noreturn]] void stop(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* device.cc: errors as CUDA keeps them. */
cudaError_t fail(cudaError_t error); /* Stores the thread's last error and returns it. */
/* Records that a kernel has failed: every later call returns this error. */
void fail_for_good(cudaError_t error);
/* Checks driver, device and earlier failures; every call begins with it. */
cudaError_t ready();
int current_device();

/* memory.cc: this CPU thread may touch device memory while an object of this class lives. */
class access
{
  public:
    access();
    ~access();
    access(const access &) = delete;
    access &operator=(const access &) = delete;
};
enum class memory_kind { none, device, host };
/* Returns the kind of the allocation that contains [pointer, pointer + bytes). */
enum memory_kind memory_find(const void *pointer, size_t bytes);
/* Writes a text such as "16 bytes past the end of allocation 3 of 4096 bytes". Returns false if no
 * allocation of a device is near. */
bool memory_describe(const void *pointer, char *text, size_t size);
int memory_device(const void *pointer); /* Returns the device whose memory it is; -1 = none. */

/* block.cc: runs all blocks of a launch on this CPU thread. */
void run_kernel(const struct launch &launch);
/* Describes the block and thread of the kernel that run on this CPU thread. Returns false if no
 * kernel runs on it. */
bool running_describe(char *text, size_t size);
bool running_shared_overrun(const void *address, long *past_out);

/* fault.cc */
void fault_install(); /* Installs the handler of memory faults. Call it once per process. */
/* Sets the stack on which faults of this CPU thread are handled, because the stacks of fibers are
 * too small. NULL = no stack. */
void fault_stack_use(char *memory, size_t bytes);

/* stream.cc */
/* Kinds of work. exchange: the work waits for other processes while it runs, and does not delay
 * other streams. */
enum class work_kind { kernel, copy, host, exchange };
/* Queues `run` at the end of the stream. If the stream captures, records `run` in the graph
 * instead. */
cudaError_t enqueue(cudaStream_t stream, enum work_kind kind, std::function<void()> run);
/* Waits for the work that the stream has now. Returns an error while the stream captures. */
cudaError_t synchronize(cudaStream_t stream);
cudaError_t synchronize_all();
bool capturing(cudaStream_t stream);
} // namespace emulated

#endif
