/* roles: what each tensor of a model is for, and what it is called in the files of each format. */
#ifndef MODEL_ROLES_H
#define MODEL_ROLES_H

#include "model/mapped.h"

enum model_role {
    ROLE_EMBEDDING,
    ROLE_OUTPUT_NORM,
    ROLE_OUTPUT,
    ROLE_ROPE_FACTORS,
    /* Of a layer, from here on. */
    ROLE_ATTENTION_NORM,
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_Q_BIAS,
    ROLE_K_BIAS,
    ROLE_V_BIAS,
    ROLE_Q_NORM,
    ROLE_K_NORM,
    ROLE_ATTENTION_OUTPUT,
    ROLE_ATTENTION_POST_NORM,
    ROLE_FFN_NORM,
    ROLE_FFN_POST_NORM,
    ROLE_GATE,
    ROLE_UP,
    ROLE_DOWN,
    ROLE_ROPE_TABLE, /* of old files: made anew */
    ROLE_COUNT
};

enum role_names {
    ROLE_NAMES_GGUF,
    ROLE_NAMES_HUB,            /* Hugging Face's */
    ROLE_NAMES_HUB_POST_NORMS, /* the same where norms follow attention and feed-forward */
    ROLE_NAMES_COUNT
};

#define ROLE_NAME_BYTES 96

static inline bool role_of_layer(enum model_role role)
{
    return role >= ROLE_ATTENTION_NORM;
}

/* What the tensor is called; "" if this format has none. Returns `out`. */
const char *role_name(enum role_names names, enum model_role role, uint32_t layer,
                      char out[ROLE_NAME_BYTES]);
/* The other way round; false for a name that has no role. *layer_out is 0 outside the layers. */
bool role_find(enum role_names names, struct mapped_text name, enum model_role *role_out,
               uint32_t *layer_out);

#endif
