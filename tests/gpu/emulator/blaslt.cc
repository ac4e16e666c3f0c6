/* blaslt: D = alpha · op(A) · op(B) + beta · C, column-major, with sums in fp32. Operands are
 * converted to fp32 with the summed index innermost, then multiplied in tiles of dot products. */
#include "cublasLt.h"
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_fp8.h"
#include "emulator.h"

#include <vector>

struct emulated_blaslt {
    int device;
};

struct emulated_matmul {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t transposed[2];
    const float *scales[2]; /* Scales of A and B in device memory; NULL = 1. */
    int32_t modes[2];       /* The scale mode of each operand. */
};

struct emulated_layout {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
    int32_t order, batch_count;
    int64_t batch_stride;
};

struct emulated_preference {
    uint64_t workspace_bytes;
};

using namespace emulated;

namespace
{
constexpr size_t WORKSPACE_BYTES = 1 << 20; /* Most workspace that the emulated algorithms use. */
constexpr uint64_t ALGORITHM = 0x656d756c61746564u;
/* For small products the heuristic returns several algorithms, and the first one does not run. */
constexpr int ALGORITHMS = 3;
constexpr uint64_t SMALL = 1 << 22; /* Multiplications of a small product. */

size_t element_bytes(cudaDataType type)
{
    return type == CUDA_R_32F ? 4 : type == CUDA_R_8F_E4M3 ? 1 : 2;
}

float element_get(const void *data, cudaDataType type, uint64_t i)
{
    switch (type) {
    case CUDA_R_16BF:
        return static_cast<const __nv_bfloat16 *>(data)[i];
    case CUDA_R_16F:
        return static_cast<const __half *>(data)[i];
    case CUDA_R_8F_E4M3:
        return emulated_from_e4m3(static_cast<const unsigned char *>(data)[i]);
    default:
        return static_cast<const float *>(data)[i];
    }
}

void element_put(void *data, cudaDataType type, uint64_t i, float value)
{
    if (type == CUDA_R_16BF)
        static_cast<__nv_bfloat16 *>(data)[i] = value;
    else if (type == CUDA_R_16F)
        static_cast<__half *>(data)[i] = value;
    else
        static_cast<float *>(data)[i] = value;
}

size_t layout_is_bytes(const struct emulated_layout &l)
{
    if (l.rows == 0 || l.cols == 0)
        return 0;
    return ((uint64_t)l.ld * (l.cols - 1) + l.rows) * element_bytes(l.type);
}

struct problem {
    struct emulated_layout a, b, c, d;
    struct emulated_matmul desc;
    float alpha, beta;
    const char *a_data, *b_data, *c_data;
    char *d_data;
    uint64_t m, n, k;
};

/* Returns the number of scales of operand 0 (A) or 1 (B). */
size_t scale_count(const struct problem &p, int operand)
{
    const uint64_t outer = operand == 0 ? p.m : p.n, blocks = (p.k + 127) / 128;
    switch (p.desc.modes[operand]) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
        return outer;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F: /* [k / 128][outer] */
        return outer * blocks;
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F: /* [outer / 128][k / 128, a multiple of 4] */
        return (outer + 127) / 128 * ((blocks + 3) / 4 * 4);
    default:
        return p.desc.scales[operand] != nullptr ? 1 : 0;
    }
}

/* Returns the scale of element (i, column k) of op(A) or op(B)ᵀ. */
float scale_at(const struct problem &p, int operand, uint64_t i, uint64_t k)
{
    const uint64_t outer = operand == 0 ? p.m : p.n, blocks = (p.k + 127) / 128;
    const float *scales = p.desc.scales[operand];
    switch (p.desc.modes[operand]) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
        return scales[i];
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
        return scales[k / 128 * outer + i];
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
        return scales[i / 128 * ((blocks + 3) / 4 * 4) + k / 128];
    default:
        return scales != nullptr ? *scales : 1;
    }
}

bool check_unscaled(const struct problem &p)
{
    return p.desc.modes[0] == 0 && p.desc.modes[1] == 0 && p.desc.scales[0] == nullptr &&
           p.desc.scales[1] == nullptr;
}

/* Checks a product of 8-bit floats. It needs compute capability 8.9 or later, A transposed and B
 * not, alignment to 16 bytes, and one matrix at a time. Only 9.0 has other scales than one for all
 * (8.9, 10.x and 12.x have not): vectors with vectors, blocks with blocks. Blocks of 128 must be
 * whole, and a matrix with a scale for each 128 elements of a row has a multiple of 4 rows. The
 * library's documentation does not say whether blocks must be whole; the emulator requires it. */
bool check_f8(const struct problem &p, bool tn)
{
    const int capability = options().major * 10 + options().minor;
    const int32_t vector = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const int32_t group = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    const int32_t block = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    const int32_t a = p.desc.modes[0], b = p.desc.modes[1];
    if (capability < 89 || !tn || p.k % 16 != 0 || p.m % 16 != 0 || p.a.ld % 16 != 0 ||
        p.b.ld % 16 != 0 || p.d.ld * (int64_t)element_bytes(p.d.type) % 16 != 0 ||
        p.c.ld * (int64_t)element_bytes(p.c.type) % 16 != 0 || p.a.batch_count != 1)
        return false;
    if (a == 0 && b == 0)
        return true;
    if (capability != 90 || p.desc.scales[0] == nullptr || p.desc.scales[1] == nullptr)
        return false;
    if (a == vector && b == vector)
        return true;
    const bool blocks =
        (a == block && b == group) || (a == group && b == block) || (a == group && b == group);
    return blocks && p.k % 128 == 0 && (a != group || p.m % 4 == 0) && (b != group || p.n % 4 == 0);
}

/* Returns the library's status for these shapes and types. */
cublasStatus_t check(struct problem &p)
{
    bool ta = p.desc.transposed[0] != CUBLAS_OP_N, tb = p.desc.transposed[1] != CUBLAS_OP_N;
    p.m = ta ? p.a.cols : p.a.rows;
    p.k = ta ? p.a.rows : p.a.cols;
    p.n = tb ? p.b.rows : p.b.cols;
    if ((tb ? p.b.cols : p.b.rows) != p.k || p.d.rows != p.m || p.d.cols != p.n ||
        p.c.rows != p.m || p.c.cols != p.n)
        return CUBLAS_STATUS_INVALID_VALUE;
    for (const struct emulated_layout *l : {&p.a, &p.b, &p.c, &p.d}) {
        if (l->ld < (int64_t)l->rows || l->order != CUBLASLT_ORDER_COL ||
            l->batch_count != p.a.batch_count)
            return CUBLAS_STATUS_INVALID_VALUE;
    }
    bool f8 = p.a.type == CUDA_R_8F_E4M3;
    bool f32 = p.a.type == CUDA_R_32F;
    bool types = p.a.type == p.b.type && p.c.type == p.d.type &&
                 (p.d.type == CUDA_R_32F || (!f32 && p.d.type == p.a.type) ||
                  (f8 && p.d.type == CUDA_R_16BF)) &&
                 p.desc.scale == CUDA_R_32F && p.desc.compute != CUBLAS_COMPUTE_16F;
    return types && (f8 ? check_f8(p, ta && !tb) : check_unscaled(p)) ? CUBLAS_STATUS_SUCCESS
                                                                      : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* Returns op(X) as fp32 [outer][k], where outer is the index of X that is not summed over. */
std::vector<float> widen(const char *data, const struct emulated_layout &l, bool k_is_row)
{
    std::vector<float> out(l.rows * l.cols);
    for (uint64_t col = 0; col < l.cols; col++) {
        for (uint64_t row = 0; row < l.rows; row++) {
            float value = element_get(data, l.type, (uint64_t)l.ld * col + row);
            out[k_is_row ? col * l.rows + row : row * l.cols + col] = value;
        }
    }
    return out;
}

typedef float lanes __attribute__((vector_size(32), aligned(4)));

/* sums[i] = x · y_i of k columns for four y that lie `stride` apart. */
void dot4(const float *x, const float *y, uint64_t stride, uint64_t k, float *sums)
{
    lanes sum[4] = {};
    uint64_t i = 0;
    for (; i + 8 <= k; i += 8) {
        lanes part = *reinterpret_cast<const lanes *>(x + i);
        for (unsigned j = 0; j < 4; j++)
            sum[j] += part * *reinterpret_cast<const lanes *>(y + j * stride + i);
    }
    for (unsigned j = 0; j < 4; j++) {
        sums[j] = 0;
        for (unsigned lane = 0; lane < 8; lane++)
            sums[j] += sum[j][lane];
        for (uint64_t rest = i; rest < k; rest++)
            sums[j] += x[rest] * y[j * stride + rest];
    }
}

void multiply(const struct problem &p, int64_t batch)
{
    const char *a_data = p.a_data + batch * p.a.batch_stride * (int64_t)element_bytes(p.a.type);
    const char *b_data = p.b_data + batch * p.b.batch_stride * (int64_t)element_bytes(p.b.type);
    const char *c_data = p.c_data + batch * p.c.batch_stride * (int64_t)element_bytes(p.c.type);
    char *d_data = p.d_data + batch * p.d.batch_stride * (int64_t)element_bytes(p.d.type);
    std::vector<float> a = widen(a_data, p.a, p.desc.transposed[0] != CUBLAS_OP_N);
    std::vector<float> b = widen(b_data, p.b, p.desc.transposed[1] == CUBLAS_OP_N);
    a.resize((p.m + 3) / 4 * 4 * p.k);
    const bool blocks = p.desc.modes[0] > CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const uint64_t part = blocks ? 128 : p.k;
    for (uint64_t n = 0; n < p.n; n++) {
        for (uint64_t m = 0; m < p.m; m += 4) {
            float sums[4] = {};
            for (uint64_t k = 0; k < p.k; k += part) {
                float parts[4];
                dot4(b.data() + n * p.k + k, a.data() + m * p.k + k, p.k, part, parts);
                for (unsigned j = 0; j < 4 && m + j < p.m; j++)
                    sums[j] += parts[j] * scale_at(p, 0, m + j, k) * scale_at(p, 1, n, k);
            }
            for (unsigned j = 0; j < 4 && m + j < p.m; j++) {
                float value = p.alpha * sums[j];
                if (p.beta != 0)
                    value += p.beta * element_get(c_data, p.c.type, (uint64_t)p.c.ld * n + m + j);
                element_put(d_data, p.d.type, (uint64_t)p.d.ld * n + m + j, value);
            }
        }
    }
}

void need_memory(const char *what, const void *data, size_t bytes)
{
    if (bytes > 0 && memory_find(data, bytes) == memory_kind::none)
        stop("cublasLtMatmul: %s, %zu bytes at %p, is not memory of the device", what, bytes, data);
}

void need_operand(const char *what, const void *data, const struct emulated_layout &l)
{
    for (int32_t batch = 0; batch < l.batch_count; batch++)
        need_memory(what,
                    static_cast<const char *>(data) +
                        batch * l.batch_stride * (int64_t)element_bytes(l.type),
                    layout_is_bytes(l));
}
} // namespace

extern "C" {
const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
           : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                   : "CUBLAS_STATUS_EXECUTION_FAILED";
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    if (ready() != cudaSuccess)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new emulated_blaslt{current_device()};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    *desc =
        new emulated_matmul{compute, scale, {CUBLAS_OP_N, CUBLAS_OP_N}, {nullptr, nullptr}, {0, 0}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    if ((attribute == CUBLASLT_MATMUL_DESC_TRANSA || attribute == CUBLASLT_MATMUL_DESC_TRANSB) &&
        bytes == sizeof(int32_t))
        memcpy(&desc->transposed[attribute - CUBLASLT_MATMUL_DESC_TRANSA], value, bytes);
    else if ((attribute == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER ||
              attribute == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER) &&
             bytes == sizeof(void *))
        memcpy(&desc->scales[attribute - CUBLASLT_MATMUL_DESC_A_SCALE_POINTER], value, bytes);
    else if ((attribute == CUBLASLT_MATMUL_DESC_A_SCALE_MODE ||
              attribute == CUBLASLT_MATMUL_DESC_B_SCALE_MODE) &&
             bytes == sizeof(int32_t))
        memcpy(&desc->modes[attribute - CUBLASLT_MATMUL_DESC_A_SCALE_MODE], value, bytes);
    else if (attribute != CUBLASLT_MATMUL_DESC_FAST_ACCUM)
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    *layout = new emulated_layout{type, rows, cols, ld, CUBLASLT_ORDER_COL, 1, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes)
{
    struct {
        cublasLtMatrixLayoutAttribute_t attribute;
        void *field;
        size_t bytes;
    } const fields[] = {
        {CUBLASLT_MATRIX_LAYOUT_TYPE, &layout->type, 4},
        {CUBLASLT_MATRIX_LAYOUT_ORDER, &layout->order, 4},
        {CUBLASLT_MATRIX_LAYOUT_ROWS, &layout->rows, 8},
        {CUBLASLT_MATRIX_LAYOUT_COLS, &layout->cols, 8},
        {CUBLASLT_MATRIX_LAYOUT_LD, &layout->ld, 8},
        {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &layout->batch_count, 4},
        {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &layout->batch_stride, 8},
    };
    for (const auto &field : fields) {
        if (field.attribute == attribute && field.bytes == bytes) {
            memcpy(field.field, value, bytes);
            return CUBLAS_STATUS_SUCCESS;
        }
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = new emulated_preference{0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        if (bytes != sizeof(uint64_t))
            return CUBLAS_STATUS_INVALID_VALUE;
        memcpy(&preference->workspace_bytes, value, bytes);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              struct cublasLtMatmulHeuristicResult_t *results,
                                              int *found)
{
    struct problem p = {};
    p.a = *a, p.b = *b, p.c = *c, p.d = *d;
    p.desc = *desc;
    *found = 0;
    cublasStatus_t status = check(p);
    if (status != CUBLAS_STATUS_SUCCESS || requested < 1)
        return status;
    const int several = p.m * p.n * p.k > SMALL || requested == 1 ? 1 : ALGORITHMS;
    for (int i = 0; i < several && i < requested; i++) {
        results[i] = {};
        results[i].workspaceSize =
            preference->workspace_bytes < WORKSPACE_BYTES ? 0 : WORKSPACE_BYTES;
        results[i].algo.data[0] = ALGORITHM; /* cublasLtMatmul recognises this. */
        results[i].algo.data[1] = results[i].workspaceSize;
        results[i].algo.data[2] = several > 1 && i == 0; /* This algorithm does not run. */
        *found = i + 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const struct cublasLtMatmulAlgo_t *algo,
                                       struct cublasLtMatmulHeuristicResult_t *result)
{
    struct problem p = {};
    p.a = *a, p.b = *b, p.c = *c, p.d = *d;
    p.desc = *desc;
    if (algo->data[0] != ALGORITHM)
        return CUBLAS_STATUS_INVALID_VALUE;
    *result = {};
    result->workspaceSize = algo->data[1];
    return check(p);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a_data, cublasLtMatrixLayout_t a, const void *b_data,
                              cublasLtMatrixLayout_t b, const void *beta, const void *c_data,
                              cublasLtMatrixLayout_t c, void *d_data, cublasLtMatrixLayout_t d,
                              const struct cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    struct problem p = {};
    p.a = *a, p.b = *b, p.c = *c, p.d = *d;
    p.desc = *desc;
    p.alpha = *static_cast<const float *>(alpha);
    p.beta = *static_cast<const float *>(beta);
    p.a_data = static_cast<const char *>(a_data);
    p.b_data = static_cast<const char *>(b_data);
    p.c_data = static_cast<const char *>(c_data);
    p.d_data = static_cast<char *>(d_data);
    cublasStatus_t status = check(p);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (algo != nullptr && (algo->data[0] != ALGORITHM || algo->data[1] > workspace_bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (algo != nullptr && algo->data[2] != 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    need_operand("A", a_data, p.a);
    need_operand("B", b_data, p.b);
    need_operand("D", d_data, p.d);
    if (p.beta != 0)
        need_operand("C", c_data, p.c);
    need_memory("the workspace", workspace, workspace_bytes);
    for (int i = 0; i < 2; i++)
        if (scale_count(p, i) > 0)
            need_memory("scales", p.desc.scales[i], scale_count(p, i) * sizeof(float));
    if (p.a.type == CUDA_R_8F_E4M3 &&
        (((uintptr_t)a_data | (uintptr_t)b_data | (uintptr_t)d_data | (uintptr_t)c_data) % 16 != 0))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    auto run = [p, workspace, workspace_bytes] {
        if (workspace_bytes > 0)
            memset(workspace, 0xff, workspace_bytes); /* No other work may use this memory. */
        for (int32_t batch = 0; batch < p.a.batch_count; batch++)
            multiply(p, batch);
    };
    return enqueue(stream, work_kind::copy, run) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                : CUBLAS_STATUS_EXECUTION_FAILED;
}
} /* extern "C" */
