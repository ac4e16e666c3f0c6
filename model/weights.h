/* weights: what model_open built and forward.c reads: the repacked matrices and the vectors of a
 * stage. Internal to model/. Read-only after model_open; owned by struct model. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include "model/model.h"
#include "model/shard.h"

/* One transformer layer. Biases are NULL where the file has none. Counts of heads, of the
 * feed-forward and of the vocabulary are those of the slice (struct model_shard). */
struct model_layer {
    const float *attention_norm; /* [hidden] */
    struct compute_matrix *q;    /* [head_count * head_dim × hidden] */
    struct compute_matrix *k;    /* [kv_head_count * head_dim × hidden] */
    struct compute_matrix *v;
    const float *q_bias;
    const float *k_bias;
    const float *v_bias;
    const float *q_norm; /* [head_dim]; NULL without head norms */
    const float *k_norm;
    struct compute_matrix *attention_output; /* [hidden × head_count * head_dim] */
    const float *attention_post_norm;        /* [hidden]; NULL without post norms */
    const float *ffn_norm;                   /* [hidden] */
    const float *ffn_post_norm;              /* as attention_post_norm */
    struct compute_matrix *gate;             /* [ffn × hidden] */
    struct compute_matrix *up;
    struct compute_matrix *down; /* [hidden × ffn] */
};

struct model {
    struct model_hyper hyper; /* of the whole model */
    struct model_shard shard; /* what of each layer is here */
    const struct compute_ops *ops;
    struct compute *compute;
    uint32_t first_layer;
    uint32_t last_layer;
    uint32_t context_tokens_max; /* positions that `rope` covers */
    struct model_layer *layers;  /* [last_layer - first_layer] */
    struct compute_matrix
        *embedding;                /* [vocab × hidden]; NULL in a stage that reads no token ids */
    struct compute_matrix *output; /* [vocab × hidden]; the embedding itself when tied; NULL in a
                                      stage without the last layer */
    const float *output_norm;      /* [hidden]; as output */
    struct compute_rope_table *rope;
    struct compute_rope_table *local_rope; /* NULL if all layers rotate alike */
    float *vectors;                        /* device memory of all norm weights and biases */
    size_t vectors_used;
    size_t vectors_capacity;
    size_t weight_bytes;
};

static inline bool model_has_first(const struct model *m)
{
    return m->first_layer == 0;
}

static inline bool model_has_last(const struct model *m)
{
    return m->last_layer == m->hyper.layer_count;
}

#endif
