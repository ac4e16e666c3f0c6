/* roles: see roles.h. */
#include "model/file/roles.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const layer_prefix[ROLE_NAMES_COUNT] = {"blk.", "model.layers.",
                                                           "model.layers."};

/* Names without the layer's prefix and number. NULL = the format has no such tensor. */
static const char *const texts[ROLE_COUNT][ROLE_NAMES_COUNT] = {
    [ROLE_EMBEDDING] = {"token_embd.weight", "model.embed_tokens.weight",
                        "model.embed_tokens.weight"},
    [ROLE_OUTPUT_NORM] = {"output_norm.weight", "model.norm.weight", "model.norm.weight"},
    [ROLE_OUTPUT] = {"output.weight", "lm_head.weight", "lm_head.weight"},
    [ROLE_ROPE_FACTORS] = {"rope_freqs.weight", NULL, NULL},
    [ROLE_ATTENTION_NORM] = {"attn_norm.weight", "input_layernorm.weight",
                             "input_layernorm.weight"},
    [ROLE_Q] = {"attn_q.weight", "self_attn.q_proj.weight", "self_attn.q_proj.weight"},
    [ROLE_K] = {"attn_k.weight", "self_attn.k_proj.weight", "self_attn.k_proj.weight"},
    [ROLE_V] = {"attn_v.weight", "self_attn.v_proj.weight", "self_attn.v_proj.weight"},
    [ROLE_Q_BIAS] = {"attn_q.bias", "self_attn.q_proj.bias", "self_attn.q_proj.bias"},
    [ROLE_K_BIAS] = {"attn_k.bias", "self_attn.k_proj.bias", "self_attn.k_proj.bias"},
    [ROLE_V_BIAS] = {"attn_v.bias", "self_attn.v_proj.bias", "self_attn.v_proj.bias"},
    [ROLE_Q_NORM] = {"attn_q_norm.weight", "self_attn.q_norm.weight", "self_attn.q_norm.weight"},
    [ROLE_K_NORM] = {"attn_k_norm.weight", "self_attn.k_norm.weight", "self_attn.k_norm.weight"},
    [ROLE_ATTENTION_OUTPUT] = {"attn_output.weight", "self_attn.o_proj.weight",
                               "self_attn.o_proj.weight"},
    [ROLE_ATTENTION_POST_NORM] = {"post_attention_norm.weight", NULL,
                                  "post_attention_layernorm.weight"},
    [ROLE_FFN_NORM] = {"ffn_norm.weight", "post_attention_layernorm.weight",
                       "pre_feedforward_layernorm.weight"},
    [ROLE_FFN_POST_NORM] = {"post_ffw_norm.weight", NULL, "post_feedforward_layernorm.weight"},
    [ROLE_GATE] = {"ffn_gate.weight", "mlp.gate_proj.weight", "mlp.gate_proj.weight"},
    [ROLE_UP] = {"ffn_up.weight", "mlp.up_proj.weight", "mlp.up_proj.weight"},
    [ROLE_DOWN] = {"ffn_down.weight", "mlp.down_proj.weight", "mlp.down_proj.weight"},
    [ROLE_ROPE_TABLE] = {"attn_rot_embd", "self_attn.rotary_emb.inv_freq",
                         "self_attn.rotary_emb.inv_freq"},
};

const char *role_name(enum role_names names, enum model_role role, uint32_t layer,
                      char out[ROLE_NAME_BYTES])
{
    const char *text = texts[role][names];
    if (text == NULL)
        out[0] = 0;
    else if (role_of_layer(role))
        snprintf(out, ROLE_NAME_BYTES, "%s%" PRIu32 ".%s", layer_prefix[names], layer, text);
    else
        snprintf(out, ROLE_NAME_BYTES, "%s", text);
    return out;
}

/* Parses "blk.12."; returns the bytes of that prefix, 0 = the name has no such prefix. */
static size_t parse_prefix(enum role_names names, struct mapped_text name, uint32_t *layer_out)
{
    size_t begin = strlen(layer_prefix[names]), at = begin;
    uint32_t layer = 0;
    if (name.bytes < begin || memcmp(name.text, layer_prefix[names], begin) != 0)
        return 0;
    while (at < name.bytes && at < begin + 6 && name.text[at] >= '0' && name.text[at] <= '9')
        layer = layer * 10 + (uint32_t)(name.text[at++] - '0');
    if (at == begin || at >= name.bytes || name.text[at] != '.')
        return 0;
    *layer_out = layer;
    return at + 1;
}

bool role_find(enum role_names names, struct mapped_text name, enum model_role *role_out,
               uint32_t *layer_out)
{
    uint32_t layer = 0;
    size_t skip = parse_prefix(names, name, &layer);
    const struct mapped_text rest = {name.text + skip, name.bytes - skip};
    for (int role = 0; role < ROLE_COUNT; role++)
        if (role_of_layer((enum model_role)role) == (skip > 0) && texts[role][names] != NULL &&
            mapped_text_is(rest, texts[role][names])) {
            *role_out = (enum model_role)role;
            *layer_out = layer;
            return true;
        }
    return false;
}
