/* operations: struct compute_ops, the functions of a device: open, memory, weights, and the
 * operations of a forward pass. A backend implements all functions, except that low_rank may be
 * NULL. Optional abilities are tables of their own (lanes.h, latent.h, group.h, experts.h, steps.h,
 * sampling.h). model/forward/, machine/executor/, tools and benchmarks call the functions, one
 * thread at a time for each device (compute.h). The caller decides the order of the operations: a
 * backend knows no models.
 *
 * A device with memory of its own (a GPU) queues operations and returns before they are finished.
 * Results can be used after wait, memory_read or compute_sampling_ops.sample, or when a mark has
 * been reported. On every other device, an operation is finished when it returns.
 *
 * A function that returns a status but takes no struct error can return ST_NO_MEMORY, ST_IO if the
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
    /* Opens a device. On failure, *error says why the device is not available. */
    enum status (*open)(const struct compute_options *options, struct compute **out,
                        struct error *error);
    /* Requires that all objects of c are closed. NULL is fine. */
    void (*close)(struct compute *c);
    /* Returns a text for logs that says what the device runs on, such as "avx512-vnni, 2 threads".
     * c owns the text. */
    const char *(*describe)(const struct compute *c);

    /* Returns the memory that holds the KV-cache and the activations that travel between stages;
     * NULL = host memory. c owns the result, which stays valid until c is closed. */
    const struct device_memory *(*device_memory)(struct compute *c);
    /* Allocates `floats` floats of device memory, 64-byte aligned and zeroed. The caller frees the
     * memory with memory_free. If the device's memory is host memory, pages take no memory until
     * they are written. */
    enum status (*memory_allocate)(struct compute *c, size_t floats, float **out);
    void (*memory_free)(struct compute *c, float *memory); /* NULL is fine. */
    /* Copies from host memory to device memory, after all operations that were queued before.
     * Returns when the copy is done. */
    void (*memory_write)(struct compute *c, void *to, const void *from, size_t bytes);
    /* Copies from device memory to host memory, after all operations that were queued before.
     * Returns when the copy is done. If the device has failed, writes zeros. */
    void (*memory_read)(struct compute *c, void *to, const void *from, size_t bytes);

    /* Calls done(self, number) when all operations that were queued before this call are finished:
     * their results may then be copied from the device's memory. `done` runs on any thread, or
     * inside the call of `mark`. Marks are reported in the order of the calls of `mark`. Operations
     * that are queued after the mark do not wait for `done`. */
    void (*mark)(struct compute *c, uint32_t number, void (*done)(void *self, uint32_t number),
                 void *self);
    /* Waits until all queued operations are finished and all marks have been reported. Returns at
     * once if the device has failed. */
    void (*wait)(struct compute *c);
    /* Returns ST_OK, or an error if the device or its group (group.h) has failed since `open`. A
     * failure is permanent: all results since the failure are invalid. After a failure, a GPU
     * reports no more marks, but other devices report all marks. A check after `wait` covers all
     * queued operations. */
    enum status (*check)(struct compute *c, struct error *error);

    /* Repacks `source` for the device; `source` and its data are read during the call only.
     * Requires source->cols to be a multiple of the type's block. */
    enum status (*matrix_open)(struct compute *c, const struct compute_source *source,
                               struct compute_matrix **out);
    void (*matrix_close)(struct compute *c, struct compute_matrix *m); /* NULL is fine. */
    /* Returns the forms that activations must have: an OR of enum compute_needs. */
    unsigned (*matrix_needs)(const struct compute_matrix *m);
    /* Returns the bytes of memory that the matrix takes. */
    size_t (*matrix_bytes)(const struct compute_matrix *m);
    /* Opens activations for up to rows_max rows of `cols` columns, in the forms `needs`. */
    enum status (*activations_open)(struct compute *c, uint32_t rows_max, uint32_t cols,
                                    unsigned needs, struct compute_activations **out);
    /* Requires that `a` is not NULL. */
    void (*activations_close)(struct compute *c, struct compute_activations *a);
    /* Opens the tables for a rotary embedding; `rope` is read during the call only. */
    enum status (*rope_open)(struct compute *c, const struct compute_rope *rope,
                             struct compute_rope_table **out);
    void (*rope_close)(struct compute *c, struct compute_rope_table *table); /* NULL is fine. */
    /* Returns ST_OK if `attention` supports these heads and blocks; otherwise ST_UNSUPPORTED, with
     * the reason in *error. kv->base is not used. */
    enum status (*attention_check)(struct compute *c, const struct compute_kv *kv,
                                   uint32_t head_count, struct error *error);

    /* Call layer_begin before the first operation of each layer, with the number of rows of the
     * batch. */
    void (*layer_begin)(struct compute *c, uint32_t row_count);
    /* Writes row ids[i] of the embedding matrix m, dequantised, to y[i]; y is [count × columns of
     * m]. Writes zeros for ids that m does not have: another rank has these rows. */
    void (*embed)(struct compute *c, const struct compute_matrix *m, const uint32_t *ids,
                  uint32_t count, float *y);
    /* Copies x[rows[i]] to y[i]; rows of x and y have `cols` columns. Requires ascending rows, and
     * that y does not overlap x. */
    void (*gather)(struct compute *c, const float *x, const uint32_t *rows, uint32_t count,
                   uint32_t cols, float *y);
    /* RMSNorm: a[r] = v / sqrt(mean(v²) + epsilon) * weight, where v is row rows_in[r] of x, or row
     * r if rows_in is NULL. weight NULL = no norm: a[r] = v. */
    void (*norm)(struct compute *c, const float *x, const uint32_t *rows_in, uint32_t row_count,
                 uint32_t cols, const float *weight, float epsilon, struct compute_activations *a);
    /* LayerNorm (Ba et al. 2016): subtracts from v (see norm) the mean of v, computes `norm` of the
     * difference, and adds `bias`; NULL = no bias. Requires that `weight` is not NULL. */
    void (*layer_norm)(struct compute *c, const float *x, const uint32_t *rows_in,
                       uint32_t row_count, uint32_t cols, const float *weight, const float *bias,
                       float epsilon, struct compute_activations *a);
    /* y[k] = matrices[k] · a + biases[k] for each of `count` (1 to 4) matrices, which read the same
     * activations. y[k] is [row_count × rows of matrices[k]]. biases NULL, or biases[k] NULL = no
     * bias. */
    void (*matmul)(struct compute *c, const struct compute_matrix *const *matrices,
                   const float *const *biases, uint32_t count, const struct compute_activations *a,
                   uint32_t row_count, float *const *y);
    /* x += m · a, where x is [row_count × rows of m]. */
    void (*matmul_add)(struct compute *c, const struct compute_matrix *m,
                       const struct compute_activations *a, uint32_t row_count, float *x);
    /* For each row r of the batch whose sequence has an adapter, adds to y[r] the product of the
     * adapter's matrices and a[r] (low_rank.h). y is [row_count × ranks->rows]. Requires that `a`
     * has COMPUTE_NEEDS_F32. NULL = the backend does not support adapters. */
    void (*low_rank)(struct compute *c, const struct compute_low_ranks *ranks,
                     const struct compute_batch *batch, const struct compute_activations *a,
                     float *y);
    /* Rotates q and k in place, and writes k and v of every row that is not padding into the block
     * of the row's position. q is [rows × head_count * dimensions of a key]; k and v are [rows ×
     * kv->head_count * dimensions of a key]. With a latent cache, v is not used (kv.h). rope NULL =
     * q and k are not rotated. */
    void (*rope_store)(struct compute *c, struct compute_rope_table *rope,
                       const struct compute_batch *batch, const struct compute_kv *kv,
                       uint32_t head_count, float *q, float *k, const float *v);
    /* Causal attention with grouped heads over the paged cache: softmax in fp32 of scale * q·K,
     * times V. Call `attention` after rope_store. q is [rows × head_count * dimensions of a key];
     * the result is written to a, [rows × head_count * dimensions of a value]. With a latent cache,
     * requires that `parameters` has no sinks. */
    void (*attention)(struct compute *c, const struct compute_batch *batch,
                      const struct compute_kv *kv, uint32_t head_count,
                      const struct compute_attention *parameters, const float *q,
                      struct compute_activations *a);
    /* a = activation(gate) * up, each [row_count × cols]. up NULL = all ones; then `activation`
     * must not be COMPUTE_SILU. */
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
    /* x += RMSNorm of y (see norm); x and y are [row_count × cols]. */
    void (*norm_add)(struct compute *c, const float *y, uint32_t row_count, uint32_t cols,
                     const float *weight, float epsilon, float *x);

    /* Tables of abilities; NULL = the backend does not have the ability. In a table, no function is
     * NULL. */
    const struct compute_lanes_ops *lanes;
    const struct compute_latent_ops *latent;
    const struct compute_group_ops *group;
    const struct compute_experts_ops *experts;
    const struct compute_steps_ops *steps;
    const struct compute_sampling_ops *sampling;
    /* True: products of all rows of a batch at once are fastest. False: runs of rows that fit the
     * caches of a CPU are faster. */
    bool whole_batches;
};

#endif
