/* model: the weights and the forward pass of layers [first, last) over a batch, for the
 * architectures `llama`, `qwen2`, `qwen3` and `gemma3`. A `struct model` is read-only after
 * model_open, which is called while a process starts. A `struct forward` is the workspace
 * of one engine thread, which runs every batch (machine/executor/engine.c). The model owns weights
 * and activations; the caller provides the KV-cache's memory and the block ids. It does not sample
 * (sampler.h) and does not know requests. */
#ifndef MODEL_FORWARD_MODEL_H
#define MODEL_FORWARD_MODEL_H

#include "common/limits.h"
#include "common/status.h"
#include "compute/compute.h"
#include "model/file/hyper.h"
#include "model/forward/shard.h"

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
    /* Positions to prepare RoPE for; 0 = the context length in the file. */
    uint32_t context_tokens_max;
    /* Called after each loaded layer. NULL = no reports. */
    void (*progress)(void *self, uint32_t done, uint32_t of);
    void *progress_self;
};

struct model;

/* Loads the weights of the stage's layers to the device. A stage with the first layer also loads
 * the embedding; a stage with the last layer also loads the final norm and the output projection
 * (its own or the embedding). `file` is read only during the call. */
enum status model_open(const struct model_file *file, const struct model_options *options,
                       struct model **out, struct error *error);
void model_close(struct model *m); /* NULL is fine */
const struct model_hyper *model_hyper_of(const struct model *m);
/* The slice that this process has. */
const struct model_shard *model_shard_in(const struct model *m);
size_t model_weight_bytes(const struct model *m);

/* The KV-cache of this stage's layers as one arena. Layer i (counted from the stage's first) starts
 * at base + i * layer_stride_bytes; within a layer, blocks lie as struct compute_kv describes. */
struct model_kv {
    void *base;
    size_t layer_stride_bytes;
    size_t block_bytes;
    uint32_t block_tokens;
    enum compute_kv_dtype dtype;
};

struct forward;

/* Prepares the device before its first batch, after the model, the workspace and the KV-cache are
 * there: the device fixes where weights lie and records decode steps (CUDA graphs). It does not
 * change the KV-cache. Afterwards, compute_ops.check reports failures. */
void forward_prepare(struct forward *f, const struct model_kv *kv);

/* Opens a workspace for batches of up to rows_max rows and logits_max rows of logits. All memory is
 * allocated here. */
enum status forward_open(const struct model *m, uint32_t rows_max, uint32_t logits_max,
                         struct forward **out, struct error *error);
void forward_close(struct forward *f); /* NULL is fine */

struct forward_batch {
    const uint32_t *token_ids; /* [batch.row_count] tokens; read by the stage that has layer 0. */
    /* [batch.row_count × hidden] activations in 64-byte aligned device memory. A stage without
     * layer 0 reads the output of the stage before from it; a stage without the last layer leaves
     * its output for the next stage in it; a last stage overwrites it. NULL for a whole model. */
    float *x;
    struct compute_batch batch;
    const uint32_t *logits_rows; /* Rows whose logits are wanted, in ascending order. */
    uint32_t logits_count;
    /* forward_logits will ask for rows other than logits_rows (a scored prompt). If false, the last
     * layer computes only K and V for rows without logits. */
    bool all_rows;
    /* Leave the logits in device memory, also those of forward_logits: *logits_out is then an
     * address for the device's operations, not for the host. No effect where the host reads the
     * device's memory. */
    bool logits_stay;
    /* Called on the engine thread when K and V of all rows of layer `layer` (counted in the model)
     * are stored, or their computation is queued on the device (then compute_ops.mark tells when it
     * is done). NULL = no calls. */
    void (*layer_done)(void *self, uint32_t layer);
    void *layer_done_self;
};

/* Runs the stage over one batch and writes K and V of every row into its blocks. *logits_out points
 * to [logits_count × vocab] fp32, owned by f and valid until the next run; NULL if the stage does
 * not have the last layer. It cannot fail; wrong shapes are caught by assertions.
 *
 * With several ranks (model_options.ranks), all ranks must run the same batches in the same order,
 * and make the same calls of forward_logits, with workspaces of the same sizes. Only rank 0 gets
 * logits; the other ranks' *logits_out is NULL. K and V are those of the slice's KV heads, and
 * model_kv has room for these heads only. Requires that the devices have joined
 * (compute_group_ops.join). When another rank has died, compute_ops.check reports it and the
 * results are invalid. */
void forward_run(struct forward *f, const struct forward_batch *batch, const struct model_kv *kv,
                 const float **logits_out);

/* Computes logits of the rows rows[0..count) of the last batch (a scored prompt). Requires that the
 * batch set all_rows, and count <= logits_max. May be called as often as needed. */
void forward_logits(struct forward *f, const uint32_t *rows, uint32_t count,
                    const float **logits_out);

#endif
