/* weights: struct model, which owns the matrices and vectors of one stage, or of a rank's slice of
 * a stage, in device memory. This header is for the files of model/forward/; other folders use
 * model.h. A struct model does not change after model_open, so any thread may read it. The KV-cache
 * and the activations are elsewhere (forward_state.h). Sizes of matrices are [rows × columns]. */
#ifndef MODEL_FORWARD_WEIGHTS_H
#define MODEL_FORWARD_WEIGHTS_H

#include "model/file/adapter.h"
#include "model/forward/model.h"
#include "model/forward/shard.h"

/* The experts of a layer (compute/experts.h): the router of all routed experts, and the experts of
 * the rank's slice. shared_count is shard.shared_ffn_count. */
struct model_layer_experts {
    struct compute_matrix *router; /* [experts.count × hidden] in fp32; NULL = no experts. */
    /* [experts.count] Bias of the router's product; NULL = none. */
    const float *router_bias;
    /* [experts.count] Added to the scores only when a row chooses its groups and experts, not to
     * the weights; NULL = none. */
    const float *choice_bias;
    /* [3 × shard.expert_count]: gate of each expert, then up of each expert, then down of each
     * expert. */
    struct compute_matrix **matrices;
    struct compute_experts *routed; /* Result of compute_experts_ops.open. */
    /* The shared experts, as one feed-forward; NULL = none. */
    struct compute_matrix *shared_gate;   /* [shared_count × hidden] */
    struct compute_matrix *shared_up;     /* [shared_count × hidden] */
    struct compute_matrix *shared_down;   /* [hidden × shared_count] */
    struct compute_matrix *shared_router; /* [1 × hidden] in fp32; NULL = weight 1. */
};

/* The matrices of a layer with latent attention. rank, q_rank, plain, rotated and value are the
 * sizes in struct model_latent; here `rank` is the length of the latent vector, not a process. */
struct model_latent_layer {
    struct compute_matrix *q_a; /* [q_rank × hidden]; NULL = model_layer.q makes the queries. */
    const float *q_norm;        /* [q_rank]; NULL if q_a is NULL. */
    /* [head_count * (plain + rotated) × q_rank]; NULL if q_a is NULL. */
    struct compute_matrix *q_b;
    struct compute_matrix *rotated_key; /* [rotated × hidden] makes the rotated part of the key. */
    struct compute_matrix *latent;      /* [rank × hidden] makes the latent vector. */
    const float *norm;                  /* [rank] norm of the latent vector. */
    /* [head_count * rank × plain] in fp32, for compute_latent_ops.absorb. */
    struct compute_matrix *absorb;
    /* [head_count * value × rank] in fp32, for compute_latent_ops.expand. */
    struct compute_matrix *expand;
};

/* One transformer layer. A bias is NULL if the model's files do not have the bias. head_count,
 * kv_head_count and ffn are the numbers of the rank's slice (struct model_shard). */
struct model_layer {
    const float *attention_norm;      /* [hidden]; NULL = the model has no pre norms. */
    const float *attention_norm_bias; /* [hidden] */
    /* [head_count * head_dim × hidden]. With latent attention, [head_count * (plain + rotated) ×
     * hidden]; NULL = latent.q_a and latent.q_b make the queries. */
    struct compute_matrix *q;
    struct compute_matrix *k; /* [kv_head_count * head_dim × hidden]; NULL = latent attention. */
    struct compute_matrix *v; /* [kv_head_count * head_dim × hidden]; NULL = latent attention. */
    struct model_latent_layer latent; /* All NULL = the model has no latent attention. */
    const float *q_bias;              /* [head_count * head_dim] */
    const float *k_bias;              /* [kv_head_count * head_dim] */
    const float *v_bias;              /* [kv_head_count * head_dim] */
    const float *q_norm;              /* [head_dim] or [head_count * head_dim]; NULL = none. */
    const float *k_norm;              /* [head_dim] or [kv_head_count * head_dim]; NULL = none. */
    const float *sinks;               /* [head_count]; NULL = the model has no sinks. */
    /* [hidden × head_count * head_dim]; with latent attention, [hidden × head_count * value]. */
    struct compute_matrix *attention_output;
    const float *attention_output_bias; /* [hidden]; NULL also at ranks above 0. */
    const float *attention_post_norm;   /* [hidden]; NULL = the model has no post norms. */
    /* [hidden]; NULL = the model has no pre norms. With model_hyper.parallel, ffn_norm is
     * attention_norm, and ffn_norm_bias is attention_norm_bias. */
    const float *ffn_norm;
    const float *ffn_norm_bias; /* [hidden] */
    const float *ffn_post_norm; /* [hidden]; NULL = the model has no post norms. */
    /* [ffn × hidden]; NULL = the layer has experts, or its feed-forward has no gate. */
    struct compute_matrix *gate;
    struct compute_matrix *up;          /* [ffn × hidden]; NULL = the layer has experts. */
    struct compute_matrix *down;        /* [hidden × ffn]; NULL = the layer has experts. */
    struct model_layer_experts experts; /* All NULL = the layer has no experts. */
    /* The low-rank adapters of each matrix. by_adapter NULL = no adapter changes the matrix. */
    struct compute_low_ranks adapters[ADAPTER_MATRIX_COUNT];
    const float *gate_bias; /* [ffn] */
    const float *up_bias;   /* [ffn] */
    const float *down_bias; /* [hidden]; NULL also at ranks above 0. */
};

/* The input of a draft layer is token · token_norm(embedding) + final · final_norm(v), where v is
 * the model's final vector (forward_final_vector) of the token before. All NULL = the model is not
 * a draft layer. */
struct model_draft {
    struct compute_matrix *token, *final; /* [hidden × hidden] */
    const float *token_norm, *final_norm; /* [hidden] */
};

struct model {
    struct model_hyper hyper; /* Result of model_hyper_get. */
    struct model_shard shard; /* The rank's slice of each layer. */
    const struct compute_ops *ops;
    struct compute *compute; /* The device, which the caller of model_open owns. */
    uint32_t first_layer;    /* The stage's layers are [first_layer, end_layer). */
    uint32_t end_layer;
    uint32_t context_tokens_max; /* Number of positions in the RoPE tables. */
    struct model_layer *layers;  /* [end_layer - first_layer] */
    /* [shard.vocab_count × hidden]; NULL = the stage does not have the first layer. */
    struct compute_matrix *embedding;
    /* [shard.vocab_count × hidden]; NULL = the stage does not have the last layer. May be the
     * matrix `embedding`. */
    struct compute_matrix *output;
    /* [hidden], times logit_scale; NULL = the stage does not have the last layer. */
    const float *output_norm;
    const float *output_norm_bias; /* [hidden], times logit_scale; NULL = none. */
    const float *output_bias;      /* [shard.vocab_count], times logit_scale; NULL = none. */
    struct model_draft draft;
    struct compute_rope_table *rope;       /* RoPE table of layers without a local base. */
    struct compute_rope_table *local_rope; /* NULL = model_hyper.local_freq_base is 0. */
    float *vectors;                        /* Device memory of all norms, biases and sinks. */
    size_t vectors_used;                   /* Floats of `vectors` in use. */
    size_t vectors_capacity;               /* Floats allocated for `vectors`. */
    uint32_t adapter_count;                /* Adapters of the model's files. */
    size_t weight_bytes;                   /* Result of model_weight_bytes. */
};

/* Returns true if the stage has the model's first layer, or is a draft layer. */
static inline bool model_has_first(const struct model *m)
{
    return m->first_layer == 0;
}

/* Returns true if the stage has the model's last layer, or is a draft layer. */
static inline bool model_has_last(const struct model *m)
{
    return m->end_layer == m->hyper.layer_count;
}

#endif
