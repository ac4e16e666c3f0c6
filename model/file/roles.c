/* roles: see roles.h. */
#include "model/file/roles.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const layer_prefix[ROLE_NAMES_COUNT] = {
    [ROLE_NAMES_GGUF] = "blk.",
    [ROLE_NAMES_GGUF_NORM_AFTER] = "blk.",
    [ROLE_NAMES_HUB] = "model.layers.",
    [ROLE_NAMES_HUB_POST_NORMS] = "model.layers.",
};

/* Columns of `texts`. */
enum column { GGUF, HUB, HUB_POST_NORMS, COLUMNS };

/* Names without the layer's prefix and number; "|" separates spellings, and "#" is the number of an
 * expert. NULL = the format has no such tensor. */
static const char *const texts[ROLE_COUNT][COLUMNS] = {
    [ROLE_EMBEDDING] = {"token_embd.weight", "model.embed_tokens.weight",
                        "model.embed_tokens.weight"},
    [ROLE_OUTPUT_NORM] = {"output_norm.weight", "model.norm.weight|model.final_layernorm.weight",
                          "model.norm.weight"},
    [ROLE_OUTPUT_NORM_BIAS] = {"output_norm.bias", "model.norm.bias|model.final_layernorm.bias",
                               NULL},
    [ROLE_OUTPUT_BIAS] = {"output.bias", "lm_head.bias", "lm_head.bias"},
    [ROLE_OUTPUT] = {"output.weight", "lm_head.weight", "lm_head.weight"},
    [ROLE_ROPE_FACTORS] = {"rope_freqs.weight", NULL, NULL},
    [ROLE_ROPE_LONG] = {"rope_factors_long.weight", NULL, NULL},
    [ROLE_ROPE_SHORT] = {"rope_factors_short.weight", NULL, NULL},
    [ROLE_ATTENTION_NORM] = {"attn_norm.weight", "input_layernorm.weight",
                             "input_layernorm.weight"},
    [ROLE_ATTENTION_NORM_BIAS] = {"attn_norm.bias", "input_layernorm.bias", NULL},
    [ROLE_Q] = {"attn_q.weight", "self_attn.q_proj.weight", "self_attn.q_proj.weight"},
    [ROLE_K] = {"attn_k.weight", "self_attn.k_proj.weight", "self_attn.k_proj.weight"},
    [ROLE_V] = {"attn_v.weight", "self_attn.v_proj.weight", "self_attn.v_proj.weight"},
    [ROLE_QKV] = {"attn_qkv.weight", "self_attn.qkv_proj.weight", "self_attn.qkv_proj.weight"},
    [ROLE_Q_BIAS] = {"attn_q.bias", "self_attn.q_proj.bias", "self_attn.q_proj.bias"},
    [ROLE_K_BIAS] = {"attn_k.bias", "self_attn.k_proj.bias", "self_attn.k_proj.bias"},
    [ROLE_V_BIAS] = {"attn_v.bias", "self_attn.v_proj.bias", "self_attn.v_proj.bias"},
    [ROLE_QKV_BIAS] = {"attn_qkv.bias", "self_attn.qkv_proj.bias", "self_attn.qkv_proj.bias"},
    [ROLE_Q_NORM] = {"attn_q_norm.weight", "self_attn.q_norm.weight", "self_attn.q_norm.weight"},
    [ROLE_K_NORM] = {"attn_k_norm.weight", "self_attn.k_norm.weight", "self_attn.k_norm.weight"},
    [ROLE_Q_A] = {"attn_q_a.weight", "self_attn.q_a_proj.weight", "self_attn.q_a_proj.weight"},
    [ROLE_Q_A_NORM] = {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight",
                       "self_attn.q_a_layernorm.weight"},
    [ROLE_Q_B] = {"attn_q_b.weight", "self_attn.q_b_proj.weight", "self_attn.q_b_proj.weight"},
    [ROLE_KV_A] = {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight",
                   "self_attn.kv_a_proj_with_mqa.weight"},
    [ROLE_KV_A_NORM] = {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight",
                        "self_attn.kv_a_layernorm.weight"},
    [ROLE_KV_B] = {"attn_kv_b.weight", "self_attn.kv_b_proj.weight", "self_attn.kv_b_proj.weight"},
    [ROLE_K_B] = {"attn_k_b.weight", NULL, NULL},
    [ROLE_V_B] = {"attn_v_b.weight", NULL, NULL},
    [ROLE_SINKS] = {"attn_sinks.weight", "self_attn.sinks", "self_attn.sinks"},
    [ROLE_ATTENTION_OUTPUT] = {"attn_output.weight",
                               "self_attn.o_proj.weight|self_attn.dense.weight",
                               "self_attn.o_proj.weight"},
    [ROLE_ATTENTION_OUTPUT_BIAS] = {"attn_output.bias",
                                    "self_attn.o_proj.bias|self_attn.dense.bias",
                                    "self_attn.o_proj.bias"},
    [ROLE_ATTENTION_POST_NORM] = {"post_attention_norm.weight", "post_self_attn_layernorm.weight",
                                  "post_attention_layernorm.weight"},
    [ROLE_FFN_NORM] = {"ffn_norm.weight", "post_attention_layernorm.weight",
                       "pre_feedforward_layernorm.weight"},
    [ROLE_FFN_NORM_BIAS] = {"ffn_norm.bias", "post_attention_layernorm.bias", NULL},
    [ROLE_FFN_POST_NORM] = {"post_ffw_norm.weight", "post_mlp_layernorm.weight",
                            "post_feedforward_layernorm.weight"},
    [ROLE_GATE] = {"ffn_gate.weight", "mlp.gate_proj.weight", "mlp.gate_proj.weight"},
    [ROLE_UP] = {"ffn_up.weight", "mlp.up_proj.weight|mlp.c_fc.weight|mlp.fc1.weight",
                 "mlp.up_proj.weight"},
    [ROLE_DOWN] = {"ffn_down.weight", "mlp.down_proj.weight|mlp.c_proj.weight|mlp.fc2.weight",
                   "mlp.down_proj.weight"},
    [ROLE_GATE_UP] = {NULL, "mlp.gate_up_proj.weight", "mlp.gate_up_proj.weight"},
    [ROLE_GATE_BIAS] = {"ffn_gate.bias", "mlp.gate_proj.bias", "mlp.gate_proj.bias"},
    [ROLE_UP_BIAS] = {"ffn_up.bias", "mlp.up_proj.bias|mlp.c_fc.bias|mlp.fc1.bias",
                      "mlp.up_proj.bias"},
    [ROLE_DOWN_BIAS] = {"ffn_down.bias", "mlp.down_proj.bias|mlp.c_proj.bias|mlp.fc2.bias",
                        "mlp.down_proj.bias"},
    [ROLE_ROUTER] = {"ffn_gate_inp.weight",
                     "mlp.gate.weight|block_sparse_moe.gate.weight|"
                     "block_sparse_moe.router.layer.weight|mlp.router.weight",
                     NULL},
    [ROLE_ROUTER_BIAS] = {"ffn_gate_inp.bias", "mlp.router.bias", NULL},
    [ROLE_ROUTER_CHOICE_BIAS] = {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias", NULL},
    [ROLE_EXPERTS_GATE_UP] = {"ffn_gate_up_exps.weight",
                              "mlp.experts.gate_up_proj|block_sparse_moe.experts.gate_up_proj|"
                              "block_sparse_moe.input_linear.weight",
                              NULL},
    [ROLE_EXPERTS_GATE] = {"ffn_gate_exps.weight", NULL, NULL},
    [ROLE_EXPERTS_UP] = {"ffn_up_exps.weight", NULL, NULL},
    [ROLE_EXPERTS_DOWN] = {"ffn_down_exps.weight",
                           "mlp.experts.down_proj|block_sparse_moe.experts.down_proj|"
                           "block_sparse_moe.output_linear.weight",
                           NULL},
    [ROLE_EXPERTS_GATE_UP_BIAS] = {NULL, "mlp.experts.gate_up_proj_bias", NULL},
    [ROLE_EXPERTS_GATE_BIAS] = {"ffn_gate_exps.bias", NULL, NULL},
    [ROLE_EXPERTS_UP_BIAS] = {"ffn_up_exps.bias", NULL, NULL},
    [ROLE_EXPERTS_DOWN_BIAS] = {"ffn_down_exps.bias", "mlp.experts.down_proj_bias", NULL},
    [ROLE_EXPERT_GATE] = {"ffn_gate.#.weight",
                          "mlp.experts.#.gate_proj.weight|block_sparse_moe.experts.#.w1.weight",
                          NULL},
    [ROLE_EXPERT_UP] = {"ffn_up.#.weight",
                        "mlp.experts.#.up_proj.weight|block_sparse_moe.experts.#.w3.weight", NULL},
    [ROLE_EXPERT_DOWN] = {"ffn_down.#.weight",
                          "mlp.experts.#.down_proj.weight|block_sparse_moe.experts.#.w2.weight",
                          NULL},
    [ROLE_SHARED_ROUTER] = {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", NULL},
    [ROLE_SHARED_GATE] = {"ffn_gate_shexp.weight",
                          "mlp.shared_expert.gate_proj.weight|mlp.shared_experts.gate_proj.weight",
                          NULL},
    [ROLE_SHARED_UP] = {"ffn_up_shexp.weight",
                        "mlp.shared_expert.up_proj.weight|mlp.shared_experts.up_proj.weight", NULL},
    [ROLE_SHARED_DOWN] = {"ffn_down_shexp.weight",
                          "mlp.shared_expert.down_proj.weight|mlp.shared_experts.down_proj.weight",
                          NULL},
    [ROLE_DRAFT_PROJECTION] = {"nextn.eh_proj.weight", "eh_proj.weight", NULL},
    [ROLE_DRAFT_TOKEN_NORM] = {"nextn.enorm.weight", "enorm.weight", NULL},
    [ROLE_DRAFT_FINAL_NORM] = {"nextn.hnorm.weight", "hnorm.weight", NULL},
    [ROLE_DRAFT_EMBEDDING] = {"nextn.embed_tokens.weight", "embed_tokens.weight", NULL},
    [ROLE_DRAFT_OUTPUT_NORM] = {"nextn.shared_head_norm.weight", "shared_head.norm.weight", NULL},
    [ROLE_DRAFT_OUTPUT] = {"nextn.shared_head_head.weight", "shared_head.head.weight", NULL},
    [ROLE_ROPE_TABLE] = {"attn_rot_embd", "self_attn.rotary_emb.inv_freq",
                         "self_attn.rotary_emb.inv_freq"},
};

/* Returns the spellings of a role's name; NULL = none. */
static const char *text_of(enum role_names names, enum model_role role)
{
    if (names == ROLE_NAMES_GGUF_NORM_AFTER && role == ROLE_FFN_NORM)
        return texts[ROLE_ATTENTION_POST_NORM][GGUF];
    if (names == ROLE_NAMES_GGUF_NORM_AFTER && role == ROLE_ATTENTION_POST_NORM)
        return NULL;
    return texts[role][names == ROLE_NAMES_HUB              ? HUB
                       : names == ROLE_NAMES_HUB_POST_NORMS ? HUB_POST_NORMS
                                                            : GGUF];
}

/* Returns the bytes of the first spelling of `text`. */
static size_t spelling_bytes(const char *text)
{
    return strcspn(text, "|");
}

bool role_spelling(enum role_names names, enum model_role role, uint32_t layer, uint32_t expert,
                   uint32_t spelling, char out[ROLE_NAME_BYTES])
{
    const char *text = text_of(names, role);
    for (; text != NULL && spelling > 0; spelling--) {
        text += spelling_bytes(text);
        text = *text == '|' ? text + 1 : NULL;
    }
    out[0] = 0;
    if (text == NULL)
        return false;
    const size_t bytes = spelling_bytes(text), before = strcspn(text, "#|");
    int used = 0;
    if (role_is_of_layer(role))
        used = snprintf(out, ROLE_NAME_BYTES, "%s%" PRIu32 ".", layer_prefix[names], layer);
    if (before < bytes)
        snprintf(out + used, ROLE_NAME_BYTES - (size_t)used, "%.*s%" PRIu32 "%.*s", (int)before,
                 text, expert, (int)(bytes - before - 1), text + before + 1);
    else
        snprintf(out + used, ROLE_NAME_BYTES - (size_t)used, "%.*s", (int)bytes, text);
    return true;
}

const char *role_name(enum role_names names, enum model_role role, uint32_t layer,
                      char out[ROLE_NAME_BYTES])
{
    role_spelling(names, role, layer, 0, 0, out);
    return out;
}

uint32_t role_expert_number(struct mapped_text name)
{
    size_t at = name.bytes;
    uint32_t expert = 0;
    while (at > 1 &&
           !(name.text[at - 1] >= '0' && name.text[at - 1] <= '9' && name.text[at - 2] == '.'))
        at--;
    for (at = at > 0 ? at - 1 : 0; at < name.bytes && name.text[at] >= '0' && name.text[at] <= '9';
         at++)
        expert = expert < 1000000 ? expert * 10 + (uint32_t)(name.text[at] - '0') : expert;
    return expert;
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

/* Whether `name` is one of the spellings in `text`. */
static bool spelled(struct mapped_text name, const char *text)
{
    for (; text != NULL; text = *text == '|' ? text + 1 : NULL) {
        const char *end = text + spelling_bytes(text);
        size_t at = 0;
        for (; text < end; text++) {
            const size_t begin = at;
            if (*text != '#' && (at == name.bytes || name.text[at++] != *text))
                break;
            while (*text == '#' && at < name.bytes && at - begin < 6 && name.text[at] >= '0' &&
                   name.text[at] <= '9')
                at++;
            if (*text == '#' && (at == begin || (name.text[begin] == '0' && at > begin + 1)))
                break;
        }
        if (text == end && at == name.bytes)
            return true;
        text = end;
    }
    return false;
}

bool role_find(enum role_names names, struct mapped_text name, enum model_role *role_out,
               uint32_t *layer_out)
{
    uint32_t layer = 0;
    size_t skip = parse_prefix(names, name, &layer);
    const struct mapped_text rest = {name.text + skip, name.bytes - skip};
    for (int role = 0; role < ROLE_COUNT; role++)
        if (role_is_of_layer((enum model_role)role) == (skip > 0) &&
            spelled(rest, text_of(names, (enum model_role)role))) {
            *role_out = (enum model_role)role;
            *layer_out = layer;
            return true;
        }
    return false;
}
