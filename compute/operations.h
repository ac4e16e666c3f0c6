/* operations: the operations of a device: open, memory, weights, and the steps of a forward pass.
 * Every backend implements all functions of struct compute_ops, except that low_rank may be NULL.
 * Six abilities that only some backends have are tables of their own (lanes.h, latent.h, group.h,
 * experts.h, steps.h, sampling.h); NULL = the backend does not have the ability. model/forward/ and
 * machine/executor/ call the functions, at most one thread at a time for a device; compute.h has
 * the exceptions. The caller decides the order of the operations of a layer.
 *
 * A device with memory of its own (a GPU) queues operations and returns before they are finished.
 * Their results can be used after wait, memory_read or compute_sampling_ops.sample, or when a mark
 * has been reported. On every other device, an operation is finished when it returns.
 *
 * A function that returns a status but takes no struct error returns ST_NO_MEMORY, ST_IO if the
 * device has failed, or ST_UNSUPPORTED for weights that the device cannot compute with. */
#ifndef COMPUTE_OPERATIONS_H
#define COMPUTE_OPERATIONS_H

#include "common/device_memory.h"
#include "compute/batch.h"
#include "compute/kv.h"
#include "compute/low_rank.h"
#include "compute/objects.h"
#include "compute/source.h"

struct compute;         /* One device. */
struct compute_options; /* compute.h */
struct compute_lanes_ops;
struct compute_latent_ops;
struct compute_group_ops;
struct compute_experts_ops;
struct compute_steps_ops;
struct compute_sampling_ops;

struct compute_ops {
    const char *name; /* Name of the backend: "cpu", "cuda" or "wait". */
    /* Opens a device. The error says why it is not available. */
    enum status (*open)(const struct compute_options *options, struct compute **out,
                        struct error *error);
    void (*close)(struct compute *c); /* NULL is fine. */
    /* Returns what the device runs on, for logs: "avx512-vnni, 2 threads". Owned by c. */
    const char *(*describe)(const struct compute *c);

    /* Returns the memory that holds the KV-cache and the activations that travel between stages;
     * NULL = host memory. The returned functions are called on the event loop's thread and stay
     * valid until c is closed. */
    const struct device_memory *(*device_memory)(struct compute *c);
    /* Allocates fp32 device memory, 64-byte aligned and zeroed. On the host, pages take no memory
     * until they are written. */
    enum status (*memory_take)(struct compute *c, size_t floats, float **out);
    void (*memory_free)(struct compute *c, float *memory);
    /* Copy between memory of memory_take and host memory, after all operations that were queued
     * before. They return when the copy is done. If the device has failed, memory_read writes
     * zeros. */
    void (*memory_write)(struct compute *c, void *to, const void *from, size_t bytes);
    void (*memory_read)(struct compute *c, void *to, const void *from, size_t bytes);

    /* Calls done(self, number) when all operations that have been queued so far are finished: their
     * results may then be copied from the device's memory. `done` is called on any thread, or by
     * `mark` itself, in the order of the calls of mark. Operations that are queued after the mark
     * do not wait for `done`. */
    void (*mark)(struct compute *c, uint32_t number, void (*done)(void *self, uint32_t number),
                 void *self);
    /* Waits until everything that was queued is finished and every mark has been reported. */
    void (*wait)(struct compute *c);
    /* Returns ST_OK, or an error if the device has failed since it was opened. After an error, all
     * results since the failure are invalid, no further mark is reported, and the device never
     * computes again. A check after `wait` covers everything that was queued. */
    enum status (*check)(struct compute *c, struct error *error);

    /* Repacks `source` for the device; `source` and its data are read during the call only.
     * Requires cols to be a multiple of the type's block. Threads of the backend may take part. */
    enum status (*matrix_open)(struct compute *c, const struct compute_source *source,
                               struct compute_matrix **out);
    void (*matrix_close)(struct compute *c, struct compute_matrix *m);
    /* Returns the forms that activations must have: an OR of enum compute_needs. */
    unsigned (*matrix_needs)(const struct compute_matrix *m);
    /* Returns the bytes of memory that the matrix takes. */
    size_t (*matrix_bytes)(const struct compute_matrix *m);
    /* Opens activations for up to rows_max rows of `cols` columns, in the forms `needs`.
     * activations_close requires that `a` is not NULL. */
    enum status (*activations_open)(struct compute *c, uint32_t rows_max, uint32_t cols,
                                    unsigned needs, struct compute_activations **out);
    void (*activations_close)(struct compute *c, struct compute_activations *a);
    /* Opens the tables for a rotary embedding; `rope` is read during the call only. */
    enum status (*rope_open)(struct compute *c, const struct compute_rope *rope,
                             struct compute_rope_table **out);
    void (*rope_close)(struct compute *c, struct compute_rope_table *table);
    /* Checks whether `attention` supports these heads and blocks. Returns ST_UNSUPPORTED with the
     * unsupported size. kv->base is not used. */
    enum status (*attention_check)(struct compute *c, const struct compute_kv *kv,
                                   uint32_t head_count, struct error *error);

    /* Announces that row_count rows enter the next layer, before its first operation. The last
     * layer may compute fewer rows. */
    void (*layer_begin)(struct compute *c, uint32_t row_count);
    /* y[i] = row ids[i] of the dequantised embedding matrix m; y is [count × cols]. Writes zeros
     * for ids that m does not have: another rank has these rows. */
    void (*embed)(struct compute *c, const struct compute_matrix *m, const uint32_t *ids,
                  uint32_t count, float *y);
    /* y[i] = x[rows[i]], both of `cols` columns. Requires ascending rows, and that y does not
     * overlap x. */
    void (*gather)(struct compute *c, const float *x, const uint32_t *rows, uint32_t count,
                   uint32_t cols, float *y);
    /* RMSNorm: a[r] = x[rows_in[r]] / sqrt(mean(x²) + epsilon) * weight. rows_in NULL = row r
     * itself. weight NULL = no norm: a[r] = x[rows_in[r]]. */
    void (*norm)(struct compute *c, const float *x, const uint32_t *rows_in, uint32_t row_count,
                 uint32_t cols, const float *weight, float epsilon, struct compute_activations *a);
    /* LayerNorm (Ba et al. 2016): does what `norm` does, with each row of x minus its mean, and
     * then adds `bias`; NULL = no bias. */
    void (*layer_norm)(struct compute *c, const float *x, const uint32_t *rows_in,
                       uint32_t row_count, uint32_t cols, const float *weight, const float *bias,
                       float epsilon, struct compute_activations *a);
    /* y_k = W_k · a (+ bias_k) for each of `count` (≤ 4) matrices with the same activations, in one
     * parallel region. y_k is [row_count × rows(W_k)]. Each entry of `biases` may be NULL, and
     * `biases` too. */
    void (*matmul)(struct compute *c, const struct compute_matrix *const *matrices,
                   const float *const *biases, uint32_t count, const struct compute_activations *a,
                   uint32_t row_count, float *const *y);
    /* x += W · a: a product whose result is added to the residual stream. */
    void (*matmul_add)(struct compute *c, const struct compute_matrix *m,
                       const struct compute_activations *a, uint32_t row_count, float *x);
    /* Adds the low-rank products of rows 0 to batch->row_count - 1 to y [rows × ranks->rows], for
     * rows whose sequence has an adapter. Requires that `a` has COMPUTE_NEEDS_F32. NULL = the
     * backend does not support adapters. */
    void (*low_rank)(struct compute *c, const struct compute_low_ranks *ranks,
                     const struct compute_batch *batch, const struct compute_activations *a,
                     float *y);
    /* Rotates q [rows × head_count * dimensions of a key] and k [rows × kv.head_count * dimensions
     * of a key] in place, and writes k and v [as k] of every row that is not padding into the row's
     * block. A latent cache ignores v (kv.h). rope NULL = q and k are not rotated. */
    void (*rope_store)(struct compute *c, struct compute_rope_table *rope,
                       const struct compute_batch *batch, const struct compute_kv *kv,
                       uint32_t head_count, float *q, float *k, const float *v);
    /* Causal attention with grouped heads over the paged cache (after rope_store): softmax in fp32
     * of scale * q·K, times V. q is [rows × head_count * dimensions of a key]; the result goes to
     * a [rows × head_count * dimensions of a value]. */
    void (*attention)(struct compute *c, const struct compute_batch *batch,
                      const struct compute_kv *kv, uint32_t head_count,
                      const struct compute_attention *parameters, const float *q,
                      struct compute_activations *a);
    /* a = activation(gate) * up, each [row_count × cols]. up NULL = all ones; this requires an
     * activation other than COMPUTE_SILU. */
    void (*gate_mul)(struct compute *c, enum compute_activation activation, const float *gate,
                     const float *up, uint32_t row_count, uint32_t cols,
                     struct compute_activations *a);
    /* x = cap * tanh(x / cap). */
    void (*cap)(struct compute *c, float cap, size_t count, float *x);
    /* x *= factor. */
    void (*scale)(struct compute *c, float factor, size_t count, float *x);
    /* x += factor * y. */
    void (*scale_add)(struct compute *c, float factor, size_t count, const float *y, float *x);
    /* RMSNorm of each head by itself, in place. x is [row_count × head_count * head_dim], weight is
     * [head_dim]. */
    void (*head_norm)(struct compute *c, const float *weight, float epsilon, uint32_t row_count,
                      uint32_t head_count, uint32_t head_dim, float *x);
    /* x += RMSNorm of y (see norm), both [row_count × cols]. */
    void (*norm_add)(struct compute *c, const float *y, uint32_t row_count, uint32_t cols,
                     const float *weight, float epsilon, float *x);

    /* Abilities; NULL = the backend does not have the ability. A table that is not NULL has all its
     * functions. */
    const struct compute_lanes_ops *lanes;
    const struct compute_latent_ops *latent;
    const struct compute_group_ops *group;
    const struct compute_experts_ops *experts;
    const struct compute_steps_ops *steps;
    const struct compute_sampling_ops *sampling;
    /* true: the forward pass computes each layer for all rows of a batch at once. false: it
     * computes parts of a layer in chunks of rows that fit the caches of a CPU. */
    bool whole_batches;
};

#endif
