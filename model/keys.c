/* keys: see the header. */
#include "model/keys.h"

#include "model/gguf.h"
#include "model/model_file_internal.h"

#include <stdio.h>

/* What comes after the architecture's name in a GGUF file. NULL: it has no such key. */
static const char *const gguf_suffixes[KEY_COUNT] = {
    [KEY_ARCHITECTURE] = "", /* see key_name */
    [KEY_LAYERS] = "block_count",
    [KEY_HIDDEN] = "embedding_length",
    [KEY_FFN] = "feed_forward_length",
    [KEY_CONTEXT] = "context_length",
    [KEY_WINDOW] = "attention.sliding_window",
    [KEY_HEADS] = "attention.head_count",
    [KEY_KV_HEADS] = "attention.head_count_kv",
    [KEY_HEAD_DIM] = "attention.key_length",
    [KEY_VALUE_DIM] = "attention.value_length",
    [KEY_ROPE_DIM] = "rope.dimension_count",
    [KEY_ROPE_BASE] = "rope.freq_base",
    [KEY_ROPE_BASE_LOCAL] = "rope.freq_base_swa",
    [KEY_LOCAL_PERIOD] = "attention.sliding_window_pattern",
    [KEY_ROPE_SCALING] = "rope.scaling.type",
    [KEY_ROPE_FACTOR] = "rope.scaling.factor",
    [KEY_ROPE_FACTOR_OLD] = "rope.scale_linear",
    [KEY_EPSILON] = "attention.layer_norm_rms_epsilon",
    [KEY_EXPERTS] = "expert_count",
};

const char *key_name(const struct model_file *file, enum model_key key, char out[KEY_NAME_BYTES])
{
    struct mapped_text architecture = {"", 0};
    if (key == KEY_ARCHITECTURE) {
        snprintf(out, KEY_NAME_BYTES, "general.architecture");
        return out;
    }
    /* hyper.c has read it */
    (void)gguf_get_string(file->gguf, "general.architecture", &architecture, NULL);
    snprintf(out, KEY_NAME_BYTES, "%.*s.%s", architecture.bytes < 64 ? (int)architecture.bytes : 64,
             architecture.text, gguf_suffixes[key] != NULL ? gguf_suffixes[key] : "");
    return out;
}

enum status key_u32(const struct model_file *file, enum model_key key, uint32_t *out,
                    struct error *error)
{
    char name[KEY_NAME_BYTES];
    if (gguf_suffixes[key] == NULL)
        return ST_NOT_FOUND;
    return gguf_get_u32(file->gguf, key_name(file, key, name), out, error);
}

enum status key_f32(const struct model_file *file, enum model_key key, float *out,
                    struct error *error)
{
    char name[KEY_NAME_BYTES];
    if (gguf_suffixes[key] == NULL)
        return ST_NOT_FOUND;
    return gguf_get_f32(file->gguf, key_name(file, key, name), out, error);
}

enum status key_bool(const struct model_file *file, enum model_key key, bool *out,
                     struct error *error)
{
    char name[KEY_NAME_BYTES];
    if (gguf_suffixes[key] == NULL)
        return ST_NOT_FOUND;
    return gguf_get_bool(file->gguf, key_name(file, key, name), out, error);
}

enum status key_text(const struct model_file *file, enum model_key key, struct mapped_text *out,
                     struct error *error)
{
    char name[KEY_NAME_BYTES];
    if (gguf_suffixes[key] == NULL)
        return ST_NOT_FOUND;
    return gguf_get_string(file->gguf, key_name(file, key, name), out, error);
}
