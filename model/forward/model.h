/* model: the weights of a stage's layers, and the forward pass of a batch through these layers. A
 * struct model owns the weights, and does not change after model_open. A struct forward owns the
 * activations. The caller provides the memory of the KV-cache and the block ids. Machines,
 * `cleave profile` and a benchmark use this part. Only one thread at a time may use a struct
 * forward; any thread may read a struct model. This part does not sample (sampler.h) and knows no
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
    const struct compute_ops *ops; /* The backend of `compute`. */
    struct compute *compute;       /* The device. It must outlive the model. */
    /* The stage's layers are [first_layer, end_layer); 0, 0 = all layers. */
    uint32_t first_layer;
    uint32_t end_layer;
    /* The rank, and the number of ranks (shard.h); 0, 0 = whole layers. */
    uint32_t rank, rank_count;
    /* true: load the first draft layer (model_hyper.draft_layers), as a model of one layer. The
     * fields first_layer to rank_count then refer to the model of one layer, whose batches need
     * forward_batch.draft_final_vectors. */
    bool draft_layer;
    /* Longest context; 0 = model_hyper.context_tokens. A number above LIMIT_CONTEXT_TOKENS counts
     * as LIMIT_CONTEXT_TOKENS. */
    uint32_t context_tokens_max;
    /* Called after each loaded layer. layer_count: the layers of the stage. NULL = no calls. */
    void (*progress)(void *self, uint32_t layers_loaded, uint32_t layer_count);
    void *progress_self; /* First argument of `progress`. */
};

struct model;

/* Loads the weights of the stage's layers to the device. The caller closes *out with model_close.
 * `file` is used only during the call. Returns ST_INVALID if tensors, layers or ranks do not fit
 * the model, ST_UNSUPPORTED if cleave or the device cannot compute the model, ST_NO_MEMORY, or an
 * error of the device. */
enum status model_open(const struct model_file *file, const struct model_options *options,
                       struct model **out, struct error *error);
void model_close(struct model *m); /* NULL is fine. */
/* Returns the hyper-parameters of the whole model, also in a stage; with options->draft_layer, the
 * result of model_hyper_read_draft_layer. */
const struct model_hyper *model_hyper_get(const struct model *m);
/* Returns the rank's slice of each layer. */
const struct model_shard *model_shard_get(const struct model *m);
/* Returns the bytes that the weights take on the device, without adapters. */
size_t model_weight_bytes(const struct model *m);

/* The memory of the KV-cache of this stage's layers, in layer rows: a layer row has the blocks of
 * at most one layer of each layer group (common/layer_groups.h). struct compute_kv describes a
 * block. */
struct model_kv {
    void *base;                 /* First byte of the memory. */
    struct layer_groups groups; /* Result of model_layer_groups. All zeros = one layer group. */
    size_t layer_stride_bytes;  /* From a layer row's start to the next layer row's start. */
    size_t block_bytes;         /* From a block's start to the next block's, in a layer row. */
    uint32_t block_tokens;      /* Tokens of a block. */
    enum compute_kv_dtype dtype;
};

struct forward;

/* Prepares a device that records steps (compute_ops.steps) for its first batch; does nothing on
 * other devices. Call forward_prepare once, before the first forward_run. The content of the
 * KV-cache does not change. compute_ops.check reports failures. */
void forward_prepare(struct forward *f, const struct model_kv *kv);

/* Opens a workspace for batches of at most rows_max rows and logits_max rows of logits. The caller
 * closes *out with forward_close, before model_close. Returns ST_INVALID if rows_max or logits_max
 * is 0, ST_NO_MEMORY, or ST_IO if the device has failed. */
enum status forward_open(const struct model *m, uint32_t rows_max, uint32_t logits_max,
                         struct forward **out, struct error *error);
void forward_close(struct forward *f); /* NULL is fine. */

/* One batch. All arrays belong to the caller. forward_run uses the arrays during the call; a device
 * with a queue uses `activations` until the operations are finished (compute_ops.mark). */
struct forward_batch {
    /* [batch.row_count] ids of the tokens. Only the stage with the first layer reads them. */
    const uint32_t *token_ids;
    /* [batch.row_count × hidden] activations in 64-byte aligned device memory: the output of the
     * stage before, which forward_run replaces by the output of this stage. The first stage does
     * not read them; the last stage leaves them undefined. Not used if the stage has all layers. */
    float *activations;
    /* [batch.row_count × hidden] in memory of the host: for each row, the final vector
     * (forward_final_vector) from which the row's token was drawn. Used only by a draft layer, on a
     * CPU. */
    const float *draft_final_vectors;
    struct compute_batch batch; /* Rows, their sequences and block tables. */
    /* [logits_count] numbers of the rows whose logits are wanted, in ascending order. */
    const uint32_t *logits_rows;
    uint32_t logits_count;
    /* true: forward_logits, forward_final_vector and forward_pool may be called for any row. false:
     * rows that are not in logits_rows get only K and V in the model's last layer. */
    bool all_rows;
    /* true: the logits of forward_run and forward_logits stay in device memory, and *logits_out is
     * a device address. No effect if the host can read the device's memory. */
    bool logits_stay;
    /* forward_run calls this function, on the thread of forward_run, when K and V of all rows are
     * stored for layer `layer`, counted from the model's first layer. A device with a queue may
     * store K and V later (compute_ops.mark). NULL = no calls. */
    void (*layer_done)(void *self, uint32_t layer);
    void *layer_done_self; /* First argument of layer_done. */
    /* If *abandon is true before a layer, the pass ends. Any thread may set *abandon during the
     * pass. NULL = the pass does not end early. No effect on a device that records steps, or with
     * several ranks. */
    const atomic_bool *abandon;
};

/* Computes one batch, and writes K and V of every row to the blocks of the row's sequence.
 * *logits_out is [logits_count × vocab] fp32, which `f` owns and which is valid until the next call
 * of forward_run or forward_logits; NULL = the stage does not have the last layer, or the rank is
 * not 0. Returns false if the pass has ended early (batch->abandon): then *logits_out is NULL, and
 * the KV of the rows is not complete. A batch that does not fit `f` or `kv` fails an assertion.
 * compute_ops.check reports failures of the device.
 *
 * With several ranks (model_options.rank_count), all ranks must make equal calls of forward_run and
 * forward_logits in the same order, with workspaces of equal sizes. Requires that the devices have
 * joined (compute_group_ops.join). The KV-cache of a rank has only the KV heads of its slice. If
 * the process of another rank ends, the results are invalid, and compute_ops.check reports the
 * failure. */
bool forward_run(struct forward *f, const struct forward_batch *batch, const struct model_kv *kv,
                 const float **logits_out);

/* Computes the logits of rows rows[0..count) of the last batch, for a prompt that is scored.
 * Requires the model's last layer, a batch with all_rows, and `count` from 1 to logits_max.
 * *logits_out is [count × vocab], as in forward_run. */
void forward_logits(struct forward *f, const uint32_t *rows, uint32_t count,
                    const float **logits_out);

/* Writes the final vector of a row of the last batch to out[0..hidden). The final vector is the row
 * after the norm that follows the last layer, times model_hyper.logit_scale. Requires the model's
 * last layer, and a row of logits_rows or a batch with all_rows. One rank alone may call the
 * function. */
void forward_final_vector(struct forward *f, uint32_t row, float *out);

/* Adds the final vectors of rows [first_row, first_row + count) of the last batch to
 * sum[0..hidden), as fixed-point numbers (POOLING_ONE in common/pooling.h). Requires the model's
 * last layer and a batch with all_rows. One rank alone may call the function. */
void forward_pool(struct forward *f, uint32_t first_row, uint32_t count, int64_t *sum);

#endif
