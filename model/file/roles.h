/* roles: the role that a tensor has in a model, such as the q matrix of a layer, and the names that
 * tensors of each role have in each file format, for the code that finds and loads weights. Any
 * thread; no state. This part reads no files and checks no shapes. */
#ifndef MODEL_FILE_ROLES_H
#define MODEL_FILE_ROLES_H

#include "model/file/mapped.h"

enum model_role {
    ROLE_EMBEDDING,
    ROLE_OUTPUT_NORM, /* Norm after the last layer. */
    ROLE_OUTPUT_NORM_BIAS,
    ROLE_OUTPUT, /* Vocabulary matrix. */
    ROLE_OUTPUT_BIAS,
    ROLE_ROPE_FACTORS, /* Divisors of the RoPE frequencies (enum model_rope_kind). */
    ROLE_ROPE_LONG,    /* LongRoPE's divisors for long contexts. */
    ROLE_ROPE_SHORT,   /* LongRoPE's divisors for short contexts. */
    /* ROLE_ATTENTION_NORM and all later roles are roles of a layer. */
    ROLE_ATTENTION_NORM,
    ROLE_ATTENTION_NORM_BIAS,
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_QKV, /* One matrix with the rows of q, then of k, then of v. */
    ROLE_Q_BIAS,
    ROLE_K_BIAS,
    ROLE_V_BIAS,
    ROLE_QKV_BIAS,
    ROLE_Q_NORM,
    ROLE_K_NORM,
    ROLE_SINKS, /* One number for each head. */
    /* The roles from ROLE_Q_A to ROLE_V_B are matrices and norms of latent attention. */
    ROLE_Q_A, /* Makes the vector of q_rank values from which ROLE_Q_B makes the queries. */
    ROLE_Q_A_NORM,
    ROLE_Q_B,
    ROLE_KV_A, /* Makes the latent vector of a token (struct model_latent). */
    ROLE_KV_A_NORM,
    ROLE_KV_B, /* Makes keys and values of all heads from the latent vector. */
    /* Newer GGUF files have ROLE_K_B and ROLE_V_B instead of ROLE_KV_B. */
    ROLE_K_B, /* Makes keys; the matrix of each head is transposed. */
    ROLE_V_B, /* Makes values. */
    ROLE_ATTENTION_OUTPUT,
    ROLE_ATTENTION_OUTPUT_BIAS,
    ROLE_ATTENTION_POST_NORM,
    ROLE_FFN_NORM,
    ROLE_FFN_NORM_BIAS,
    ROLE_FFN_POST_NORM,
    ROLE_GATE,
    ROLE_UP,
    ROLE_DOWN,
    /* One matrix with the rows of gate, then of up. In GGUF files, it has the role ROLE_UP. */
    ROLE_GATE_UP,
    ROLE_GATE_BIAS,
    ROLE_UP_BIAS,
    ROLE_DOWN_BIAS,
    /* Experts (docs/models.md). A tensor of a role ROLE_EXPERTS_… has the matrices of all experts
     * of a layer; a tensor of a role ROLE_EXPERT_… has the matrix of one expert. */
    ROLE_ROUTER,
    ROLE_ROUTER_BIAS,
    ROLE_ROUTER_CHOICE_BIAS, /* compute_routing.choice_bias. */
    ROLE_EXPERTS_GATE_UP,
    ROLE_EXPERTS_GATE,
    ROLE_EXPERTS_UP,
    ROLE_EXPERTS_DOWN,
    /* A tensor of the next four roles has one vector for each expert. */
    ROLE_EXPERTS_GATE_UP_BIAS,
    ROLE_EXPERTS_GATE_BIAS,
    ROLE_EXPERTS_UP_BIAS,
    ROLE_EXPERTS_DOWN_BIAS,
    ROLE_EXPERT_GATE,
    ROLE_EXPERT_UP,
    ROLE_EXPERT_DOWN,
    ROLE_SHARED_ROUTER, /* Gives the weight of the shared experts; no tensor = the weight is 1. */
    /* A tensor of the next three roles has all shared experts of a layer, as one expert. */
    ROLE_SHARED_GATE,
    ROLE_SHARED_UP,
    ROLE_SHARED_DOWN,
    /* Only a draft layer (model_hyper.draft_layers) has tensors of the roles ROLE_DRAFT_…. */
    ROLE_DRAFT_PROJECTION,  /* Columns for the token's embedding, then for the final vector. */
    ROLE_DRAFT_TOKEN_NORM,  /* Norm of the embedding. */
    ROLE_DRAFT_FINAL_NORM,  /* Norm of the final vector. */
    ROLE_DRAFT_EMBEDDING,   /* No tensor = the draft layer uses ROLE_EMBEDDING. */
    ROLE_DRAFT_OUTPUT_NORM, /* No tensor = the draft layer uses ROLE_OUTPUT_NORM. */
    ROLE_DRAFT_OUTPUT,      /* No tensor = the draft layer uses ROLE_OUTPUT. */
    ROLE_ROPE_TABLE,        /* RoPE table in old files. cleave does not use it. */
    ROLE_COUNT
};

/* How the files of a model name tensors. */
enum role_names {
    ROLE_NAMES_GGUF, /* Names in GGUF files. */
    /* GGUF files in which ROLE_FFN_NORM has the name that ROLE_ATTENTION_POST_NORM has in other
     * GGUF files. */
    ROLE_NAMES_GGUF_NORM_AFTER,
    ROLE_NAMES_HUB,            /* Names in Hugging Face folders. */
    ROLE_NAMES_HUB_POST_NORMS, /* Names in folders of families with family.hub_post_norms. */
    ROLE_NAMES_COUNT
};

#define ROLE_NAME_BYTES 96 /* A tensor's name, with its NUL. */

/* Returns true if a tensor of this role belongs to one layer. */
static inline bool role_is_of_layer(enum model_role role)
{
    return role >= ROLE_ATTENTION_NORM;
}

/* Returns true if only draft layers have tensors of this role. */
static inline bool role_is_of_draft(enum model_role role)
{
    return role >= ROLE_DRAFT_PROJECTION && role <= ROLE_DRAFT_OUTPUT;
}

/* Returns true if a tensor of this role belongs to one expert of a layer. */
static inline bool role_is_of_expert(enum model_role role)
{
    return role == ROLE_EXPERT_GATE || role == ROLE_EXPERT_UP || role == ROLE_EXPERT_DOWN;
}

/* Writes a name of a role's tensor to `out`. A format may have several names (spellings) for one
 * role; `spelling` is the number of a spelling, from 0. Returns false, and writes "", if the format
 * has fewer spellings. `layer` is used only for roles of a layer, and `expert` only for roles of an
 * expert. */
bool role_spelling(enum role_names names, enum model_role role, uint32_t layer, uint32_t expert,
                   uint32_t spelling, char out[ROLE_NAME_BYTES]);
/* Returns the number of the expert in a tensor's name. Requires role_is_of_expert for the tensor's
 * role. */
uint32_t role_expert_number(struct mapped_text name);

/* Writes the first spelling of a role to `out`, for expert 0 if the role is of an expert, and
 * returns `out`; "" = the format has no tensor of this role. `layer` is used only for roles of a
 * layer. */
const char *role_name(enum role_names names, enum model_role role, uint32_t layer,
                      char out[ROLE_NAME_BYTES]);
/* Stores the role of the tensor with this name, and the tensor's layer (0 if the role is not of a
 * layer). Returns false, and stores nothing, if the format has no role for the name. */
bool role_find(enum role_names names, struct mapped_text name, enum model_role *role_out,
               uint32_t *layer_out);

#endif
