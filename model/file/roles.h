/* roles: the role of each tensor in a model, and the tensor's name in each file format.
 * model_file.c and the code that loads weights (model/forward/) use it. Any thread; no state. It
 * reads no file and checks no shape. */
#ifndef MODEL_FILE_ROLES_H
#define MODEL_FILE_ROLES_H

#include "model/file/mapped.h"

enum model_role {
    ROLE_EMBEDDING,
    ROLE_OUTPUT_NORM,
    ROLE_OUTPUT,       /* Vocabulary matrix. */
    ROLE_ROPE_FACTORS, /* Divisors of the RoPE frequencies. */
    /* The roles below exist once per layer. */
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
    ROLE_ROPE_TABLE, /* RoPE table of old files, which is not used. */
    ROLE_COUNT
};

/* How a file names its tensors. */
enum role_names {
    ROLE_NAMES_GGUF,
    ROLE_NAMES_HUB, /* Hugging Face names. */
    /* Hugging Face names of models with norms after attention and after feed-forward. */
    ROLE_NAMES_HUB_POST_NORMS,
    ROLE_NAMES_COUNT
};

#define ROLE_NAME_BYTES 96 /* A tensor's name, with its NUL. */

static inline bool role_of_layer(enum model_role role)
{
    return role >= ROLE_ATTENTION_NORM;
}

/* Writes the tensor's name to `out` and returns `out`; "" = the format has no tensor of this role.
 * `layer` is used only for roles of a layer. */
const char *role_name(enum role_names names, enum model_role role, uint32_t layer,
                      char out[ROLE_NAME_BYTES]);
/* Stores the role of the tensor with this name. Returns false for a name without a role. *layer_out
 * is 0 for roles outside the layers. */
bool role_find(enum role_names names, struct mapped_text name, enum model_role *role_out,
               uint32_t *layer_out);

#endif
