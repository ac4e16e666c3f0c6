/* forward_state: the internal state of the forward pass, for the files of model/forward/. Other
 * folders use model.h. struct forward owns the workspace, but not the weights (weights.h), the
 * KV-cache, or the arrays of struct forward_batch.
 *
 * A lane is a range of consecutive rows of a batch, with the memory for computing these rows. A
 * batch has one lane, or several if this is faster (compute_lanes_ops.pick). The functions run on
 * the thread that uses the struct forward. If a batch has several lanes, compute_lanes_ops.run
 * calls the functions for each lane, and the lanes wait for each other once per layer. Then the
 * whole device (forward.lanes[0]) computes the logits.
 *
 * The residual stream is the row of `hidden` numbers to which each layer adds the results of its
 * attention and of its feed-forward. */
#ifndef MODEL_FORWARD_FORWARD_STATE_H
#define MODEL_FORWARD_FORWARD_STATE_H

#include "model/forward/model.h"
#include "model/forward/weights.h"

/* In this folder, a slab is a part of a lane's rows that is multiplied with the matrices together.
 * A device that computes whole batches (compute_ops.whole_batches) has one slab. */

/* Most rows of a slab: gate and up of the slab then stay in the L2 or L3 cache. */
#define FORWARD_SLAB_ROWS         252
#define FORWARD_EXPERTS_SLAB_ROWS 516 /* Most rows of a slab in a model with experts. */
#define FORWARD_SLAB_STEP         12  /* Rows of a slab are a multiple of 12, except the last's. */
#define FORWARD_LANE_SLAB_ROWS    132 /* Most rows of a slab if the batch has several lanes. */

struct forward_lane {
    struct compute *compute; /* The device, or one lane of it. */
    uint32_t slab_rows;      /* Most rows of a slab. */
    /* k, v, gate and up share memory with other arrays (lay_all in forward_open.c). */
    float *k; /* [slab_rows × kv width] K of a slab, until K is written to the cache. */
    /* [slab_rows × kv width] V of a slab, until V is written to the cache. With latent attention:
     * the latent vectors, each of hyper.latent.rank numbers. */
    float *v;
    /* [slab_rows × forward_raw_width] queries before compute_latent_ops.absorb. Only with latent
     * attention. */
    float *raw_queries;
    /* [slab_rows × rotated] the rotated part of the keys. Only with latent attention. */
    float *rotated_keys;
    /* [slab_rows × ffn] gate and up of a dense layer or of the shared experts; ffn is the larger
     * number of shard.ffn_count (0 = all layers have experts) and shard.shared_ffn_count. */
    float *gate;
    float *up;
    struct compute_activations *hidden; /* Normalised rows: the input of most matrices. */
    struct compute_activations *heads;  /* Input of attention's output matrix. */
    struct compute_activations *ffn;    /* Input of down; NULL = all layers have experts. */
    struct compute_activations *shared; /* Input of the shared experts' down; NULL = none. */
    /* query_latent: input of q_b; NULL = no q_b. value_latent: result of attention, from which
     * forward_latent_output makes `heads`; NULL = no latent attention. */
    struct compute_activations *query_latent, *value_latent;
    struct compute_experts_workspace *experts_workspace; /* NULL = no layer has experts. */
    /* [rows_max] the lane's sequences, if the batch has several lanes. */
    struct compute_sequence *sequences;
    /* [groups_max - 1][rows_max] the lane's sequences with the block tables of layer groups 1, 2,
     * and so on. NULL = the model has one layer group. */
    struct compute_sequence *group_sequences;
    uint32_t *tail_rows; /* [logits_max] the lane's rows whose logits are wanted. */
    struct compute_sequence *tail_sequences; /* [logits_max] sequences of tail_rows. */
    struct compute_sequence *part_sequences; /* [slab_rows] sequences of a slab. */

    /* The fields below are the state of the current batch. */
    uint32_t first_row;         /* Number of the lane's first row in the batch. */
    struct compute_batch batch; /* The lane's rows, with the block tables of layer group 0. */
    /* The lane has the entries [logits_first, logits_first + logits_count) of the batch's
     * logits_rows. */
    uint32_t logits_first;
    uint32_t logits_count;
};

struct forward {
    const struct model *m;
    uint32_t rows_max;   /* Most rows of a batch. */
    uint32_t logits_max; /* Most rows of logits of a batch. */
    float *memory;       /* One allocation for all float arrays on the device, also of the lanes. */
    /* [rows_max × hidden] the residual stream, if the stage has all layers. */
    float *own_residual;
    /* The residual stream of the last batch: own_residual, or the caller's
     * forward_batch.activations. */
    float *residual;
    float *q;             /* [rows_max × q width] queries of a layer. */
    float *tail_residual; /* [logits_max × hidden] rows of `residual` whose logits are wanted. */
    uint32_t *tail_rows;  /* [logits_max] numbers of the rows in tail_residual. */
    uint32_t tail_count;  /* Rows in tail_residual of the last batch; 0 = none. */
    float *tail_q;        /* [logits_max × q width] queries of the rows in tail_residual. */
    /* [rows_max × hidden] the branch: the result of attention or of the feed-forward before
     * forward_branch_add. NULL = results are added to the residual stream directly. */
    float *branch;
    /* router_product: [rows of a slab × experts] products with the experts' router.
     * shared_product: [rows of a slab] products with the shared experts' router. */
    float *router_product, *shared_product;
    float *logits; /* [logits_max × vocab]; NULL = no last layer, or a rank other than 0. */
    /* [logits_max × vocabulary of the rank's slice]; used only with several ranks. */
    float *logits_part;
    /* [rows_max] token ids as row numbers of the rank's slice of the embedding; NULL = the stage
     * has one rank. */
    uint32_t *slice_ids;
    /* shard.vocab_count of each rank; not used if the stage has one rank. */
    uint32_t vocab_counts[MODEL_RANKS_MAX];
    /* Token ids of the last batch: the caller's, or slice_ids; NULL = no first layer. */
    const uint32_t *token_ids;
    /* forward_batch.draft_final_vectors of the last batch. */
    const float *draft_final_vectors;
    /* Copy of the logits for the host; NULL = the host reads the device's memory, or there are no
     * logits. */
    float *host_logits;
    /* Copies for the host. host_norm: [2 × hidden] weights and biases of the last norm. host_row:
     * [hidden] a row. NULL = the host reads the device's memory, or there is no last layer. */
    float *host_norm, *host_row;
    bool logits_stay; /* forward_batch.logits_stay of the last batch. */
    /* Number of rows of the last batch, from row 0, for which forward_logits and forward_pool may
     * be called; 0 = the batch did not set all_rows, or the stage does not have the last layer. */
    uint32_t complete_rows;
    uint32_t groups_max;        /* Layer groups for which lanes have sequences. */
    struct layer_groups groups; /* Layer groups of the last batch's KV. */
    uint32_t lane_count;
    /* [lane_count] lanes. A batch uses either lanes[0] alone, which has the whole device, or some
     * of lanes[1] and up, each of which has a part of the device. */
    struct forward_lane *lanes;
};

/* Returns the dimensions of a key in the KV-cache. */
static inline uint32_t forward_key_dim(const struct model *m)
{
    return m->hyper.latent.rank != 0 ? 2 * m->hyper.head_dim : m->hyper.head_dim;
}

/* Returns the width of a row of q, for attention, in the rank's slice. */
static inline uint32_t forward_q_width(const struct model *m)
{
    return m->shard.head_count * forward_key_dim(m);
}

/* Returns the width of a row of k, or of v, in the rank's slice. */
static inline uint32_t forward_kv_width(const struct model *m)
{
    return m->shard.kv_head_count * forward_key_dim(m);
}

/* Returns the width of the input of attention's output matrix in the rank's slice. */
static inline uint32_t forward_heads_width(const struct model *m)
{
    const uint32_t latent = m->hyper.latent.value;
    return m->shard.head_count * (latent != 0 ? latent : m->hyper.head_dim);
}

/* Returns the width of forward_lane.raw_queries; 0 = the model has no latent attention. */
static inline uint32_t forward_raw_width(const struct model *m)
{
    const struct model_latent *latent = &m->hyper.latent;
    const uint32_t width = m->shard.head_count * (latent->plain + latent->rotated);
    return width > latent->q_rank ? width : latent->q_rank;
}

/* Returns true if the stage has several ranks. */
static inline bool forward_in_group(const struct forward *f)
{
    return !model_shard_is_whole(&f->m->shard);
}

/* One layer of the stage. */
struct forward_layer {
    uint32_t index; /* Number of the layer, counted from the stage's first layer. */
    uint32_t group; /* The layer's layer group (common/layer_groups.h). */
    const struct model_layer *weights; /* Owned by struct model. */
    struct compute_kv kv;              /* The layer's part of the KV-cache. */
};

/* Returns true if the stage has all layers of the model. */
static inline bool forward_stage_is_whole(const struct model *m)
{
    return model_has_first(m) && model_has_last(m);
}

/* Allocates host_norm and host_row, and fills host_norm, if they are needed. Returns ST_NO_MEMORY
 * on failure. */
enum status forward_finals_open(struct forward *f);

/* Returns the most rows that a batch with several lanes may have. */
uint32_t forward_lanes_rows(const struct forward *f);
/* Returns rows [first, first + count) of `batch` as a batch. Writes the sequences of this batch to
 * `sequences`, which must stay valid while the batch is used. */
struct compute_batch forward_batch_rows(const struct compute_batch *batch, uint32_t first,
                                        uint32_t count, struct compute_sequence *sequences);
/* Fills in lane->group_sequences from lane->batch. */
void forward_lane_groups(const struct forward *f, struct forward_lane *lane);
/* Writes the embeddings of the lane's tokens to the residual stream. In a draft layer, writes the
 * layer's input instead, which the matrices of struct model_draft compute from the embedding and
 * the final vector (forward_batch.draft_final_vectors). */
void forward_lane_embed(struct forward *f, const struct forward_lane *lane);
/* Computes the rotated queries of the lane's rows into f->q, and writes K and V of the rows to the
 * cache. */
void forward_lane_qkv(struct forward *f, struct forward_lane *lane,
                      const struct forward_layer *layer);
/* For latent attention: computes the queries q of the rows of `part` from lane->hidden, and writes
 * the latent vectors of the rows to the cache. */
void forward_latent_qkv(struct forward *f, struct forward_lane *lane,
                        const struct forward_layer *layer, struct compute_rope_table *rope,
                        const struct compute_batch *part, float *q);
/* For latent attention: makes lane->heads from lane->value_latent. */
void forward_latent_output(struct forward *f, struct forward_lane *lane,
                           const struct forward_layer *layer, uint32_t row_count);
/* Computes the rest of a layer, from attention on. Requires that K and V of all rows of the batch
 * are in the cache. tail: true = computes only the rows whose logits are wanted, into
 * tail_residual. */
void forward_lane_finish(struct forward *f, struct forward_lane *lane,
                         const struct forward_layer *layer, const struct forward_batch *batch,
                         bool tail);
/* Computes the feed-forward of a layer with experts for x[0..row_count), the rows of a slab, and
 * adds the result to x. `branch` is memory of forward.branch; NULL = forward.branch is NULL. */
void forward_lane_experts(struct forward *f, struct forward_lane *lane,
                          const struct model_layer *layer, uint32_t row_count, float *branch,
                          float *x);
/* Adds a branch to x. With several ranks, the branch is the sum of the ranks' branches. post_norm:
 * weights of the branch's RMSNorm; NULL = the branch is multiplied by residual_scale instead. The
 * function may overwrite `branch`. */
void forward_branch_add(const struct forward *f, struct compute *c, uint32_t row_count,
                        const float *post_norm, float *branch, float *x);
/* Computes `count` rows of `logits`: row i from row rows[i] of x (rows NULL = row i of x). */
void forward_vocabulary(const struct forward *f, const struct forward_lane *lane, const float *x,
                        const uint32_t *rows, uint32_t count, float *logits);

/* The functions below are for stages of several ranks (forward_group.c). Each rank has the whole
 * residual stream. */

/* Allocates slice_ids and computes vocab_counts; with one rank, does nothing. Returns ST_NO_MEMORY,
 * or an error of model_shard_compute. */
enum status forward_group_open(struct forward *f, struct error *error);
/* Returns f->slice_ids: the batch's token ids as row numbers of this rank's slice of the embedding.
 * An id outside the slice becomes a number beyond the end of the slice. */
const uint32_t *forward_group_ids(struct forward *f, const struct forward_batch *batch);
/* Adds the sum of y over the ranks to x, as forward_branch_add does. The function may overwrite
 * y. */
void forward_group_add(const struct forward *f, struct compute *c, uint32_t row_count,
                       const float *post_norm, float *y, float *x);
/* Normalises q, and then k, as a vector of the heads of all ranks (FAMILY_QK_WHOLE). */
void forward_group_qk_norm(const struct forward *f, struct compute *c, const struct model_layer *w,
                           uint32_t row_count, float *q, float *k);
/* Collects each rank's `part` of the logits in `logits` of rank 0. */
void forward_group_logits(const struct forward *f, struct compute *c, uint32_t row_count,
                          const float *part, float *logits);

#endif
