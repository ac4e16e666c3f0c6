/* Goal: cuBLASLt's products are as compute/cuda/gemm.cu expects: the order of operands, which one
 * is transposed, the effect of beta. On a device this tests the library, elsewhere the emulator's
 * version.
 *
 * Method: random matrices of awkward shapes and every pair of types against a plain product. */
#include "tests/gpu/harness.h"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define BLAS_CHECK(call)                                                                           \
    do {                                                                                           \
        cublasStatus_t status = (call);                                                            \
        if (status != CUBLAS_STATUS_SUCCESS) {                                                     \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cublasLtGetStatusString(status)); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

namespace
{
struct shape {
    uint64_t m, n, k;
    bool transposed;
    float beta;
    int batch;
};

template <class T> struct type_of;
template <> struct type_of<float> {
    static constexpr cudaDataType value = CUDA_R_32F;
};
template <> struct type_of<__half> {
    static constexpr cudaDataType value = CUDA_R_16F;
};
template <> struct type_of<__nv_bfloat16> {
    static constexpr cudaDataType value = CUDA_R_16BF;
};

cublasLtMatrixLayout_t layout(cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld,
                              int batch)
{
    cublasLtMatrixLayout_t made;
    int64_t stride = ld * (int64_t)cols;
    BLAS_CHECK(cublasLtMatrixLayoutCreate(&made, type, rows, cols, ld));
    BLAS_CHECK(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                sizeof(batch)));
    BLAS_CHECK(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &stride, sizeof(stride)));
    return made;
}

/* d = op(a) · b + beta · d, column-major; op(a) is [m × k], b [k × n]. */
template <class In, class Out>
void multiply(const struct shape &s, int64_t lda, int64_t ldb, int64_t ldd, const In *a,
              const In *b, Out *d)
{
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    uint64_t workspace_bytes = 4 << 20;
    gpu::buffer<char> workspace(workspace_bytes);
    int32_t transposed = s.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int found = 0;
    float alpha = 1;
    BLAS_CHECK(cublasLtCreate(&handle));
    BLAS_CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BLAS_CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                              sizeof(transposed)));
    cublasLtMatrixLayout_t al = layout(type_of<In>::value, s.transposed ? s.k : s.m,
                                       s.transposed ? s.m : s.k, lda, s.batch);
    cublasLtMatrixLayout_t bl = layout(type_of<In>::value, s.k, s.n, ldb, s.batch);
    cublasLtMatrixLayout_t dl = layout(type_of<Out>::value, s.m, s.n, ldd, s.batch);
    BLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    BLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference,
                                                    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &workspace_bytes, sizeof(workspace_bytes)));
    BLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(handle, desc, al, bl, dl, dl, preference, 1, &result,
                                              &found));
    BLAS_CHECK(cublasLtMatmul(handle, desc, &alpha, a, al, b, bl, &s.beta, d, dl, d, dl,
                              &result.algo, workspace, workspace_bytes, nullptr));
    GPU_CHECK(cudaDeviceSynchronize());
    cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t each : {al, bl, dl})
        cublasLtMatrixLayoutDestroy(each);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
}

template <class In, class Out>
void test(gpu::random &random, const struct shape &s, const char *types, double tolerance)
{
    /* Columns are padded to 16 bytes, as in the backend. */
    uint64_t pad = 16 / sizeof(In), pad_out = 16 / sizeof(Out);
    uint64_t a_rows = s.transposed ? s.k : s.m, a_cols = s.transposed ? s.m : s.k;
    uint64_t lda = (a_rows + pad - 1) / pad * pad, ldb = (s.k + pad - 1) / pad * pad;
    uint64_t ldd = (s.m + pad_out - 1) / pad_out * pad_out;
    std::vector<In> a(lda * a_cols * (uint64_t)s.batch), b(ldb * s.n * (uint64_t)s.batch);
    std::vector<Out> d(ldd * s.n * (uint64_t)s.batch);
    for (In &x : a)
        x = In(random.normal());
    for (In &x : b)
        x = In(random.normal());
    for (Out &x : d)
        x = Out(random.normal());
    gpu::buffer<In> a_device(a), b_device(b);
    gpu::buffer<Out> d_device(d);
    multiply<In, Out>(s, (int64_t)lda, (int64_t)ldb, (int64_t)ldd, a_device, b_device, d_device);
    std::vector<Out> got_raw = d_device.get();
    std::vector<float> got, want;
    for (uint64_t at = 0; at < (uint64_t)s.batch * s.n * s.m; at++) {
        uint64_t i = at / (s.n * s.m), n = at / s.m % s.n, m = at % s.m;
        double sum = 0;
        for (uint64_t k = 0; k < s.k; k++) {
            uint64_t in_a = s.transposed ? m * lda + k : k * lda + m;
            sum += (double)(float)a[i * lda * a_cols + in_a] *
                   (double)(float)b[i * ldb * s.n + n * ldb + k];
        }
        uint64_t at_d = i * ldd * s.n + n * ldd + m;
        want.push_back((float)(sum + (double)s.beta * (double)(float)d[at_d]));
        got.push_back((float)got_raw[at_d]);
    }
    char what[128];
    snprintf(what, sizeof(what), "%s m %llu n %llu k %llu%s beta %g batch %d", types,
             (unsigned long long)s.m, (unsigned long long)s.n, (unsigned long long)s.k,
             s.transposed ? " transposed" : "", (double)s.beta, s.batch);
    gpu::expect_near(what, got, want, {tolerance * 0.1 * (double)s.k / 8, tolerance});
}
} // namespace

int main()
{
    gpu::begin();
    gpu::random random(gpu::seed());
    for (const struct shape &s :
         {shape{16, 8, 32, true, 0, 1}, shape{64, 1, 40, true, 1, 1}, shape{24, 17, 64, true, 1, 1},
          shape{33, 5, 72, false, 0, 1}, shape{40, 9, 64, true, 0, 3}}) {
        test<__nv_bfloat16, float>(random, s, "bf16 to fp32", 1e-4);
        test<__half, float>(random, s, "f16 to fp32", 1e-4);
        test<float, float>(random, s, "fp32", 1e-4);
        test<__nv_bfloat16, __nv_bfloat16>(random, s, "bf16", 1e-2);
    }
    return gpu::finish();
}
