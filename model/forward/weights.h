/* weights: struct model, which owns the repacked matrices and the vectors of one stage. Only the
 * files of model/forward/ use it: model.c builds it while a process starts, and the forward pass
 * reads it on the engine thread and the device's worker threads. It does not change after
 * model_open. It does not have the KV-cache or the activations (forward_state.h). */
#ifndef MODEL_FORWARD_WEIGHTS_H
#define MODEL_FORWARD_WEIGHTS_H

#include "model/file/adapter.h"
#include "model/forward/model.h"
#include "model/forward/shard.h"

/* The experts of a layer (compute/experts.h) that belong to the rank's slice. */
struct model_layer_experts {
    struct compute_matrix *router; /* [experts.count × hidden] in fp32; NULL = no experts. */
    const float *router_bias;      /* [experts.count]; NULL = none. */
    const float *choice_bias;      /* [experts.count]; NULL = none. */
    /* gate, up and down of each expert: three arrays of shard.expert_count matrices. */
    struct compute_matrix **matrices;
    struct compute_experts *routed; /* The experts as the device has opened them. */
    /* The shared experts, as one feed-forward; NULL = none. */
    struct compute_matrix *shared_gate;   /* [shared_count × hidden] */
    struct compute_matrix *shared_up;     /* [shared_count × hidden] */
    struct compute_matrix *shared_down;   /* [hidden × shared_count] */
    struct compute_matrix *shared_router; /* [1 × hidden] in fp32; NULL = their weight is 1. */
};

/* The matrices of a layer with latent attention (struct model_latent). */
struct model_latent_layer {
    struct compute_matrix *q_a; /* [q_rank × hidden]; NULL = model_layer.q makes the queries. */
    const float *q_norm;        /* [q_rank] */
    struct compute_matrix *q_b; /* [head_count * (plain + rotated) × q_rank] */
    struct compute_matrix *rotated_key; /* [rotated × hidden]: the rotated part of the key. */
    struct compute_matrix *latent;      /* [rank × hidden] */
    const float *norm;                  /* [rank] */
    struct compute_matrix *absorb;      /* [head_count * rank × plain], of COMPUTE_F32 */
    struct compute_matrix *expand;      /* [head_count * value × rank], of COMPUTE_F32 */
};

/* One transformer layer. Biases are NULL if the model's files have none. Counts of heads, of
 * feed-forward rows and of vocabulary rows count the rank's slice (struct model_shard). */
struct model_layer {
    const float *attention_norm;      /* [hidden]; NULL = the model has no pre norms. */
    const float *attention_norm_bias; /* [hidden] */
    struct compute_matrix *q;         /* [head_count * head_dim × hidden] */
    struct compute_matrix *k;         /* [kv_head_count * head_dim × hidden] */
    struct compute_matrix *v;         /* [kv_head_count * head_dim × hidden] */
    struct model_latent_layer latent; /* With latent attention; k and v are then NULL. */
    const float *q_bias;
    const float *k_bias;
    const float *v_bias;
    const float *q_norm; /* [head_dim] or [head_count * head_dim]; NULL = none. */
    const float *k_norm; /* [head_dim] or [kv_head_count * head_dim]; NULL = none. */
    const float *sinks;  /* [head_count]; NULL = the model has no sinks. */
    /* [hidden × head_count * dimensions of a value]: head_dim, or latent.value of model_hyper. */
    struct compute_matrix *attention_output;
    const float *attention_output_bias; /* [hidden]; NULL except at rank 0. */
    const float *attention_post_norm;   /* [hidden]; NULL = the model has no post norms. */
    /* [hidden]; attention_norm in a model with `parallel`; NULL = the model has no pre norms. */
    const float *ffn_norm;
    const float *ffn_norm_bias; /* [hidden] */
    const float *ffn_post_norm; /* [hidden]; NULL = the model has no post norms. */
    /* Feed-forward without experts: [ffn × hidden]; NULL = the layer has experts, or its
     * feed-forward has no gate. */
    struct compute_matrix *gate;
    struct compute_matrix *up;   /* [ffn × hidden]; NULL = the layer has experts. */
    struct compute_matrix *down; /* [hidden × ffn]; NULL = the layer has experts. */
    struct model_layer_experts experts;
    /* Low-rank adapters; by_adapter is NULL if no adapter changes the matrix. */
    struct compute_low_ranks adapters[ADAPTER_MATRIX_COUNT];
    const float *gate_bias; /* [ffn] */
    const float *up_bias;   /* [ffn] */
    const float *down_bias; /* [hidden]; NULL except at rank 0. */
};

/* What makes the input of a draft layer: token · norm(embedding) + final · norm(final vector). All
 * NULL = the model is not a draft layer. */
struct model_draft {
    struct compute_matrix *token, *final; /* [hidden × hidden] */
    const float *token_norm, *final_norm; /* [hidden] */
};

struct model {
    struct model_hyper hyper; /* See model_hyper_get. */
    struct model_shard shard; /* The part of each layer that this process has. */
    const struct compute_ops *ops;
    struct compute *compute;
    uint32_t first_layer;
    uint32_t last_layer;
    uint32_t context_tokens_max; /* Positions that the RoPE tables cover. */
    struct model_layer *layers;  /* [last_layer - first_layer] */
    /* [vocab × hidden]; NULL = the stage does not have the first layer. */
    struct compute_matrix *embedding;
    /* [vocab × hidden]; the embedding itself if tied; NULL = the stage does not have the last
     * layer. */
    struct compute_matrix *output;
    /* [hidden], times logit_scale; NULL = the stage does not have the last layer. */
    const float *output_norm;
    const float *output_norm_bias; /* [hidden], times logit_scale; NULL = none. */
    const float *output_bias;      /* [vocab], times logit_scale; NULL = none. */
    struct model_draft draft;
    struct compute_rope_table *rope;
    struct compute_rope_table *local_rope; /* NULL = model_hyper.local_freq_base is 0. */
    float *vectors;                        /* Device memory of all norm weights and biases. */
    size_t vectors_used;                   /* Floats in use. */
    size_t vectors_capacity;               /* Floats allocated. */
    uint32_t adapter_count;
    size_t weight_bytes; /* Result of model_weight_bytes. */
};

/* Return true if the stage has the model's first layer, or its last layer. */
static inline bool model_has_first(const struct model *m)
{
    return m->first_layer == 0;
}

static inline bool model_has_last(const struct model *m)
{
    return m->last_layer == m->hyper.layer_count;
}

#endif
