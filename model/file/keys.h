/* keys: reads a model's hyper-parameters from a GGUF file's metadata or from a folder's
 * config.json. Tables in keys.c have the name of each key in both formats. The files hyper*.c and
 * model/forward/rope.c call it, on the thread that uses the model_file. It has no state, owns
 * nothing, and does not check values (its callers do). */
#ifndef MODEL_FILE_KEYS_H
#define MODEL_FILE_KEYS_H

#include "model/file/model_file.h"

enum model_key {
    KEY_ARCHITECTURE,
    KEY_LAYERS, /* In GGUF files, draft layers included. */
    KEY_DRAFT_LAYERS,
    KEY_HIDDEN,
    KEY_FFN,
    KEY_CONTEXT,
    KEY_VOCAB,
    KEY_WINDOW,       /* Tokens of the attention window. */
    KEY_WINDOW_USED,  /* Whether the model uses the window. */
    KEY_WINDOW_FIRST, /* First layer with the window. */
    KEY_HEADS,
    KEY_KV_HEADS,
    KEY_HEAD_DIM,        /* Dimensions of a head of q and k. */
    KEY_VALUE_DIM,       /* Dimensions of a head of v. */
    KEY_QUERY_SCALAR,    /* Products of queries and keys are divided by the root of this value. */
    KEY_ATTENTION_SCALE, /* Factor of these products, instead of KEY_QUERY_SCALAR. */
    KEY_EMBEDDING_SCALE,
    KEY_RESIDUAL_SCALE, /* Factor of the result that a layer adds to its input. */
    KEY_LOGIT_SCALE,
    KEY_ROPE_DIM,   /* Dimensions of a head that are rotated. */
    KEY_ROPE_SHARE, /* Share of a head's dimensions that is rotated. */
    KEY_ROPE_BASE,
    KEY_ROPE_BASE_LOCAL, /* Base of layers with an attention window. */
    KEY_LOCAL_PERIOD,    /* Layers whose number, from 1, is a multiple of this have no window. */
    KEY_ROPE_SCALING,    /* How frequencies are scaled. */
    KEY_ROPE_FACTOR,
    KEY_ROPE_FACTOR_OLD, /* KEY_ROPE_FACTOR in older GGUF files. */
    KEY_ROPE_LOW,        /* enum model_rope_kind has the meaning of low and high. */
    KEY_ROPE_HIGH,
    KEY_ROPE_BETA_SLOW,
    KEY_ROPE_BETA_FAST,
    KEY_ROPE_TRUNCATE,  /* Whether YaRN rounds its limits to whole dimensions. */
    KEY_ROPE_CONTEXT,   /* Context length before RoPE scaling. */
    KEY_ROPE_AMPLITUDE, /* Factor of cos and sin; GGUF files with YaRN: times YaRN's own factor. */
    /* YaRN's own factor of cos and sin follows from the RoPE scaling's factor and these keys. */
    KEY_ROPE_MSCALE,
    KEY_ROPE_MSCALE_ALL,
    KEY_ROPE_LONG, /* LongRoPE's lists of divisors. */
    KEY_ROPE_SHORT,
    KEY_ROPE_LOCAL_SCALING, /* How frequencies of layers with an attention window are scaled. */
    KEY_EPSILON,
    KEY_EPSILON_LAYER_NORM,
    KEY_EXPERTS,      /* Experts of a layer. */
    KEY_EXPERTS_USED, /* Experts that a row chooses. */
    KEY_EXPERT_FFN,
    KEY_EXPERTS_SHARED, /* Shared experts, each of KEY_EXPERT_FFN. */
    KEY_SHARED_FFN,     /* Feed-forward length of all shared experts together. */
    KEY_EXPERTS_SCALE,  /* Factor of the weights of a row's experts. */
    KEY_EXPERTS_NORM,   /* Whether a row's weights are divided by their sum. */
    KEY_EXPERTS_GATING, /* GGUF: a number, 1 = softmax, 2 = sigmoid; config.json: a text. */
    KEY_EXPERTS_METHOD, /* How experts are chosen. */
    KEY_EXPERT_GROUPS,
    KEY_EXPERT_GROUPS_USED,
    KEY_EXPERTS_LIMIT, /* The fields limit and alpha of struct compute_gate. */
    KEY_EXPERTS_ALPHA,
    KEY_CLIP_QKV, /* Limit of q, k and v. */
    KEY_ACTIVATION,
    KEY_PARALLEL, /* Whether the feed-forward has the same input as attention. */
    KEY_SOFTCAP_LOGITS,
    KEY_SOFTCAP_ATTENTION,
    KEY_LATENT_RANK, /* struct model_latent has the meaning of these five keys. */
    KEY_LATENT_Q_RANK,
    KEY_LATENT_PLAIN,
    KEY_LATENT_ROTATED,
    KEY_LATENT_VALUE,
    KEY_LATENT_PAIRS, /* Whether rotated dimensions are neighbours. */
    /* Newer GGUF files have these two keys: dimensions of a head's query, and of its value. In
     * these files KEY_HEAD_DIM and KEY_LATENT_VALUE are the dimensions of the latent vector. */
    KEY_LATENT_KEY_OWN,
    KEY_LATENT_VALUE_OWN,
    KEY_COUNT
};

#define KEY_NAME_BYTES 128 /* A key's name, with its NUL. */

/* Writes the key's name in the file, for errors, such as "llama.block_count" or
 * "config.json/num_hidden_layers", and returns `out`. */
const char *key_name(const struct model_file *file, enum model_key key, char out[KEY_NAME_BYTES]);

/* The functions read one value. They return ST_NOT_FOUND if the file or its format does not have
 * the key (or its value in config.json is null), ST_INVALID if its type does not fit or the number
 * does not fit in 32 bits. *out is written only on success. A text is valid until the file is
 * closed. */
enum status key_u32(const struct model_file *file, enum model_key key, uint32_t *out,
                    struct error *error);
enum status key_f32(const struct model_file *file, enum model_key key, float *out,
                    struct error *error);
enum status key_bool(const struct model_file *file, enum model_key key, bool *out,
                     struct error *error);
enum status key_text(const struct model_file *file, enum model_key key, struct mapped_text *out,
                     struct error *error);

/* Reads a list of `count` numbers of config.json into out[0..count). Returns ST_NOT_FOUND for a
 * GGUF file or if there is no list, ST_INVALID if the list has another length or other values. */
enum status key_f32_list(const struct model_file *file, enum model_key key, uint32_t count,
                         float *out, struct error *error);

/* Reads entry `layer` of config.json's array layer_types, or of a GGUF file's array of booleans
 * KEY_LOCAL_PERIOD (true = "sliding_attention", false = "full_attention"). Returns ST_NOT_FOUND if
 * there is no such array, ST_INVALID if the entry is missing or has another type. */
enum status key_layer_type(const struct model_file *file, uint32_t layer, struct mapped_text *out,
                           struct error *error);

/* Reads from config.json whether layer `layer` rotates q and k (no_rope_layers; 0 = it does not
 * rotate). Returns the errors of key_layer_type; for a GGUF file, ST_NOT_FOUND. */
enum status key_layer_rotates(const struct model_file *file, uint32_t layer, bool *out,
                              struct error *error);

#endif
