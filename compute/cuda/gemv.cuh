/* gemv: what the families of kernels for products of up to CUDA_GEMV_ROWS rows share. gemv.cu
 * chooses a family and calls one of the functions below, on the thread that computes (compute.h).
 * The functions queue a kernel and return. Internal to gemv*.cu; other files call cuda_gemv
 * (kernels.cuh). gemm.cu computes products of more rows. */
#ifndef COMPUTE_CUDA_GEMV_CUH
#define COMPUTE_CUDA_GEMV_CUH

#include "compute/cuda/kernels.cuh"

/* Up to CUDA_GEMV_SET matrices and their results. The matrices have one type, the same number of
 * columns, and the same codes, factor and scale_shift. */
struct gemv_set {
    struct cuda_weights w[CUDA_GEMV_SET];
    const float *bias[CUDA_GEMV_SET]; /* NULL = none. */
    float *y[CUDA_GEMV_SET];          /* [rows × w.rows] */
    uint32_t count;                   /* Number of matrices. */
    uint32_t cols;
    bool add;                               /* y += instead of y =. */
    uint32_t first_tile[CUDA_GEMV_SET + 1]; /* gemv_mma: first tile of each matrix, and the end. */
};

/* Activations [rows × cols]; f32 is used if it is not NULL. */
struct gemv_input {
    const __nv_bfloat16 *a;
    const float *f32;
    uint32_t rows;
};

/* gemv_plain.cu: any type, any device, bf16 or fp32 activations. */
void gemv_plain(cudaStream_t stream, const struct gemv_set &set, const struct gemv_input &input);
/* gemv_mma.cu (BF16, F16), gemv_mma_quantised.cu and gemv_mma_f8.cu, on tensor cores. Require bf16
 * activations aligned to 16 bytes, compute capability 8.0, and cols a multiple of 8. */
void gemv_mma(cudaStream_t stream, const struct gemv_set &set, const struct gemv_input &input);
void gemv_mma_quantised(cudaStream_t stream, const struct gemv_set &set,
                        const struct gemv_input &input);
void gemv_mma_f8(cudaStream_t stream, const struct gemv_set &set, const struct gemv_input &input);

/* Writes one element of y: the product plus the bias and, with set.add, plus the old value. */
static __device__ __forceinline__ void gemv_put(const struct gemv_set &set, uint32_t matrix,
                                                uint32_t row, uint32_t weight_row, float product)
{
    float *y = set.y[matrix] + (size_t)row * set.w[matrix].rows + weight_row;
    if (set.bias[matrix] != nullptr)
        product += set.bias[matrix][weight_row];
    *y = set.add ? *y + product : product;
}

#endif
