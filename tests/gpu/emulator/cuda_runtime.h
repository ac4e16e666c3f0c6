/* cuda_runtime: CUDA on the CPU, for tests: what a .cu file of this tree needs so that g++ compiles
 * it and a machine without a device runs it. Found in the place of CUDA's header of the same name;
 * our own text. See docs/gpu.md for what it is made to find. */
#ifndef TESTS_GPU_EMULATOR_CUDA_RUNTIME_H
#define TESTS_GPU_EMULATOR_CUDA_RUNTIME_H

#ifndef CUDA_EMULATED
#define CUDA_EMULATED 1
#endif

#include "emulated_types.h"

#include "emulated_math.h"
#include "emulated_threads.h"

#include "emulated_api.h"

#endif
