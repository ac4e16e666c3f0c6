/* family: see family.h. */
#include "model/file/family.h"

#include <stdio.h>

static const struct family families[] = {
    /* GGUF files of Mixtral have the architecture llama. */
    {.name = "llama",
     .type = "llama",
     .architecture = "llama",
     .experts = true,
     .experts_normalise = true},
    {.type = "mistral", .architecture = "llama"},
    {.type = "mixtral", .architecture = "llama", .experts = true, .experts_normalise = true},
    {.name = "qwen2", .type = "qwen2", .architecture = "qwen2", .rope_neox = true, .biases = true},
    {.name = "qwen3",
     .type = "qwen3",
     .architecture = "qwen3",
     .rope_neox = true,
     .qk_norms = FAMILY_QK_HEADS},
    {.name = "qwen2moe",
     .type = "qwen2_moe",
     .architecture = "qwen2moe",
     .rope_neox = true,
     .biases = true,
     .experts = true},
    {.name = "qwen3moe",
     .type = "qwen3_moe",
     .architecture = "qwen3moe",
     .rope_neox = true,
     .qk_norms = FAMILY_QK_HEADS,
     .experts = true,
     .experts_normalise = true},
    {.name = "olmoe",
     .type = "olmoe",
     .architecture = "olmoe",
     .rope_neox = true,
     .qk_norms = FAMILY_QK_WHOLE,
     .experts = true},
    {.name = "granitemoe",
     .type = "granitemoe",
     .architecture = "granitemoe",
     .logits_divided = true,
     .experts = true,
     .experts_normalise = true},
    {.name = "gemma2",
     .type = "gemma2",
     .architecture = "gemma2",
     .hub_post_norms = true,
     .rope_neox = true,
     .post_norms = true,
     .gelu = true,
     .embedding_scaled = true,
     .norms_from_1 = true,
     .full_period = 2,
     .hidden_scale_layers = 46}, /* The largest Gemma 2. */
    {.name = "gemma3",
     .type = "gemma3_text",
     .architecture = "gemma3",
     .hub_post_norms = true,
     .rope_neox = true,
     .qk_norms = FAMILY_QK_HEADS,
     .post_norms = true,
     .gelu = true,
     .embedding_scaled = true,
     .norms_from_1 = true,
     .full_period = 6,
     .local_base = 10000.0f,
     .hidden_scale_layers = 62, /* The largest Gemma 3. */
     .freq_base = 1e6f},
    {.name = "deepseek2",
     .type = "deepseek_v2",
     .architecture = "deepseek2",
     .rope_pairs = true,
     .latent = true,
     .draft_layers = true,
     .experts = true},
    {.type = "deepseek_v3",
     .architecture = "deepseek2",
     .rope_pairs = true,
     .latent = true,
     .draft_layers = true,
     .experts = true,
     .experts_sigmoid = true,
     .experts_normalise = true},
    {.name = "gpt-oss",
     .type = "gpt_oss",
     .architecture = "gpt-oss",
     .gguf_norm_after = true,
     .rope_neox = true,
     .biases = true,
     .experts = true,
     .experts_normalise = true,
     .experts_biases = true,
     .experts_limited = true,
     .experts_alternate = true,
     .sinks = true,
     .full_period = 2,
     .freq_base = 150000.0f,
     .yarn_fractions = true},
    {.name = "phi3", .type = "phi3", .architecture = "phi3", .rope_neox = true},
    {.name = "granite", .type = "granite", .architecture = "granite", .logits_divided = true},
    /* GGUF files of OLMo 3 have the architecture olmo2. */
    {.name = "olmo2",
     .type = "olmo3",
     .architecture = "olmo2",
     .hub_post_norms = true,
     .rope_neox = true,
     .qk_norms = FAMILY_QK_WHOLE,
     .no_pre_norms = true,
     .post_norms = true,
     .full_period = 4,
     .local_base = FAMILY_LOCAL_SAME},
    {.type = "olmo2",
     .architecture = "olmo2",
     .hub_post_norms = true,
     .qk_norms = FAMILY_QK_WHOLE,
     .no_pre_norms = true,
     .post_norms = true},
    {.name = "command-r",
     .type = "cohere",
     .architecture = "command-r",
     .rope_pairs = true,
     .layer_norms = true,
     .parallel = true},
    {.name = "cohere2",
     .type = "cohere2",
     .architecture = "cohere2",
     .rope_pairs = true,
     .layer_norms = true,
     .parallel = true,
     .full_period = 4,
     .no_rope_period = FAMILY_NO_ROPE_FULL},
    {.name = "glm4",
     .type = "glm4",
     .architecture = "glm4",
     .rope_pairs = true,
     .post_norms = true,
     .rope_share = 0.5f},
    {.name = "chatglm",
     .type = "glm",
     .architecture = "chatglm",
     .rope_pairs = true,
     .rope_share = 0.5f},
    {.name = "stablelm",
     .type = "stablelm",
     .architecture = "stablelm",
     .rope_neox = true,
     .layer_norms = true,
     .rope_share = 0.25f},
    {.name = "starcoder2",
     .type = "starcoder2",
     .architecture = "starcoder2",
     .rope_neox = true,
     .layer_norms = true,
     .gelu = true,
     .plain_ffn = true},
    {.name = "phi2",
     .type = "phi",
     .architecture = "phi2",
     .rope_neox = true,
     .layer_norms = true,
     .parallel = true,
     .gelu = true,
     .plain_ffn = true,
     .rope_share = 0.5f},
    {.name = "smollm3", .type = "smollm3", .architecture = "smollm3", .no_rope_period = 4},
};

#define FAMILY_COUNT (sizeof(families) / sizeof(families[0]))

static const char *name_in(const struct family *family, bool folder)
{
    return folder ? family->type : family->name;
}

const struct family *family_find(struct mapped_text name, bool folder)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        const char *known = name_in(&families[i], folder);
        if (known != NULL && mapped_text_equals(name, known))
            return &families[i];
    }
    return NULL;
}

const char *family_list(bool folder, char out[FAMILY_LIST_BYTES])
{
    size_t used = 0, left = 0;
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        left += name_in(&families[i], folder) != NULL;
    for (size_t i = 0; i < FAMILY_COUNT && used < FAMILY_LIST_BYTES; i++) {
        const char *name = name_in(&families[i], folder);
        if (name == NULL)
            continue;
        left--;
        used += (size_t)snprintf(out + used, FAMILY_LIST_BYTES - used, "%s\"%s\"%s",
                                 used == 0 ? "are " : "", name,
                                 left > 1    ? ", "
                                 : left == 1 ? " and "
                                             : "");
    }
    return out;
}
