/* family: the table of the families of models: how each differs from Llama. model_file.c and
 * hyper.c look families up when they open a model. Any thread; no state. It reads no files. A
 * family whose models differ only in the fields of struct family is one row of the table in
 * family.c. */
#ifndef MODEL_FILE_FAMILY_H
#define MODEL_FILE_FAMILY_H

#include "model/file/roles.h"

/* Which norms q and k have. */
enum family_qk_norms {
    FAMILY_QK_NONE,
    FAMILY_QK_HEADS, /* Each head is normalised. */
    FAMILY_QK_WHOLE  /* All heads of q, and all heads of k, are normalised as one vector. */
};

struct family {
    const char *name; /* Name in GGUF files; NULL = another entry has this name. */
    const char *type; /* model_type in config.json. */
    const char *architecture;
    bool hub_post_norms; /* Folders name tensors by ROLE_NAMES_HUB_POST_NORMS. */
    /* RoPE in a GGUF file rotates the pairs (i, i + rope_dim/2). False for llama: the conversion
     * permutes q and k, so that rotated pairs are neighbours. */
    bool rope_neox;
    bool rope_pairs; /* RoPE in a folder rotates neighbours. */
    bool biases;     /* q, k and v must have biases. (Other biases are used if they are there.) */
    enum family_qk_norms qk_norms;
    bool layer_norms; /* LayerNorm instead of RMSNorm. */
    bool no_pre_norms;
    bool post_norms; /* Attention's and feed-forward's results are normalised. */
    bool parallel;   /* Attention and feed-forward read the same normalised input. */
    bool gelu;
    bool latent;            /* Latent attention. */
    bool experts;           /* Models may have experts. */
    bool experts_sigmoid;   /* Default of KEY_EXPERTS_GATING for folders. */
    bool experts_normalise; /* Default of KEY_EXPERTS_NORM. */
    bool embedding_scaled;  /* Embeddings are multiplied by the root of `hidden`. */
    bool norms_from_1;      /* Folders store the norms' weights minus 1; 1 is added. */
    bool logits_divided;    /* KEY_LOGIT_SCALE divides the logits instead of multiplying them. */
    /* Each layer of this number sees all tokens, and the layers between have a window and the local
     * base; 0 = all layers are alike. */
    uint32_t full_period;
    /* Default of local_freq_base; 0 = all layers have one base. FAMILY_LOCAL_SAME: rope_freq_base,
     * but without scaling. */
    float local_base;
    /* Each layer of this number does not rotate; 0 = all layers rotate. FAMILY_NO_ROPE_FULL: layers
     * without a window do not rotate. */
    uint32_t no_rope_period;
    uint32_t share_layers; /* Models of this many layers divide scores by hidden / head_count. */
    float rope_share;      /* Default of KEY_ROPE_SHARE for folders; 0 = 1. */
    float freq_base;       /* Default for folders whose config.json does not give it. */
};

#define FAMILY_NO_ROPE_FULL UINT32_MAX
#define FAMILY_LOCAL_SAME   (-1.0f)

/* Returns the family of this name in a folder (model_type) or a GGUF file; NULL = none. */
const struct family *family_find(struct mapped_text name, bool folder);

#define FAMILY_LIST_BYTES 512
/* Writes which names family_find knows, for an error: `are "llama", … and "qwen3"`. */
const char *family_list(bool folder, char out[FAMILY_LIST_BYTES]);

#endif
