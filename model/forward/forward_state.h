/* forward_state: the internal state of the forward pass, for forward_open.c (workspace), forward.c
 * (order of the layers), forward_lane.c (one layer), forward_latent.c (latent attention),
 * forward_experts.c (experts), forward_group.c (sums over the ranks of a stage), adapters.c
 * (low-rank adapters) and finals.c (final vectors). Functions that open something run on the thread
 * that opens the forward pass, the others on the engine thread; functions of a lane also run on the
 * device's worker threads. Before the engine thread starts, forward_prepare runs passes on the
 * thread that opens. It does not have the weights (weights.h) or the KV-cache. Other folders use
 * model.h.
 *
 * A lane is a range of consecutive rows of a batch, and the memory in which they are computed.
 * Rows depend on each other only through K and V, so lanes wait for each other once per layer.
 * Usually there is one lane, and the device's threads share its matrices. For batches where several
 * lanes are faster (compute_lanes_ops.pick), each thread has a lane. */
#ifndef MODEL_FORWARD_FORWARD_STATE_H
#define MODEL_FORWARD_FORWARD_STATE_H

#include "model/forward/model.h"
#include "model/forward/weights.h"

/* Here a chunk is a part of a lane's rows that goes through the matrices together. Most rows of a
 * chunk: many rows use each weight that is read, and gate and up of a chunk stay in the L2 or L3
 * cache. Not for devices that compute whole batches (compute_ops.whole_batches). */
#define FORWARD_CHUNK_ROWS 252
/* Most rows of a chunk in a model with experts: an expert gets only some of the rows, and all its
 * weights are read for each chunk. */
#define FORWARD_EXPERTS_CHUNK_ROWS 516
/* All chunks of a lane have about the same size. Every chunk except the last has a multiple of this
 * number of rows, which are whole tiles for every backend. */
#define FORWARD_CHUNK_STEP 12
/* Most rows of a chunk when several lanes run. */
#define FORWARD_LANE_CHUNK_ROWS 132

struct forward_lane {
    struct compute *compute; /* The device, or one lane of it. */
    uint32_t chunk_rows;     /* Most rows of a chunk. */
    /* k, v, gate and up share memory with other arrays (lay_all in forward_open.c). */
    float *k; /* [chunk_rows × kv width], written to the cache before the next chunk. */
    float *v; /* [chunk_rows × kv width], written to the cache together with k. */
    /* Only with latent attention. [chunk_rows × forward_raw_width]: queries before
     * compute_latent_ops.absorb. */
    float *raw_queries;
    /* Only with latent attention. [chunk_rows × rotated]: the rotated part of the keys. */
    float *rotated_keys;
    float *gate; /* [chunk_rows × ffn], where ffn is the larger one of ffn and shared_ffn. */
    float *up;   /* [chunk_rows × ffn] */
    /* Normalised rows: the input of q, k and v, of gate and up, and of the vocabulary matrix. */
    struct compute_activations *hidden;
    struct compute_activations *heads;  /* Attention's result: input of its output matrix. */
    struct compute_activations *ffn;    /* Input of down; NULL = the stage has only experts. */
    struct compute_activations *shared; /* Input of the shared experts' down; NULL = none. */
    /* Only with latent attention. query_latent: the vectors from which queries are made; NULL =
     * queries are made from `hidden`. value_latent: the result of attention, from which
     * forward_latent_output makes `heads`. */
    struct compute_activations *query_latent, *value_latent;
    struct compute_experts_workspace *experts_workspace; /* NULL = the model has no experts. */
    /* [rows_max]; the lane's sequences if it has only some of the batch's rows. */
    struct compute_sequence *sequences;
    /* [layer groups - 1][rows_max]; the lane's sequences with the block tables of the layer groups
     * from the second on. NULL = the model has one group. */
    struct compute_sequence *group_sequences;
    struct compute_sequence *tail_sequences; /* [logits_max]; sequences of tail_rows. */
    struct compute_sequence *part_sequences; /* [chunk_rows]; sequences of a chunk. */
    uint32_t *tail_rows; /* [logits_max]; the lane's rows whose logits are wanted. */

    /* State of the current batch. */
    uint32_t first_row;         /* First row of the lane in the whole batch. */
    struct compute_batch batch; /* The lane's rows, with block tables of the first layer group. */
    /* The lane has entries [logits_first, logits_first + logits_count) of the batch's
     * logits_rows. */
    uint32_t logits_first;
    uint32_t logits_count;
};

struct forward {
    const struct model *m;
    uint32_t rows_max;
    uint32_t logits_max;
    float *memory; /* One allocation for all float arrays, including the arrays of the lanes. */
    /* [rows_max × hidden]; the residual stream, if the stage has all layers. */
    float *own_residual;
    /* The residual stream of the last batch: own_residual, or forward_batch.activations. */
    float *residual;
    float *q;             /* [rows_max × q width] */
    float *tail_residual; /* [logits_max × hidden]; rows of `residual` whose logits are wanted. */
    uint32_t *tail_rows;  /* [logits_max]; the numbers of these rows. */
    /* Rows in tail_residual after the last batch; 0 = all rows are in `residual`. */
    uint32_t tail_count;
    float *tail_q; /* [logits_max × q width]; the same rows of q. */
    /* [rows_max × hidden]; the result of attention or of the feed-forward, before its post norm or
     * the sum over the ranks. NULL = not needed: no post norms, no biases of attention's output and
     * of down, residual_scale 1, and one rank. */
    float *branch;
    /* [rows of a chunk × experts] and [rows of a chunk]: products with the experts' router and with
     * the shared experts' router. Models with experts have one lane. */
    float *router_product, *shared_product;
    float *logits; /* [logits_max × vocab]; with several ranks, only at rank 0. */
    /* [logits_max × vocabulary of the rank's slice]; only with several ranks. */
    float *logits_part;
    /* [rows_max]; token ids as rows of the rank's slice of the embedding; only with several
     * ranks. */
    uint32_t *own_ids;
    uint32_t vocab_counts[MODEL_RANKS_MAX]; /* vocab_count of every rank. */
    const uint32_t *token_ids; /* Token ids of the last batch: the caller's, or own_ids. */
    const float *finals;       /* forward_batch.finals of the last batch. */
    /* Copy of the logits for the host; NULL = the host reads the device's memory, or there are no
     * logits. */
    float *host_logits;
    /* For final vectors: copies of the last norm's weights and biases [2 × hidden] and of a row
     * [hidden] in host memory. NULL = the host reads the device's memory, or the stage lacks the
     * last layer. */
    float *host_norm, *host_row;
    bool logits_stay; /* logits_stay of the last batch. */
    /* Rows that forward_logits may use: all rows of the last batch if it set all_rows, else 0. */
    uint32_t scored_rows;
    uint32_t groups_max;        /* Layer groups for which lanes have sequences. */
    struct layer_groups groups; /* Layer groups of the last batch's KV. */
    uint32_t lane_count;
    /* [lane_count]. A batch uses either lanes[0] alone, or several other lanes together. */
    struct forward_lane *lanes;
};

/* Returns the dimensions of a key. */
static inline uint32_t forward_key_dim(const struct model *m)
{
    return m->hyper.latent.rank != 0 ? 2 * m->hyper.head_dim : m->hyper.head_dim;
}

/* Return the widths, in the rank's slice, of q (as attention reads it), of k and v, and of the
 * input of attention's output matrix. */
static inline uint32_t forward_q_width(const struct model *m)
{
    return m->shard.head_count * forward_key_dim(m);
}

static inline uint32_t forward_kv_width(const struct model *m)
{
    return m->shard.kv_head_count * forward_key_dim(m);
}

static inline uint32_t forward_heads_width(const struct model *m)
{
    const uint32_t latent = m->hyper.latent.value;
    return m->shard.head_count * (latent != 0 ? latent : m->hyper.head_dim);
}

/* Returns the width of forward_lane.raw_queries: the width of the queries before
 * compute_latent_ops.absorb, or q_rank if q_rank is larger; 0 = the model has no latent attention.
 */
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
    uint32_t index; /* Index counted from the stage's first layer. */
    uint32_t group; /* The layer's group (layer_groups.h). */
    const struct model_layer *weights;
    struct compute_kv kv;
};

/* Returns true if the stage has all layers of the model. */
static inline bool forward_stage_is_whole(const struct model *m)
{
    return model_has_first(m) && model_has_last(m);
}

/* finals.c: allocates what final vectors need. Returns ST_NO_MEMORY. */
enum status forward_finals_open(struct forward *f);

/* Returns the most rows of a batch that several lanes may share. */
uint32_t forward_lanes_rows(const struct forward *f);
/* Returns rows [first, first + count) of `batch` as a batch, whose sequences are stored in
 * `sequences`. */
struct compute_batch forward_part(const struct compute_batch *batch, uint32_t first, uint32_t count,
                                  struct compute_sequence *sequences);
/* Fills in the lane's group_sequences for its batch. */
void forward_lane_groups(const struct forward *f, struct forward_lane *lane);
/* Writes the embeddings of the lane's tokens to the residual stream. */
void forward_lane_embed(struct forward *f, const struct forward_lane *lane);
/* Computes q (rotated) of the lane's rows, and writes their k and v to the cache. */
void forward_lane_qkv(struct forward *f, struct forward_lane *lane,
                      const struct forward_layer *layer);
/* The two functions of forward_latent.c. forward_latent_qkv computes q of the rows of `part` from
 * lane->hidden, and writes the rows' latent vectors to the cache. forward_latent_output makes
 * lane->heads from lane->value_latent. */
void forward_latent_qkv(struct forward *f, struct forward_lane *lane,
                        const struct forward_layer *layer, struct compute_rope_table *rope,
                        const struct compute_batch *part, float *q);
void forward_latent_output(struct forward *f, struct forward_lane *lane,
                           const struct forward_layer *layer, uint32_t row_count);
/* Computes the rest of a layer, from attention on. Requires K and V of all rows in the cache. With
 * `tail` (the model's last layer), only for rows whose logits are wanted. */
void forward_lane_finish(struct forward *f, struct forward_lane *lane,
                         const struct forward_layer *layer, const struct forward_batch *batch,
                         bool tail);
/* forward_experts.c: adds the experts of a layer to x, for the row_count rows of a chunk. `branch`
 * is as in struct forward. */
void forward_lane_experts(struct forward *f, struct forward_lane *lane,
                          const struct model_layer *layer, uint32_t row_count, float *branch,
                          float *x);
/* Adds a finished branch to x; with several ranks, the sum of the ranks' branches. With post_norm
 * (NULL = none), adds the RMSNorm of the branch or sum; without, the branch or sum times
 * residual_scale. `branch` is overwritten. */
void forward_branch_add(const struct forward *f, struct compute *c, uint32_t row_count,
                        const float *post_norm, float *branch, float *x);
/* Computes the logits of the lane's entries of logits_rows. */
void forward_lane_logits(struct forward *f, struct forward_lane *lane,
                         const struct forward_batch *batch, bool tail);
/* Computes logits[i] from row rows[i] of x (rows NULL = from row i), in the lane's workspace. */
void forward_vocabulary(const struct forward *f, const struct forward_lane *lane, const float *x,
                        const uint32_t *rows, uint32_t count, float *logits);

/* The functions of forward_group.c. Each rank of a stage has the whole residual stream. */

/* Allocates the host memory that several ranks need, and computes vocab_counts; with one rank, does
 * nothing. Returns ST_NO_MEMORY, or an error of model_shard_of. */
enum status forward_group_open(struct forward *f, struct error *error);
/* Returns the batch's token ids as rows of this rank's slice of the embedding. Ids outside the
 * slice become row numbers beyond its end. */
const uint32_t *forward_group_ids(struct forward *f, const struct forward_batch *batch);
/* Adds to x the sum of y over the ranks, times residual_scale, or, if post_norm is not NULL, the
 * RMSNorm of the sum. y is overwritten. */
void forward_group_add(const struct forward *f, struct compute *c, uint32_t row_count,
                       const float *post_norm, float *y, float *x);
/* Normalises q and k, whose heads are divided among the ranks, as one vector of all heads each. */
void forward_group_qk_norm(const struct forward *f, struct compute *c, const struct model_layer *w,
                           uint32_t row_count, float *q, float *k);
/* Collects the ranks' parts of the logits in rank 0's `logits`. */
void forward_group_logits(const struct forward *f, struct compute *c, uint32_t row_count,
                          const float *part, float *logits);

#endif
