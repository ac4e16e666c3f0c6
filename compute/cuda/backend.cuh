/* backend: the inside of the CUDA backend, shared by its host files. One device: a stream that
 * everything is queued on in the order of calls, and the first error that the device has shown.
 *
 * The engine thread makes every call but those of memory.cu's struct device_memory, which belong to
 * the event loop's. No state is a thread's: each entry says which device it means. */
#ifndef COMPUTE_CUDA_BACKEND_CUH
#define COMPUTE_CUDA_BACKEND_CUH

#include "compute/cuda/kernels.cuh"

#include <atomic>
#include <cublasLt.h>
#include <mutex>

/* Rows of a step that may be recorded as a graph: one row a sequence. */
#define CUDA_STEP_ROWS 512

/* How a product of E4M3 is scaled. */
enum cuda_f8_form {
    CUDA_F8_NONE,   /* it is no such product */
    CUDA_F8_PLAIN,  /* not by cuBLASLt */
    CUDA_F8_ROWS,   /* rows of W, and of activations */
    CUDA_F8_BLOCKS, /* 128 × 128 of W, 128 columns of a row of activations */
    CUDA_F8_FORM_COUNT
};

struct cuda_gemm;
struct cuda_group;
struct cuda_memory;
struct cuda_staging;
struct cuda_steps;

struct compute {
    int device;
    bool exact;
    int capability; /* 90 for 9.0 */
    int multiprocessors;
    size_t memory_bytes;
    cudaStream_t stream;
    char description[320];
    size_t description_used; /* without what is known once weights are settled */

    std::atomic<bool> failed; /* for good: nothing is queued any more */
    std::mutex failing;       /* of what follows */
    struct error why;

    struct cuda_gemm *gemm;
    struct cuda_group *group; /* with other GPUs; NULL: none */
    struct cuda_memory *memory;
    struct cuda_staging *staging;
    struct cuda_steps *steps;

    struct cuda_sample *samples; /* [COMPUTE_SAMPLES_MAX], pinned */
    struct cuda_sampled *sampled;

    /* Scratch of one operation at a time; grows while nothing is recorded. */
    void *attention_scratch;
    size_t attention_scratch_bytes;
    void *weights_scratch; /* a matrix as the tensor cores read it */
    size_t weights_scratch_bytes;
    bool f8_off;                       /* E4M3 weights are multiplied as bf16 */
    bool f8_forms[CUDA_F8_FORM_COUNT]; /* cuBLASLt has it here */
    void *f8_scratch;                  /* a product that is to be scaled */
    size_t f8_scratch_bytes;
    struct compute_matrix *unsettled; /* opened since the last step, newest first */
    uint64_t loading_ns;              /* what all matrices took */
    uint64_t recording_ns;            /* when steps began to be recorded ahead; 0: not yet */
    uint32_t copied, uncopied;        /* matrices with a copy, and those that have none */
};

struct compute_matrix {
    struct cuda_weights weights;
    void *memory;        /* of quants and scales */
    __nv_bfloat16 *copy; /* for the tensor cores; NULL: made in scratch when it is used */
    size_t bytes;
    struct compute_matrix *next; /* of those that are unsettled */
};

/* The same as E4M3, made when the first product wants it. */
struct compute_f8 {
    uint8_t *values;
    float *scales;
    uint32_t rows; /* that it was made for; 0: not since the activations were written */
    bool groups;   /* scales are of 128 columns */
};

struct compute_activations {
    uint32_t rows_max;
    uint32_t cols;
    __nv_bfloat16 *bf16;   /* NULL with exact */
    float *f32;            /* NULL where nobody reads it */
    struct compute_f8 *f8; /* NULL: likewise */
};

struct compute_rope_table {
    uint32_t dim;
    bool neox;
    uint32_t positions;
    float *values; /* [positions][cos dim/2, sin dim/2] */
};

/* backend.cu */

/* Begins every entry: false once the device has failed. */
bool cuda_enter(struct compute *c);
/* False, and the device has failed for good, if `result` is an error. `what` is for people. */
bool cuda_good(struct compute *c, cudaError_t result, const char *what);
/* The same of the launches since the last call. */
bool cuda_launched(struct compute *c, const char *what);
void cuda_fail(struct compute *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Memory of the device, zeroed if so wanted; NULL if there is none left (which is no failure). */
void *cuda_take(struct compute *c, size_t bytes, bool zeroed);
void cuda_give(struct compute *c, void *memory); /* NULL is fine; waits for what is queued */
/* At least `bytes` at *memory: if it has to move it is zeroed, recordings are forgotten, and this
 * waits. */
bool cuda_grow(struct compute *c, void **memory, size_t *bytes_held, size_t bytes,
               const char *what);

/* From the host's memory, in the order of what is queued; returns when it is done. */
void cuda_write(struct compute *c, void *to, const void *from, size_t bytes);

uint64_t cuda_now_ns(void);

/* operations.cu */
void cuda_operations_set(struct compute_ops *ops);

/* gemm.cu: y = W · a (or y +=) with W [n × k] and a [rows × k], both bf16, fp32 or E4M3. */
struct cuda_gemm_work {
    cudaDataType_t type, y_type; /* of W and a; of y */
    const void *w[2];            /* the second may be NULL; else both have this shape */
    size_t w_row_bytes;
    const void *a;
    uint32_t rows, n, k;
    bool add;
    void *y[2];
    enum cuda_f8_form form = CUDA_F8_NONE; /* of E4M3 */
    const float *w_scales = NULL, *a_scales = NULL;
};
enum status cuda_gemm_open(struct compute *c, struct error *error);
void cuda_gemm_close(struct compute *c);
/* False, and nothing was done: two at once, or E4M3, are not possible here. */
bool cuda_gemm(struct compute *c, const struct cuda_gemm_work *work);

/* group.cu */
void cuda_group_set(struct compute_ops *ops);
void cuda_group_close(struct compute *c);
/* The device fails if NCCL says that a rank has. */
void cuda_group_check(struct compute *c);

/* Whether cuBLASLt has products of E4M3 that are scaled so. */
bool cuda_gemm_probe(struct compute *c, enum cuda_f8_form form);

/* product_f8.cu */
void cuda_f8_probe(struct compute *c);
/* These weights are multiplied as E4M3. */
bool cuda_f8_takes(const struct compute *c, const struct cuda_weights *w);
/* More than CUDA_GEMV_ROWS rows. False, and nothing was done: they are to be dequantised. */
bool cuda_product_f8(struct compute *c, const struct compute_matrix *m,
                     const struct compute_activations *a, uint32_t rows, bool add, float *y);
struct compute_f8 *cuda_f8_open(struct compute *c, uint32_t rows_max, uint32_t cols);
void cuda_f8_close(struct compute *c, struct compute_f8 *f8); /* NULL is fine */

static inline bool cuda_f8_here(const struct compute *c)
{
    return c->f8_forms[CUDA_F8_PLAIN] || c->f8_forms[CUDA_F8_ROWS] || c->f8_forms[CUDA_F8_BLOCKS];
}

/* The activations are about to be written. */
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
/* Decides which matrices opened since the last time keep a copy. Waits. */
void cuda_matrices_settle(struct compute *c);
void cuda_staging_close(struct compute *c);
void cuda_product(struct compute *c, const struct compute_matrix *m,
                  const struct compute_activations *a, uint32_t rows, bool add, float *y);
/* y[i] = m[i] · a of more than CUDA_GEMV_ROWS rows, both at once. False, and nothing was done: they
 * are not alike, or this device does not do that. */
bool cuda_product_pair(struct compute *c, const struct compute_matrix *const m[2],
                       const struct compute_activations *a, uint32_t rows, float *const y[2]);

/* graph.cu: batches on the device, and recorded steps. */
enum status cuda_steps_open(struct compute *c);
void cuda_steps_close(struct compute *c);
void cuda_steps_forget(struct compute *c); /* recordings: what they name has moved */
bool cuda_step_begin(struct compute *c, const struct compute_step *step);
void cuda_step_end(struct compute *c);
uint32_t cuda_step_rows(const struct compute *c, const struct compute_step *step,
                        uint32_t rows_max);
bool cuda_step_worth(struct compute *c, uint32_t turn, uint32_t rows_max, uint32_t tokens_max,
                     uint32_t *rows_out, uint32_t *tokens_out);
/* The batch, or `count` numbers, on the device: from the step if it has these very arrays. NULL:
 * the device has failed. */
const struct cuda_sequences *cuda_step_batch(struct compute *c, const struct compute_batch *batch,
                                             uint32_t block_tokens);
const uint32_t *cuda_step_numbers(struct compute *c, const uint32_t *numbers, uint32_t count);
/* The operations are being recorded: none of them may wait, or take memory. */
bool cuda_step_recording(const struct compute *c);

/* memory.cu: KV in the device's memory and its copies; marks. */
enum status cuda_memory_open(struct compute *c, struct error *error);
void cuda_memory_close(struct compute *c);
const struct device_memory *cuda_memory_of(struct compute *c);
void cuda_mark(struct compute *c, uint32_t number, void (*done)(void *self, uint32_t number),
               void *self);
void cuda_wait(struct compute *c);
void cuda_memory_failed(struct compute *c); /* wakes who waits for a copy */

#endif
