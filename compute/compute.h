/* compute: the kernels of one device behind a table of functions, struct compute_ops. It separates
 * its callers, the forward pass (model/) and the engine (machine/), from the backends cpu/, wait/
 * and cuda/. One engine thread calls a `struct compute`, except where a function says otherwise;
 * the backend has its own worker threads.
 *
 * Numbers (docs/ARCHITECTURE.md, "Numbers that do not depend on placement"): on CPUs every function
 * computes a result row from its own input row only, in one accumulation order that is the same for
 * 1 row and for 4096, for every thread count and for every instruction set. So a request gives the
 * same bits on every machine whose stages have the same number of ranks. On GPUs this holds for all
 * kernels except products of more than 16 rows, which cuBLAS computes.
 *
 * It does not know requests, owners of blocks, or files: it gets pointers, shapes and block ids. */
#ifndef COMPUTE_COMPUTE_H
#define COMPUTE_COMPUTE_H

#include "common/device_memory.h"
#include "common/limits.h"
#include "common/sampling.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Element types of a weight matrix, as files store them. compute_type_block_elements and
 * compute_type_block_bytes give the shape of a block. */
enum compute_type {
    COMPUTE_F32,
    COMPUTE_F16,
    COMPUTE_BF16,
    COMPUTE_Q8_0,
    COMPUTE_Q4_0,
    COMPUTE_Q4_1,
    COMPUTE_Q5_0,
    COMPUTE_Q5_1,
    COMPUTE_Q4_K,
    COMPUTE_Q5_K,
    COMPUTE_Q6_K,
    COMPUTE_GGUF_COUNT, /* Number of types that GGUF files use. */
    /* 8-bit floats of Hugging Face folders, scaled by struct compute_scales. */
    COMPUTE_F8_E4M3 = COMPUTE_GGUF_COUNT,
    COMPUTE_TYPE_COUNT
};

const char *compute_type_name(enum compute_type type);        /* "Q4_1" */
uint32_t compute_type_block_elements(enum compute_type type); /* 1, 32 or 256 */
size_t compute_type_block_bytes(enum compute_type type);
/* Dequantises `count` elements (a multiple of the block) to fp32 in plain C. This is the reference
 * for the kernels. For F8_E4M3 the scales are not applied. */
void compute_dequantize(enum compute_type type, const void *source, size_t count, float *out);

/* Scales of an F8_E4M3 matrix: all elements in a block of `rows` × `cols` are multiplied by the
 * same number. */
struct compute_scales {
    const float *values; /* NULL = no scales, every factor is 1. */
    uint32_t rows, cols; /* UINT32_MAX = one scale for all rows (columns). */
    uint32_t stride;     /* Number of values from one row of blocks to the next. */
    /* Position of the matrix within its first block. It is not 0 when a slice begins inside a
     * block. */
    uint32_t first_row, first_col;
};

static inline float compute_scale_at(const struct compute_scales *s, uint32_t row, uint32_t col)
{
    size_t down = ((size_t)s->first_row + row) / s->rows;
    size_t right = ((size_t)s->first_col + col) / s->cols;
    return s->values[down * s->stride + right];
}

/* A matrix, or a slice of one, as its file stores it. */
struct compute_source {
    enum compute_type type;
    uint32_t rows, cols;
    const void *data;             /* Elements of the first row. */
    size_t row_bytes;             /* Bytes from one row to the next; 0 = the rows are contiguous. */
    struct compute_scales scales; /* Used only with F8_E4M3. */
};

size_t compute_source_row_bytes(const struct compute_source *source);
/* Writes row `row`, dequantised and scaled, to out[0..cols). This is the reference for the kernels.
 */
void compute_source_row(const struct compute_source *source, uint32_t row, float *out);
/* Describes rows [row, row + rows) × columns [col, col + cols) of `source` without copying data or
 * scales. False: col or cols is not a multiple of the type's block. */
bool compute_source_slice(const struct compute_source *source, uint32_t row, uint32_t rows,
                          uint32_t col, uint32_t cols, struct compute_source *out);

enum compute_isa { COMPUTE_ISA_AUTO, COMPUTE_ISA_PORTABLE, COMPUTE_ISA_AVX2, COMPUTE_ISA_AVX512 };

/* Whether batches run in lanes (compute_ops.lanes_pick). */
enum compute_lanes { COMPUTE_LANES_AUTO, COMPUTE_LANES_NEVER, COMPUTE_LANES_ALWAYS };

struct compute_options {
    /* Threads, including the calling thread; 0 = as many as this process has cores. */
    uint32_t threads;
    /* AUTO = the best that this CPU has, or what the environment variable CLEAVE_ISA names. */
    enum compute_isa isa;
    /* AUTO = decided by measuring, or what the environment variable CLEAVE_LANES names. */
    enum compute_lanes lanes;
    /* Keep activations in fp32 and dequantise weights: slow, for tests and scoring. */
    bool exact;
    uint32_t device;       /* Number of the GPU; only for `cuda`. */
    bool bf16_activations; /* Use bfloat16 activations also with E4M3 weights; only for `cuda`. */
    /* Simulated time of each layer of a batch, and of each row of it; only for `wait`. */
    int64_t wait_layer_ns;
    int64_t wait_row_ns;
};

struct compute; /* One device. */
/* Weights [rows × cols], repacked for the device. y = W · x, where x has `cols` elements and y
 * `rows`. */
struct compute_matrix;

/* Activations in the form that this backend's matrices read: quantised to 8 bits per block of 32
 * for quantised weights, rounded to bfloat16 for BF16 weights, fp32 otherwise; several forms at
 * once if a layer mixes types. norm, silu_mul, gelu_mul and attention write them; matmul reads
 * them. The capacity is fixed when they are opened. */
struct compute_activations;

/* Forms that activations must have to be multiplied with given matrices: the OR of matrix_needs()
 * of all of them. COMPUTE_REFINED may be added if norm or silu_mul write the activations: blocks
 * with an outlier then keep about 16 bits, in two planes of 8 bits, for about 5 % more arithmetic.
 * Without COMPUTE_NEEDS_Q8, COMPUTE_REFINED has no effect. */
enum compute_needs {
    COMPUTE_NEEDS_F32 = 1,
    COMPUTE_NEEDS_Q8 = 2,
    COMPUTE_REFINED = 4,
    COMPUTE_NEEDS_BF16 = 8,
    COMPUTE_NEEDS_F8 = 16, /* E4M3, on devices that support it. */
};

/* How K and V are stored. The integer forms (I16, I8) store the K, and the V, of one token and one
 * head as 14-bit or 8-bit integers (|x| ≤ 8191 or 127) with one bfloat16 scale. For the K and V of
 * real models, I16 loses as little as F16, in 2 % more memory; attention is then integer dot
 * products, two multiplications per lane, with exact sums. */
enum compute_kv_dtype {
    COMPUTE_KV_F16,
    COMPUTE_KV_F32,
    COMPUTE_KV_I16,
    COMPUTE_KV_I8,
    COMPUTE_KV_DTYPE_COUNT
};

/* The KV-cache of one layer, divided into blocks. Block b starts at base + b * block_bytes. It
 * holds, KV head after KV head, first K and then V, each of block_tokens × head_dim elements:
 *
 *   F16, F32   K as [head_dim][block_tokens] (a token is a column), V as [block_tokens][head_dim]
 *   I16, I8    [K scale of each token][V scale of each token],
 *              K as [head_dim / 2][block_tokens][2 dimensions],
 *              V as [block_tokens / 2][head_dim][2 tokens]; head_dim is even
 *
 * The layout is part of the protocol: blocks travel between machines in this form, and every
 * backend uses it. */
struct compute_kv {
    void *base;
    size_t block_bytes;
    uint32_t block_tokens;
    uint32_t head_count; /* KV heads. */
    uint32_t head_dim;
    enum compute_kv_dtype dtype;
};

const char *compute_kv_dtype_name(enum compute_kv_dtype dtype); /* "i16" */
/* Finds the dtype with this name; false if there is none. */
bool compute_kv_dtype_find(const char *name, enum compute_kv_dtype *out);

static inline bool compute_kv_fixed(enum compute_kv_dtype dtype)
{
    return dtype == COMPUTE_KV_I16 || dtype == COMPUTE_KV_I8;
}

static inline size_t compute_kv_element_bytes(enum compute_kv_dtype dtype)
{
    return dtype == COMPUTE_KV_F32 ? 4 : dtype == COMPUTE_KV_I8 ? 1 : 2;
}

/* Bytes of the K and V of one token and one head, including scales. */
static inline size_t compute_kv_token_bytes(uint32_t head_dim, enum compute_kv_dtype dtype)
{
    return 2 * (head_dim * compute_kv_element_bytes(dtype) + (compute_kv_fixed(dtype) ? 2 : 0));
}

static inline size_t compute_kv_block_bytes(uint32_t block_tokens, uint32_t head_count,
                                            uint32_t head_dim, enum compute_kv_dtype dtype)
{
    return (size_t)block_tokens * head_count * compute_kv_token_bytes(head_dim, dtype);
}

/* One sequence's share of a batch. Rows [first_row, first_row + row_count) are its tokens at
 * positions [first_position, first_position + row_count). Attention of a row reads all positions up
 * to the row's own. */
struct compute_sequence {
    uint32_t first_row;
    uint32_t row_count;
    uint32_t first_position;
    /* Block ids; entry i holds positions from i * block_tokens on. Read during the call only. */
    const uint32_t *blocks;
};

struct compute_batch {
    /* Rows after the last sequence's are padding: they may hold anything, and their K and V are not
     * stored (compute_ops.step_rows). */
    uint32_t row_count;
    uint32_t sequence_count;
    const struct compute_sequence *sequences; /* Ordered by first_row, without gaps. */
};

/* What all operations on one batch have in common (compute_ops.step_begin). The arrays must not
 * change until step_end. */
struct compute_step {
    /* Identifies the forward pass that issues the operations. A recording is used only for steps of
     * the owner for which it was made. */
    const void *owner;
    struct compute_batch batch;
    /* Tokens of the rows that are not padding; NULL = the stage does not read tokens. */
    const uint32_t *token_ids;
    const uint32_t *logits_rows; /* Rows whose logits are wanted, in ascending order. */
    uint32_t logits_count;
    bool all_rows;       /* The last layer is computed for rows without logits too. */
    bool watched;        /* The caller will call `mark` between the operations. */
    const void *x;       /* Residual stream. */
    const void *kv_base; /* KV-cache of the stage's first layer. */
    uint32_t block_tokens;
    /* Expected longest context. The longest context in the batch is used when it is longer. */
    uint32_t tokens_longest;
};

#define COMPUTE_SAMPLES_MAX 256
#define COMPUTE_SAMPLE_DRAW UINT32_MAX

/* One token to choose from one row of logits, by the rules of model/forward/sampler.h. A device that
 * samples gives the same token as the host for the same logits. */
struct compute_sample {
    struct sampling sampling;
    uint32_t position; /* Position of the new token. */
    /* This token is taken instead of a draw, and its log-probability reported;
     * COMPUTE_SAMPLE_DRAW = draw a token. */
    uint32_t given;
    uint32_t masked_count;
    uint32_t masked[SAMPLING_ENDS_MAX]; /* Ids that must not be drawn. */
};

struct compute_sampled {
    /* The device cannot decide, as it has room for fewer candidates: the host must draw. */
    bool undecided;
    struct sampled sampled;
};

/* Rotary embedding (Su et al. 2021). */
struct compute_rope {
    uint32_t dim; /* Rotated dimensions of a head; even. */
    /* Rotated pairs are (i, i + dim/2); false: (2i, 2i + 1). */
    bool neox;
    float freq_base;
    float freq_scale; /* Positions are multiplied by this (linear scaling). */
    /* [dim / 2] divisors of the frequencies (Llama 3's rope_freqs); NULL = none. */
    const float *factors;
    uint32_t positions_max;
};

/* Bytes of the id by which the ranks of a group find each other (compute_ops.group_join). */
#define COMPUTE_GROUP_ID_BYTES 128

struct compute_rope_table; /* Tables of cos and sin by position; each position is computed once. */

struct compute_ops {
    const char *name; /* "cpu" */
    enum status (*open)(const struct compute_options *options, struct compute **out,
                        struct error *error);
    void (*close)(struct compute *c); /* NULL is fine. */
    /* What the device runs on, for logs: "avx512-vnni, 2 threads". Owned by c. */
    const char *(*describe)(const struct compute *c);

    /* Allocates fp32 device memory, 64-byte aligned and zeroed. Of a large allocation, only touched
     * pages take memory. */
    enum status (*memory_take)(struct compute *c, size_t floats, float **out);
    void (*memory_free)(struct compute *c, float *memory);

    /* Repacks `source` for the device; `source` and its data are read during the call only.
     * Requires cols to be a multiple of the type's block. Several threads of the backend take part.
     */
    enum status (*matrix_open)(struct compute *c, const struct compute_source *source,
                               struct compute_matrix **out);
    void (*matrix_close)(struct compute *c, struct compute_matrix *m);
    unsigned (*matrix_needs)(const struct compute_matrix *m); /* OR of enum compute_needs */
    size_t (*matrix_bytes)(const struct compute_matrix *m);

    enum status (*activations_open)(struct compute *c, uint32_t rows_max, uint32_t cols,
                                    unsigned needs, struct compute_activations **out);
    void (*activations_close)(struct compute *c, struct compute_activations *a);

    enum status (*rope_open)(struct compute *c, const struct compute_rope *rope,
                             struct compute_rope_table **out);
    void (*rope_close)(struct compute *c, struct compute_rope_table *table);

    /* y[i] = row ids[i] of the dequantised embedding matrix m; y is [count × cols]. Writes zeros
     * for ids that m does not have: another rank has these rows. */
    void (*embed)(struct compute *c, const struct compute_matrix *m, const uint32_t *ids,
                  uint32_t count, float *y);
    /* y[i] = x[rows[i]], both of `cols` columns. Requires ascending rows, and that y does not
     * overlap x. */
    void (*gather)(struct compute *c, const float *x, const uint32_t *rows, uint32_t count,
                   uint32_t cols, float *y);
    /* RMSNorm: a[r] = x[rows_in[r]] / sqrt(mean(x²) + epsilon) * weight. rows_in NULL = row r
     * itself. */
    void (*norm)(struct compute *c, const float *x, const uint32_t *rows_in, uint32_t row_count,
                 uint32_t cols, const float *weight, float epsilon, struct compute_activations *a);
    /* y_k = W_k · a (+ bias_k) for each of `count` (≤ 4) matrices with the same activations, in one
     * parallel region. y_k is [row_count × rows(W_k)]. Each entry of `biases` may be NULL, and
     * `biases` too. */
    void (*matmul)(struct compute *c, const struct compute_matrix *const *matrices,
                   const float *const *biases, uint32_t count, const struct compute_activations *a,
                   uint32_t row_count, float *const *y);
    /* x += W · a, including the residual add. */
    void (*matmul_add)(struct compute *c, const struct compute_matrix *m,
                       const struct compute_activations *a, uint32_t row_count, float *x);
    /* Rotates q [rows × head_count * head_dim] in place and k [rows × kv.head_count * head_dim],
     * and writes k and v of every row into its block. */
    void (*rope_store)(struct compute *c, struct compute_rope_table *rope,
                       const struct compute_batch *batch, const struct compute_kv *kv,
                       uint32_t head_count, float *q, float *k, const float *v);
    /* Causal attention with grouped heads over the paged cache (after rope_store): softmax in fp32
     * of scale * q·K, times V. The result goes to a [rows × head_count * head_dim]. */
    void (*attention)(struct compute *c, const struct compute_batch *batch,
                      const struct compute_kv *kv, uint32_t head_count, float scale, const float *q,
                      struct compute_activations *a);
    /* a = silu(gate) * up, each [row_count × cols]. */
    void (*silu_mul)(struct compute *c, const float *gate, const float *up, uint32_t row_count,
                     uint32_t cols, struct compute_activations *a);

    /* Announces that row_count rows enter the next layer, before its first operation (fewer rows
     * may leave the last layer). NULL = the backend does not need it. */
    void (*layer_begin)(struct compute *c, uint32_t row_count);

    /* Lanes. Normally the device's threads share the weights of each product. With lanes they share
     * the rows of the batch instead: a lane is one thread acting as a device of its own for its
     * rows, and it waits for the others only between calls of lanes_run. Every lane then reads all
     * weights, and no result travels between cores. The numbers are the same. All four functions
     * are NULL if the backend has no lanes. */
    uint32_t (*lanes_max)(const struct compute *c);
    /* Returns how many lanes are fastest for a batch of row_count rows now: lanes_max, or 1 for the
     * device itself. */
    uint32_t (*lanes_pick)(struct compute *c, uint32_t row_count);
    /* Returns lane i, which can open activations and compute every operation on rows. It belongs to
     * c. */
    struct compute *(*lane)(struct compute *c, uint32_t i);
    /* Calls step(context, i) for each i < count in parallel; returns when all calls have returned.
     */
    void (*lanes_run)(struct compute *c, uint32_t count, void (*step)(void *context, uint32_t i),
                      void *context);

    /* Operations that only some families of models need. */

    /* a = gelu(gate) * up, with the tanh form of GELU (Hendrycks and Gimpel 2016). */
    void (*gelu_mul)(struct compute *c, const float *gate, const float *up, uint32_t row_count,
                     uint32_t cols, struct compute_activations *a);
    /* x *= factor. */
    void (*scale)(struct compute *c, float factor, size_t count, float *x);
    /* RMSNorm of each head by itself, in place. x is [row_count × head_count * head_dim], weight is
     * [head_dim]. */
    void (*head_norm)(struct compute *c, const float *weight, float epsilon, uint32_t row_count,
                      uint32_t head_count, uint32_t head_dim, float *x);
    /* x += RMSNorm of y (see norm), both [row_count × cols]. */
    void (*norm_add)(struct compute *c, const float *y, uint32_t row_count, uint32_t cols,
                     const float *weight, float epsilon, float *x);

    /* Groups: devices of several processes that compute one stage together, each with a slice of
     * every layer. All functions are NULL if the backend has no groups. When a rank dies, `check`
     * reports it on the other ranks. */

    /* Called at rank 0, which sends id_out to the other ranks. */
    enum status (*group_make)(struct compute *c, uint8_t id_out[COMPUTE_GROUP_ID_BYTES],
                              struct error *error);
    /* Joins the group; called once per device. Blocks until all ranks have joined. Fails if a rank
     * has not joined within `timeout_ms`, or has died. */
    enum status (*group_join)(struct compute *c, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                              uint32_t rank, uint32_t ranks, uint32_t timeout_ms,
                              struct error *error);
    /* y = the sum of y over the ranks: the same bits on every rank, on CPUs added in the order of
     * the ranks. After joining, every rank must make the same calls of the group functions in the
     * same order with the same counts. They are queued like every operation. */
    void (*group_sum)(struct compute *c, size_t count, float *y);
    /* x += the sum of y over the ranks; y is overwritten. A GPU may send bfloat16. */
    void (*group_add)(struct compute *c, size_t count, float *y, float *x);
    /* Writes the ranks' rows of `part` side by side: all[row] has counts[rank] columns of each
     * rank. Only rank 0's `all` is written; the other ranks may pass NULL. */
    void (*group_gather)(struct compute *c, uint32_t row_count, const float *part,
                         const uint32_t *counts, float *all);

    /* Functions for devices with memory of their own. Where such a function is NULL, every
     * operation is finished when it returns, and kv.base is host memory. */

    /* Returns the memory that holds the KV-cache and the activations that travel between stages;
     * NULL = host memory. If this entry is NULL, it is host memory too. The returned functions are
     * called on the event loop's thread and stay valid until c is closed. */
    const struct device_memory *(*memory)(struct compute *c);
    /* Calls done(self, number) when everything that has been queued so far is finished: its results
     * may then be copied from the device's memory. `done` is called from any thread, in the order
     * of the calls of mark. Operations queued later are not delayed. */
    void (*mark)(struct compute *c, uint32_t number, void (*done)(void *self, uint32_t number),
                 void *self);
    /* Waits until everything that was queued is finished and every mark has been reported. */
    void (*wait)(struct compute *c);
    /* Returns ST_OK, or what has gone wrong with the device since it was opened. After an error,
     * everything computed since the failure is invalid, no mark is reported any more, and the
     * device never computes again. A check after `wait` covers everything that was queued. */
    enum status (*check)(struct compute *c, struct error *error);
    /* Copy between memory of memory_take and host memory, in the order of what is queued. They
     * return when the copy is done. */
    void (*memory_write)(struct compute *c, void *to, const void *from, size_t bytes);
    void (*memory_read)(struct compute *c, void *to, const void *from, size_t bytes);
    /* Checks whether the device has an attention kernel for these heads and blocks. ST_UNSUPPORTED
     * names what is not supported. kv->base is not used. NULL = all shapes are supported. */
    enum status (*attention_check)(struct compute *c, const struct compute_kv *kv,
                                   uint32_t head_count, struct error *error);
    /* Returns the number of rows in which parts of a layer are best computed, for batches of up to
     * rows_max rows. */
    uint32_t (*chunk_rows)(const struct compute *c, uint32_t rows_max);
    /* step_begin and step_end enclose all operations of one batch, so that its arrays (token ids,
     * rows, block tables) are copied to the device once; operations that are given these arrays
     * find the copies. step_begin returns true if a batch of the same shape has been recorded: it
     * then has queued all operations of the batch itself, and the caller makes none of them and
     * calls only step_end. */
    bool (*step_begin)(struct compute *c, const struct compute_step *step);
    void (*step_end)(struct compute *c);
    /* Chooses a token from each of `count` (≤ COMPUTE_SAMPLES_MAX) rows of logits [count × vocab]
     * in the device's memory. Returns when the tokens are in sampled_out. */
    void (*sample)(struct compute *c, const float *logits, uint32_t vocab,
                   const struct compute_sample *samples, uint32_t count,
                   struct compute_sampled *sampled_out);

    /* Functions of devices that record batches; all three are NULL otherwise.
     *
     * Returns the number of rows that the batch should be padded to, at most rows_max, so that
     * batches of similar sizes can use one recording; the batch's own number of rows = no padding.
     */
    uint32_t (*step_rows)(const struct compute *c, const struct compute_step *step,
                          uint32_t rows_max);
    /* Prepares the device, so that the first batch need not. Called once, when a machine has
     * allocated everything (models, workspaces, KV) and before any batch. A GPU keeps faster copies
     * of weights in memory that is still free, and leaves a share of it for buffers that grow. */
    void (*settle)(struct compute *c);
    /* Returns the shapes of decode steps that should be recorded before requests need them, one a
     * call, for turn = 0, 1, 2, …: *rows_out rows (at most rows_max) with contexts of *tokens_out
     * tokens (up to about tokens_max). The caller runs a step of this shape twice, with padding
     * only. False: there are no more shapes, or recording has taken as long as loading the weights
     * did, or longer than a limit of the backend. */
    bool (*step_worth)(struct compute *c, uint32_t turn, uint32_t rows_max, uint32_t tokens_max,
                       uint32_t *rows_out, uint32_t *tokens_out);
};

extern const struct compute_ops compute_cpu;
/* A device that computes nothing: each layer of a batch is a wait, so that pipelines of more
 * devices than this host has can be shown. docs/profile.md says what it stands for. */
extern const struct compute_ops compute_wait;

/* Interprets a device name of a config: "cpu"; "cuda:N", the N-th GPU (plugin.h; "cuda" is
 * "cuda:0"); or "wait:LAYER_US+ROW_US", microseconds with decimals allowed ("wait:2000+10": a layer
 * takes 2000 us and 10 us per row). Sets the fields of *options_out that belong to the device; the
 * others, such as threads, stay. ST_INVALID: an unknown name; the error lists the known ones. Other
 * errors say why the GPU is not available. */
enum status compute_device_find(const char *device, const struct compute_ops **ops_out,
                                struct compute_options *options_out, struct error *error);

/* Finds the device and opens it. If a GPU is not available (no plugin, driver or such device) and
 * `fallback` is true, opens the CPU instead, and *instead_out says why; otherwise the text of
 * *instead_out is empty. */
enum status compute_device_open(const char *device, bool fallback,
                                const struct compute_options *options,
                                const struct compute_ops **ops_out, struct compute **out,
                                struct error *instead_out, struct error *error);

#endif
