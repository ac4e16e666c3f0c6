/* emulator: what the emulator's own files share. A .cu file never includes this. */
#ifndef TESTS_GPU_EMULATOR_EMULATOR_H
#define TESTS_GPU_EMULATOR_EMULATOR_H

#include "cuda_runtime.h"

#include <string>

namespace emulated
{
/* From the environment, read once; docs/gpu.md lists them.
 *   CUDA_EMULATED_DEVICES=2           how many devices there are; 0: none
 *   CUDA_EMULATED_DRIVER=none         as if no driver, or one too old, were there
 *   CUDA_EMULATED_NAME=TEXT           the devices' name
 *   CUDA_EMULATED_CAPABILITY=9.0      their compute capability
 *   CUDA_EMULATED_MULTIPROCESSORS=8
 *   CUDA_EMULATED_MEMORY=BYTES        of each device; more is refused
 *   CUDA_EMULATED_FAIL_LAUNCH=N       the N-th launch of a kernel (1 is the first) fails;
 *                                     N@D: of those on device D
 *   CUDA_EMULATED_IPC=none            memory of other processes cannot be opened
 *   CUDA_EMULATED_BATCHES=none        the driver takes no lists of copies
 *   CUDA_EMULATED_ORDER=SEED          in which order blocks and threads run: 0 up (the default),
 *                                     1 down, others drawn
 *   CUDA_EMULATED_PROGRESS=lazy       host functions too run only when something waits
 *   CUDA_EMULATED_LEAKS=report        memory left at exit is told, but the exit stays good */
struct options {
    int devices;
    bool driver;
    std::string name;
    int major, minor, multiprocessors;
    size_t memory_bytes;
    uint64_t fail_launch;
    int fail_device; /* -1: any */
    uint64_t order;
    bool lazy;
    bool ipc, batches;
    bool leaks_fail;
};
const struct options &options();

/* Ends the process: what happened is a bug in the program under test. */
[[noreturn]] void stop(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* device.cc: errors as CUDA keeps them. */
cudaError_t fail(cudaError_t error);   /* notes it as the thread's last error */
void fail_for_good(cudaError_t error); /* a kernel failed: every call from now on says so */
cudaError_t ready();                   /* what a call begins with: driver, device, no failure */
int current_device();

/* memory.cc: this CPU thread may touch device memory as long as one of these lives. */
class access
{
  public:
    access();
    ~access();
    access(const access &) = delete;
    access &operator=(const access &) = delete;
};
enum class memory_kind { none, device, host };
/* Whether [pointer, pointer + bytes) lies in one allocation, and of which kind. */
enum memory_kind memory_find(const void *pointer, size_t bytes);
/* "16 bytes past the end of allocation 3 of 4096 bytes"; false: nothing of a device is near. */
bool memory_describe(const void *pointer, char *text, size_t size);
int memory_device(const void *pointer); /* whose it is; -1 */

/* block.cc */
void run_kernel(const struct launch &launch);
/* The kernel's block and thread that run on this CPU thread; false if none does. */
bool running_describe(char *text, size_t size);
bool running_shared_overrun(const void *address, long *past_out);

/* fault.cc */
void fault_install(); /* once a process */
/* Where this CPU thread's faults are handled: fibers' stacks are too small. NULL: no more. */
void fault_stack_use(char *memory, size_t bytes);

/* stream.cc: queues `run` behind all else in the stream, or records it while that captures. */
/* exchange: waits for other processes while it runs, and holds up no other stream. */
enum class work_kind { kernel, copy, host, exchange };
cudaError_t enqueue(cudaStream_t stream, enum work_kind kind, std::function<void()> run);
/* Waits for the stream's work up to here; an error while it captures. */
cudaError_t synchronize(cudaStream_t stream);
cudaError_t synchronize_all();
bool capturing(cudaStream_t stream);
} // namespace emulated

#endif
