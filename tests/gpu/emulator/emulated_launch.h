/* emulated_launch: the macros of compute/cuda/launch.cuh for the emulator. emulated.cc.in includes
 * this file first; it defines launch.cuh's guard, so that launch.cuh itself stays empty. */
#ifndef TESTS_GPU_EMULATOR_EMULATED_LAUNCH_H
#define TESTS_GPU_EMULATOR_EMULATED_LAUNCH_H
#define COMPUTE_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#include <stdlib.h>
#include <string.h>

/* Kernels run one after the other, so none begins early. */
#define CUDA_LAUNCH_EARLY CUDA_LAUNCH
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    cuda_emulated_launch(#kernel, kernel, grid, block, shared_bytes,                               \
                         stream __VA_OPT__(, ) __VA_ARGS__)
#define CUDA_SHARED(type, name) type *name = static_cast<type *>(cuda_emulated_shared())

#endif
