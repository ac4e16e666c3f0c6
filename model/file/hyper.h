/* hyper: the hyper-parameters of a model, read from its file and checked. The gateway, machines,
 * stage processes, `cleave profile` and `cleave check` call it when they open a model, on the
 * thread that uses the model_file. A `struct model_hyper` is a plain value, which any thread may
 * read. It reads no weights, and does not check their shapes (model/forward/weights_load.c does).
 */
#ifndef MODEL_FILE_HYPER_H
#define MODEL_FILE_HYPER_H

#include "common/limits.h"
#include "common/status.h"
#include "compute/objects.h"
#include "model/file/family.h"
#include "model/file/model_file.h"

#include <stdbool.h>
#include <stdint.h>

/* How the frequencies of the rotary embedding differ from the powers of the base. */
enum model_rope_kind {
    MODEL_ROPE_PLAIN, /* Only by rope_freq_scale. */
    /* Llama 3.1. A frequency f has the wavelength w = 2 pi / f. If w > context_tokens / low, f
     * becomes f / factor. If w < context_tokens / high, f stays. Between the two limits the scaling
     * is interpolated. */
    MODEL_ROPE_LLAMA3,
    /* YaRN (Peng et al. 2023). Dimensions that turn less than `low` times within context_tokens are
     * divided by `factor`. Dimensions that turn more than `high` times stay. Between the two limits
     * the scaling is interpolated. */
    MODEL_ROPE_YARN,
    /* LongRoPE (Ding et al. 2024). Each frequency is divided by a number of its own, from one of
     * two lists: model_rope_is_long. */
    MODEL_ROPE_LONG,
    /* The frequencies are computed for rope_dim dimensions, but only the first `pairs` pairs are
     * rotated. */
    MODEL_ROPE_PROPORTIONAL,
};

struct model_rope_scaling {
    enum model_rope_kind kind;
    float factor;
    float low, high;
    uint32_t context_tokens; /* Context length before the scaling. */
    bool whole_dims;         /* YaRN: the limits are rounded to whole dimensions. */
    uint32_t pairs;          /* MODEL_ROPE_PROPORTIONAL only. */
    float amplitude;         /* Factor of cos and sin. */
};

/* The routed experts of the layers that have a router, and the shared experts, which every row uses
 * and which are computed as one. */
struct model_experts {
    uint32_t count;      /* Routed experts of a layer; 0 = the model is dense. */
    uint32_t used;       /* Experts that a row chooses. */
    uint32_t ffn;        /* Feed-forward length of one expert. */
    uint32_t shared_ffn; /* Feed-forward length of the shared experts; 0 = none. */
    /* Elements of the largest quantisation block of all `down` matrices of the shared experts (as
     * ffn_block). */
    uint32_t shared_block;
    /* How a row chooses its experts: the fields of struct compute_routing with these names. */
    bool sigmoid, normalise;
    float scale;
    uint32_t groups, groups_used, group_best;
    bool biases;        /* The router and the routed experts have biases. */
    bool alternate;     /* See struct family.experts_alternate. */
    float limit, alpha; /* The fields of struct compute_gate with these names. */
};

/* How a layer differs from a layer that sees all tokens and rotates with rope_freq_base: bits of
 * model_hyper.layer_bits. */
enum model_layer_bits {
    MODEL_LAYER_WINDOW = 1,     /* Sees only the last `window` tokens. */
    MODEL_LAYER_LOCAL_BASE = 2, /* Rotates with local_freq_base, and without scaling. */
    MODEL_LAYER_UNROTATED = 4   /* q and k are not rotated. */
};

/* Latent attention (DeepSeek-V2, 2024, section 2.1): the KV of a token is one vector that all heads
 * share: `rotated` values of a key, and `rank` values. From the `rank` values, each head makes the
 * rest of its key, and its value. */
struct model_latent {
    uint32_t rank;   /* 0 = the model has K and V of heads. */
    uint32_t q_rank; /* Values from which the queries are made; 0 = from the residual stream. */
    uint32_t plain, rotated; /* Dimensions of a head's query that are not rotated, and that are. */
    uint32_t value;          /* Dimensions of a head's value. */
};

struct model_hyper {
    char architecture[32]; /* Name of the family as in GGUF files, such as "qwen3" (family.c). */
    char name[64];         /* Result of model_file_name, cut; the architecture if there is none. */
    uint32_t layer_count;  /* Without draft layers. */
    /* Draft layers, which the files have after the other layers. Such a layer predicts the token
     * after the next one (multi-token prediction, DeepSeek-V3, 2024, section 2.2) from the next
     * token and the final vector (forward_final_vector) of the token before it. Only the first one
     * is used. */
    uint32_t draft_layers;
    uint32_t hidden; /* Embedding length. */
    uint32_t ffn;    /* Feed-forward length of layers without experts. */
    /* Elements of the largest quantisation block of all `down` matrices. A rank's slice of the
     * feed-forward is cut only at multiples of it. */
    uint32_t ffn_block;
    uint32_t head_count;
    uint32_t kv_head_count;
    /* Dimensions of a head. With latent attention, half the number of values of a token, so that K
     * and V of one KV head take as many bytes as these values. */
    uint32_t head_dim;
    struct model_latent latent;
    uint32_t vocab; /* Tokens of the vocabulary. */
    /* Longest context for which the model was made: the file's number, unless the scaling of the
     * rotary embedding changes it. */
    uint32_t context_tokens;
    float norm_epsilon;
    /* true: RoPE rotates the dimensions i and i + rope_dim/2 together. false: 2i and 2i + 1. */
    bool rope_neox;
    /* Dimensions of a head that are rotated; for MODEL_ROPE_PROPORTIONAL, head_dim. */
    uint32_t rope_dim;
    float rope_freq_base;
    float rope_freq_scale; /* Factor of the frequencies, except with local_freq_base. */
    struct model_rope_scaling rope_scaling;
    float attention_scale; /* Factor of query times key. */
    /* Scores of attention, and logits, x become cap * tanh(x / cap); 0 = no cap. */
    float attention_cap, logits_cap;
    /* Differences between families. */
    bool biases; /* The files must have biases for q, k and v. */
    enum family_qk_norms qk_norms;
    bool layer_norms; /* LayerNorm instead of RMSNorm, except for q and k. */
    bool pre_norms;   /* The inputs of attention and of the feed-forward are normalised. */
    /* The outputs of attention and of the feed-forward are normalised before they are added. */
    bool post_norms;
    /* The feed-forward has the same input as attention, instead of the sum of that input and
     * attention's output. */
    bool parallel;
    bool plain_ffn; /* The feed-forward has no gate: down · activation(up). */
    enum compute_activation activation;
    bool sinks;            /* Each head has a sink (compute_attention.sinks). */
    float embedding_scale; /* Factor of the embedding; 1 = not scaled. */
    float residual_scale;  /* Factor of what a layer adds to its input. */
    float logit_scale;     /* Factor of the logits. */
    float norm_offset;     /* Added to the weights of all norms. */
    float local_freq_base; /* 0 = no layer has MODEL_LAYER_LOCAL_BASE. */
    uint32_t window;       /* Tokens of the attention window; 0 = no layer has a window. */
    uint8_t layer_bits[LIMIT_LAYERS]; /* OR of enum model_layer_bits, for each layer. */
    struct model_experts experts;
};

/* Returns the feed-forward rows that one row of a batch is multiplied with in a layer: for layers
 * with experts, the rows of the experts that a row of the batch uses. */
static inline uint32_t model_ffn_used(const struct model_hyper *h)
{
    const struct model_experts *e = &h->experts;
    return e->count > 0 ? e->used * e->ffn + e->shared_ffn : h->ffn;
}

/* Returns the window of layer `layer` (counted from the model's first): a token at position p sees
 * positions p - window + 1 to p. 0 = none. */
static inline uint32_t model_layer_window(const struct model_hyper *h, uint32_t layer)
{
    return (h->layer_bits[layer] & MODEL_LAYER_WINDOW) != 0 ? h->window : 0;
}

/* Returns true if LongRoPE uses its list for long contexts, because a cluster's longest context is
 * above the length before the scaling. All requests of a cluster take the same list, also short
 * ones, because the K of every earlier token depends on the list: with two lists, a request that
 * grew beyond the length would need all its K computed again. (transformers changes the list at
 * that length and keeps the K.) */
static inline bool model_rope_is_long(const struct model_hyper *h, uint32_t context_tokens_max)
{
    return context_tokens_max > h->rope_scaling.context_tokens;
}

/* Returns the feed-forward rows of a layer: for layers with experts, the rows of all experts. */
static inline uint32_t model_ffn_all(const struct model_hyper *h)
{
    const struct model_experts *e = &h->experts;
    return e->count > 0 ? e->count * e->ffn + e->shared_ffn : h->ffn;
}

/* Fills *out. Returns ST_INVALID, or ST_UNSUPPORTED for a model that would be computed wrongly; the
 * error names the key or tensor. *out is written only on success. */
enum status model_hyper_read(const struct model_file *file, struct model_hyper *out,
                             struct error *error);

/* Does what model_hyper_read does, for the first draft layer as a model of one layer. Returns
 * ST_INVALID if the model has no draft layer. */
enum status model_hyper_read_draft_layer(const struct model_file *file, struct model_hyper *out,
                                         struct error *error);

#endif
