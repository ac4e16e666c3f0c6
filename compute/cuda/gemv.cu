/* gemv: chooses the kernel for products of up to CUDA_GEMV_ROWS rows. The choice depends on the
 * device, the types and the columns, never on the number of rows or on the other matrices of a set,
 * so that a row's result does not depend on them either. */
#include "compute/cuda/gemv.cuh"
#include "compute/cuda/weights.cuh"

#include <cstring>

namespace
{
bool has_mma()
{
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major >= 8;
}

bool codes_equal(const struct cuda_weights *a, const struct cuda_weights *b)
{
    return memcmp(a->codes, b->codes, sizeof(a->codes)) == 0 && a->factor == b->factor;
}
} // namespace

void cuda_gemv_set(cudaStream_t stream, const struct cuda_weights *const *w,
                   const float *const *biases, uint32_t count, const __nv_bfloat16 *a,
                   const float *a_f32, uint32_t rows, bool add, float *const *y)
{
    const struct gemv_input input = {a, a_f32, rows};
    for (uint32_t i = 0; i < count;) {
        struct gemv_set set = {};
        set.cols = w[i]->cols;
        set.add = add;
        const enum compute_type type = w[i]->type;
        const uint32_t shift = w[i]->scale_shift;
        const struct cuda_weights *first = w[i];
        for (; i < count && w[i]->type == type && w[i]->scale_shift == shift &&
               codes_equal(first, w[i]);
             i++) {
            set.w[set.count] = *w[i];
            set.bias[set.count] = biases != nullptr ? biases[i] : nullptr;
            set.y[set.count++] = y[i];
        }
        if (type == COMPUTE_F32 || a_f32 != nullptr || set.cols % 8 != 0 || !has_mma())
            gemv_plain(stream, set, input);
        else if (type == COMPUTE_F8_E4M3)
            gemv_mma_f8(stream, set, input);
        else if (weights_float(type))
            gemv_mma(stream, set, input);
        else
            gemv_mma_quantised(stream, set, input);
    }
}

void cuda_gemv(cudaStream_t stream, const struct cuda_weights *w, const __nv_bfloat16 *a,
               const float *a_f32, uint32_t rows, bool add, float *y)
{
    cuda_gemv_set(stream, &w, nullptr, 1, a, a_f32, rows, add, &y);
}
