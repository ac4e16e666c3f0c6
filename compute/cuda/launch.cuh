/* launch: launches a kernel and declares its dynamic shared memory, for the .cu files with kernels,
 * on the thread that computes (compute.h). On the emulator, tests/gpu/emulator/emulated_launch.h
 * takes the place of this header. This header does not check launches for errors (cuda_launched in
 * backend.cuh does).
 *
 *   CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, arguments…)
 *
 * A template with several arguments needs parentheses: CUDA_LAUNCH((kernel<64, true>), …). */
#ifndef COMPUTE_CUDA_LAUNCH_CUH
#define COMPUTE_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#include <stdlib.h>
#include <string.h>

/* CUDA_LAUNCH_EARLY (compute capability 9.0 or higher): the kernel may begin while the kernel
 * before it in the stream still runs, as soon as all blocks of that kernel have called
 * ptx_launch_dependents or ended (programmatic dependent launch). Every thread must therefore call
 * ptx_wait_dependency before it reads or writes anything except weights; after that call,
 * everything that the kernel before has done is visible. On other devices, and with the environment
 * variable CLEAVE_CUDA_EARLY=0, CUDA_LAUNCH_EARLY is CUDA_LAUNCH. */
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)
#define CUDA_LAUNCH_EARLY(kernel, grid, block, shared_bytes, stream, ...)                          \
    cuda_launch_early(kernel, grid, block, shared_bytes, stream __VA_OPT__(, ) __VA_ARGS__)
/* Declares `name` as a pointer to the kernel's dynamic shared memory. */
#define CUDA_SHARED(type, name)                                                                    \
    extern __shared__ __align__(16) unsigned char cuda_shared_bytes[];                             \
    type *name = reinterpret_cast<type *>(cuda_shared_bytes)

/* Returns true if the current device can launch early and CLEAVE_CUDA_EARLY does not forbid it. */
static inline bool cuda_early_wanted()
{
    static const bool off = [] {
        const char *text = getenv("CLEAVE_CUDA_EARLY");
        return text != nullptr && strcmp(text, "0") == 0;
    }();
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return !off && major >= 9;
}

/* The function behind CUDA_LAUNCH_EARLY. */
template <class... PARAMETERS, class... ARGUMENTS>
static inline void cuda_launch_early(void (*kernel)(PARAMETERS...), dim3 grid, dim3 block,
                                     size_t shared_bytes, cudaStream_t stream,
                                     ARGUMENTS &&...arguments)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = cuda_early_wanted() ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, static_cast<ARGUMENTS &&>(arguments)...);
}

#endif
