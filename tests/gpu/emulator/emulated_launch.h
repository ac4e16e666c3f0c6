/* emulated_launch: the macros of compute/cuda/launch.cuh, for tests without a GPU (cuda_runtime.h).
 * Every .cu file is compiled by way of emulated.cc.in, which includes this header first. This
 * header defines the guard of launch.cuh, so a later #include of launch.cuh adds nothing. The .cu
 * files expand the macros: CUDA_LAUNCH on the thread that computes, CUDA_SHARED in a kernel. It has
 * no state: emulated_api.h has the two functions behind the macros. */
#ifndef TESTS_GPU_EMULATOR_EMULATED_LAUNCH_H
#define TESTS_GPU_EMULATOR_EMULATED_LAUNCH_H
#define COMPUTE_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#include <stdlib.h>
#include <string.h>

/* Checks the arguments, queues the kernel in the stream and returns. The kernel runs when a thread
 * waits for the stream or asks whether its work is done. */
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    cuda_emulated_launch(#kernel, kernel, grid, block, shared_bytes,                               \
                         stream __VA_OPT__(, ) __VA_ARGS__)
/* On a device, the kernel may begin before the previous kernel of the stream has ended. Here it
 * never does. */
#define CUDA_LAUNCH_EARLY CUDA_LAUNCH
/* Declares `name` as a pointer to the dynamic shared memory of the block that runs. */
#define CUDA_SHARED(type, name) type *name = static_cast<type *>(cuda_emulated_shared())

#endif
