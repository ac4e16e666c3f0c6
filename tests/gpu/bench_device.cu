/* bench_device [tiny]: measures what the device can do, for the fractions of tests/gpu/check: dense
 * bf16 products by cuBLASLt (a large square, and those of Llama 3 8B with 8192 rows); bandwidth of
 * reads from memory, of copies on the device and to and from pinned host memory; E4M3 products
 * (bench_f8.h); and cleave's attention and sampling (bench_attention.h). Prints lines of "name
 * value unit"; each value is the median of runs after a warm-up. tiny: shapes for the emulator. */
#include "compute/cuda/launch.cuh"
#include "tests/gpu/bench_attention.h"
#include "tests/gpu/bench_f8.h"
#include "tests/gpu/harness.h"
#include "tests/gpu/timing.h"

#include <algorithm>
#include <cstring>
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <functional>

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
bool tiny;

using gpu::median_ms;

__global__ void fill_random(__nv_bfloat16 *out, size_t count, uint32_t seed)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        uint32_t x = (uint32_t)i * 2654435761u + seed;
        x ^= x >> 15;
        x *= 2246822519u;
        x ^= x >> 13;
        out[i] = __float2bfloat16((float)(x & 0xffff) / 65536.0f - 0.5f);
    }
}

/* Adds up all words, so that every byte is read. Each thread has eight loads of 16 bytes in
 * flight. */
__global__ void read_all(const uint4 *from, size_t count, unsigned *sum)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    unsigned mine = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += 8 * step) {
        uint4 v[8];
#pragma unroll
        for (unsigned j = 0; j < 8; j++)
            v[j] = i + j * step < count ? __ldcs(from + i + j * step) : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (unsigned j = 0; j < 8; j++)
            mine += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    if (mine == 0x12345678u) /* Practically never true, but the compiler cannot know that. */
        atomicAdd(sum, mine);
}

struct gemm {
    uint64_t rows, outputs, inputs; /* Y [rows × outputs] = X [rows × inputs] · Wᵀ */
    bool fp32_out;
    const char *name;
};

cublasLtMatrixLayout_t layout(cudaDataType type, uint64_t rows, uint64_t cols)
{
    cublasLtMatrixLayout_t made;
    BLAS_CHECK(cublasLtMatrixLayoutCreate(&made, type, rows, cols, (int64_t)rows));
    return made;
}

void bench_gemm(const struct gemm &g)
{
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    uint64_t workspace_bytes = (uint64_t)32 << 20;
    int32_t transposed = CUBLAS_OP_T;
    int found = 0;
    float one = 1, zero = 0;
    gpu::buffer<__nv_bfloat16> w(g.outputs * g.inputs), x(g.rows * g.inputs);
    gpu::buffer<float> y(g.rows * g.outputs);
    gpu::buffer<char> workspace(workspace_bytes);
    CUDA_LAUNCH(fill_random, 128, 256, 0, nullptr, w, w.size, 1);
    CUDA_LAUNCH(fill_random, 128, 256, 0, nullptr, x, x.size, 2);
    GPU_CHECK(cudaDeviceSynchronize());
    BLAS_CHECK(cublasLtCreate(&handle));
    BLAS_CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BLAS_CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                              sizeof(transposed)));
    cublasLtMatrixLayout_t wl = layout(CUDA_R_16BF, g.inputs, g.outputs);
    cublasLtMatrixLayout_t xl = layout(CUDA_R_16BF, g.inputs, g.rows);
    cublasLtMatrixLayout_t yl = layout(g.fp32_out ? CUDA_R_32F : CUDA_R_16BF, g.outputs, g.rows);
    BLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    BLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference,
                                                    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &workspace_bytes, sizeof(workspace_bytes)));
    BLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(handle, desc, wl, xl, yl, yl, preference, 1, &result,
                                              &found));
    double ms = median_ms(
        nullptr,
        [&] {
            BLAS_CHECK(cublasLtMatmul(handle, desc, &one, w.data, wl, x.data, xl, &zero, y.data, yl,
                                      y.data, yl, &result.algo, workspace.data, workspace_bytes,
                                      nullptr));
        },
        tiny ? 1 : 10, tiny ? 1 : 7);
    printf("%s %.2f TFLOP/s\n", g.name,
           2e-9 * (double)g.rows * (double)g.outputs * (double)g.inputs / ms);
    cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t each : {wl, xl, yl})
        cublasLtMatrixLayoutDestroy(each);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(handle);
}

void bench_products()
{
    uint64_t part = tiny ? 64 : 1;
    for (const struct gemm &g : {
             gemm{8192, 8192, 8192, false, "cublas_square_bf16"},
             gemm{8192, 8192, 8192, true, "cublas_square_fp32_out"},
             gemm{8192, 6144, 4096, true, "cublas_8b_qkv"},
             gemm{8192, 4096, 4096, true, "cublas_8b_attention_output"},
             gemm{8192, 14336, 4096, true, "cublas_8b_gate"},
             gemm{8192, 4096, 14336, true, "cublas_8b_down"},
         })
        bench_gemm({g.rows / part, g.outputs / part, g.inputs / part, g.fp32_out, g.name});
}

void bench_memory()
{
    size_t bytes = tiny ? (size_t)1 << 20 : (size_t)8 << 30;
    struct cudaDeviceProp properties;
    GPU_CHECK(cudaGetDeviceProperties(&properties, 0));
    gpu::buffer<uint4> from(bytes / sizeof(uint4)), to(bytes / sizeof(uint4));
    gpu::buffer<unsigned> sum(1);
    int calls = tiny ? 1 : 5, runs = tiny ? 1 : 5;
    GPU_CHECK(cudaMemset(from, 1, bytes));
    GPU_CHECK(cudaMemset(sum, 0, sizeof(unsigned)));
    double best = 0;
    for (unsigned per_processor : {2, 4, 8}) {
        unsigned blocks = (unsigned)properties.multiProcessorCount * per_processor;
        double ms = median_ms(
            nullptr,
            [&] {
                CUDA_LAUNCH(read_all, blocks, 256, 0, nullptr, from, bytes / sizeof(uint4), sum);
            },
            calls, runs);
        best = std::max(best, (double)bytes / ms * 1e-6);
    }
    printf("memory_read %.1f GB/s\n", best);
    double ms = median_ms(
        nullptr,
        [&] { GPU_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, nullptr)); },
        calls, runs);
    printf("memory_copy %.1f GB/s read and written\n", 2 * (double)bytes / ms * 1e-6);
}

void bench_host()
{
    size_t bytes = tiny ? (size_t)1 << 20 : (size_t)256 << 20;
    gpu::buffer<char> device(bytes);
    void *host;
    GPU_CHECK(cudaMallocHost(&host, bytes));
    memset(host, 1, bytes);
    double to = median_ms(
        nullptr,
        [&] { GPU_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, nullptr)); },
        2, tiny ? 1 : 5);
    double from = median_ms(
        nullptr,
        [&] { GPU_CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, nullptr)); },
        2, tiny ? 1 : 5);
    printf("host_to_device %.1f GB/s\ndevice_to_host %.1f GB/s\n", (double)bytes / to * 1e-6,
           (double)bytes / from * 1e-6);
    GPU_CHECK(cudaFreeHost(host));
}
} // namespace

int main(int argc, char **argv)
{
    tiny = argc > 1 && strcmp(argv[1], "tiny") == 0;
    gpu::begin();
    bench_memory();
    bench_host();
    bench_products();
    bench::f8(tiny);
    bench::attention_and_sampling(tiny);
    return 0;
}
