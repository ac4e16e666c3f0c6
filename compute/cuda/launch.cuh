/* launch: how a kernel is launched and gets its dynamic shared memory, for nvcc and for the
 * emulator (tests/gpu/emulator) alike. CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream,
 * arguments…); A template with several arguments goes in parentheses: CUDA_LAUNCH((kernel<64,
 * true>), …). */
#ifndef COMPUTE_CUDA_LAUNCH_CUH
#define COMPUTE_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#ifdef CUDA_EMULATED
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    cuda_emulated_launch(#kernel, kernel, grid, block, shared_bytes,                               \
                         stream __VA_OPT__(, ) __VA_ARGS__)
#define CUDA_SHARED(type, name) type *name = static_cast<type *>(cuda_emulated_shared())
#else
#define CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)
/* One array of bytes whatever the type: kernels of one file may want different ones. */
#define CUDA_SHARED(type, name)                                                                    \
    extern __shared__ __align__(16) unsigned char cuda_shared_bytes[];                             \
    type *name = reinterpret_cast<type *>(cuda_shared_bytes)
#endif

#endif
