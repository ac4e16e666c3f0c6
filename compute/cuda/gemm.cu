/* gemm: products of many rows, by cuBLASLt: y [rows × n] (+)= a [rows × k] · W [n × k]ᵀ, fp32 sums
 * and results. In cuBLAS's columns that is n × rows = op_T(k × n) · (k × rows): no copy.
 *
 * What is prepared for a shape is kept in a table keyed by all that decides it, so that a layer
 * costs one call; cuBLASLt's own heuristic picks the kernel, once per shape. It may pick another
 * for another number of rows: a row's last bits may depend on how many rows there are.
 *
 * Bound: 2 · rows · n · k operations over the rate of the tensor cores. Plain reference:
 * tests/gpu/emulator/blaslt.cc. */
#include "compute/cuda/backend.cuh"

#include <cstdlib>
#include <cstring>

/* More than the shapes of a model times the row counts that come again: a token machine's, and the
 * ends of prompts. A full table starts anew. */
#define PLANS 4096
/* What NVIDIA advises for Hopper; older devices need no more. */
#define WORKSPACE_BYTES ((size_t)32 << 20)

struct key {
    cudaDataType_t type;
    uint32_t rows, n, k, w_stride;
    uint32_t w_alignment; /* bytes, of what W begins at; 256 is enough for all */
    uint32_t y_alignment;
};

struct plan {
    struct key key;
    bool used;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t w, a, y;
    cublasLtMatmulAlgo_t kernel;
};

struct cuda_gemm {
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    void *workspace;
    uint32_t plan_count;
    struct plan plans[PLANS];
};

static bool lt_good(struct compute *c, cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return true;
    cuda_fail(c, "%s: %s (cuBLASLt status %d)", what, cublasLtGetStatusString(status), (int)status);
    return false;
}

enum status cuda_gemm_open(struct compute *c, struct error *error)
{
    struct cuda_gemm *gemm = (struct cuda_gemm *)calloc(1, sizeof(*gemm));
    c->gemm = gemm;
    if (gemm == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for cuBLASLt");
    const size_t bytes = WORKSPACE_BYTES;
    gemm->workspace = cuda_take(c, bytes, false);
    if (gemm->workspace == NULL && !c->failed)
        return error_set(error, ST_NO_MEMORY, "cuda:%d: no memory left for cuBLASLt's %zu bytes",
                         c->device, bytes);
    if (gemm->workspace != NULL && lt_good(c, cublasLtCreate(&gemm->handle), "opening cuBLASLt") &&
        lt_good(c, cublasLtMatmulPreferenceCreate(&gemm->preference), "opening cuBLASLt") &&
        lt_good(c,
                cublasLtMatmulPreferenceSetAttribute(gemm->preference,
                                                     CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                     &bytes, sizeof(bytes)),
                "opening cuBLASLt"))
        return ST_OK;
    return error_set(error, ST_IO, "%s", c->why.text);
}

static void plan_done(struct plan *plan)
{
    if (plan->y != NULL)
        (void)cublasLtMatrixLayoutDestroy(plan->y);
    if (plan->a != NULL)
        (void)cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->w != NULL)
        (void)cublasLtMatrixLayoutDestroy(plan->w);
    if (plan->product != NULL)
        (void)cublasLtMatmulDescDestroy(plan->product);
    *plan = {};
}

static void plans_forget(struct cuda_gemm *gemm)
{
    for (uint32_t i = 0; i < PLANS; i++)
        plan_done(&gemm->plans[i]);
    gemm->plan_count = 0;
}

void cuda_gemm_close(struct compute *c)
{
    struct cuda_gemm *gemm = c->gemm;
    if (gemm == NULL)
        return;
    plans_forget(gemm);
    if (gemm->preference != NULL)
        (void)cublasLtMatmulPreferenceDestroy(gemm->preference);
    if (gemm->handle != NULL)
        (void)cublasLtDestroy(gemm->handle);
    cuda_give(c, gemm->workspace);
    free(gemm);
    c->gemm = NULL;
}

static uint32_t alignment_of(const void *pointer)
{
    uintptr_t bits = (uintptr_t)pointer | 256;
    return (uint32_t)(bits & (~bits + 1));
}

/* The heuristic supposes 256 bytes unless told otherwise. */
static bool alignment_tell(struct compute *c, const struct key *key)
{
    struct cuda_gemm *gemm = c->gemm;
    const cublasLtMatmulPreferenceAttributes_t which[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t bytes[] = {key->w_alignment, key->y_alignment, key->y_alignment};
    for (int i = 0; i < 3; i++)
        if (!lt_good(c,
                     cublasLtMatmulPreferenceSetAttribute(gemm->preference, which[i], &bytes[i],
                                                          sizeof(bytes[i])),
                     "preparing a product"))
            return false;
    return true;
}

static bool plan_make(struct compute *c, const struct key *key, struct plan *plan)
{
    struct cuda_gemm *gemm = c->gemm;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulHeuristicResult_t found[1];
    int count = 0;
    plan->key = *key;
    plan->used = true;
    bool good =
        lt_good(c, cublasLtMatmulDescCreate(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                "preparing a product") &&
        lt_good(c,
                cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA,
                                               &transposed, sizeof(transposed)),
                "preparing a product") &&
        lt_good(c, cublasLtMatrixLayoutCreate(&plan->w, key->type, key->k, key->n, key->w_stride),
                "preparing a product") &&
        lt_good(c, cublasLtMatrixLayoutCreate(&plan->a, key->type, key->k, key->rows, key->k),
                "preparing a product") &&
        lt_good(c, cublasLtMatrixLayoutCreate(&plan->y, CUDA_R_32F, key->n, key->rows, key->n),
                "preparing a product") &&
        alignment_tell(c, key) &&
        lt_good(c,
                cublasLtMatmulAlgoGetHeuristic(gemm->handle, plan->product, plan->w, plan->a,
                                               plan->y, plan->y, gemm->preference, 1, found,
                                               &count),
                "choosing a kernel for a product");
    if (good && count == 0)
        cuda_fail(c, "cuBLASLt has no kernel for a product of %u x %u by %u rows", key->n, key->k,
                  key->rows);
    if (!good || count == 0) {
        plan_done(plan);
        return false;
    }
    plan->kernel = found[0].algo;
    return true;
}

static uint32_t hash_of(const struct key *key)
{
    uint64_t hash = (uint64_t)key->rows * 0x9e3779b97f4a7c15ull;
    hash = (hash ^ key->n) * 0xff51afd7ed558ccdull;
    hash = (hash ^ key->k ^ (uint64_t)key->w_stride << 24) * 0xc4ceb9fe1a85ec53ull;
    hash ^= (uint64_t)key->type << 8 ^ key->w_alignment ^ (uint64_t)key->y_alignment << 16;
    return (uint32_t)(hash ^ hash >> 33);
}

static struct plan *plan_find(struct compute *c, const struct key *key)
{
    struct cuda_gemm *gemm = c->gemm;
    if (gemm->plan_count >= PLANS / 2)
        plans_forget(gemm);
    uint32_t at = hash_of(key) % PLANS;
    while (gemm->plans[at].used) {
        if (memcmp(&gemm->plans[at].key, key, sizeof(*key)) == 0)
            return &gemm->plans[at];
        at = (at + 1) % PLANS;
    }
    if (!plan_make(c, key, &gemm->plans[at]))
        return NULL;
    gemm->plan_count++;
    return &gemm->plans[at];
}

void cuda_gemm(struct compute *c, cudaDataType_t type, const void *w, size_t w_row_bytes,
               const void *a, uint32_t rows, uint32_t n, uint32_t k, bool add, float *y)
{
    struct cuda_gemm *gemm = c->gemm;
    const float alpha = 1, beta = add ? 1 : 0;
    const struct key key = {.type = type,
                            .rows = rows,
                            .n = n,
                            .k = k,
                            .w_stride = (uint32_t)(w_row_bytes / (type == CUDA_R_32F ? 4 : 2)),
                            .w_alignment = alignment_of(w),
                            .y_alignment = alignment_of(y)};
    struct plan *plan = plan_find(c, &key);
    if (plan == NULL)
        return;
    lt_good(c,
            cublasLtMatmul(gemm->handle, plan->product, &alpha, w, plan->w, a, plan->a, &beta, y,
                           plan->y, y, plan->y, &plan->kernel, gemm->workspace, WORKSPACE_BYTES,
                           c->stream),
            "a product");
}
