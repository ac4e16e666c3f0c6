/* family: the table of the families of models: how each family differs from Llama. The table does
 * not change, so any thread may read it. Other files of model/file/ look families up while a model
 * is opened. It reads no files: the keys of a model's file (keys.h) override some of its values. To
 * add a family that needs no new field, add a row to the table in family.c. */
#ifndef MODEL_FILE_FAMILY_H
#define MODEL_FILE_FAMILY_H

#include "model/file/roles.h"

/* Which norms q and k have. */
enum family_qk_norms {
    FAMILY_QK_NONE,
    FAMILY_QK_HEADS, /* Each head is normalised. */
    FAMILY_QK_WHOLE  /* All heads of q together, and all heads of k together, are normalised. */
};

/* A family of models. */
struct family {
    /* Name in GGUF files; NULL = GGUF files of the family have the name of another family. (GGUF
     * files of Mistral have "llama".) */
    const char *name;
    const char *type;         /* model_type in config.json. */
    const char *architecture; /* Name in errors and logs (model_hyper.architecture). */
    bool hub_post_norms;      /* Folders name tensors by ROLE_NAMES_HUB_POST_NORMS. */
    bool gguf_norm_after;     /* GGUF files name tensors by ROLE_NAMES_GGUF_NORM_AFTER. */
    /* RoPE in a GGUF file rotates the pairs (i, i + rope_dim/2). False for llama: the conversion
     * permutes q and k, so that rotated pairs are neighbours. */
    bool rope_neox;
    bool rope_pairs; /* RoPE in a folder rotates neighbours. */
    /* q, k and v must have biases. (Other biases are used if the file has them.) */
    bool biases;
    enum family_qk_norms qk_norms;
    bool layer_norms;  /* LayerNorm instead of RMSNorm. */
    bool no_pre_norms; /* The inputs of attention and feed-forward are not normalised. */
    bool post_norms;   /* The results of attention and feed-forward are normalised. */
    /* Attention and feed-forward read the same normalised input; KEY_PARALLEL overrides it. */
    bool parallel;
    bool gelu;              /* Default of KEY_ACTIVATION: GELU in its tanh form; false = SiLU. */
    bool plain_ffn;         /* The feed-forward has no gate: down · gelu(up). */
    bool latent;            /* Latent attention. */
    bool draft_layers;      /* Models may have draft layers. */
    bool experts;           /* Models may have experts. */
    bool experts_sigmoid;   /* Default of KEY_EXPERTS_GATING for folders. */
    bool experts_normalise; /* Default of KEY_EXPERTS_NORM. */
    bool experts_biases;    /* The router and the experts must have biases. */
    /* Experts have the limited gate of struct compute_gate. KEY_EXPERTS_LIMIT and KEY_EXPERTS_ALPHA
     * override its numbers. */
    bool experts_limited;
    /* In folders, stacks of experts' matrices of F32, F16 and BF16 are transposed, and in stacks of
     * every type the rows of gate and up alternate. */
    bool experts_alternate;
    bool sinks; /* Each head has a sink. */
    /* Rows of the embedding matrix are multiplied by the root of `hidden`, unless the file has
     * KEY_EMBEDDING_SCALE. */
    bool embedding_scaled;
    bool norms_from_1;   /* Folders store the norms' weights minus 1; 1 is added. */
    bool logits_divided; /* KEY_LOGIT_SCALE divides the logits instead of multiplying them. */
    /* Every full_period-th layer (counted from 1) sees all tokens; the other layers have a window
     * and the local base (local_base). 0 = no such pattern: layers from KEY_WINDOW_FIRST on have
     * the window, if the model has one. A list of the layers' kinds in the file (key_layer_type)
     * overrides the pattern. Without a list, KEY_LOCAL_PERIOD replaces a full_period that is not
     * 0. */
    uint32_t full_period;
    /* Base of the rotary embedding in layers with a window (model_hyper.local_freq_base), if the
     * file does not give it; 0 = all layers have one base. FAMILY_LOCAL_SAME: rope_freq_base, but
     * without scaling. */
    float local_base;
    /* Every no_rope_period-th layer (counted from 1) does not rotate; 0 = all layers rotate.
     * FAMILY_NO_ROPE_FULL: layers without a window do not rotate. If it is not 0, no_rope_layers of
     * config.json overrides it (key_layer_rotates). */
    uint32_t no_rope_period;
    /* Models with this number of layers divide attention scores by the root of hidden / head_count
     * instead of the root of head_dim, unless the file has KEY_QUERY_SCALAR or KEY_ATTENTION_SCALE.
     * 0 = no models. */
    uint32_t hidden_scale_layers;
    float rope_share; /* Default of KEY_ROPE_SHARE; 0 = 1. KEY_ROPE_DIM overrides both. */
    float freq_base;  /* Default of KEY_ROPE_BASE for folders; 0 = 10000. */
    /* YaRN's limits in a GGUF file are not rounded to whole dimensions. (Folders have
     * KEY_ROPE_TRUNCATE; GGUF files have no such key.) */
    bool yarn_fractions;
};

#define FAMILY_NO_ROPE_FULL UINT32_MAX
#define FAMILY_LOCAL_SAME   (-1.0f)

/* Returns the family of this name in a folder (model_type) or a GGUF file; NULL = none. */
const struct family *family_find(struct mapped_text name, bool folder);

#define FAMILY_LIST_BYTES 512
/* Writes the names that family_find knows, for an error text: `are "llama", … and "qwen3"`. Returns
 * `out`. */
const char *family_list(bool folder, char out[FAMILY_LIST_BYTES]);

#endif
