/* keys: hyper-parameters by what they mean, whatever they are called in a GGUF file or in a
 * config.json. A key that a format does not have is absent there. Internal to model/. */
#ifndef MODEL_KEYS_H
#define MODEL_KEYS_H

#include "model/model_file.h"

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
    KEY_QUERY_SCALAR, /* queries times keys are divided by its root, in the place of head_dim */
    KEY_ROPE_DIM,
    KEY_ROPE_SHARE, /* of a head that is rotated */
    KEY_ROPE_BASE,
    KEY_ROPE_BASE_LOCAL,
    KEY_LOCAL_PERIOD,
    KEY_ROPE_SCALING,
    KEY_ROPE_FACTOR,
    KEY_ROPE_FACTOR_OLD,
    KEY_ROPE_LOW,
    KEY_ROPE_HIGH,
    KEY_ROPE_CONTEXT, /* before it was scaled */
    KEY_EPSILON,
    KEY_EXPERTS,
    KEY_ACTIVATION,
    KEY_SOFTCAP_LOGITS,
    KEY_SOFTCAP_ATTENTION,
    KEY_COUNT
};

#define KEY_NAME_BYTES 128

/* What the file calls it, for errors: "llama.block_count" or "config.json/num_hidden_layers". */
const char *key_name(const struct model_file *file, enum model_key key, char out[KEY_NAME_BYTES]);

/* ST_NOT_FOUND when it is absent (nothing written), ST_INVALID with text when its type does not
 * fit. */
enum status key_u32(const struct model_file *file, enum model_key key, uint32_t *out,
                    struct error *error);
enum status key_f32(const struct model_file *file, enum model_key key, float *out,
                    struct error *error);
enum status key_bool(const struct model_file *file, enum model_key key, bool *out,
                     struct error *error);
enum status key_text(const struct model_file *file, enum model_key key, struct mapped_text *out,
                     struct error *error);

/* What config.json's layer_types says of a layer; likewise. */
enum status key_layer_type(const struct model_file *file, uint32_t layer, struct mapped_text *out,
                           struct error *error);

#endif
