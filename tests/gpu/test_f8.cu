/* Goal: activations are converted to E4M3 as compute/cuda/quantize_f8.cu says, and cuBLASLt scales
 * E4M3 products as compute/cuda/product_f8.cu expects: which scale belongs to which operand, and
 * the scales' layout. On a device this tests the library, elsewhere the emulator's version, which
 * also refuses what the library refuses.
 *
 * Method: random rows with outliers, zeros, NaN and infinity, of many shapes, against a plain
 * quantiser; products of random E4M3 in each form against a plain loop in double. Forms that the
 * device does not have are skipped; the emulated 9.0 has all of them. */
#include "compute/cuda/kernels.cuh"
#include "compute/half.h"
#include "tests/gpu/harness.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <cublasLt.h>

namespace
{
char what[128];

float bf16(float value)
{
    return half_from_bf16(half_to_bf16(value));
}

/* The part of a row that has one scale. */
void plain_quantize(const float *x, uint32_t count, uint8_t *out, float *scale)
{
    float most = 0;
    bool lost = false;
    for (uint32_t i = 0; i < count; i++) {
        lost = lost || std::isnan(x[i]);
        most = fmaxf(most, fabsf(x[i]));
    }
    *scale = lost ? NAN : most / 448.0f;
    const float inverse = lost ? NAN : most > 0 ? 448.0f / most : 0;
    for (uint32_t i = 0; i < count; i++)
        out[i] = half_to_e4m3(x[i] * inverse);
}

void test_quantize(gpu::random &random, uint32_t rows, uint32_t cols, bool groups, bool poison)
{
    const uint32_t stride = rows + random.below(4), part = groups ? 128 : cols;
    std::vector<float> x((size_t)rows * cols);
    for (float &value : x)
        value = bf16(random.normal() * (random.below(50) == 0 ? 40.0f : 1.0f));
    for (uint32_t i = 0; i < cols; i++) /* A row of zeros. */
        x[i] = 0;
    if (poison && rows > 2) {
        x[cols + random.below(cols)] = NAN;
        x[2 * cols + random.below(cols)] = INFINITY;
    }
    std::vector<__nv_bfloat16> halves(x.size());
    for (size_t i = 0; i < x.size(); i++)
        halves[i] = __float2bfloat16_rn(x[i]);
    std::vector<uint8_t> want(x.size() + 16, 0xa5);
    std::vector<float> want_scales((groups ? (size_t)stride * (cols / 128) : rows) + 4, 42.0f);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t g = 0; g < cols / part; g++)
            plain_quantize(&x[(size_t)r * cols + g * part], part,
                           &want[(size_t)r * cols + g * part],
                           &want_scales[groups ? (size_t)g * stride + r : r]);
    gpu::buffer<__nv_bfloat16> a(halves);
    gpu::buffer<uint8_t> out(std::vector<uint8_t>(x.size() + 16, 0xa5));
    gpu::buffer<float> scales(std::vector<float>(want_scales.size(), 42.0f));
    if (groups)
        cuda_quantize_groups(nullptr, a, rows, cols, stride, out, scales);
    else
        cuda_quantize_rows(nullptr, a, rows, cols, out, scales);
    const std::vector<uint8_t> got = out.get();
    const std::vector<float> got_scales = scales.get();
    snprintf(what, sizeof(what), "%s of %u x %u", groups ? "groups" : "rows", rows, cols);
    for (size_t i = 0; i < want.size(); i++)
        if (got[i] != want[i] && ((got[i] & 127) != 127 || (want[i] & 127) != 127)) {
            gpu::fail("%s: element %zu is %u, want %u", what, i, got[i], want[i]);
            return;
        }
    for (size_t i = 0; i < want_scales.size(); i++)
        if (got_scales[i] != want_scales[i] &&
            !(std::isnan(got_scales[i]) && std::isnan(want_scales[i]))) {
            gpu::fail("%s: scale %zu is %g, want %g", what, i, (double)got_scales[i],
                      (double)want_scales[i]);
            return;
        }
}

void test_scale(gpu::random &random, uint32_t rows, uint32_t cols, bool add)
{
    std::vector<float> product((size_t)rows * cols), y(product.size() + 8, 42.0f), a(rows), w(cols);
    for (std::vector<float> *values : {&product, &a, &w})
        for (float &value : *values)
            value = random.normal();
    std::vector<float> want = y;
    for (size_t i = 0; i < product.size(); i++) {
        const float value = product[i] * a[i / cols] * w[i % cols];
        want[i] = add ? y[i] + value : value;
    }
    gpu::buffer<float> product_device(product), a_device(a), w_device(w), y_device(y);
    cuda_scale_product(nullptr, product_device, a_device, w_device, rows, cols, add, y_device);
    gpu::expect_near("scaled", y_device.get(), want, {1e-6, 1e-6});
}

/* ---- the library ---- */

struct form {
    const char *name;
    int32_t w_mode, a_mode;
};

constexpr int32_t SCALAR = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
constexpr int32_t VECTOR = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
constexpr int32_t GROUP = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
constexpr int32_t BLOCK = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;

const struct form forms[] = {
    {"plain", SCALAR, SCALAR}, {"vectors", VECTOR, VECTOR}, {"blocks", BLOCK, GROUP}};

/* y [rows × n] (+)= a [rows × k] · w [n × k]ᵀ. Returns false if the library has no algorithm. */
bool multiply(const struct form &form, uint32_t rows, uint32_t n, uint32_t k, bool transposed,
              const uint8_t *w, const uint8_t *a, const float *w_scales, const float *a_scales,
              float beta, float *y)
{
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t preference;
    cublasLtMatrixLayout_t wl, al, yl;
    cublasLtMatmulHeuristicResult_t result;
    const int32_t op = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint64_t bytes = 4 << 20;
    const float alpha = 1;
    int found = 0;
    gpu::buffer<char> workspace(bytes);
    bool good = cublasLtCreate(&handle) == 0 &&
                cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == 0;
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size) {
        good = good && cublasLtMatmulDescSetAttribute(desc, attribute, value, size) == 0;
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, &op, sizeof(op));
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &form.w_mode, sizeof(form.w_mode));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &form.a_mode, sizeof(form.a_mode));
    if (form.w_mode != SCALAR) {
        set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &w_scales, sizeof(w_scales));
        set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a_scales, sizeof(a_scales));
    }
    good = good &&
           cublasLtMatrixLayoutCreate(&wl, CUDA_R_8F_E4M3, transposed ? k : n, transposed ? n : k,
                                      transposed ? k : n) == 0 &&
           cublasLtMatrixLayoutCreate(&al, CUDA_R_8F_E4M3, k, rows, k) == 0 &&
           cublasLtMatrixLayoutCreate(&yl, CUDA_R_32F, n, rows, n) == 0 &&
           cublasLtMatmulPreferenceCreate(&preference) == 0 &&
           cublasLtMatmulPreferenceSetAttribute(
               preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)) == 0;
    if (!good)
        gpu::fail("%s: nothing can be prepared", form.name);
    const bool done = cublasLtMatmulAlgoGetHeuristic(handle, desc, wl, al, yl, yl, preference, 1,
                                                     &result, &found) == 0 &&
                      found == 1 &&
                      cublasLtMatmul(handle, desc, &alpha, w, wl, a, al, &beta, y, yl, y, yl,
                                     &result.algo, workspace, bytes, nullptr) == 0;
    GPU_CHECK(cudaDeviceSynchronize());
    cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t each : {wl, al, yl})
        cublasLtMatrixLayoutDestroy(each);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
    return done;
}

std::vector<uint8_t> codes(gpu::random &random, size_t count)
{
    std::vector<uint8_t> out(count);
    for (uint8_t &code : out)
        code = half_to_e4m3(random.normal() * 20);
    return out;
}

void test_product(gpu::random &random, const struct form &form, uint32_t rows, uint32_t n,
                  uint32_t k, float beta, bool must)
{
    const uint32_t blocks = (k + 127) / 128, stride = (blocks + 3) / 4 * 4;
    const std::vector<uint8_t> w = codes(random, (size_t)n * k),
                               a = codes(random, (size_t)rows * k);
    std::vector<float> w_scales(form.w_mode == BLOCK ? (n + 127) / 128 * stride : n);
    std::vector<float> a_scales(form.a_mode == GROUP ? (size_t)blocks * rows : rows);
    std::vector<float> y((size_t)rows * n), want(y.size());
    for (std::vector<float> *values : {&w_scales, &a_scales, &y})
        for (float &value : *values)
            value = random.normal();
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < n; i++) {
            double sum = 0;
            for (uint32_t c = 0; c < k; c++) {
                double scale = 1;
                if (form.w_mode == VECTOR)
                    scale = (double)w_scales[i] * a_scales[r];
                else if (form.w_mode == BLOCK)
                    scale = (double)w_scales[i / 128 * stride + c / 128] *
                            a_scales[(size_t)(c / 128) * rows + r];
                sum += scale * half_from_e4m3(w[(size_t)i * k + c]) *
                       half_from_e4m3(a[(size_t)r * k + c]);
            }
            want[(size_t)r * n + i] = (float)(sum + (double)beta * y[(size_t)r * n + i]);
        }
    gpu::buffer<uint8_t> w_device(w), a_device(a);
    gpu::buffer<float> ws(w_scales), as(a_scales), y_device(y);
    snprintf(what, sizeof(what), "%s %u rows, %u x %u", form.name, rows, n, k);
    if (!multiply(form, rows, n, k, true, w_device, a_device, ws, as, beta, y_device)) {
        if (must)
            gpu::fail("%s: the library has none", what);
        printf("%s: not here\n", what);
        return;
    }
    /* Tensor cores keep only about 14 bits of a partial sum of 8-bit products. */
    gpu::expect_near(what, y_device.get(), want, {3e-3 * sqrt((double)k) * 400, 2e-3});
}

#ifdef CUDA_EMULATED
void test_refused(void)
{
    gpu::buffer<uint8_t> bytes(std::vector<uint8_t>(256 * 256));
    gpu::buffer<float> floats(std::vector<float>(256 * 256));
    const auto takes = [&](const struct form &form, uint32_t rows, uint32_t n, uint32_t k,
                           bool transposed, uint32_t offset) {
        return multiply(form, rows, n, k, transposed, bytes.data + offset, bytes, floats, floats, 0,
                        floats);
    };
    const struct form mixed = {"mixed", VECTOR, SCALAR}, blocks_alone = {"alone", BLOCK, BLOCK};
    if (!takes(forms[1], 17, 32, 144, true, 0) || takes(forms[1], 17, 32, 136, true, 0) ||
        takes(forms[1], 17, 40, 144, true, 0) || takes(forms[1], 17, 32, 144, false, 0) ||
        takes(forms[1], 17, 32, 144, true, 8))
        gpu::fail("multiples of 16, and A transposed");
    if (takes(mixed, 16, 32, 128, true, 0) || takes(blocks_alone, 16, 32, 128, true, 0))
        gpu::fail("scales of two kinds");
    if (!takes(forms[2], 20, 32, 128, true, 0) || takes(forms[2], 18, 32, 128, true, 0) ||
        takes(forms[2], 20, 32, 144, true, 0))
        gpu::fail("blocks of 128, rows in fours");
}
#endif
} // namespace

int main()
{
    gpu::begin();
    gpu::random random(gpu::seed());
    for (uint32_t cols : {128u, 256u, 1536u, 4096u})
        for (uint32_t rows : {1u, 3u, 17u, 36u}) {
            test_quantize(random, rows, cols, true, rows == 17);
            test_quantize(random, rows, cols, false, rows == 17);
        }
    test_quantize(random, 20, 576, false, false);
    test_quantize(random, 5, 16, false, true);
    test_scale(random, 19, 48, false);
    test_scale(random, 3, 4096, true);
    cudaDeviceProp device;
    GPU_CHECK(cudaGetDeviceProperties(&device, 0));
    const int capability = device.major * 10 + device.minor;
    for (const struct form &form : forms) {
        const bool must = capability == 90 || (capability > 89 && form.w_mode == SCALAR);
        for (uint32_t rows : {20u, 64u}) {
            test_product(random, form, rows, 48, 128, 0, must);
            test_product(random, form, rows, 272, 640, 1, must);
        }
        if (gpu::large())
            test_product(random, form, 512, 1024, 4096, 0, must);
    }
#ifdef CUDA_EMULATED
    if (capability == 90)
        test_refused();
#endif
    return gpu::finish();
}
