/* model: the weights of a stage's layers, and the forward pass of a batch through them, for the
 * families of model/file/family.c. A `struct model` owns the weights and does not change after
 * model_open. A `struct forward` owns the activations. In a machine, the event loop thread opens,
 * prepares and closes both, and the engine thread (machine/executor/engine.c) computes the batches.
 * The caller provides the memory of the KV-cache and the block ids. `cleave profile` and
 * bench-engine use both, too. The forward pass does not sample (sampler.h) and does not know
 * requests. */
#ifndef MODEL_FORWARD_MODEL_H
#define MODEL_FORWARD_MODEL_H

#include "common/layer_groups.h"
#include "common/limits.h"
#include "common/status.h"
#include "compute/compute.h"
#include "model/file/hyper.h"
#include "model/forward/shard.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_options {
    const struct compute_ops *ops;
    struct compute *compute; /* Must outlive the model. */
    /* The stage's layers are [first_layer, last_layer); 0, 0 = all layers. */
    uint32_t first_layer;
    uint32_t last_layer;
    /* The rank's slice of each layer (shard.h); 0, 0 = whole layers. */
    uint32_t rank, ranks;
    /* true: load the first draft layer (model_hyper.draft_layers), which is then a model of one
     * layer, for the fields above too. Its batches have `finals`. */
    bool draft_layer;
    /* Longest context; 0 = the context length in the file. A larger number than
     * LIMIT_CONTEXT_TOKENS counts as LIMIT_CONTEXT_TOKENS. */
    uint32_t context_tokens_max;
    /* Called after each loaded layer. NULL = no reports. */
    void (*progress)(void *self, uint32_t done, uint32_t of);
    void *progress_self; /* First argument of `progress`. */
};

struct model;

/* Loads the weights of the stage's layers to the device. A stage with the first layer also loads
 * the embedding; a stage with the last layer also loads the final norm and the vocabulary matrix
 * (its own or the embedding); a draft layer has all three. `file` is read only during the call.
 * Fails, for example, for weights, layers or ranks that do not fit together, and for a model that
 * this device cannot compute. Errors about the files name the tensor or key. */
enum status model_open(const struct model_file *file, const struct model_options *options,
                       struct model **out, struct error *error);
void model_close(struct model *m); /* NULL is fine */
/* Returns the hyper-parameters of the whole model, or those of model_hyper_read_draft_layer. */
const struct model_hyper *model_hyper_get(const struct model *m);
/* Returns the slice of each layer that this process has. */
const struct model_shard *model_shard_get(const struct model *m);
/* Returns the bytes of the loaded weights on the device. */
size_t model_weight_bytes(const struct model *m);

/* The KV-cache of this stage's layers, in rows: row i starts at base + i * layer_stride_bytes.
 * struct compute_kv describes the blocks of a layer. */
struct model_kv {
    void *base;
    /* Layer groups that share rows of the memory (kvcache/kv_transfer.h): the result of
     * model_layer_groups. All zeros = each layer has a row of its own, and all layers use the first
     * block table. */
    struct layer_groups groups;
    size_t layer_stride_bytes;
    size_t block_bytes;
    uint32_t block_tokens;
    enum compute_kv_dtype dtype;
};

struct forward;

/* Prepares a GPU for its first batch: records decode steps (CUDA graphs). Does nothing on other
 * devices. Call it once, after the KV-cache has been allocated; its content does not change.
 * compute_ops.check reports failures. */
void forward_prepare(struct forward *f, const struct model_kv *kv);

/* Opens a workspace for batches of at most rows_max rows and logits_max rows of logits. `m` must
 * outlive it. Returns ST_INVALID if one of the two numbers is 0, ST_NO_MEMORY, or ST_IO if the
 * device has failed. */
enum status forward_open(const struct model *m, uint32_t rows_max, uint32_t logits_max,
                         struct forward **out, struct error *error);
void forward_close(struct forward *f); /* NULL is fine */

/* One batch. All arrays belong to the caller. forward_run reads them only during the call, except
 * that a device with a queue uses `activations` until its operations are finished
 * (compute_ops.mark). */
struct forward_batch {
    const uint32_t *token_ids; /* [batch.row_count] tokens; read by the stage that has layer 0. */
    /* [batch.row_count × hidden] activations in 64-byte aligned device memory. Before the call it
     * has the output of the stage before; after the call, the output of this stage. The first stage
     * ignores its content, and the last stage destroys it. NULL = the stage has all layers. */
    float *activations;
    /* [batch.row_count × hidden] in memory of the host, for a draft layer: for each row, the final
     * vector from which the row's token was drawn (forward_final_vector). The device must be a CPU.
     */
    const float *finals;
    struct compute_batch batch;  /* Rows, their sequences and block tables. */
    const uint32_t *logits_rows; /* Rows whose logits are wanted, in ascending order. */
    uint32_t logits_count;
    /* true: forward_logits may be called for any row (a scored prompt). false: rows without logits
     * are not computed after K and V of the last layer. */
    bool all_rows;
    /* true: the logits, also those of forward_logits, stay in device memory, and *logits_out is a
     * device address. No effect if the host can read the device's memory. */
    bool logits_stay;
    /* Called on the engine thread when K and V of all rows of layer `layer` (counted in the model)
     * are stored, or, on a device with a queue, when their computation is queued
     * (compute_ops.mark). NULL = no calls. */
    void (*layer_done)(void *self, uint32_t layer);
    void *layer_done_self; /* First argument of layer_done. */
    /* When it becomes true, the pass ends before its next layer. Any thread may set it. NULL =
     * never. No effect on a device that records steps, and with several ranks. */
    const atomic_bool *abandon;
};

/* Computes one batch and writes K and V of every row into its blocks. *logits_out points to
 * [logits_count × vocab] fp32, owned by f and valid until the next call of forward_run or
 * forward_logits; NULL if the stage does not have the last layer. Wrong shapes are caught by
 * assertions; compute_ops.check reports failures of the device.
 *
 * With several ranks (model_options.ranks), all ranks must run the same batches in the same order
 * and make the same calls of forward_logits, with workspaces of the same sizes. Requires that the
 * devices have joined (compute_group_ops.join). Only rank 0 gets logits; the other ranks get NULL.
 * The KV-cache of a rank has only the KV heads of its slice. If another rank dies, the results are
 * invalid, and compute_ops.check reports it.
 *
 * Returns false if the pass has ended early (batch->abandon): there are no logits, and the KV of
 * the rows is not complete. */
bool forward_run(struct forward *f, const struct forward_batch *batch, const struct model_kv *kv,
                 const float **logits_out);

/* Computes the logits of rows rows[0..count) of the last batch (a scored prompt). Requires the last
 * layer, a batch with all_rows, and count from 1 to logits_max. *logits_out as in forward_run. */
void forward_logits(struct forward *f, const uint32_t *rows, uint32_t count,
                    const float **logits_out);

/* Writes the final vector of a row of the last batch, which is the row after the last norm, to
 * out[hidden]. Requires the last layer, and a row of logits_rows, or any row of a batch with
 * all_rows. With several ranks, any rank may call it alone. */
void forward_final_vector(struct forward *f, uint32_t row, float *out);

/* Adds the final vectors of rows [first_row, first_row + count) of the last
 * batch to sum[hidden], as numbers of common/pooling.h. Requires the last layer and a batch with
 * all_rows. With several ranks, any rank may call it alone. */
void forward_pool(struct forward *f, uint32_t first_row, uint32_t count, int64_t *sum);

#endif
