/* keys: reads a model's hyper-parameters by meaning, from a GGUF file's metadata or from a folder's
 * config.json. A table in keys.c maps each key to its name in both formats; a key that a format
 * does not have is reported as absent. Called while a model is opened. Values are not checked here
 * (see hyper.c). Internal to model/. */
#ifndef MODEL_FILE_KEYS_H
#define MODEL_FILE_KEYS_H

#include "model/file/model_file.h"

enum model_key {
    KEY_ARCHITECTURE,
    KEY_LAYERS,
    KEY_HIDDEN,
    KEY_FFN,
    KEY_CONTEXT,
    KEY_VOCAB,
    KEY_WINDOW,
    KEY_WINDOW_USED,
    KEY_HEADS,
    KEY_KV_HEADS,
    KEY_HEAD_DIM,
    KEY_VALUE_DIM,
    KEY_QUERY_SCALAR, /* The root of this value divides queries times keys; default head_dim. */
    KEY_ROPE_DIM,
    KEY_ROPE_SHARE, /* Share of a head's dimensions that is rotated. */
    KEY_ROPE_BASE,
    KEY_ROPE_BASE_LOCAL,
    KEY_LOCAL_PERIOD,
    KEY_ROPE_SCALING,
    KEY_ROPE_FACTOR,
    KEY_ROPE_FACTOR_OLD,
    KEY_ROPE_LOW,
    KEY_ROPE_HIGH,
    KEY_ROPE_CONTEXT, /* Context length before RoPE scaling. */
    KEY_EPSILON,
    KEY_EXPERTS,
    KEY_ACTIVATION,
    KEY_SOFTCAP_LOGITS,
    KEY_SOFTCAP_ATTENTION,
    KEY_COUNT
};

#define KEY_NAME_BYTES 128

/* Returns `out`, filled with the key's name in the file, for errors: "llama.block_count" or
 * "config.json/num_hidden_layers". Of several possible names in config.json, the first. */
const char *key_name(const struct model_file *file, enum model_key key, char out[KEY_NAME_BYTES]);

/* Each reads one value. ST_NOT_FOUND: the key is absent. ST_INVALID: its type does not fit, and
 * `error` says so. *out is written only on success. A text lives as long as the file is open. */
enum status key_u32(const struct model_file *file, enum model_key key, uint32_t *out,
                    struct error *error);
enum status key_f32(const struct model_file *file, enum model_key key, float *out,
                    struct error *error);
enum status key_bool(const struct model_file *file, enum model_key key, bool *out,
                     struct error *error);
enum status key_text(const struct model_file *file, enum model_key key, struct mapped_text *out,
                     struct error *error);

/* Reads entry `layer` of config.json's array layer_types. ST_NOT_FOUND: a GGUF file, or no such
 * array. ST_INVALID: the entry is missing or is not a string. */
enum status key_layer_type(const struct model_file *file, uint32_t layer, struct mapped_text *out,
                           struct error *error);

#endif
