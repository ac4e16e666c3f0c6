/* keys: reads the value of a hyper-parameter (a key) from a GGUF file's metadata or from a folder's
 * config.json. hyper.c, its parts and model/forward/ call the functions, on the thread that uses
 * the struct model_file. This part has no state, owns no memory, and does not know which values a
 * model may have. */
#ifndef MODEL_FILE_KEYS_H
#define MODEL_FILE_KEYS_H

#include "model/file/model_file.h"

enum model_key {
    KEY_ARCHITECTURE,    /* Name of the model's family (family_find). */
    KEY_LAYERS,          /* Number of layers; in GGUF files, with the draft layers. */
    KEY_DRAFT_LAYERS,    /* Number of draft layers. */
    KEY_HIDDEN,          /* Embedding length. */
    KEY_FFN,             /* Feed-forward length of layers without experts. */
    KEY_CONTEXT,         /* Longest context. */
    KEY_VOCAB,           /* Number of tokens in the vocabulary. */
    KEY_WINDOW,          /* Tokens of the attention window. */
    KEY_WINDOW_USED,     /* Whether the model uses the window. */
    KEY_WINDOW_FIRST,    /* First layer that may have the window. */
    KEY_HEADS,           /* Number of query heads. */
    KEY_KV_HEADS,        /* Number of heads of K and V. */
    KEY_HEAD_DIM,        /* Dimensions of a head of q and k. */
    KEY_VALUE_DIM,       /* Dimensions of a head of v. */
    KEY_QUERY_SCALAR,    /* Scores of attention are divided by the root of this value. */
    KEY_ATTENTION_SCALE, /* Factor of scores of attention; overrides KEY_QUERY_SCALAR. */
    KEY_EMBEDDING_SCALE, /* Factor of the embedding. */
    KEY_RESIDUAL_SCALE,  /* Factor of a result that is added to the residual stream. */
    KEY_LOGIT_SCALE,     /* Factor of the logits, or their divisor (family.logits_divided). */
    KEY_ROPE_DIM,        /* Dimensions of a head that are rotated. */
    KEY_ROPE_SHARE,      /* Share of a head's dimensions that is rotated. */
    KEY_ROPE_BASE,       /* Base of the rotary embedding. */
    KEY_ROPE_BASE_LOCAL, /* Base in layers with an attention window. */
    /* A number N: the layers N, 2N, 3N, … (counted from 1) have no window. GGUF files may have an
     * array of booleans instead (key_layer_type). */
    KEY_LOCAL_PERIOD,
    KEY_ROPE_SCALING,    /* Name of the scaling; enum model_rope_kind explains the kinds. */
    KEY_ROPE_FACTOR,     /* model_rope_scaling.factor, or the factor of linear scaling. */
    KEY_ROPE_FACTOR_OLD, /* KEY_ROPE_FACTOR in older GGUF files. */
    KEY_ROPE_LOW,        /* model_rope_scaling.low of MODEL_ROPE_LLAMA3. */
    KEY_ROPE_HIGH,       /* model_rope_scaling.high of MODEL_ROPE_LLAMA3. */
    KEY_ROPE_BETA_SLOW,  /* model_rope_scaling.low of MODEL_ROPE_YARN. */
    KEY_ROPE_BETA_FAST,  /* model_rope_scaling.high of MODEL_ROPE_YARN. */
    KEY_ROPE_TRUNCATE,   /* Whether YaRN rounds its limits to whole dimensions. */
    KEY_ROPE_CONTEXT,    /* Context length before RoPE scaling. */
    /* Factor of cos and sin. In GGUF files with YaRN, it is multiplied by YaRN's own factor. */
    KEY_ROPE_AMPLITUDE,
    KEY_ROPE_MSCALE, /* YaRN's mscale. */
    /* YaRN's mscale_all_dim. GGUF files have yarn_log_multiplier instead: with latent attention,
     * 0.1 times mscale_all_dim. */
    KEY_ROPE_MSCALE_ALL,
    KEY_ROPE_LONG,          /* LongRoPE's list of divisors for long contexts. */
    KEY_ROPE_SHORT,         /* LongRoPE's list of divisors for short contexts. */
    KEY_ROPE_LOCAL_SCALING, /* Name of the scaling in layers with an attention window. */
    KEY_EPSILON,            /* Epsilon of RMSNorm. */
    KEY_EPSILON_LAYER_NORM, /* Epsilon of LayerNorm. */
    KEY_EXPERTS,            /* Routed experts of a layer. */
    KEY_EXPERTS_USED,       /* Experts that a row chooses. */
    KEY_EXPERT_FFN,         /* Feed-forward length of one expert. */
    KEY_EXPERTS_SHARED,     /* Number of shared experts, each of length KEY_EXPERT_FFN. */
    KEY_SHARED_FFN,         /* Feed-forward length of all shared experts together. */
    KEY_EXPERTS_SCALE,      /* Factor of the weights of a row's experts. */
    KEY_EXPERTS_NORM,       /* Whether the weights of a row's experts are divided by their sum. */
    /* Function that makes the experts' weights from the router's product. GGUF files have a number
     * (1 = softmax, 2 = sigmoid), config.json a text. */
    KEY_EXPERTS_GATING,
    KEY_EXPERTS_METHOD,     /* Name of the method by which a row chooses experts. */
    KEY_EXPERT_GROUPS,      /* compute_routing.groups. */
    KEY_EXPERT_GROUPS_USED, /* compute_routing.groups_used. */
    /* Limit of gate and up in the experts' activation (swiglu_limit): compute_gate.limit. */
    KEY_GATE_LIMIT,
    /* Factor inside the sigmoid of the experts' activation (swiglu_alpha): compute_gate.alpha. */
    KEY_GATE_ALPHA,
    KEY_CLIP_QKV,          /* Limit of q, k and v, which cleave does not support. */
    KEY_ACTIVATION,        /* Name of the feed-forward's activation. */
    KEY_PARALLEL,          /* Whether the feed-forward has the same input as attention. */
    KEY_SOFTCAP_LOGITS,    /* model_hyper.logits_cap. */
    KEY_SOFTCAP_ATTENTION, /* model_hyper.attention_cap. */
    KEY_LATENT_RANK,       /* model_latent.rank. */
    KEY_LATENT_Q_RANK,     /* model_latent.q_rank. */
    KEY_LATENT_PLAIN,      /* model_latent.plain. */
    KEY_LATENT_ROTATED,    /* model_latent.rotated. */
    KEY_LATENT_VALUE,      /* model_latent.value. */
    KEY_LATENT_PAIRS,      /* Whether the dimensions 2i and 2i + 1 are rotated together. */
    /* Newer GGUF files: dimensions of a head's query. If a GGUF file has this key, KEY_HEAD_DIM and
     * KEY_LATENT_VALUE are lengths of the latent vector. */
    KEY_LATENT_HEAD_DIM,
    KEY_LATENT_HEAD_VALUE, /* Newer GGUF files: dimensions of a head's value. */
    KEY_COUNT
};

#define KEY_NAME_BYTES 128 /* A key's name, with its NUL. */

/* Writes the key's name in the file, such as "llama.block_count" or
 * "config.json/num_hidden_layers", for the text of an error. Returns `out`. */
const char *key_name(const struct model_file *file, enum model_key key, char out[KEY_NAME_BYTES]);

/* The next four functions read the value of a key. They return ST_NOT_FOUND if the file does not
 * have the key or the value in config.json is null, and ST_INVALID if the value's type does not
 * fit; key_u32 accepts whole numbers from 0 to UINT32_MAX. *out is written only on success. A text
 * is valid until the file is closed. */
enum status key_u32(const struct model_file *file, enum model_key key, uint32_t *out,
                    struct error *error);
enum status key_f32(const struct model_file *file, enum model_key key, float *out,
                    struct error *error);
enum status key_bool(const struct model_file *file, enum model_key key, bool *out,
                     struct error *error);
enum status key_text(const struct model_file *file, enum model_key key, struct mapped_text *out,
                     struct error *error);

/* Reads a list of `count` numbers of config.json into out[0..count). Returns ST_NOT_FOUND for a
 * GGUF file or if config.json does not have the key, or ST_INVALID if the value is not a list of
 * `count` numbers. `out` is written only on success. */
enum status key_f32_list(const struct model_file *file, enum model_key key, uint32_t count,
                         float *out, struct error *error);

/* Reads the kind of a layer, such as "sliding_attention" (with a window) or "full_attention". A
 * folder has the kinds in config.json's array layer_types. A GGUF file may have an array of
 * booleans under the key KEY_LOCAL_PERIOD: true gives "sliding_attention". Returns ST_NOT_FOUND if
 * the file does not have the array, or ST_INVALID if the array has no value of the right type for
 * the layer. */
enum status key_layer_type(const struct model_file *file, uint32_t layer, struct mapped_text *out,
                           struct error *error);

/* Reads from config.json's array no_rope_layers whether a layer rotates q and k (0 = it does not).
 * Returns ST_NOT_FOUND for a GGUF file or if there is no array, or ST_INVALID if the array has no
 * whole number for the layer. */
enum status key_layer_rotates(const struct model_file *file, uint32_t layer, bool *out,
                              struct error *error);

#endif
