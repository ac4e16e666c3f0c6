/* family: the table of the families of models, which says how each family differs from Llama. The
 * table is constant, so any thread may read it. model_file.c and hyper.c look up a model's family;
 * the files hyper*.c let keys of the model's files (keys.h) override some values of the table.
 * This part reads no files. */
#ifndef MODEL_FILE_FAMILY_H
#define MODEL_FILE_FAMILY_H

#include "model/file/roles.h"

/* How q and k are normalised before they are rotated. */
enum family_qk_norms {
    FAMILY_QK_NONE,
    FAMILY_QK_HEADS, /* Each head by itself. */
    FAMILY_QK_WHOLE  /* All heads of q as one vector, and all heads of k as one vector. */
};

/* A family of models. */
struct family {
    /* Name in GGUF files (general.architecture). NULL = GGUF files have the name of another family,
     * such as "llama" for Mistral. */
    const char *name;
    const char *type;         /* Name in folders (model_type in config.json). */
    const char *architecture; /* Name in errors and logs (model_hyper.architecture). */
    bool hub_post_norms;      /* Folders name tensors by ROLE_NAMES_HUB_POST_NORMS. */
    bool gguf_norm_after;     /* GGUF files name tensors by ROLE_NAMES_GGUF_NORM_AFTER. */
    /* In GGUF files, RoPE rotates the dimensions i and i + rope_dim/2 together; false = 2i and
     * 2i + 1. */
    bool rope_neox;
    /* In folders, RoPE rotates the dimensions 2i and 2i + 1 together; false = i and
     * i + rope_dim/2. */
    bool rope_pairs;
    bool biases; /* The tensors ROLE_Q, ROLE_K and ROLE_V must have biases; false = optional. */
    enum family_qk_norms qk_norms;
    bool layer_norms;  /* LayerNorm instead of RMSNorm. */
    bool no_pre_norms; /* The inputs of attention and feed-forward are not normalised. */
    bool post_norms;   /* The results of attention and feed-forward are normalised. */
    /* Attention and feed-forward read the same normalised input. KEY_PARALLEL overrides this
     * value. */
    bool parallel;
    bool gelu;              /* Default of KEY_ACTIVATION: GELU in its tanh form; false = SiLU. */
    bool plain_ffn;         /* The feed-forward has no gate: down · activation(up). */
    bool latent;            /* Latent attention (struct model_latent). */
    bool draft_layers;      /* Models may have draft layers. */
    bool experts;           /* Models may have experts. */
    bool experts_sigmoid;   /* Default of KEY_EXPERTS_GATING for folders. */
    bool experts_normalise; /* Default of KEY_EXPERTS_NORM. */
    bool experts_biases;    /* The router and the experts must have biases. */
    /* Experts have a limited gate (struct compute_gate) with limit 7 and alpha 1.702.
     * KEY_GATE_LIMIT and KEY_GATE_ALPHA override these numbers. */
    bool experts_limited;
    /* In folders, one tensor has the matrices of all experts, and in the tensor of gate and up the
     * rows of gate and up alternate. If the tensors are F32, F16 or BF16, each matrix is
     * transposed. */
    bool experts_alternate;
    bool sinks; /* Each head has a sink (compute_attention.sinks). */
    /* Rows of the embedding matrix are multiplied by the root of `hidden`, unless the file has
     * KEY_EMBEDDING_SCALE. */
    bool embedding_scaled;
    bool norms_from_1;   /* Folders store the norms' weights minus 1. */
    bool logits_divided; /* KEY_LOGIT_SCALE divides the logits instead of multiplying them. */
    /* Every full_period-th layer (counted from 1) has no window; 0 = layers before KEY_WINDOW_FIRST
     * have no window. KEY_LOCAL_PERIOD overrides a full_period above 0. A list of the layers' kinds
     * in the file (key_layer_type) overrides full_period and KEY_LOCAL_PERIOD. */
    uint32_t full_period;
    /* Default of KEY_ROPE_BASE_LOCAL, the base of the rotary embedding in layers with a window,
     * which then rotate without scaling. FAMILY_LOCAL_SAME = the base of the other layers. 0 = all
     * layers have one base and scaling, and the key is not read. */
    float local_base;
    /* Every no_rope_period-th layer (counted from 1) does not rotate q and k; 0 = all layers
     * rotate. FAMILY_NO_ROPE_FULL = layers without a window do not rotate. config.json's
     * no_rope_layers (key_layer_rotates) overrides a no_rope_period above 0. */
    uint32_t no_rope_period;
    /* Models with this number of layers divide attention scores by the root of hidden / head_count
     * instead of the root of head_dim; 0 = none. KEY_QUERY_SCALAR and KEY_ATTENTION_SCALE override
     * the divisor. */
    uint32_t hidden_scale_layers;
    float rope_share;    /* Default of KEY_ROPE_SHARE; 0 = the default is 1. */
    float freq_base;     /* Default of KEY_ROPE_BASE for folders; 0 = the default is 10000. */
    bool yarn_fractions; /* In GGUF files, YaRN's limits are not rounded to whole dimensions. */
};

#define FAMILY_NO_ROPE_FULL UINT32_MAX
#define FAMILY_LOCAL_SAME   (-1.0f)

/* Returns the family whose name in folders (family.type) or, if `folder` is false, in GGUF files
 * (family.name) is `name`; NULL = none. */
const struct family *family_find(struct mapped_text name, bool folder);

#define FAMILY_LIST_BYTES 512
/* Writes all names that family_find finds, for an error text: `are "llama", … and "smollm3"`.
 * Returns `out`. */
const char *family_list(bool folder, char out[FAMILY_LIST_BYTES]);

#endif
