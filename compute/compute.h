/* compute: the kernels of one device behind one ops struct: the seam between the forward pass
 * (model/) and cpu/, wait/ or cuda/. One engine thread calls a `struct compute`; the backend has
 * its own worker threads.
 *
 * Numbers (docs/ARCHITECTURE.md, section 7): every function computes a result row from its own
 * input row only, in one accumulation order that is the same for 1 row and for 4096, for every
 * thread count and for every instruction set. So the same request gives the same bits wherever it
 * runs.
 *
 * It does not know requests, blocks' owners or files: pointers, shapes and block ids come in. */
#ifndef COMPUTE_COMPUTE_H
#define COMPUTE_COMPUTE_H

#include "common/device_memory.h"
#include "common/limits.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Element types of a weight matrix, as files store them (see compute_type_block_* for their
 * shapes). */
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
    COMPUTE_GGUF_COUNT,                   /* GGUF files have those before */
    COMPUTE_F8_E4M3 = COMPUTE_GGUF_COUNT, /* of folders; scaled (struct compute_scales) */
    COMPUTE_TYPE_COUNT
};

const char *compute_type_name(enum compute_type type);        /* "Q4_1" */
uint32_t compute_type_block_elements(enum compute_type type); /* 1, 32 or 256 */
size_t compute_type_block_bytes(enum compute_type type);
/* Plain dequantisation of `count` elements (a multiple of the block) to fp32: the reference.
 * F8_E4M3 without its scales. */
void compute_dequantize(enum compute_type type, const void *source, size_t count, float *out);

/* What the elements of an F8_E4M3 matrix are multiplied with: each `rows` × `cols` of them share a
 * number. */
struct compute_scales {
    const float *values; /* NULL: none, which is 1 */
    uint32_t rows, cols; /* UINT32_MAX: all */
    uint32_t stride;     /* values from one row of blocks to the next */
    /* Where the matrix begins in its first block: a slice may begin inside of one. */
    uint32_t first_row, first_col;
};

static inline float compute_scale_at(const struct compute_scales *s, uint32_t row, uint32_t col)
{
    size_t down = ((size_t)s->first_row + row) / s->rows;
    size_t right = ((size_t)s->first_col + col) / s->cols;
    return s->values[down * s->stride + right];
}

/* A matrix as its file has it, or a slice of one. */
struct compute_source {
    enum compute_type type;
    uint32_t rows, cols;
    const void *data;             /* of the first row */
    size_t row_bytes;             /* from one row to the next; 0: they follow each other */
    struct compute_scales scales; /* of F8_E4M3 */
};

size_t compute_source_row_bytes(const struct compute_source *source);
/* Row `row`, dequantised and scaled, to out[cols]: the reference. */
void compute_source_row(const struct compute_source *source, uint32_t row, float *out);
/* Rows [row, row + rows) × columns [col, col + cols) of it: data and scales stay where they are.
 * False: a block of the type is cut (col and cols are to be multiples of its elements). */
bool compute_source_slice(const struct compute_source *source, uint32_t row, uint32_t rows,
                          uint32_t col, uint32_t cols, struct compute_source *out);

enum compute_isa { COMPUTE_ISA_AUTO, COMPUTE_ISA_PORTABLE, COMPUTE_ISA_AVX2, COMPUTE_ISA_AVX512 };

/* Whether batches run in lanes (compute_ops.lanes_pick). */
enum compute_lanes { COMPUTE_LANES_AUTO, COMPUTE_LANES_NEVER, COMPUTE_LANES_ALWAYS };

struct compute_options {
    uint32_t
        threads; /* worker threads, the caller's included; 0: as many as this process has cores */
    enum compute_isa
        isa; /* AUTO: the best this CPU has, or what the environment's CLEAVE_ISA names */
    enum compute_lanes lanes; /* AUTO: measured, or what the environment's CLEAVE_LANES names */
    bool exact;      /* activations stay fp32 (weights dequantised): slow, for tests and scoring */
    uint32_t device; /* of `cuda`: which one of this computer's */
    bool bf16_activations; /* of `cuda`: also with E4M3 weights */
    /* Of `wait` alone: what each layer of a batch takes, and each of its rows beside that. */
    int64_t wait_layer_ns;
    int64_t wait_row_ns;
};

struct compute;        /* one device */
struct compute_matrix; /* weights [rows × cols], repacked for the device. y = W · x: x has `cols`, y
                          `rows` */

/* Activations in the form that matrices of this backend read (quantised to 8 bits per block of 32
 * for quantised weights, rounded to bfloat16 for BF16, fp32 otherwise; several where a layer mixes
 * types). Made by norm, silu_mul
 * and attention, read by matmul. Opaque; capacity is fixed when it is opened. */
struct compute_activations;

/* What activations must offer to be multiplied with given matrices: OR of matrix_needs() of each.
 * COMPUTE_REFINED may be added where norm or silu_mul make them: blocks with an outlier then keep
 * about 16 bits, in two planes of 8, which takes some 5 % more arithmetic. Without COMPUTE_NEEDS_Q8
 * it changes nothing. */
enum compute_needs {
    COMPUTE_NEEDS_F32 = 1,
    COMPUTE_NEEDS_Q8 = 2,
    COMPUTE_REFINED = 4,
    COMPUTE_NEEDS_BF16 = 8,
    COMPUTE_NEEDS_F8 = 16, /* E4M3, where the device has it */
};

/* How K and V are stored. The fixed forms (I16, I8) keep each token's K, and its V, of one head as
 * integers of 14 or 8 bits (|x| ≤ 8191 or 127) with one scale, a bfloat16: for K and V as models
 * have them I16 rounds as little as F16, in 2 % more memory, and attention is then integer dot
 * products, two multiplications a lane, whose sums are exact. */
enum compute_kv_dtype {
    COMPUTE_KV_F16,
    COMPUTE_KV_F32,
    COMPUTE_KV_I16,
    COMPUTE_KV_I8,
    COMPUTE_KV_DTYPE_COUNT
};

/* The KV-cache of one layer, paged. Block b starts at base + b * block_bytes and holds, KV head
 * outermost, for each head first K then V, each block_tokens × head_dim elements: K as
 * [head_dim][block_tokens] (a token is a column), V as [block_tokens][head_dim]. The fixed forms
 * (head_dim even) have neighbours in pairs, and the scales first: [K scale of each token][V scale
 * of each token], K as [head_dim / 2][block_tokens][2 dims], V as [block_tokens / 2][head_dim][2
 * tokens]. The layout is part of the protocol: it is what travels between machines, and every
 * backend uses it. */
struct compute_kv {
    void *base;
    size_t block_bytes;
    uint32_t block_tokens;
    uint32_t head_count; /* KV heads */
    uint32_t head_dim;
    enum compute_kv_dtype dtype;
};

const char *compute_kv_dtype_name(enum compute_kv_dtype dtype); /* "i16" */
/* False if no dtype has this name. */
bool compute_kv_dtype_find(const char *name, enum compute_kv_dtype *out);

static inline bool compute_kv_fixed(enum compute_kv_dtype dtype)
{
    return dtype == COMPUTE_KV_I16 || dtype == COMPUTE_KV_I8;
}

static inline size_t compute_kv_element_bytes(enum compute_kv_dtype dtype)
{
    return dtype == COMPUTE_KV_F32 ? 4 : dtype == COMPUTE_KV_I8 ? 1 : 2;
}

/* One token's K and V of one head, scales included. */
static inline size_t compute_kv_token_bytes(uint32_t head_dim, enum compute_kv_dtype dtype)
{
    return 2 * (head_dim * compute_kv_element_bytes(dtype) + (compute_kv_fixed(dtype) ? 2 : 0));
}

static inline size_t compute_kv_block_bytes(uint32_t block_tokens, uint32_t head_count,
                                            uint32_t head_dim, enum compute_kv_dtype dtype)
{
    return (size_t)block_tokens * head_count * compute_kv_token_bytes(head_dim, dtype);
}

/* One sequence's share of a batch: rows [first_row, first_row + row_count) are its tokens at
 * positions [first_position, first_position + row_count). Attention reads positions 0 … each row's
 * own. */
struct compute_sequence {
    uint32_t first_row;
    uint32_t row_count;
    uint32_t first_position;
    const uint32_t *blocks; /* block ids; entry i holds positions i*block_tokens …; not kept */
};

struct compute_batch {
    uint32_t row_count; /* rows behind the last sequence's are padding: whatever they hold, nothing
                           of them is stored (compute_ops.step_rows) */
    uint32_t sequence_count;
    const struct compute_sequence *sequences; /* ordered by first_row, without gaps */
};

/* What is the same in all operations on one batch (compute_ops.step_begin). Arrays stay as they are
 * until step_end. */
struct compute_step {
    const void *owner; /* who makes the operations: steps of two are never taken for the same */
    struct compute_batch batch;
    const uint32_t *token_ids;   /* of the rows that are no padding; NULL where none is read */
    const uint32_t *logits_rows; /* ascending */
    uint32_t logits_count;
    bool all_rows;       /* the last layer is computed for rows without logits too */
    bool watched;        /* marks are asked for between its operations */
    const void *x;       /* what comes and goes, where it may lie elsewhere next time; else NULL */
    const void *kv_base; /* of the first layer */
    uint32_t block_tokens;
    uint32_t tokens_longest; /* so long a context is to be expected, if not a longer one is there */
};

#define COMPUTE_MASKED_MAX  16
#define COMPUTE_SAMPLES_MAX 256
#define COMPUTE_SAMPLE_DRAW UINT32_MAX

/* One token from one row of logits, by the rules of model/sampler.h: a device that draws gives the
 * same tokens as the host from the same logits. */
struct compute_sample {
    float temperature; /* 0: the most likely token */
    float top_p;
    float min_p;
    uint32_t top_k;
    uint64_t seed;
    uint32_t position; /* of the new token */
    int32_t logprobs;  /* -1: none; 0: of the token; more: of so many alternatives too */
    uint32_t given;    /* a token whose log-probability is asked; COMPUTE_SAMPLE_DRAW: draw one */
    uint32_t masked_count;
    uint32_t masked[COMPUTE_MASKED_MAX];
};

struct compute_sampled {
    bool undecided; /* the device has no kernel for this one: the host is to draw */
    uint32_t id;
    float logprob;
    uint32_t top_count;
    uint32_t top_ids[LIMIT_LOGPROBS]; /* most likely first */
    float top_logprobs[LIMIT_LOGPROBS];
};

/* Rotary embedding (Su et al. 2021) as GGUF's architectures use it. `factors` (head_dim/2, may be
 * NULL) divide the frequencies (Llama 3's rope_freqs). neox: the pairs are (i, i + dim/2) instead
 * of (2i, 2i+1). */
struct compute_rope {
    uint32_t dim; /* rotated dimensions of a head, even */
    bool neox;
    float freq_base;
    float freq_scale; /* linear scaling: positions × this */
    const float *factors;
    uint32_t positions_max;
};

/* A group of devices (compute_ops.group_join), by which its ranks find each other. */
#define COMPUTE_GROUP_ID_BYTES 128

struct compute_rope_table; /* cos and sin by position, each made once */

struct compute_ops {
    const char *name; /* "cpu" */
    enum status (*open)(const struct compute_options *options, struct compute **out,
                        struct error *error);
    void (*close)(struct compute *c); /* NULL is fine */
    /* What it runs on, for logs: "avx512-vnni, 2 threads". Owned by c. */
    const char *(*describe)(const struct compute *c);

    /* fp32 memory of the device, 64-byte aligned. It reads as zeros; of a large piece only what is
     * touched takes memory. */
    enum status (*memory_take)(struct compute *c, size_t floats, float **out);
    void (*memory_free)(struct compute *c, float *memory);

    /* Repacks `source` for the device. It and what it names are read during the call only. cols
     * must be a multiple of the type's block. Several threads of the backend work. */
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

    /* y[i] = row ids[i] of the (dequantised) embedding matrix m; y is [count × cols]. Zeros where
     * m has no such row: another rank of a group has it. */
    void (*embed)(struct compute *c, const struct compute_matrix *m, const uint32_t *ids,
                  uint32_t count, float *y);
    /* y[i] = x[rows[i]], both of `cols` columns; rows ascend, and y does not overlap x. */
    void (*gather)(struct compute *c, const float *x, const uint32_t *rows, uint32_t count,
                   uint32_t cols, float *y);
    /* RMSNorm: a[r] = x[rows_in[r]] / sqrt(mean(x²) + epsilon) * weight. rows_in NULL: row r
     * itself. */
    void (*norm)(struct compute *c, const float *x, const uint32_t *rows_in, uint32_t row_count,
                 uint32_t cols, const float *weight, float epsilon, struct compute_activations *a);
    /* y_k = W_k · a (+ bias_k) for each of `count` (≤ 4) matrices over the same activations, in one
     * parallel region. y_k is [row_count × rows(W_k)]. bias entries may be NULL; biases itself may
     * be NULL. */
    void (*matmul)(struct compute *c, const struct compute_matrix *const *matrices,
                   const float *const *biases, uint32_t count, const struct compute_activations *a,
                   uint32_t row_count, float *const *y);
    /* x += W · a: the residual add is part of it. */
    void (*matmul_add)(struct compute *c, const struct compute_matrix *m,
                       const struct compute_activations *a, uint32_t row_count, float *x);
    /* Rotates q [rows × head_count*head_dim] in place and k [rows × kv.head_count*head_dim], and
     * writes k and v of every row into its block. */
    void (*rope_store)(struct compute *c, struct compute_rope_table *rope,
                       const struct compute_batch *batch, const struct compute_kv *kv,
                       uint32_t head_count, float *q, float *k, const float *v);
    /* Causal attention with grouped heads over the paged cache (after rope_store): scale * q·K,
     * softmax in fp32, · V; result into a [rows × head_count*head_dim]. */
    void (*attention)(struct compute *c, const struct compute_batch *batch,
                      const struct compute_kv *kv, uint32_t head_count, float scale, const float *q,
                      struct compute_activations *a);
    /* a = silu(gate) * up, each [row_count × cols]. */
    void (*silu_mul)(struct compute *c, const float *gate, const float *up, uint32_t row_count,
                     uint32_t cols, struct compute_activations *a);

    /* Told of each layer before anything of it: so many rows enter it (fewer may leave the last
     * one). NULL: it does not want to know. */
    void (*layer_begin)(struct compute *c, uint32_t row_count);

    /* Lanes: threads that share the rows of a batch instead of each product's weights: a lane is
     * one thread of the device as a device of its own, for rows that nobody else computes, and
     * waits for the others only where they meet. All weights are then read by every lane, and no
     * result travels between cores. The numbers are the same. NULL, all four: it has none. */
    uint32_t (*lanes_max)(const struct compute *c);
    /* How many lanes are the fastest for such a batch now: lanes_max, or 1 for the device itself.
     */
    uint32_t (*lanes_pick)(struct compute *c, uint32_t row_count);
    /* Lane i of it: takes activations and every operation on rows; belongs to c. */
    struct compute *(*lane)(struct compute *c, uint32_t i);
    /* step(context, i) for each i < count, side by side; returns when all are done. */
    void (*lanes_run)(struct compute *c, uint32_t count, void (*step)(void *context, uint32_t i),
                      void *context);

    /* What only some families of models need. */

    /* a = gelu(gate) * up with the tanh form of GELU (Hendrycks and Gimpel 2016). */
    void (*gelu_mul)(struct compute *c, const float *gate, const float *up, uint32_t row_count,
                     uint32_t cols, struct compute_activations *a);
    /* x *= factor. */
    void (*scale)(struct compute *c, float factor, size_t count, float *x);
    /* RMSNorm of each head on its own, in place: x is [row_count × head_count*head_dim], weight
     * [head_dim]. */
    void (*head_norm)(struct compute *c, const float *weight, float epsilon, uint32_t row_count,
                      uint32_t head_count, uint32_t head_dim, float *x);
    /* x += RMSNorm of y (see norm), both [row_count × cols]. */
    void (*norm_add)(struct compute *c, const float *y, uint32_t row_count, uint32_t cols,
                     const float *weight, float epsilon, float *x);

    /* Groups: devices of several processes that compute one model together, each a slice of every
     * layer. NULL, all: it has none. A rank that dies: check says so, on the others. */

    /* By rank 0, which tells the others what is in id_out. */
    enum status (*group_make)(struct compute *c, uint8_t id_out[COMPUTE_GROUP_ID_BYTES],
                              struct error *error);
    /* Once per device. Blocks until all ranks have joined; fails when they have not within
     * `timeout_ms`, or one has died. */
    enum status (*group_join)(struct compute *c, const uint8_t id[COMPUTE_GROUP_ID_BYTES],
                              uint32_t rank, uint32_t ranks, uint32_t timeout_ms,
                              struct error *error);
    /* From here on the same calls in the same order with the same counts on every rank; queued as
     * every operation. y = sum of it over the ranks, in their order. */
    void (*group_sum)(struct compute *c, size_t count, float *y);
    /* x += sum over the ranks of y, which is spoilt. A GPU may send bfloat16. */
    void (*group_add)(struct compute *c, size_t count, float *y, float *x);
    /* all[row] = the ranks' rows of `part` side by side, counts[rank] columns each. Only rank 0's
     * `all` is written; others may give NULL. */
    void (*group_gather)(struct compute *c, uint32_t row_count, const float *part,
                         const uint32_t *counts, float *all);

    /* What only devices with memory of their own have: NULL where a function's work is done when it
     * returns, and kv.base is the host's memory. */

    /* Where KV lies, and activations that come and go: its calls belong to the event loop's thread.
     * Valid as long as c. NULL: the host's memory, as where the function is NULL. */
    const struct device_memory *(*memory)(struct compute *c);
    /* Calls done(self, number), from any thread and in the order of calls, once all that has been
     * queued until now is done: it may then be copied out of the device's memory. It holds up
     * nothing that is queued later. */
    void (*mark)(struct compute *c, uint32_t number, void (*done)(void *self, uint32_t number),
                 void *self);
    /* Waits until all that was queued is done and every mark has been told. */
    void (*wait)(struct compute *c);
    /* ST_OK, or what went wrong with the device since it was opened: everything computed since then
     * is worth nothing, no mark is told any more, and nothing will ever be computed again. After
     * wait it is the last word on all that was queued. */
    enum status (*check)(struct compute *c, struct error *error);
    /* Between memory of memory_take and the host's, in the order of what is queued: both return
     * when the copy is done. */
    void (*memory_write)(struct compute *c, void *to, const void *from, size_t bytes);
    void (*memory_read)(struct compute *c, void *to, const void *from, size_t bytes);
    /* ST_UNSUPPORTED names what it is: there is no attention for such heads and blocks here. NULL:
     * there is for all. Of kv, base does not matter. */
    enum status (*attention_check)(struct compute *c, const struct compute_kv *kv,
                                   uint32_t head_count, struct error *error);
    /* Rows that one part of a layer is best computed for, of batches of up to rows_max. */
    uint32_t (*chunk_rows)(const struct compute *c, uint32_t rows_max);
    /* Around all operations of one batch, so that what it gives (ids, rows, block tables) is taken
     * to the device once: operations that name the same arrays find them there. True: this very
     * step with other contents has been recorded before, and all of its operations have been queued
     * by this call: the caller goes on as if it had made them, and calls step_end as well. */
    bool (*step_begin)(struct compute *c, const struct compute_step *step);
    void (*step_end)(struct compute *c);
    /* A token from each of `count` (≤ COMPUTE_SAMPLES_MAX) rows of logits [count × vocab] in the
     * device's memory; returns when they are there. */
    void (*sample)(struct compute *c, const float *logits, uint32_t vocab,
                   const struct compute_sample *samples, uint32_t count,
                   struct compute_sampled *sampled_out);

    /* Of devices that record steps (NULL elsewhere, all three). Rows that a step is best computed
     * as: its own, or up to rows_max with padding behind them, so that steps of about as many
     * sequences are one recording. */
    uint32_t (*step_rows)(const struct compute *c, const struct compute_step *step,
                          uint32_t rows_max);
    /* Once all that a machine needs is there (models, workspaces, KV) and before any batch: what
     * the first one would else have to do or decide. What then is free stays free. */
    void (*settle)(struct compute *c);
    /* The turn-th step, from 0 on, that is worth being recorded before a request wants it, of up to
     * rows_max rows with contexts of up to tokens_max: run it, all padding, twice. False: no more,
     * or it has taken as long as loading the weights. */
    bool (*step_worth)(struct compute *c, uint32_t turn, uint32_t rows_max, uint32_t tokens_max,
                       uint32_t *rows_out, uint32_t *tokens_out);
};

extern const struct compute_ops compute_cpu;
/* Computes nothing: each layer of a batch is a wait, so that pipelines of more devices than this
 * computer has can be shown. docs/profile.md says what it stands for. */
extern const struct compute_ops compute_wait;

/* The device of a config: "cpu"; "cuda:N", the N-th GPU (plugin.h; "cuda" is "cuda:0"); or
 * "wait:LAYER_US+ROW_US" (microseconds, decimals allowed, such as "wait:2000+10": a layer takes
 * 2000 us and 10 us per row). *options_out gets what belongs to the device; the rest of it, such as
 * threads, is the caller's and stays. ST_INVALID names the value and what there is; any other
 * failure says why there is no such GPU here. */
enum status compute_device_find(const char *device, const struct compute_ops **ops_out,
                                struct compute_options *options_out, struct error *error);

/* Finds it and opens it. With `fallback` the CPU takes the place of a GPU that cannot be had (no
 * plugin, driver or such device), and *instead_out says why; else its text is empty. */
enum status compute_device_open(const char *device, bool fallback,
                                const struct compute_options *options,
                                const struct compute_ops **ops_out, struct compute **out,
                                struct error *instead_out, struct error *error);

#endif
