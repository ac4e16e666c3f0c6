/* library_types: the emulator's own version of CUDA's header of this name: the element types of the
 * libraries, with CUDA's numbers. Constants only; cublasLt.h includes it. */
#ifndef TESTS_GPU_EMULATOR_LIBRARY_TYPES_H
#define TESTS_GPU_EMULATOR_LIBRARY_TYPES_H

enum cudaDataType_t {
    CUDA_R_32F = 0,
    CUDA_R_16F = 2,
    CUDA_R_8I = 3,
    CUDA_R_32I = 10,
    CUDA_R_16BF = 14,
    CUDA_R_8F_E4M3 = 28,
};
using cudaDataType = enum cudaDataType_t;

#endif
