/* gemm: products of many rows, by cuBLASLt: y [rows × n] (+)= a [rows × k] · W [n × k]ᵀ, fp32 sums.
 * In cuBLAS's column order that is n × rows = op_T(k × n) · (k × rows), without a copy. Two
 * matrices of one shape (k and v, gate and up) are computed as a batch of two products with the
 * same a: half the launches, and fewer multiprocessors that wait at the end. Estimate for 64 rows
 * of Llama 3 8B: k and v alone are 8.4 MB each, 1.9 µs of an H200's bandwidth, while start and end
 * take about 3 µs each.
 *
 * Everything that is prepared for a shape is kept in a table, so that a layer costs one call. The
 * kernel is chosen by measuring: numbers of rows form classes, four per doubling. The first time
 * that a shape occurs in a class, the kernels that cuBLASLt's heuristic ranks best are timed, with
 * weights that are not in L2, and the fastest one is used for the whole class. Another run of the
 * program may choose another kernel: a row's last bits may depend on the number of rows, and on
 * that choice. With the environment variable CLEAVE_CUDA_TUNE=0 the heuristic's first kernel is
 * used. Timing takes up to 8 times as long as the products of a layer with more than 512 rows (a
 * quarter of a prompt through 32 layers), and 32 times as long with fewer, once per class; a step
 * that is being recorded times nothing.
 *
 * Bound: 2 · rows · n · k operations over the rate of the tensor cores, or (up to about 200 rows on
 * an H200) bytes of W over bandwidth. Plain reference: tests/gpu/emulator/blaslt.cc. */
#include "compute/cuda/backend.cuh"

#include <cstdlib>
#include <cstring>

/* Entries of the table of plans: more than the shapes of a model times the row counts that occur
 * often (those of a token machine, and of the ends of prompts). A full table is emptied. */
#define PLANS 4096
/* As NVIDIA advises for Hopper; older devices need no more. */
#define WORKSPACE_BYTES ((size_t)32 << 20)
/* Kernels that are timed, and how often after a first run. */
#define CANDIDATES 8
#define TIMED_RUNS 3
/* With more rows, half as many kernels are timed, once each: a prompt waits for it. */
#define FEW_ROWS 512
/* If the first run is this many times slower than the best, there is no second one. */
#define SLOW    1.5f
#define CHOICES 1024

struct key {
    cudaDataType_t type, y_type;
    uint32_t count; /* Number of matrices in the batch: 1 or 2. */
    uint32_t rows, n, k, w_stride;
    uint32_t w_alignment; /* Alignment of W in bytes; 256 suffices for all kernels. */
    uint32_t y_alignment;
    uint32_t add;
    uint32_t form; /* enum cuda_f8_form. */
};

struct plan {
    struct key key;
    bool used;
    /* There is no kernel: two matrices are computed one after the other, E4M3 as bf16. */
    bool none;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t w, a, y;
    cublasLtMatmulAlgo_t kernel;
};

/* The kernel for a class of rows. */
struct choice {
    struct key key; /* `rows` is the most of the class. */
    cublasLtMatmulAlgo_t kernel;
};

struct cuda_gemm {
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    void *workspace;
    bool tune;
    cudaEvent_t begin, end;
    uint32_t choice_count;
    struct choice choices[CHOICES];
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
    const char *tune = getenv("CLEAVE_CUDA_TUNE");
    c->gemm = gemm;
    if (gemm == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for cuBLASLt");
    gemm->tune = tune == NULL || strcmp(tune, "0") != 0;
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
                "opening cuBLASLt") &&
        cuda_good(c, cudaEventCreate(&gemm->begin), "an event") &&
        cuda_good(c, cudaEventCreate(&gemm->end), "an event"))
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
    if (gemm->begin != NULL)
        (void)cudaEventDestroy(gemm->begin);
    if (gemm->end != NULL)
        (void)cudaEventDestroy(gemm->end);
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

/* Tells the heuristic the alignment; it assumes 256 bytes otherwise. */
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

/* ---- which kernel ---- */

/* Four classes per doubling: 20, 24, 28, 32, 40, … */
static uint32_t rows_class(uint32_t rows)
{
    uint32_t step = 4;
    while (8 * step < rows)
        step *= 2;
    return (rows + step - 1) / step * step;
}

static struct choice *choice_find(struct cuda_gemm *gemm, const struct key *key)
{
    struct key wanted = *key;
    wanted.rows = rows_class(key->rows);
    for (uint32_t i = 0; i < gemm->choice_count; i++)
        if (memcmp(&gemm->choices[i].key, &wanted, sizeof(wanted)) == 0)
            return &gemm->choices[i];
    return NULL;
}

static void choice_keep(struct cuda_gemm *gemm, const struct key *key,
                        const cublasLtMatmulAlgo_t *kernel)
{
    struct choice *choice = &gemm->choices[gemm->choice_count++ % CHOICES];
    gemm->choice_count = gemm->choice_count < CHOICES ? gemm->choice_count : CHOICES;
    choice->key = *key;
    choice->key.rows = rows_class(key->rows);
    choice->kernel = *kernel;
}

static cublasStatus_t plan_run(struct compute *c, const struct plan *plan,
                               const cublasLtMatmulAlgo_t *kernel,
                               const struct cuda_gemm_work *work, void *y)
{
    const float alpha = 1, beta = work->add ? 1 : 0;
    return cublasLtMatmul(c->gemm->handle, plan->product, &alpha, work->w[0], plan->w, work->a,
                          plan->a, &beta, y, plan->y, y, plan->y, kernel, c->gemm->workspace,
                          WORKSPACE_BYTES, c->stream);
}

/* Returns the milliseconds of one run, after filling L2 with `flush` instead of the weights. A
 * negative result: this kernel does not run. */
static float run_time(struct compute *c, const struct plan *plan,
                      const cublasLtMatmulAlgo_t *kernel, const struct cuda_gemm_work *work,
                      void *y, void *flush, size_t flush_bytes)
{
    struct cuda_gemm *gemm = c->gemm;
    float ms = -1;
    if (flush != NULL &&
        !cuda_good(c, cudaMemsetAsync(flush, 0, flush_bytes, c->stream), "timing a product"))
        return -1;
    if (!cuda_good(c, cudaEventRecord(gemm->begin, c->stream), "timing a product") ||
        plan_run(c, plan, kernel, work, y) != CUBLAS_STATUS_SUCCESS)
        return -1;
    if (!cuda_good(c, cudaEventRecord(gemm->end, c->stream), "timing a product") ||
        !cuda_good(c, cudaEventSynchronize(gemm->end), "timing a product") ||
        !cuda_good(c, cudaEventElapsedTime(&ms, gemm->begin, gemm->end), "timing a product"))
        return -1;
    return ms;
}

/* Returns the index of the fastest kernel found; -1 = none of them runs. A y that is added to is
 * replaced by other memory meanwhile. */
static int fastest(struct compute *c, const struct plan *plan, const struct cuda_gemm_work *work,
                   const cublasLtMatmulHeuristicResult_t *found, int count)
{
    const int runs = work->rows > FEW_ROWS ? 1 : TIMED_RUNS;
    int l2_bytes = 0, best = -1;
    float best_ms = 0;
    (void)cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, c->device);
    const size_t y_bytes = (size_t)work->rows * work->n * sizeof(float);
    const size_t flush_bytes = 2 * (size_t)l2_bytes;
    /* NULL = the L2 cache is not flushed before a measurement. */
    void *flush = cuda_take(c, flush_bytes, false);
    void *instead = work->add ? cuda_take(c, y_bytes, true) : NULL;
    void *y = work->add ? instead : work->y[0];
    if (y == NULL) {
        cuda_give(c, flush);
        return 0;
    }
    for (int i = 0; i < count && !c->failed; i++) {
        float least = run_time(c, plan, &found[i].algo, work, y, flush, flush_bytes);
        const bool slow = best >= 0 && least > SLOW * best_ms;
        for (int run = 0; run < runs && least >= 0 && !slow; run++) {
            const float ms = run_time(c, plan, &found[i].algo, work, y, flush, flush_bytes);
            least = run == 0 || ms < least ? ms : least;
        }
        if (least >= 0 && (best < 0 || least < best_ms)) {
            best = i;
            best_ms = least;
        }
    }
    cuda_give(c, instead);
    cuda_give(c, flush);
    return best;
}

/* False: there is no kernel, or the device has failed. */
static bool plan_choose(struct compute *c, const struct key *key, const struct cuda_gemm_work *work,
                        struct plan *plan)
{
    struct cuda_gemm *gemm = c->gemm;
    const struct choice *known = choice_find(gemm, key);
    cublasLtMatmulHeuristicResult_t found[CANDIDATES] = {};
    int count = 0, best = 0;
    if (known != NULL &&
        cublasLtMatmulAlgoCheck(gemm->handle, plan->product, plan->w, plan->a, plan->y, plan->y,
                                &known->kernel, &found[0]) == CUBLAS_STATUS_SUCCESS &&
        found[0].workspaceSize <= WORKSPACE_BYTES) {
        plan->kernel = known->kernel;
        return true;
    }
    const bool time = gemm->tune && !cuda_step_recording(c);
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        gemm->handle, plan->product, plan->w, plan->a, plan->y, plan->y, gemm->preference,
        !time                   ? 1
        : work->rows > FEW_ROWS ? CANDIDATES / 2
                                : CANDIDATES,
        found, &count);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0)
        return false;
    if (time && count > 1)
        best = fastest(c, plan, work, found, count);
    if (best < 0)
        return false;
    plan->kernel = found[best].algo;
    if (time && known == NULL)
        choice_keep(gemm, key, &plan->kernel);
    return true;
}

/* ---- plans ---- */

static bool layout_make(struct compute *c, cublasLtMatrixLayout_t *out, cudaDataType_t type,
                        uint32_t rows, uint32_t cols, uint32_t stride, uint32_t count)
{
    const int32_t batch = (int32_t)count;
    return lt_good(c, cublasLtMatrixLayoutCreate(out, type, rows, cols, stride),
                   "preparing a product") &&
           (count == 1 ||
            lt_good(c,
                    cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                     &batch, sizeof(batch)),
                    "preparing a product"));
}

/* Sets the distances of the second matrix and of its result from the first. Each layer has its own
 * distances. */
static bool plan_strides(struct compute *c, const struct plan *plan,
                         const struct cuda_gemm_work *work)
{
    if (plan->key.count == 1)
        return true;
    const int64_t w = ((const uint8_t *)work->w[1] - (const uint8_t *)work->w[0]) /
                      (work->type == CUDA_R_32F ? 4 : 2);
    const int64_t y = ((const uint8_t *)work->y[1] - (const uint8_t *)work->y[0]) /
                      (work->y_type == CUDA_R_32F ? 4 : 2);
    const cublasLtMatrixLayoutAttribute_t offset = CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
    return lt_good(c, cublasLtMatrixLayoutSetAttribute(plan->w, offset, &w, sizeof(w)),
                   "preparing a product") &&
           lt_good(c, cublasLtMatrixLayoutSetAttribute(plan->y, offset, &y, sizeof(y)),
                   "preparing a product");
}

static size_t element_bytes(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : type == CUDA_R_8F_E4M3 ? 1 : 2;
}

static bool product_set(struct compute *c, const struct plan *plan,
                        cublasLtMatmulDescAttributes_t attribute, const void *value, size_t bytes)
{
    return lt_good(c, cublasLtMatmulDescSetAttribute(plan->product, attribute, value, bytes),
                   "preparing a product");
}

/* Sets the scales of an E4M3 product. Each matrix has its own. */
static bool plan_scales(struct compute *c, const struct plan *plan,
                        const struct cuda_gemm_work *work)
{
    if (work->form != CUDA_F8_ROWS && work->form != CUDA_F8_BLOCKS)
        return true;
    const bool blocks = work->form == CUDA_F8_BLOCKS;
    const int32_t w = blocks ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                             : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const int32_t a = blocks ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                             : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    return product_set(c, plan, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &w, sizeof(w)) &&
           product_set(c, plan, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &a, sizeof(a)) &&
           product_set(c, plan, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &work->w_scales,
                       sizeof(work->w_scales)) &&
           product_set(c, plan, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &work->a_scales,
                       sizeof(work->a_scales));
}

static bool plan_make(struct compute *c, const struct key *key, const struct cuda_gemm_work *work,
                      struct plan *plan)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    plan->key = *key;
    plan->used = true;
    bool good = lt_good(c, cublasLtMatmulDescCreate(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                        "preparing a product") &&
                lt_good(c,
                        cublasLtMatmulDescSetAttribute(plan->product, CUBLASLT_MATMUL_DESC_TRANSA,
                                                       &transposed, sizeof(transposed)),
                        "preparing a product") &&
                layout_make(c, &plan->w, key->type, key->k, key->n, key->w_stride, key->count) &&
                layout_make(c, &plan->a, key->type, key->k, key->rows, key->k, key->count) &&
                layout_make(c, &plan->y, key->y_type, key->n, key->rows, key->n, key->count) &&
                plan_strides(c, plan, work) && plan_scales(c, plan, work) && alignment_tell(c, key);
    if (good && !plan_choose(c, key, work, plan)) {
        plan->none = key->count > 1 || key->form != CUDA_F8_NONE;
        if (!plan->none)
            cuda_fail(c, "cuBLASLt has no kernel for a product of %u x %u by %u rows", key->n,
                      key->k, key->rows);
    }
    if (!good || c->failed) {
        plan_done(plan);
        return false;
    }
    return true;
}

static uint32_t hash_of(const struct key *key)
{
    uint64_t hash = (uint64_t)key->rows * 0x9e3779b97f4a7c15ull;
    hash = (hash ^ key->n) * 0xff51afd7ed558ccdull;
    hash = (hash ^ key->k ^ (uint64_t)key->w_stride << 24) * 0xc4ceb9fe1a85ec53ull;
    hash ^= (uint64_t)key->type << 8 ^ key->w_alignment ^ (uint64_t)key->y_alignment << 16;
    hash ^= (uint64_t)key->y_type << 32 ^ (uint64_t)key->count << 40 ^ (uint64_t)key->add << 44 ^
            (uint64_t)key->form << 48;
    return (uint32_t)(hash ^ hash >> 33);
}

static struct plan *plan_find(struct compute *c, const struct key *key,
                              const struct cuda_gemm_work *work)
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
    if (!plan_make(c, key, work, &gemm->plans[at]))
        return NULL;
    gemm->plan_count++;
    return &gemm->plans[at];
}

static struct key key_of(const struct cuda_gemm_work *work)
{
    const uint32_t count = work->w[1] != NULL ? 2 : 1;
    const struct key key = {.type = work->type,
                            .y_type = work->y_type,
                            .count = count,
                            .rows = work->rows,
                            .n = work->n,
                            .k = work->k,
                            .w_stride = (uint32_t)(work->w_row_bytes / element_bytes(work->type)),
                            .w_alignment = alignment_of(work->w[0]),
                            .y_alignment = alignment_of(work->y[0]),
                            .add = work->add,
                            .form = (uint32_t)work->form};
    return key;
}

bool cuda_gemm(struct compute *c, const struct cuda_gemm_work *work)
{
    struct key key = key_of(work);
    if (key.count == 2) {
        /* Distances that are negative, or not multiples of an element, are not reliable. */
        if (work->w[1] < work->w[0] || work->y[1] < work->y[0])
            return false;
        key.w_alignment |= alignment_of(work->w[1]);
        key.y_alignment |= alignment_of(work->y[1]);
        key.w_alignment &= ~key.w_alignment + 1;
        key.y_alignment &= ~key.y_alignment + 1;
        if (key.w_alignment < 16 || key.y_alignment < 16)
            return false;
    }
    struct plan *plan = plan_find(c, &key, work);
    if (plan == NULL || plan->none)
        return plan == NULL;
    if (plan_strides(c, plan, work) && plan_scales(c, plan, work))
        lt_good(c, plan_run(c, plan, &plan->kernel, work, work->y[0]), "a product");
    return true;
}

bool cuda_gemm_probe(struct compute *c, enum cuda_f8_form form)
{
    struct cuda_gemm *gemm = c->gemm;
    const bool tune = gemm->tune;
    struct cuda_gemm_work work = {};
    struct plan plan = {};
    work.type = CUDA_R_8F_E4M3;
    work.y_type = CUDA_R_32F;
    work.w_row_bytes = work.n = work.k = 4096;
    work.rows = 256;
    work.w[0] = work.a = work.y[0] = gemm->workspace; /* Nothing is computed. */
    work.form = form;
    work.w_scales = work.a_scales = (const float *)gemm->workspace;
    const struct key key = key_of(&work);
    gemm->tune = false;
    const bool made = plan_make(c, &key, &work, &plan);
    gemm->tune = tune;
    const bool found = made && !plan.none;
    plan_done(&plan);
    return found;
}
