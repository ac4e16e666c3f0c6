/* bench_f8: E4M3 products on a device, as lines "name value unit" of bench_device, which includes
 * it and calls it on its main thread: cuBLASLt's rate with each form of scales (the goal for
 * prompts), the cost of making E4M3 activations, and the rate at which cuda_gemv reads such
 * weights. Shapes are those of Llama 3 8B. A form that the device does not have gives no line. It
 * checks no results: test_f8.cu does. */
#ifndef TESTS_GPU_BENCH_F8_H
#define TESTS_GPU_BENCH_F8_H

#include "compute/cuda/kernels.cuh"
#include "tests/gpu/timing.h"

#include <cublasLt.h>

namespace bench
{
/* A form of scales: of weights and of activations. */
struct f8_form {
    const char *name;
    int32_t w_mode, a_mode;
};

/* Returns the milliseconds of one product; 0 = the library has no such product. */
inline double f8_product_ms(const struct f8_form &form, uint32_t rows, uint32_t n, uint32_t k,
                            bool tiny)
{
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t preference;
    cublasLtMatrixLayout_t wl, al, yl;
    cublasLtMatmulHeuristicResult_t result;
    const int32_t transposed = CUBLAS_OP_T;
    const uint64_t bytes = (uint64_t)32 << 20;
    const float one = 1, zero = 0;
    int found = 0;
    double ms = 0;
    gpu::buffer<uint8_t> w((size_t)n * k), a((size_t)rows * k);
    gpu::buffer<float> y((size_t)rows * n), scales((size_t)(rows + n) * (k / 128 + 4));
    gpu::buffer<char> workspace(bytes);
    GPU_CHECK(cudaMemset(w, 0x31, w.size));
    GPU_CHECK(cudaMemset(a, 0x2c, a.size));
    GPU_CHECK(cudaMemset(scales, 0, scales.size * sizeof(float)));
    const float *scales_at = scales.data;
    (void)cublasLtCreate(&handle);
    (void)cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size) {
        (void)cublasLtMatmulDescSetAttribute(desc, attribute, value, size);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed));
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &form.w_mode, sizeof(form.w_mode));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &form.a_mode, sizeof(form.a_mode));
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scales_at, sizeof(scales_at));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &scales_at, sizeof(scales_at));
    (void)cublasLtMatrixLayoutCreate(&wl, CUDA_R_8F_E4M3, k, n, k);
    (void)cublasLtMatrixLayoutCreate(&al, CUDA_R_8F_E4M3, k, rows, k);
    (void)cublasLtMatrixLayoutCreate(&yl, CUDA_R_32F, n, rows, n);
    (void)cublasLtMatmulPreferenceCreate(&preference);
    (void)cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &bytes, sizeof(bytes));
    const auto run = [&] {
        return cublasLtMatmul(handle, desc, &one, w.data, wl, a.data, al, &zero, y.data, yl, y.data,
                              yl, &result.algo, workspace.data, bytes, nullptr);
    };
    if (cublasLtMatmulAlgoGetHeuristic(handle, desc, wl, al, yl, yl, preference, 1, &result,
                                       &found) == CUBLAS_STATUS_SUCCESS &&
        found == 1 && run() == CUBLAS_STATUS_SUCCESS)
        ms = gpu::median_ms(
            nullptr, [&] { (void)run(); }, tiny ? 1 : 10, tiny ? 1 : 7);
    (void)cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t each : {wl, al, yl})
        (void)cublasLtMatrixLayoutDestroy(each);
    (void)cublasLtMatmulDescDestroy(desc);
    (void)cublasLtDestroy(handle);
    return ms;
}

inline void f8_products(bool tiny)
{
    const struct f8_form forms[] = {
        {"plain", CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F},
        {"rows", CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F,
         CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F},
        {"blocks", CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
         CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F}};
    const struct {
        const char *name;
        uint32_t n, k;
    } shapes[] = {{"qkv", 6144, 4096}, {"gate", 14336, 4096}, {"down", 4096, 14336}};
    const uint32_t part = tiny ? 32 : 1, rows = 8192 / part / (tiny ? 8 : 1);
    for (const auto &shape : shapes)
        for (const struct f8_form &form : forms) {
            const uint32_t n = shape.n / part, k = shape.k / part / 128 * 128;
            const double ms = f8_product_ms(form, rows, n, k, tiny);
            if (ms > 0)
                printf("cublas_8b_%s_f8_%s %.2f TFLOP/s\n", shape.name, form.name,
                       2e-9 * rows * n * k / ms);
        }
}

inline void f8_activations(bool tiny)
{
    const uint32_t rows = tiny ? 8 : 8192, cols = 4096;
    gpu::buffer<__nv_bfloat16> a((size_t)rows * cols);
    gpu::buffer<uint8_t> out((size_t)rows * cols);
    gpu::buffer<float> scales((size_t)rows * (cols / 128));
    GPU_CHECK(cudaMemset(a, 0x3c, a.size * sizeof(__nv_bfloat16)));
    for (const bool groups : {false, true}) {
        const double ms = gpu::median_ms(
            nullptr,
            [&] {
                if (groups)
                    cuda_quantize_groups(nullptr, a, rows, cols, rows, out, scales);
                else
                    cuda_quantize_rows(nullptr, a, rows, cols, out, scales);
            },
            tiny ? 1 : 10, tiny ? 1 : 7);
        printf("quantize_f8_%s %.1f GB/s read and written\n", groups ? "groups" : "rows",
               3.0 * rows * cols / ms * 1e-6);
    }
}

/* Uses `count` matrices in turn, so that none of them is still in the L2 cache when it is read
 * again. */
inline void f8_gemv(bool tiny)
{
    const uint32_t n = tiny ? 64 : 14336, k = tiny ? 512 : 4096, count = tiny ? 2 : 8;
    gpu::buffer<uint8_t> w((size_t)count * n * k);
    gpu::buffer<float> scales(n), y((size_t)CUDA_GEMV_ROWS * n);
    gpu::buffer<__nv_bfloat16> a((size_t)CUDA_GEMV_ROWS * k);
    GPU_CHECK(cudaMemset(w, 0x31, w.size));
    GPU_CHECK(cudaMemset(scales, 0, n * sizeof(float)));
    GPU_CHECK(cudaMemset(a, 0x3c, a.size * sizeof(__nv_bfloat16)));
    for (const uint32_t rows : {1u, 16u}) {
        const double ms = gpu::median_ms(
            nullptr,
            [&] {
                for (uint32_t i = 0; i < count; i++) {
                    struct cuda_weights weights = {};
                    weights.type = COMPUTE_F8_E4M3;
                    weights.rows = n;
                    weights.cols = k;
                    weights.quants = w.data + (size_t)i * n * k;
                    weights.scales = reinterpret_cast<const uint8_t *>(scales.data);
                    weights.row_bytes = k;
                    weights.scale_row_bytes = sizeof(float);
                    cuda_gemv(nullptr, &weights, a, nullptr, rows, false, y);
                }
            },
            tiny ? 1 : 10, tiny ? 1 : 7);
        printf("gemv_f8_%u_rows %.1f GB/s of weights\n", rows, (double)w.size / ms * 1e-6);
    }
}

inline void f8(bool tiny)
{
    f8_products(tiny);
    f8_activations(tiny);
    f8_gemv(tiny);
}
} // namespace bench

#endif
