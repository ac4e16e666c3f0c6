/* forward_state: the inside of the forward pass, shared by forward_open.c (workspace), forward.c
 * (order of the layers), forward_lane.c (what a layer is) and forward_group.c (what ranks of a
 * group do together). Internal to model/.
 *
 * A lane is a run of neighbouring rows of a batch and the workspace in which they are computed.
 * Everything per row is independent of the other rows but for K and V, so lanes need to wait for
 * each other once a layer only. Usually there is one lane, whose matrices the threads of the device
 * share; where that costs more than it gains (compute.h: lanes_pick), each thread has a lane. */
#ifndef MODEL_FORWARD_STATE_H
#define MODEL_FORWARD_STATE_H

#include "model/model.h"
#include "model/weights.h"

/* Rows per chunk: large enough that each weight read pays for many rows, small enough that gate and
 * up of a chunk stay in L2 or L3. */
#define FORWARD_CHUNK_ROWS 252
/* Chunks are of one size, so that none is left over that reads all the weights for a few rows; but
 * for the last, whole tiles of every backend. */
#define FORWARD_CHUNK_STEP 12
/* Of one of several lanes. */
#define FORWARD_LANE_CHUNK_ROWS 132

struct forward_lane {
    struct compute *compute; /* that its rows run on: the device, or a lane of it */
    uint32_t chunk_rows;
    /* What follows takes turns in the same memory: k and v are done with when attention is, gate
     * and up when the layer is. */
    float *k; /* [chunk_rows × kv width]: a chunk's go into the cache before the next one's come */
    float *v;
    float *gate; /* [chunk_rows × ffn] */
    float *up;
    struct compute_activations
        *hidden;                       /* normalised rows: input of q k v, gate up and vocabulary */
    struct compute_activations *heads; /* attention's result: input of its output projection */
    struct compute_activations *ffn;   /* input of down */
    struct compute_sequence *sequences;      /* [rows_max]; of a lane that has not all rows */
    struct compute_sequence *tail_sequences; /* [logits_max] */
    struct compute_sequence *part_sequences; /* [chunk_rows] */
    uint32_t *tail_rows;                     /* [logits_max] */

    /* Of the batch under way. */
    uint32_t first_row; /* rows [first_row, first_row + batch.row_count) of it */
    struct compute_batch batch;
    uint32_t logits_first; /* its entries of the batch's logits_rows */
    uint32_t logits_count;
};

struct forward {
    const struct model *m;
    uint32_t rows_max;
    uint32_t logits_max;
    float *memory; /* all of the arrays, the lanes' included, one piece */
    float *own_x;  /* [rows_max × hidden]: the residual stream of a whole model */
    float *x;      /* of the batch that ran last: that, or what the stage was given */
    float *q;      /* [rows_max × q width] */
    float *tail_x; /* [logits_max × hidden] */
    float *tail_q;
    /* [rows_max × hidden]: what a block adds, before its post norm or the sum over a group's ranks;
     * NULL without either. */
    float *branch;
    float *logits;                   /* [logits_max × vocab]; of a group at rank 0 only */
    float *part;                     /* [logits_max × the slice of it]; NULL outside a group */
    uint32_t *own_ids;               /* [rows_max], of a group: ids as rows of the slice */
    uint32_t parts[MODEL_RANKS_MAX]; /* vocab_count of every rank of the group */
    const uint32_t *token_ids;       /* of the batch that ran last: its own, or those */
    float *host_logits; /* the same for the host, malloc'd; NULL where it reads the device's */
    bool logits_stay;   /* of the batch that ran last */
    uint32_t
        scored_rows; /* rows of x that forward_logits may use: the batch's if all_rows, else 0 */
    uint32_t lane_count;
    struct forward_lane *lanes; /* [lane_count]; the first has room for all rows alone */
};

/* Of the slice. */
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

/* One layer of a stage, of one lane. */
struct forward_layer {
    uint32_t index; /* counted from the stage's first */
    const struct model_layer *weights;
    struct compute_kv kv;
};

static inline bool forward_stage_is_whole(const struct model *m)
{
    return model_has_first(m) && model_has_last(m);
}

/* Rows of a batch that may be shared by lanes. */
uint32_t forward_lanes_rows(const struct forward *f);
/* Rows [first, first + count) of `batch` as a batch of their own. */
struct compute_batch forward_part(const struct compute_batch *batch, uint32_t first, uint32_t count,
                                  struct compute_sequence *sequences);
/* Residual stream from the token ids. */
void forward_lane_embed(struct forward *f, const struct forward_lane *lane);
/* q of the lane's rows, rotated; their k and v into the cache. */
void forward_lane_qkv(struct forward *f, struct forward_lane *lane,
                      const struct forward_layer *layer);
/* From attention to the end of the layer, which needs K and V of all rows. With `tail`, of the
 * model's last layer, only for rows whose logits are wanted. */
void forward_lane_rest(struct forward *f, struct forward_lane *lane,
                       const struct forward_layer *layer, const struct forward_batch *batch,
                       bool tail);
/* Logits of the lane's share of the batch's logits_rows. */
void forward_lane_logits(struct forward *f, struct forward_lane *lane,
                         const struct forward_batch *batch, bool tail);
/* logits[i] of row rows[i] of x (rows NULL: row i), on `lane`. */
void forward_vocabulary(const struct forward *f, const struct forward_lane *lane, const float *x,
                        const uint32_t *rows, uint32_t count, float *logits);

/* forward_group.c: what the ranks of a group do together (compute.h). Each has the residual stream
 * whole. */

/* Takes what a group needs beside the memory of the device; nothing where there is none. */
enum status forward_group_open(struct forward *f, struct error *error);
/* Of the batch's token ids: rows of this rank's slice of the embedding, or beyond them. */
const uint32_t *forward_group_ids(struct forward *f, const struct forward_batch *batch);
/* x += the sum of y over the ranks, or its norm; y is spoilt. */
void forward_group_add(const struct forward *f, struct compute *c, uint32_t row_count,
                       const float *post_norm, float *y, float *x);
/* The ranks' parts of the vocabulary, at rank 0 side by side. */
void forward_group_logits(const struct forward *f, struct compute *c, uint32_t row_count,
                          const float *part, float *logits);

#endif
