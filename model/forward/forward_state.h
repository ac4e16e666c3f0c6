/* forward_state: the internal state of the forward pass, shared by forward_open.c (workspace),
 * forward.c (order of the layers), forward_lane.c (one layer) and forward_group.c (what the ranks
 * of a stage do together). Everything runs on the engine thread or, within a lane, on the device's
 * worker threads. Internal to model/.
 *
 * A lane is a range of neighbouring rows of a batch and the workspace in which they are computed.
 * Rows are independent of each other except for K and V, so lanes wait for each other once per
 * layer. Usually there is one lane, and the device's threads share its matrices. Where that costs
 * more than it gains (compute_lanes_ops.pick), each thread has a lane. */
#ifndef MODEL_FORWARD_FORWARD_STATE_H
#define MODEL_FORWARD_FORWARD_STATE_H

#include "model/forward/model.h"
#include "model/forward/weights.h"

/* Most rows of a chunk. Large enough that each weight that is read is used for many rows, small
 * enough that gate and up of a chunk stay in the L2 or L3 cache. */
#define FORWARD_CHUNK_ROWS 252
/* All chunks of a batch have about the same size, so that no small rest reads all weights for a few
 * rows. Every chunk except the last is a multiple of this many rows, which are whole tiles for
 * every backend. */
#define FORWARD_CHUNK_STEP 12
/* Most rows of a chunk when several lanes run. */
#define FORWARD_LANE_CHUNK_ROWS 132

struct forward_lane {
    /* Where this lane's rows are computed: the device, or one lane of it. */
    struct compute *compute;
    uint32_t chunk_rows;
    /* k, v and gate, up share memory with other arrays (see lay_all). k and v are free once
     * rope_store has written them to the cache, gate and up once the layer is done. */
    float *k; /* [chunk_rows × kv width], written to the cache before the next chunk. */
    float *v;
    float *gate; /* [chunk_rows × ffn] */
    float *up;
    /* Normalised rows: input of q, k, v, of gate, up and of the output projection. */
    struct compute_activations *hidden;
    struct compute_activations *heads; /* Attention's result: input of its output matrix. */
    struct compute_activations *ffn;   /* Input of down. */
    /* [rows_max]; the lane's sequences when the lane has only some of the rows. */
    struct compute_sequence *sequences;
    struct compute_sequence *tail_sequences; /* [logits_max] */
    struct compute_sequence *part_sequences; /* [chunk_rows] */
    uint32_t *tail_rows;                     /* [logits_max] */

    /* State of the current batch. */
    uint32_t first_row; /* The lane has rows [first_row, first_row + batch.row_count). */
    struct compute_batch batch;
    /* The lane has entries [logits_first, logits_first + logits_count) of the batch's logits_rows.
     */
    uint32_t logits_first;
    uint32_t logits_count;
};

struct forward {
    const struct model *m;
    uint32_t rows_max;
    uint32_t logits_max;
    float *memory; /* One allocation for all float arrays, including those of the lanes. */
    float *own_x;  /* [rows_max × hidden]; the residual stream of a whole model. */
    /* The residual stream of the last batch: own_x, or the memory that the stage was given. */
    float *x;
    float *q;      /* [rows_max × q width] */
    float *tail_x; /* [logits_max × hidden] */
    float *tail_q;
    /* [rows_max × hidden]; what a block adds to x, before its post norm or the sum over the ranks.
     * NULL = the model has no post norms and one rank. */
    float *branch;
    float *logits; /* [logits_max × vocab]; with several ranks, only at rank 0. */
    /* [logits_max × the slice's vocabulary]; only with several ranks. */
    float *part;
    /* [rows_max]; token ids as rows of the slice's embedding; only with several ranks. */
    uint32_t *own_ids;
    uint32_t parts[MODEL_RANKS_MAX]; /* vocab_count of every rank. */
    const uint32_t *token_ids;       /* Token ids of the last batch: the caller's, or own_ids. */
    /* Copy of the logits for the host; NULL = the host reads the device's memory. */
    float *host_logits;
    bool logits_stay; /* logits_stay of the last batch. */
    /* Rows of x that forward_logits may use: all rows of the last batch if it set all_rows, else 0.
     */
    uint32_t scored_rows;
    uint32_t lane_count;
    /* [lane_count]; lanes[0] can hold all rows, the others are used together. */
    struct forward_lane *lanes;
};

/* Widths of the rank's slice. */
static inline uint32_t forward_q_width(const struct model *m)
{
    return m->shard.head_count * m->hyper.head_dim;
}

static inline uint32_t forward_kv_width(const struct model *m)
{
    return m->shard.kv_head_count * m->hyper.head_dim;
}

static inline bool forward_in_group(const struct forward *f)
{
    return !model_shard_is_whole(&f->m->shard);
}

/* One layer of the stage. */
struct forward_layer {
    uint32_t index; /* Index counted from the stage's first layer. */
    const struct model_layer *weights;
    struct compute_kv kv;
};

static inline bool forward_stage_is_whole(const struct model *m)
{
    return model_has_first(m) && model_has_last(m);
}

/* Most rows of a batch that several lanes may share. */
uint32_t forward_lanes_rows(const struct forward *f);
/* Returns rows [first, first + count) of `batch` as a batch; `sequences` receives its sequences. */
struct compute_batch forward_part(const struct compute_batch *batch, uint32_t first, uint32_t count,
                                  struct compute_sequence *sequences);
/* Writes the embeddings of the lane's tokens to x. */
void forward_lane_embed(struct forward *f, const struct forward_lane *lane);
/* Computes q (rotated) of the lane's rows, and writes their k and v to the cache. */
void forward_lane_qkv(struct forward *f, struct forward_lane *lane,
                      const struct forward_layer *layer);
/* Computes a layer from attention to its end. Requires K and V of all rows in the cache. With
 * `tail` (the model's last layer), only for rows whose logits are wanted. */
void forward_lane_rest(struct forward *f, struct forward_lane *lane,
                       const struct forward_layer *layer, const struct forward_batch *batch,
                       bool tail);
/* Computes the logits of the lane's entries of logits_rows. */
void forward_lane_logits(struct forward *f, struct forward_lane *lane,
                         const struct forward_batch *batch, bool tail);
/* Computes logits[i] from row rows[i] of x (rows NULL: row i), using the lane's workspace. */
void forward_vocabulary(const struct forward *f, const struct forward_lane *lane, const float *x,
                        const uint32_t *rows, uint32_t count, float *logits);

/* forward_group.c: what the ranks of a stage do together (compute.h). Each rank has the whole
 * residual stream. */

/* Allocates the host memory that several ranks need; with one rank, does nothing. */
enum status forward_group_open(struct forward *f, struct error *error);
/* Returns the batch's token ids as rows of this rank's slice of the embedding. Ids outside the
 * slice become row numbers beyond its end. */
const uint32_t *forward_group_ids(struct forward *f, const struct forward_batch *batch);
/* Adds to x the sum of y over the ranks, or the RMSNorm of that sum. y is overwritten. */
void forward_group_add(const struct forward *f, struct compute *c, uint32_t row_count,
                       const float *post_norm, float *y, float *x);
/* Puts the ranks' parts of the logits side by side in rank 0's `logits`. */
void forward_group_logits(const struct forward *f, struct compute *c, uint32_t row_count,
                          const float *part, float *logits);

#endif
