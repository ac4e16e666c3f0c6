/* keys: see keys.h. */
#include "model/file/keys.h"

#include "model/file/gguf.h"
#include "model/file/json_read.h"
#include "model/file/model_file_internal.h"

#include <stdio.h>

/* Name after the architecture's prefix in a GGUF file. NULL = GGUF has no such key. */
static const char *const gguf_suffixes[KEY_COUNT] = {
    [KEY_ARCHITECTURE] = "", /* See gguf_name. */
    [KEY_LAYERS] = "block_count",
    [KEY_DRAFT_LAYERS] = "nextn_predict_layers",
    [KEY_HIDDEN] = "embedding_length",
    [KEY_FFN] = "feed_forward_length",
    [KEY_CONTEXT] = "context_length",
    [KEY_WINDOW] = "attention.sliding_window",
    [KEY_HEADS] = "attention.head_count",
    [KEY_KV_HEADS] = "attention.head_count_kv",
    [KEY_HEAD_DIM] = "attention.key_length",
    [KEY_VALUE_DIM] = "attention.value_length",
    [KEY_ATTENTION_SCALE] = "attention.scale",
    [KEY_EMBEDDING_SCALE] = "embedding_scale",
    [KEY_RESIDUAL_SCALE] = "residual_scale",
    [KEY_LOGIT_SCALE] = "logit_scale",
    [KEY_ROPE_DIM] = "rope.dimension_count",
    [KEY_ROPE_BASE] = "rope.freq_base",
    [KEY_ROPE_BASE_LOCAL] = "rope.freq_base_swa",
    [KEY_LOCAL_PERIOD] = "attention.sliding_window_pattern",
    [KEY_ROPE_SCALING] = "rope.scaling.type",
    [KEY_ROPE_FACTOR] = "rope.scaling.factor",
    [KEY_ROPE_FACTOR_OLD] = "rope.scale_linear",
    [KEY_ROPE_BETA_SLOW] = "rope.scaling.yarn_beta_slow",
    [KEY_ROPE_BETA_FAST] = "rope.scaling.yarn_beta_fast",
    [KEY_ROPE_CONTEXT] = "rope.scaling.original_context_length",
    [KEY_ROPE_AMPLITUDE] = "rope.scaling.attn_factor",
    [KEY_ROPE_MSCALE_ALL] = "rope.scaling.yarn_log_multiplier",
    [KEY_EPSILON] = "attention.layer_norm_rms_epsilon",
    [KEY_EPSILON_LAYER_NORM] = "attention.layer_norm_epsilon",
    [KEY_EXPERTS] = "expert_count",
    [KEY_EXPERTS_USED] = "expert_used_count",
    [KEY_EXPERT_FFN] = "expert_feed_forward_length",
    [KEY_EXPERTS_SHARED] = "expert_shared_count",
    [KEY_SHARED_FFN] = "expert_shared_feed_forward_length",
    [KEY_EXPERTS_SCALE] = "expert_weights_scale",
    [KEY_EXPERTS_NORM] = "expert_weights_norm",
    [KEY_EXPERTS_GATING] = "expert_gating_func",
    [KEY_EXPERT_GROUPS] = "expert_group_count",
    [KEY_EXPERT_GROUPS_USED] = "expert_group_used_count",
    [KEY_CLIP_QKV] = "attention.clamp_kqv",
    [KEY_PARALLEL] = "use_parallel_residual",
    [KEY_LATENT_RANK] = "attention.kv_lora_rank",
    [KEY_LATENT_Q_RANK] = "attention.q_lora_rank",
    [KEY_LATENT_ROTATED] = "rope.dimension_count",
    [KEY_LATENT_VALUE] = "attention.value_length",
    [KEY_LATENT_HEAD_DIM] = "attention.key_length_mla",
    [KEY_LATENT_HEAD_VALUE] = "attention.value_length_mla",
    [KEY_SOFTCAP_LOGITS] = "final_logit_softcapping",
    [KEY_SOFTCAP_ATTENTION] = "attn_logit_softcapping",
};

/* Paths in config.json; of several, the first that exists is used. rope_parameters is the newer
 * name of what was rope_scaling and rope_theta; for models with two kinds of layers it has an
 * object for each. */
#define ROPE(name)                                                                                 \
    "rope_scaling/" name "|rope_parameters/" name "|rope_parameters/full_attention/" name

static const char *const config_paths[KEY_COUNT] = {
    [KEY_ARCHITECTURE] = "model_type",
    [KEY_LAYERS] = "num_hidden_layers",
    [KEY_DRAFT_LAYERS] = "num_nextn_predict_layers",
    [KEY_HIDDEN] = "hidden_size",
    [KEY_FFN] = "intermediate_size",
    [KEY_CONTEXT] = "max_position_embeddings",
    [KEY_VOCAB] = "vocab_size",
    [KEY_WINDOW] = "sliding_window",
    [KEY_WINDOW_USED] = "use_sliding_window",
    [KEY_WINDOW_FIRST] = "max_window_layers",
    [KEY_HEADS] = "num_attention_heads",
    [KEY_KV_HEADS] = "num_key_value_heads",
    [KEY_HEAD_DIM] = "head_dim",
    [KEY_QUERY_SCALAR] = "query_pre_attn_scalar",
    [KEY_ATTENTION_SCALE] = "attention_multiplier",
    [KEY_EMBEDDING_SCALE] = "embedding_multiplier",
    [KEY_RESIDUAL_SCALE] = "residual_multiplier",
    [KEY_LOGIT_SCALE] = "logit_scale|logits_scaling",
    [KEY_ROPE_SHARE] = "partial_rotary_factor|" ROPE("partial_rotary_factor"),
    [KEY_ROPE_BASE] =
        "rope_theta|rope_parameters/rope_theta|rope_parameters/full_attention/rope_theta",
    [KEY_ROPE_BASE_LOCAL] = "rope_local_base_freq|rope_parameters/sliding_attention/rope_theta",
    [KEY_LOCAL_PERIOD] = "sliding_window_pattern|_sliding_window_pattern",
    [KEY_ROPE_SCALING] = ROPE("rope_type") "|rope_scaling/type|rope_parameters/type",
    [KEY_ROPE_LOCAL_SCALING] = "rope_parameters/sliding_attention/rope_type",
    [KEY_ROPE_FACTOR] = ROPE("factor"),
    [KEY_ROPE_LOW] = ROPE("low_freq_factor"),
    [KEY_ROPE_HIGH] = ROPE("high_freq_factor"),
    [KEY_ROPE_BETA_SLOW] = ROPE("beta_slow"),
    [KEY_ROPE_BETA_FAST] = ROPE("beta_fast"),
    [KEY_ROPE_TRUNCATE] = ROPE("truncate"),
    [KEY_ROPE_CONTEXT] =
        ROPE("original_max_position_embeddings") "|original_max_position_embeddings",
    [KEY_ROPE_AMPLITUDE] = ROPE("attention_factor"),
    [KEY_ROPE_MSCALE] = ROPE("mscale"),
    [KEY_ROPE_MSCALE_ALL] = ROPE("mscale_all_dim"),
    [KEY_ROPE_LONG] = ROPE("long_factor"),
    [KEY_ROPE_SHORT] = ROPE("short_factor"),
    [KEY_EPSILON] = "rms_norm_eps",
    [KEY_EPSILON_LAYER_NORM] = "layer_norm_eps|norm_epsilon",
    [KEY_EXPERTS] = "num_local_experts|num_experts|n_routed_experts",
    [KEY_EXPERTS_USED] = "num_experts_per_tok",
    [KEY_EXPERT_FFN] = "moe_intermediate_size",
    [KEY_EXPERTS_SHARED] = "n_shared_experts",
    [KEY_SHARED_FFN] = "shared_expert_intermediate_size",
    [KEY_EXPERTS_SCALE] = "routed_scaling_factor",
    [KEY_EXPERTS_NORM] = "norm_topk_prob",
    [KEY_EXPERTS_GATING] = "scoring_func",
    [KEY_EXPERTS_METHOD] = "topk_method",
    [KEY_EXPERT_GROUPS] = "n_group",
    [KEY_EXPERT_GROUPS_USED] = "topk_group",
    [KEY_GATE_LIMIT] = "swiglu_limit",
    [KEY_GATE_ALPHA] = "swiglu_alpha",
    [KEY_CLIP_QKV] = "clip_qkv",
    [KEY_LATENT_PAIRS] = "rope_interleave",
    [KEY_LATENT_RANK] = "kv_lora_rank",
    [KEY_LATENT_Q_RANK] = "q_lora_rank",
    [KEY_LATENT_PLAIN] = "qk_nope_head_dim",
    [KEY_LATENT_ROTATED] = "qk_rope_head_dim",
    [KEY_LATENT_VALUE] = "v_head_dim",
    [KEY_ACTIVATION] = "hidden_act|hidden_activation",
    [KEY_PARALLEL] = "use_parallel_residual",
    [KEY_SOFTCAP_LOGITS] = "final_logit_softcapping",
    [KEY_SOFTCAP_ATTENTION] = "attn_logit_softcapping",
};

#define CONFIG "config.json"

/* Writes "config.json/" and the first path. */
static const char *config_name(enum model_key key, char out[KEY_NAME_BYTES])
{
    const char *path = config_paths[key] != NULL ? config_paths[key] : "";
    snprintf(out, KEY_NAME_BYTES, CONFIG "/%.*s", (int)strcspn(path, "|"), path);
    return out;
}

static const char *gguf_name(const struct gguf *g, enum model_key key, char out[KEY_NAME_BYTES])
{
    struct mapped_text architecture = {"", 0};
    if (key == KEY_ARCHITECTURE) {
        snprintf(out, KEY_NAME_BYTES, "general.architecture");
        return out;
    }
    /* hyper.c has read it before. */
    (void)gguf_get_string(g, "general.architecture", &architecture, NULL);
    snprintf(out, KEY_NAME_BYTES, "%.*s.%s", architecture.bytes < 64 ? (int)architecture.bytes : 64,
             architecture.text, gguf_suffixes[key] != NULL ? gguf_suffixes[key] : "");
    return out;
}

const char *key_name(const struct model_file *file, enum model_key key, char out[KEY_NAME_BYTES])
{
    return file->folder != NULL ? config_name(key, out) : gguf_name(file->gguf, key, out);
}

enum status key_u32(const struct model_file *file, enum model_key key, uint32_t *out,
                    struct error *error)
{
    if (file->folder != NULL)
        return config_paths[key] == NULL ? ST_NOT_FOUND
                                         : json_get_u32(CONFIG, folder_config(file->folder),
                                                        config_paths[key], out, error);
    char name[KEY_NAME_BYTES];
    return gguf_suffixes[key] == NULL
               ? ST_NOT_FOUND
               : gguf_get_u32(file->gguf, gguf_name(file->gguf, key, name), out, error);
}

enum status key_f32(const struct model_file *file, enum model_key key, float *out,
                    struct error *error)
{
    if (file->folder != NULL)
        return config_paths[key] == NULL ? ST_NOT_FOUND
                                         : json_get_f32(CONFIG, folder_config(file->folder),
                                                        config_paths[key], out, error);
    char name[KEY_NAME_BYTES];
    return gguf_suffixes[key] == NULL
               ? ST_NOT_FOUND
               : gguf_get_f32(file->gguf, gguf_name(file->gguf, key, name), out, error);
}

enum status key_bool(const struct model_file *file, enum model_key key, bool *out,
                     struct error *error)
{
    if (file->folder != NULL)
        return config_paths[key] == NULL ? ST_NOT_FOUND
                                         : json_get_bool(CONFIG, folder_config(file->folder),
                                                         config_paths[key], out, error);
    char name[KEY_NAME_BYTES];
    return gguf_suffixes[key] == NULL
               ? ST_NOT_FOUND
               : gguf_get_bool(file->gguf, gguf_name(file->gguf, key, name), out, error);
}

enum status key_text(const struct model_file *file, enum model_key key, struct mapped_text *out,
                     struct error *error)
{
    if (file->folder != NULL)
        return config_paths[key] == NULL ? ST_NOT_FOUND
                                         : json_get_text(CONFIG, folder_config(file->folder),
                                                         config_paths[key], out, error);
    char name[KEY_NAME_BYTES];
    return gguf_suffixes[key] == NULL
               ? ST_NOT_FOUND
               : gguf_get_string(file->gguf, gguf_name(file->gguf, key, name), out, error);
}

enum status key_f32_list(const struct model_file *file, enum model_key key, uint32_t count,
                         float *out, struct error *error)
{
    char name[KEY_NAME_BYTES];
    if (file->folder == NULL || config_paths[key] == NULL)
        return ST_NOT_FOUND;
    const json_t *list = json_find(folder_config(file->folder), config_paths[key]);
    if (list == NULL)
        return ST_NOT_FOUND;
    if (!json_is_array(list) || json_array_size(list) != count)
        return error_set(error, ST_INVALID, "key %s has %zu numbers, want %u",
                         config_name(key, name), json_array_size(list), count);
    for (uint32_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_number(value))
            return error_set(error, ST_INVALID, "key %s: entry %u is %s, want a number",
                             config_name(key, name), i, json_kind(value));
    }
    for (uint32_t i = 0; i < count; i++)
        out[i] = (float)json_number_value(json_array_get(list, i));
    return ST_OK;
}

static enum status gguf_layer_type(const struct gguf *g, uint32_t layer, struct mapped_text *out,
                                   struct error *error)
{
    char name[KEY_NAME_BYTES];
    bool window = false;
    enum status status =
        gguf_get_bool_at(g, gguf_name(g, KEY_LOCAL_PERIOD, name), layer, &window, error);
    if (status == ST_OK)
        *out = mapped_text_of(window ? "sliding_attention" : "full_attention");
    return status;
}

enum status key_layer_type(const struct model_file *file, uint32_t layer, struct mapped_text *out,
                           struct error *error)
{
    if (file->folder == NULL)
        return gguf_layer_type(file->gguf, layer, out, error);
    const json_t *types = json_find(folder_config(file->folder), "layer_types");
    const json_t *type = json_array_get(types, layer);
    if (types == NULL)
        return ST_NOT_FOUND;
    if (!json_is_string(type))
        return error_set(error, ST_INVALID,
                         "key " CONFIG "/layer_types has no text for layer %u of its %zu", layer,
                         json_array_size(types));
    *out = json_text_of(type);
    return ST_OK;
}

enum status key_layer_rotates(const struct model_file *file, uint32_t layer, bool *out,
                              struct error *error)
{
    const json_t *list =
        file->folder != NULL ? json_find(folder_config(file->folder), "no_rope_layers") : NULL;
    const json_t *number = json_array_get(list, layer);
    if (list == NULL)
        return ST_NOT_FOUND;
    if (!json_is_integer(number))
        return error_set(error, ST_INVALID,
                         "key " CONFIG "/no_rope_layers has no number for layer %u of its %zu",
                         layer, json_array_size(list));
    *out = json_integer_value(number) != 0;
    return ST_OK;
}
