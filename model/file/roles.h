/* roles: the role of each tensor in a model, and the tensor's name in each file format. It has no
 * state; any thread may call it. model/file/ and the code that loads weights (model/forward/) call
 * it. It reads no file and checks no shape. */
#ifndef MODEL_FILE_ROLES_H
#define MODEL_FILE_ROLES_H

#include "model/file/mapped.h"

enum model_role {
    ROLE_EMBEDDING,
    ROLE_OUTPUT_NORM,
    ROLE_OUTPUT_NORM_BIAS,
    ROLE_OUTPUT, /* Vocabulary matrix. */
    ROLE_OUTPUT_BIAS,
    ROLE_ROPE_FACTORS, /* Divisors of the RoPE frequencies. */
    ROLE_ROPE_LONG,    /* LongRoPE's divisors for long contexts. */
    ROLE_ROPE_SHORT,
    /* The roles from here on, except ROLE_COUNT, are roles of a layer. */
    ROLE_ATTENTION_NORM,
    ROLE_ATTENTION_NORM_BIAS,
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_QKV, /* Rows of q, then of k, then of v. */
    ROLE_Q_BIAS,
    ROLE_K_BIAS,
    ROLE_V_BIAS,
    ROLE_QKV_BIAS,
    ROLE_Q_NORM,
    ROLE_K_NORM,
    ROLE_SINKS,
    /* Latent attention. */
    ROLE_Q_A,
    ROLE_Q_A_NORM,
    ROLE_Q_B,
    ROLE_KV_A,
    ROLE_KV_A_NORM,
    ROLE_KV_B,
    ROLE_K_B, /* Newer GGUF files have these two, transposed for K, instead of ROLE_KV_B. */
    ROLE_V_B,
    ROLE_ATTENTION_OUTPUT,
    ROLE_ATTENTION_OUTPUT_BIAS,
    ROLE_ATTENTION_POST_NORM,
    ROLE_FFN_NORM,
    ROLE_FFN_NORM_BIAS,
    ROLE_FFN_POST_NORM,
    ROLE_GATE,
    ROLE_UP,
    ROLE_DOWN,
    ROLE_GATE_UP, /* Rows of gate, then of up. A GGUF file has it as ROLE_UP. */
    ROLE_GATE_BIAS,
    ROLE_UP_BIAS,
    ROLE_DOWN_BIAS,
    /* Experts (docs/models.md). A file has the experts' matrices of a layer as one tensor for each
     * kind (EXPERTS), with gate and up in one tensor or not, or as one tensor for each expert
     * (EXPERT). */
    ROLE_ROUTER,
    ROLE_ROUTER_BIAS,
    ROLE_ROUTER_CHOICE_BIAS,
    ROLE_EXPERTS_GATE_UP,
    ROLE_EXPERTS_GATE,
    ROLE_EXPERTS_UP,
    ROLE_EXPERTS_DOWN,
    ROLE_EXPERTS_GATE_UP_BIAS, /* One vector for each expert, in one tensor. */
    ROLE_EXPERTS_GATE_BIAS,
    ROLE_EXPERTS_UP_BIAS,
    ROLE_EXPERTS_DOWN_BIAS,
    ROLE_EXPERT_GATE,
    ROLE_EXPERT_UP,
    ROLE_EXPERT_DOWN,
    ROLE_SHARED_ROUTER, /* Its product with a row decides the weight of the shared experts. */
    ROLE_SHARED_GATE,   /* The experts that every row uses, as one expert. */
    ROLE_SHARED_UP,
    ROLE_SHARED_DOWN,
    /* Of a draft layer (model_hyper.draft_layers), which also has the roles of any other layer. It
     * may lack the last three; the tensors of the model then take their place. */
    ROLE_DRAFT_PROJECTION, /* Columns of the token's embedding, then of the final vector. */
    ROLE_DRAFT_TOKEN_NORM, /* Norm of the embedding. */
    ROLE_DRAFT_FINAL_NORM, /* Norm of the final vector. */
    ROLE_DRAFT_EMBEDDING,
    ROLE_DRAFT_OUTPUT_NORM,
    ROLE_DRAFT_OUTPUT,
    ROLE_ROPE_TABLE, /* RoPE table of old files, which is not used. */
    ROLE_COUNT
};

/* How a file names its tensors. */
enum role_names {
    ROLE_NAMES_GGUF,
    /* GGUF names of models whose feed-forward's norm has the name of a norm after attention. */
    ROLE_NAMES_GGUF_NORM_AFTER,
    ROLE_NAMES_HUB, /* Hugging Face names. */
    /* Hugging Face names of models with norms after attention and after feed-forward. */
    ROLE_NAMES_HUB_POST_NORMS,
    ROLE_NAMES_COUNT
};

#define ROLE_NAME_BYTES 96 /* A tensor's name, with its NUL. */

/* Returns true if tensors of this role belong to a layer. */
static inline bool role_is_of_layer(enum model_role role)
{
    return role >= ROLE_ATTENTION_NORM;
}

/* Returns true if only draft layers have tensors of this role. */
static inline bool role_is_of_draft(enum model_role role)
{
    return role >= ROLE_DRAFT_PROJECTION && role <= ROLE_DRAFT_OUTPUT;
}

/* Returns true if tensors of this role belong to one expert of a layer. */
static inline bool role_is_of_expert(enum model_role role)
{
    return role == ROLE_EXPERT_GATE || role == ROLE_EXPERT_UP || role == ROLE_EXPERT_DOWN;
}

/* A tensor of a role can have several names, its spellings. Writes the spelling with the number
 * `spelling` (from 0) to `out`. Returns false if there are fewer spellings. `layer` is used only
 * for roles of a layer, and `expert` only for roles of an expert. */
bool role_spelling(enum role_names names, enum model_role role, uint32_t layer, uint32_t expert,
                   uint32_t spelling, char out[ROLE_NAME_BYTES]);
/* Returns the number of the expert in the name of a tensor whose role is of an expert. */
uint32_t role_expert_number(struct mapped_text name);

/* Writes the tensor's first spelling to `out` and returns `out`; "" = the format has no tensor of
 * this role. `layer` is used only for roles of a layer. */
const char *role_name(enum role_names names, enum model_role role, uint32_t layer,
                      char out[ROLE_NAME_BYTES]);
/* Stores the role of the tensor with this name. Returns false for a name without a role. *layer_out
 * is 0 for roles outside the layers. */
bool role_find(enum role_names names, struct mapped_text name, enum model_role *role_out,
               uint32_t *layer_out);

#endif
