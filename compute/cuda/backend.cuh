/* backend: the internal state of the CUDA backend, and the functions that its host files share. A
 * device has one stream on which computations are queued in the order of calls, and keeps the first
 * error that the device reported. Kernels are not here (kernels.cuh).
 *
 * Threads: as compute.h says. The functions of struct device_memory (memory.cu) run on the event
 * loop thread while another thread computes. So these two threads may call cuda_enter, cuda_good,
 * cuda_fail, cuda_take and cuda_give at the same time. No state is bound to a thread. Functions
 * without a comment open or close a part, or implement struct compute_ops. */
#ifndef COMPUTE_CUDA_BACKEND_CUH
#define COMPUTE_CUDA_BACKEND_CUH

#include "compute/cuda/kernels.cuh"

#include <atomic>
#include <cublasLt.h>
#include <mutex>

/* Most rows of a decode step (one row per sequence) that can be recorded as a graph. */
#define CUDA_STEP_ROWS 512

/* How a product of E4M3 matrices is scaled. */
enum cuda_f8_form {
    CUDA_F8_NONE,  /* Not an E4M3 product. */
    CUDA_F8_PLAIN, /* Scaled by a kernel after cuBLASLt's product. */
    CUDA_F8_ROWS,  /* One scale per row of W and per row of activations. */
    /* One scale per 128 × 128 block of W and per 128 columns of a row of activations. */
    CUDA_F8_BLOCKS,
    CUDA_F8_FORM_COUNT
};

struct cuda_gemm;
struct cuda_group;
struct cuda_memory;
struct cuda_staging;
struct cuda_steps;

/* One GPU. */
struct compute {
    int device;     /* CUDA's number of the GPU. */
    bool exact;     /* compute_options.exact. */
    int capability; /* Compute capability; 90 = 9.0. */
    int multiprocessors;
    size_t memory_bytes;
    cudaStream_t stream;
    char description[320];
    /* Length of `description` before `prepare` adds to it. */
    size_t description_used;

    std::atomic<bool> failed; /* The device has failed; nothing is queued after that. */
    std::mutex failing;       /* Protects `why`. */
    struct error why;

    struct cuda_gemm *gemm;
    struct cuda_group *group; /* The device's group of ranks; NULL = none. */
    struct cuda_memory *memory;
    struct cuda_staging *staging;
    struct cuda_steps *steps;

    struct compute_sample *samples;  /* [COMPUTE_SAMPLES_MAX], pinned. */
    struct compute_sampled *sampled; /* [COMPUTE_SAMPLES_MAX], pinned. */

    /* Scratch memory of one operation at a time. */
    void *attention_scratch;
    size_t attention_scratch_bytes;
    void *low_rank_scratch; /* float[rows][rank] */
    size_t low_rank_scratch_bytes;
    void *edits; /* struct compute_edit[], then room for their logits' values. */
    size_t edits_bytes;
    void *weights_scratch; /* A matrix in bf16; with `exact`, in fp32. */
    size_t weights_scratch_bytes;
    bool f8_off;                       /* True: E4M3 weights are multiplied as bf16. */
    bool f8_forms[CUDA_F8_FORM_COUNT]; /* Forms in which this device multiplies E4M3. */
    void *f8_scratch;                  /* A product that is still to be scaled. */
    size_t f8_scratch_bytes;
    struct compute_matrix *unsettled; /* Matrices for which no bf16 copy is decided yet. */
    uint64_t loading_ns;              /* Time that opening all matrices took. */
    uint64_t recording_ns;            /* When recording ahead of requests began; 0 = not yet. */
    /* Numbers of matrices with a bf16 copy (copied), and of matrices for whose copy there was no
     * memory (uncopied). */
    uint32_t copied, uncopied;
};

/* A weight matrix. */
struct compute_matrix {
    struct cuda_weights weights;
    void *memory; /* Device memory of quants and scales. */
    /* Weights as bf16 for products of many rows; NULL = no copy. */
    __nv_bfloat16 *copy;
    size_t bytes;                /* Bytes of `memory` and of the copy. */
    struct compute_matrix *next; /* Next in the list `unsettled`. */
};

/* Activations as E4M3, made when the first product needs them. */
struct compute_f8 {
    uint8_t *values;
    float *scales;
    /* Number of rows that were converted; 0 = none since the activations were written. */
    uint32_t rows;
    bool groups; /* True: scales are per 128 columns of a row. False: per row. */
};

/* Activations in the forms that the matrices read. */
struct compute_activations {
    uint32_t rows_max;
    uint32_t cols;
    __nv_bfloat16 *bf16;   /* NULL = not needed. */
    float *f32;            /* NULL = not needed. */
    struct compute_f8 *f8; /* NULL = not needed, or the device cannot multiply E4M3. */
};

struct compute_rope_table {
    uint32_t dim;
    bool neox;
    uint32_t positions;
    float *values; /* [positions][cos dim/2, sin dim/2] */
};

/* backend.cu */

/* Sets the thread's CUDA device. Call it before other functions that use the device. Returns false
 * if the device has failed. */
bool cuda_enter(struct compute *c);
/* Returns false, and marks the device as failed, if `result` is an error. `what` is for the error's
 * text. */
bool cuda_good(struct compute *c, cudaError_t result, const char *what);
/* Calls cuda_good with the error of the launches since the last call. */
bool cuda_launched(struct compute *c, const char *what);
/* Marks the device as failed. Later calls keep the first reason. */
void cuda_fail(struct compute *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Allocates device memory, zeroed on request; the caller frees it with cuda_give. NULL = no memory
 * is left (which is not a failure of the device), or the device has failed. */
void *cuda_take(struct compute *c, size_t bytes, bool zeroed);
void cuda_give(struct compute *c, void *memory); /* NULL is fine; waits for queued operations. */
/* Makes *memory at least `bytes` large. Memory that grows is new and zeroed; the function then
 * forgets recordings and waits for all queued operations. Returns false, and marks the device as
 * failed, if there is no memory or if a step is being recorded. */
bool cuda_grow(struct compute *c, void **memory, size_t *bytes_held, size_t bytes,
               const char *what);

/* Copies from host memory, after all operations that were queued before; returns when the copy is
 * done. */
void cuda_write(struct compute *c, void *to, const void *from, size_t bytes);

uint64_t cuda_now_ns(void); /* Monotonic time of the host. */

/* operations.cu: sets the members of struct compute_ops that backend.cu does not set. */
void cuda_operations_set(struct compute_ops *ops);

/* gemm.cu: y = W · a (or y +=) with W [n × k] and a [rows × k]. */
struct cuda_gemm_work {
    cudaDataType_t type, y_type; /* type: of W and of a (bf16, fp32 or E4M3). y_type: of y. */
    const void *w[2];            /* The matrices, all of this shape; w[1] NULL = only w[0]. */
    size_t w_row_bytes;
    const void *a;
    uint32_t rows, n, k;
    bool add;
    void *y[2];
    enum cuda_f8_form form = CUDA_F8_NONE; /* Used only with E4M3. */
    const float *w_scales = NULL, *a_scales = NULL;
};
enum status cuda_gemm_open(struct compute *c, struct error *error);
void cuda_gemm_close(struct compute *c);
/* Returns false, and does nothing, if cuBLASLt cannot compute this work here: two matrices at once,
 * or an E4M3 product. */
bool cuda_gemm(struct compute *c, const struct cuda_gemm_work *work);

/* experts_ops.cu */
extern const struct compute_experts_ops cuda_experts_ops;

/* group.cu */
extern const struct compute_group_ops cuda_group_ops;
void cuda_group_close(struct compute *c);
/* Marks the device as failed if NCCL reports that a rank has failed. */
void cuda_group_check(struct compute *c);

/* gemm.cu: returns whether cuBLASLt supports E4M3 products scaled in this form. */
bool cuda_gemm_probe(struct compute *c, enum cuda_f8_form form);

/* product_f8.cu: sets c->f8_forms. */
void cuda_f8_probe(struct compute *c);
/* Returns true if these weights are multiplied as E4M3. */
bool cuda_f8_takes(const struct compute *c, const struct cuda_weights *w);
/* Computes y = m · a, or y += with `add`, for more than CUDA_GEMV_ROWS rows. Returns false, and
 * leaves y unchanged, if the weights must be multiplied as bf16. */
bool cuda_product_f8(struct compute *c, const struct compute_matrix *m,
                     const struct compute_activations *a, uint32_t rows, bool add, float *y);
struct compute_f8 *cuda_f8_open(struct compute *c, uint32_t rows_max, uint32_t cols);
void cuda_f8_close(struct compute *c, struct compute_f8 *f8); /* NULL is fine. */

/* Returns true if the device supports a form of E4M3 products. */
static inline bool cuda_f8_here(const struct compute *c)
{
    return c->f8_forms[CUDA_F8_PLAIN] || c->f8_forms[CUDA_F8_ROWS] || c->f8_forms[CUDA_F8_BLOCKS];
}

/* Marks a->f8 as out of date. Call it before the activations are written. */
static inline void cuda_f8_stale(const struct compute_activations *a)
{
    if (a->f8 != NULL)
        a->f8->rows = 0;
}

/* matrix.cu */
enum status cuda_matrix_open(struct compute *c, const struct compute_source *source,
                             struct compute_matrix **out);
void cuda_matrix_close(struct compute *c, struct compute_matrix *m);
unsigned cuda_matrix_needs(const struct compute_matrix *m);
size_t cuda_matrix_bytes(const struct compute_matrix *m);
/* Decides which of the unsettled matrices get a bf16 copy. Waits for queued operations. */
void cuda_matrices_settle(struct compute *c);
/* Removes a matrix from the unsettled matrices: it needs no copy. */
void cuda_matrix_settled(struct compute *c, const struct compute_matrix *m);
void cuda_staging_close(struct compute *c);
/* Computes y = m · a, or y += with `add`. */
void cuda_product(struct compute *c, const struct compute_matrix *m,
                  const struct compute_activations *a, uint32_t rows, bool add, float *y);
/* Computes y[i] = m[i] · a for two matrices at once. Returns false, and does nothing, if the two
 * products cannot be computed at once. */
bool cuda_product_pair(struct compute *c, const struct compute_matrix *const m[2],
                       const struct compute_activations *a, uint32_t rows, float *const y[2]);

/* graph.cu: batches on the device, and recorded steps. */
enum status cuda_steps_open(struct compute *c);
void cuda_steps_close(struct compute *c);
/* Drops all recordings. Call it when memory that they use has moved or is freed. */
void cuda_steps_forget(struct compute *c);
bool cuda_step_begin(struct compute *c, const struct compute_step *step);
void cuda_step_end(struct compute *c);
uint32_t cuda_step_padded_rows(const struct compute *c, const struct compute_step *step,
                               uint32_t rows_max);
bool cuda_step_next_shape(struct compute *c, uint32_t index, uint32_t rows_max, uint32_t tokens_max,
                          uint32_t *rows_out, uint32_t *tokens_out);
/* Returns the batch in device memory: the step's copy if the batch is the step's. NULL = the device
 * has failed. block_tokens 0 = no block tables are needed. */
const struct cuda_sequences *cuda_step_batch(struct compute *c, const struct compute_batch *batch,
                                             uint32_t block_tokens);
/* Returns `count` numbers in device memory: the step's copy if the array is one of the step's. NULL
 * = the device has failed. */
const uint32_t *cuda_step_numbers(struct compute *c, const uint32_t *numbers, uint32_t count);
/* Returns true if operations are being recorded; then no operation may wait or allocate memory. */
bool cuda_step_recording(const struct compute *c);

/* memory.cu: KV in device memory, its copies, and marks. */
enum status cuda_memory_open(struct compute *c, struct error *error);
void cuda_memory_close(struct compute *c);
const struct device_memory *cuda_memory_of(struct compute *c);
void cuda_mark(struct compute *c, uint32_t number, void (*done)(void *self, uint32_t number),
               void *self);
void cuda_wait(struct compute *c);
/* Makes device_memory_ops.event_fd readable, so that the event loop learns that the device has
 * failed. */
void cuda_memory_failed(struct compute *c);

#endif
