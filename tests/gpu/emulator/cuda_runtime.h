/* cuda_runtime: the emulator's own version of CUDA's header of this name: CUDA on the CPU, for
 * tests on computers without a GPU. It has what a .cu file of this tree needs so that g++ compiles
 * it and the program runs. The build puts this folder in the place of CUDA's headers. docs/gpu.md
 * says which errors the emulator finds; it says nothing about speed. */
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
