/* hyper: the hyper-parameters of a model (sizes, norms, rotary embedding, experts), read from the
 * keys of the model's files and checked. The functions that read run on the thread that uses the
 * struct model_file. A struct model_hyper is a plain value, and any thread may read it. This part
 * reads no weights. Of the tensors' shapes, only the shape of the embedding matrix is checked. */
#ifndef MODEL_FILE_HYPER_H
#define MODEL_FILE_HYPER_H

#include "common/limits.h"
#include "common/status.h"
#include "compute/objects.h"
#include "model/file/family.h"
#include "model/file/model_file.h"

#include <stdbool.h>
#include <stdint.h>

/* How the frequencies of the rotary embedding differ from the powers of the base, besides the
 * factor rope_freq_scale. If the files have a tensor of ROLE_ROPE_FACTORS, the frequencies are
 * divided by the tensor's elements instead. The names in the comments are fields of struct
 * model_rope_scaling. */
enum model_rope_kind {
    MODEL_ROPE_PLAIN, /* The frequencies do not differ. */
    /* Llama 3.1. A frequency f has the wavelength w = 2 pi / f. If w > context_tokens / low, f
     * becomes f / factor. If w < context_tokens / high, f stays. Between the two limits the scaling
     * is interpolated. */
    MODEL_ROPE_LLAMA3,
    /* YaRN (Peng et al. 2023). The frequency of a dimension that turns less than `low` times within
     * context_tokens is divided by `factor`. The frequency of a dimension that turns more than
     * `high` times stays. Between the two limits the scaling is interpolated. */
    MODEL_ROPE_YARN,
    /* LongRoPE (Ding et al. 2024). Each frequency is divided by a number of its own. The model has
     * two lists of these numbers; model_rope_is_long says which list is used. */
    MODEL_ROPE_LONG,
    /* The frequencies are computed for rope_dim dimensions, but only the first `pairs` pairs are
     * rotated. */
    MODEL_ROPE_PROPORTIONAL,
};

/* The scaling of the rotary embedding; enum model_rope_kind says what the fields mean. */
struct model_rope_scaling {
    enum model_rope_kind kind;
    float factor;
    float low, high;
    uint32_t context_tokens; /* Context length before the scaling. */
    bool whole_dims;         /* MODEL_ROPE_YARN only: the limits are rounded to whole dimensions. */
    uint32_t pairs;          /* MODEL_ROPE_PROPORTIONAL only. */
    float amplitude;         /* Factor of cos and sin. */
};

/* The experts of the layers that have a router. A row chooses some of the routed experts, and uses
 * all shared experts. The shared experts are computed together, as one feed-forward. */
struct model_experts {
    uint32_t count;      /* Routed experts of a layer; 0 = the model is dense. */
    uint32_t used;       /* Experts that a row chooses. */
    uint32_t ffn;        /* Feed-forward length of one expert. */
    uint32_t shared_ffn; /* Feed-forward length of the shared experts; 0 = none. */
    /* Most elements in a quantisation block of the shared experts' `down` matrices. A rank's slice
     * of the shared experts begins at a multiple of shared_block. */
    uint32_t shared_block;
    /* `sigmoid` to group_best are fields of struct compute_routing. */
    bool sigmoid, normalise;
    float scale;
    uint32_t groups, groups_used, group_best;
    bool biases;        /* The router and the routed experts have biases. */
    bool alternate;     /* The file stores experts as family.experts_alternate says. */
    float limit, alpha; /* Fields of struct compute_gate; limit 0 = the gate has no limit. */
};

/* Bits of model_hyper.layer_bits. A layer with no bit sees all tokens, and rotates with
 * rope_freq_base. */
enum model_layer_bits {
    MODEL_LAYER_WINDOW = 1,     /* The layer sees only the last `window` tokens. */
    MODEL_LAYER_LOCAL_BASE = 2, /* The layer rotates with local_freq_base, and without scaling. */
    MODEL_LAYER_UNROTATED = 4   /* The layer does not rotate q and k. */
};

/* Latent attention (DeepSeek-V2, 2024, section 2.1). The KV of a token is one vector of
 * rank + rotated values, which all heads share. The `rotated` values are the rotated part of every
 * head's key. Each head computes the rest of its key, and its value, from the `rank` values. */
struct model_latent {
    uint32_t rank;           /* 0 = the model does not have latent attention. */
    uint32_t q_rank;         /* Length of the vector from which queries are made; 0 = `hidden`. */
    uint32_t plain, rotated; /* A head's query has plain + rotated dimensions. */
    uint32_t value;          /* Dimensions of a head's value. */
};

struct model_hyper {
    char architecture[32]; /* struct family.architecture, such as "qwen3". */
    char name[64];         /* Result of model_file_name, cut; without a name, `architecture`. */
    uint32_t layer_count;  /* Layers of the model, without draft layers. */
    /* Draft layers in the files; their layer numbers begin at layer_count. A draft layer predicts
     * token t + 2 from token t + 1 and the final vector (forward_final_vector) of token t
     * (DeepSeek-V3, 2024, section 2.2). cleave uses only the first draft layer. */
    uint32_t draft_layers;
    uint32_t hidden; /* Embedding length. */
    uint32_t ffn;    /* Feed-forward length of layers without experts. */
    /* Most elements in a quantisation block of the `down` matrices of layers without experts. A
     * rank's slice of the feed-forward begins at a multiple of ffn_block. */
    uint32_t ffn_block;
    uint32_t head_count;
    uint32_t kv_head_count;
    /* Dimensions of a head. With latent attention, half of rank + rotated, so that K and V together
     * are as long as the vector of a token. */
    uint32_t head_dim;
    struct model_latent latent;
    uint32_t vocab; /* Tokens of the vocabulary. */
    /* Longest context that the model supports: the number in the file, which YaRN can make larger,
     * and dynamic scaling smaller. */
    uint32_t context_tokens;
    float norm_epsilon;
    /* true: RoPE rotates the dimensions i and i + rope_dim/2 together. false: 2i and 2i + 1. */
    bool rope_neox;
    /* Dimensions of a head that are rotated: with latent attention latent.rotated, otherwise with
     * MODEL_ROPE_PROPORTIONAL head_dim. */
    uint32_t rope_dim;
    float rope_freq_base;
    float rope_freq_scale; /* Factor of the frequencies, except in layers with local_freq_base. */
    struct model_rope_scaling rope_scaling;
    float attention_scale; /* Factor of a score of attention, which is query times key. */
    /* Caps of attention's scores and of logits: x becomes cap * tanh(x / cap); 0 = no cap. */
    float attention_cap, logits_cap;
    bool biases; /* The tensors ROLE_Q, ROLE_K and ROLE_V must have biases; false = optional. */
    enum family_qk_norms qk_norms;
    bool layer_norms; /* LayerNorm instead of RMSNorm, except for q and k. */
    bool pre_norms;   /* The inputs of attention and of the feed-forward are normalised. */
    /* The results of attention and of the feed-forward are normalised before they are added to the
     * residual stream. */
    bool post_norms;
    /* true: the feed-forward reads the normalised input of attention. false: the feed-forward reads
     * the residual stream after attention's result has been added. */
    bool parallel;
    bool plain_ffn; /* The feed-forward has no gate: down · activation(up). */
    enum compute_activation activation;
    bool sinks;            /* Each head has a sink (compute_attention.sinks). */
    float embedding_scale; /* Factor of the embedding; 1 = not scaled. */
    float residual_scale;  /* Factor of a result that is added to the residual stream. */
    float logit_scale;     /* Factor of the logits. */
    float norm_offset;     /* Added to the weights of norms. */
    float local_freq_base; /* Base in layers with MODEL_LAYER_LOCAL_BASE; 0 = no such layer. */
    uint32_t window;       /* Tokens of the attention window; 0 = no layer has a window. */
    uint8_t layer_bits[LIMIT_LAYERS]; /* OR of enum model_layer_bits, for each layer. */
    struct model_experts experts;
};

/* Returns the rows of a layer's `up` matrices that one row of a batch is multiplied with. In a
 * model with experts, these are the rows of the shared experts and of the experts that a row
 * chooses. */
static inline uint32_t model_ffn_rows_used(const struct model_hyper *h)
{
    const struct model_experts *e = &h->experts;
    return e->count > 0 ? e->used * e->ffn + e->shared_ffn : h->ffn;
}

/* Returns the window of layer `layer`, counted from the model's first layer: a token at position p
 * sees the positions p - window + 1 to p. 0 = the layer has no window. */
static inline uint32_t model_layer_window(const struct model_hyper *h, uint32_t layer)
{
    return (h->layer_bits[layer] & MODEL_LAYER_WINDOW) != 0 ? h->window : 0;
}

/* Returns true if LongRoPE's list for long contexts is used; false = the list for short contexts.
 * context_tokens_max is the longest context that is served. Requires MODEL_ROPE_LONG. */
static inline bool model_rope_is_long(const struct model_hyper *h, uint32_t context_tokens_max)
{
    return context_tokens_max > h->rope_scaling.context_tokens;
}

/* Returns the rows of a layer's `up` matrices. In a model with experts, these are the rows of all
 * routed and shared experts. */
static inline uint32_t model_ffn_rows_all(const struct model_hyper *h)
{
    const struct model_experts *e = &h->experts;
    return e->count > 0 ? e->count * e->ffn + e->shared_ffn : h->ffn;
}

/* Returns the number of weights of the vocabulary matrix, divided by the number of weights of a
 * layer, which is estimated: every layer counts as a layer with q, k, v, output, gate, up and
 * down. */
static inline double model_vocabulary_layers(const struct model_hyper *h)
{
    const double layer =
        (double)h->hidden * h->head_dim * (2.0 * h->head_count + 2.0 * h->kv_head_count) +
        3.0 * h->hidden * model_ffn_rows_all(h);
    return (double)h->vocab * h->hidden / layer;
}

/* Reads the hyper-parameters of a model. Returns ST_INVALID if a key or the embedding is missing or
 * wrong, or ST_UNSUPPORTED if cleave would compute the model wrongly. *out is written only on
 * success. */
enum status model_hyper_read(const struct model_file *file, struct model_hyper *out,
                             struct error *error);

/* Reads the hyper-parameters of a model's first draft layer, as if the draft layer were a model of
 * one layer. Returns ST_INVALID if the model has no draft layer, or an error of model_hyper_read.
 * *out is written only on success. */
enum status model_hyper_read_draft_layer(const struct model_file *file, struct model_hyper *out,
                                         struct error *error);

#endif
