/* model: hyper-parameters, weights and the forward pass of layers [first, last) over a batch, for
 * the architectures `llama`, `qwen2`, `qwen3` and `gemma3`. A `struct model` is read-only
 * after model_open; a `struct forward` is one engine thread's workspace over it. It owns weights
 * and activations; the KV-cache's memory and block ids come from the caller. It does not sample
 * (sampler.h) and knows no requests. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "common/limits.h"
#include "common/status.h"
#include "compute/compute.h"
#include "model/model_file.h"
#include "model/shard.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Frequencies f of the rotary embedding, by their waves w = 2 pi / f: those longer than
 * context_tokens / low become f / factor, those shorter than context_tokens / high stay, and
 * between it goes over evenly (Llama 3.1). */
struct model_rope_ramp {
    float factor; /* 0: no such thing */
    float low, high;
    uint32_t context_tokens;
};

struct model_hyper {
    char architecture[32];
    char name[64]; /* general.name, or the file's name */
    uint32_t layer_count;
    uint32_t hidden; /* embedding length */
    uint32_t ffn;    /* feed-forward length */
    uint32_t
        ffn_block; /* elements of the largest block of the types of `down`: where it can be cut */
    uint32_t head_count;
    uint32_t kv_head_count;
    uint32_t head_dim;
    uint32_t vocab;
    uint32_t context_tokens; /* what the file says it was trained for */
    float norm_epsilon;
    bool rope_neox;
    uint32_t rope_dim;
    float rope_freq_base;
    float rope_freq_scale;
    struct model_rope_ramp rope_ramp;
    float attention_scale; /* of a query's product with a key */
    /* What families differ in. */
    bool biases;           /* of q, k and v: the file must have them */
    bool head_norms;       /* of each head of q and k */
    bool post_norms;       /* of what attention and feed-forward add */
    bool gelu;             /* not SiLU */
    float embedding_scale; /* 1: none */
    float norm_offset;     /* added to the weights of all norms */
    uint32_t local_period; /* layers but each local_period-th rotate by local_freq_base; 0: none */
    float local_freq_base;
};

/* Reads and checks hyper-parameters without touching weights (the gateway needs no more). */
enum status model_hyper_read(const struct model_file *file, struct model_hyper *out,
                             struct error *error);

struct model_options {
    const struct compute_ops *ops;
    struct compute *compute; /* kept; outlives the model */
    uint32_t first_layer;    /* this stage's layers [first_layer, last_layer); 0, 0: all */
    uint32_t last_layer;
    uint32_t rank, ranks;        /* the slice of each layer (shard.h); 0, 0: whole */
    uint32_t context_tokens_max; /* positions to prepare RoPE for; 0: the file's */
    void (*progress)(void *self, uint32_t done, uint32_t of); /* per layer loaded; may be NULL */
    void *progress_self;
};

struct model;

/* Loads (repacks) the weights of the layers asked for; with the first layer the embedding, with the
 * last one the final norm and the vocabulary projection (tied or own). `file` is read during the
 * call only. */
enum status model_open(const struct model_file *file, const struct model_options *options,
                       struct model **out, struct error *error);
void model_close(struct model *m); /* NULL is fine */
const struct model_hyper *model_hyper_of(const struct model *m);
const struct model_shard *model_shard_in(const struct model *m); /* the slice that it has */
size_t model_weight_bytes(const struct model *m);

/* The KV-cache of this stage's layers as one arena: layer i (counted from the stage's first) starts
 * at base + i * layer_stride_bytes; within it blocks as struct compute_kv says. */
struct model_kv {
    void *base;
    size_t layer_stride_bytes;
    size_t block_bytes;
    uint32_t block_tokens;
    enum compute_kv_dtype dtype;
};

struct forward;

/* What a device does once before its first batch, when all else is there: it settles where weights
 * lie, and records steps. Nothing in the cache changes. See compute_ops.check afterwards. */
void forward_prepare(struct forward *f, const struct model_kv *kv);

/* Workspace for batches of up to rows_max rows and logits_max logit rows. All memory is taken here.
 */
enum status forward_open(const struct model *m, uint32_t rows_max, uint32_t logits_max,
                         struct forward **out, struct error *error);
void forward_close(struct forward *f); /* NULL is fine */

struct forward_batch {
    const uint32_t *token_ids; /* [batch.row_count]; read by the stage that has layer 0 */
    /* [batch.row_count × hidden], 64-byte aligned memory of the device: a stage without layer 0
     * reads what the stage before has left there, and one without the last layer leaves its result
     * for the next. Others spoil it. NULL with a whole model, which needs none. */
    float *x;
    struct compute_batch batch;
    const uint32_t *logits_rows; /* rows whose logits are wanted, ascending */
    uint32_t logits_count;
    /* forward_logits will ask for rows other than logits_rows (a scored prompt). Without it, the
     * last layer computes no more than K and V of rows that nobody samples. */
    bool all_rows;
    /* The logits, also forward_logits', are left where the device has them: *logits_out is then for
     * its operations, not for the host. Nothing else where the host reads the device's memory. */
    bool logits_stay;
    /* Called on the engine thread after layer `layer` (of the model) has stored K and V of all rows
     * and its computation is queued or done; its KV blocks may be read from then on. May be NULL.
     */
    void (*layer_done)(void *self, uint32_t layer);
    void *layer_done_self;
};

/* Runs the stage. Writes K and V of every row into its blocks. *logits_out points to
 * [logits_count × vocab] fp32, owned by f, valid until the next run; NULL if the stage lacks the
 * last layer. Cannot fail: shapes were checked by assertion.
 *
 * Of a group (struct model_options: ranks), all ranks run the same batches in the same order, and
 * ask for the same forward_logits, with workspaces of the same sizes; only rank 0 gets logits, the
 * others' *logits_out is NULL. K and V are those of the slice's KV heads, for which model_kv has
 * room. Their devices have joined before (compute_ops.group_join); compute_ops.check tells when
 * another rank has died, and the results are worth nothing. */
void forward_run(struct forward *f, const struct forward_batch *batch, const struct model_kv *kv,
                 const float **logits_out);

/* More logit rows than logits_max (a scored prompt): after forward_run with all_rows set, computes
 * logits of the rows `rows[0..count)` of the same batch (count <= logits_max), as often as needed.
 */
void forward_logits(struct forward *f, const uint32_t *rows, uint32_t count,
                    const float **logits_out);

#endif
