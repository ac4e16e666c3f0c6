/* hyper: reads a model's hyper-parameters from GGUF metadata and refuses what this engine would
 * compute wrongly: every key that changes the numbers is either honoured or an error. See model.h.
 */
#include "model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define HYPER_HIDDEN_MAX                                                                           \
    65536 /* wider than any dense model; keeps every product of two in 32 bits */
#define HYPER_FFN_MAX      524288 /* 8 × HYPER_HIDDEN_MAX */
#define HYPER_HEADS_MAX    1024
#define HYPER_HEAD_DIM_MAX 512
#define HYPER_VOCAB_MAX    (1u << 20)

/* What is read: the file and its architecture, the prefix of most keys. */
struct hyper_reader {
    const struct gguf *g;
    const char *architecture;
    struct error *error;
};

static void key_of(const struct hyper_reader *r, const char *suffix, char out[128])
{
    snprintf(out, 128, "%s.%s", r->architecture, suffix);
}

/* An optional key leaves *value at its default. */
static enum status read_u32(const struct hyper_reader *r, const char *suffix, bool required,
                            uint32_t *value)
{
    char key[128];
    key_of(r, suffix, key);
    enum status status = gguf_get_u32(r->g, key, value, r->error);
    if (status == ST_NOT_FOUND)
        return required ? error_set(r->error, ST_INVALID, "key %s is missing", key) : ST_OK;
    return status;
}

static enum status read_f32(const struct hyper_reader *r, const char *suffix, bool required,
                            float *value)
{
    char key[128];
    key_of(r, suffix, key);
    enum status status = gguf_get_f32(r->g, key, value, r->error);
    if (status == ST_NOT_FOUND)
        return required ? error_set(r->error, ST_INVALID, "key %s is missing", key) : ST_OK;
    return status;
}

static enum status check_range(const struct hyper_reader *r, const char *suffix, uint32_t value,
                               uint32_t min, uint32_t max)
{
    if (value >= min && value <= max)
        return ST_OK;
    return error_set(r->error, ST_INVALID, "key %s.%s is %" PRIu32 ", want %" PRIu32 " to %" PRIu32,
                     r->architecture, suffix, value, min, max);
}

static enum status read_u32_in(const struct hyper_reader *r, const char *suffix, bool required,
                               uint32_t min, uint32_t max, uint32_t *value)
{
    enum status status = read_u32(r, suffix, required, value);
    return status != ST_OK ? status : check_range(r, suffix, *value, min, max);
}

static bool string_is(const struct gguf_string *s, const char *text)
{
    return s->bytes == strlen(text) && memcmp(s->text, text, s->bytes) == 0;
}

static void string_copy(const struct gguf_string *s, char *out, size_t capacity)
{
    size_t bytes = s->bytes < capacity ? s->bytes : capacity - 1;
    memcpy(out, s->text, bytes);
    out[bytes] = 0;
}

struct family {
    const char *name;
    bool rope_neox; /* the conversion to GGUF permutes llama's q and k: rotated pairs are neighbours
                     */
    bool biases, head_norms, post_norms, gelu, embedding_scaled;
    uint32_t local_period;
};

static const struct family families[] = {
    {.name = "llama"},
    {.name = "qwen2", .rope_neox = true, .biases = true},
    {.name = "qwen3", .rope_neox = true, .head_norms = true},
    {.name = "gemma3",
     .rope_neox = true,
     .head_norms = true,
     .post_norms = true,
     .gelu = true,
     .embedding_scaled = true,
     .local_period = 6},
};

static const struct family *family_find(const struct gguf_string *name)
{
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        if (string_is(name, families[i].name))
            return &families[i];
    return NULL;
}

static enum status read_architecture(const struct gguf *g, struct model_hyper *h,
                                     struct error *error)
{
    struct gguf_string name;
    enum status status = gguf_get_string(g, "general.architecture", &name, error);
    if (status == ST_NOT_FOUND)
        return error_set(error, ST_INVALID, "key general.architecture is missing");
    if (status != ST_OK)
        return status;
    const struct family *family = family_find(&name);
    if (family == NULL) {
        char shown[64];
        string_copy(&name, shown, sizeof(shown));
        return error_set(error, ST_UNSUPPORTED,
                         "general.architecture is \"%s\", supported are \"llama\", \"qwen2\", "
                         "\"qwen3\" and \"gemma3\"",
                         shown);
    }
    string_copy(&name, h->architecture, sizeof(h->architecture));
    h->rope_neox = family->rope_neox;
    h->biases = family->biases;
    h->head_norms = family->head_norms;
    h->post_norms = family->post_norms;
    h->gelu = family->gelu;
    h->embedding_scale = family->embedding_scaled ? 0 : 1; /* 0 until the width is known */
    h->local_period = family->local_period;
    status = gguf_get_string(g, "general.name", &name, error);
    if (status == ST_OK)
        string_copy(&name, h->name, sizeof(h->name));
    else if (status == ST_NOT_FOUND)
        snprintf(h->name, sizeof(h->name), "%s", h->architecture);
    else
        return status;
    return ST_OK;
}

static enum status read_sizes(const struct hyper_reader *r, struct model_hyper *h)
{
    enum status status = read_u32_in(r, "block_count", true, 1, LIMIT_LAYERS, &h->layer_count);
    if (status == ST_OK)
        status = read_u32_in(r, "embedding_length", true, 1, HYPER_HIDDEN_MAX, &h->hidden);
    if (status == ST_OK)
        status = read_u32_in(r, "feed_forward_length", true, 1, HYPER_FFN_MAX, &h->ffn);
    if (status == ST_OK)
        status = read_u32_in(r, "context_length", true, 1, UINT32_MAX, &h->context_tokens);
    if (status != ST_OK)
        return status;
    /* Within its window, sliding-window attention is full attention; beyond it, we would be wrong.
     */
    uint32_t window = 0;
    status = read_u32(r, "attention.sliding_window", false, &window);
    if (status == ST_OK && window != 0 && window < h->context_tokens)
        h->context_tokens = window;
    return status;
}

static enum status read_heads(const struct hyper_reader *r, struct model_hyper *h)
{
    enum status status =
        read_u32_in(r, "attention.head_count", true, 1, HYPER_HEADS_MAX, &h->head_count);
    if (status != ST_OK)
        return status;
    h->kv_head_count = h->head_count;
    status = read_u32_in(r, "attention.head_count_kv", false, 1, h->head_count, &h->kv_head_count);
    if (status != ST_OK)
        return status;
    if (h->head_count % h->kv_head_count != 0)
        return error_set(r->error, ST_INVALID,
                         "key %s.attention.head_count is %" PRIu32
                         ", want a multiple of attention.head_count_kv, which is %" PRIu32,
                         r->architecture, h->head_count, h->kv_head_count);
    h->head_dim = 0;
    status = read_u32_in(r, "attention.key_length", false, 0, HYPER_HEAD_DIM_MAX, &h->head_dim);
    if (status != ST_OK)
        return status;
    if (h->head_dim == 0) {
        if (h->hidden % h->head_count != 0)
            return error_set(r->error, ST_INVALID,
                             "key %s.embedding_length is %" PRIu32
                             ", want a multiple of attention.head_count, which is %" PRIu32,
                             r->architecture, h->hidden, h->head_count);
        h->head_dim = h->hidden / h->head_count;
    }
    if (h->head_dim % 2 != 0 || h->head_dim > HYPER_HEAD_DIM_MAX)
        return error_set(r->error, ST_INVALID,
                         "a head of %s has %" PRIu32 " dimensions, want an even number up to %d",
                         r->architecture, h->head_dim, HYPER_HEAD_DIM_MAX);
    if (h->head_count * h->head_dim > HYPER_HIDDEN_MAX)
        return error_set(r->error, ST_INVALID,
                         "%s has %" PRIu32 " heads of %" PRIu32 " dimensions, want up to %d in all",
                         r->architecture, h->head_count, h->head_dim, HYPER_HIDDEN_MAX);
    uint32_t value_length = h->head_dim;
    status = read_u32(r, "attention.value_length", false, &value_length);
    if (status == ST_OK && value_length != h->head_dim)
        return error_set(r->error, ST_UNSUPPORTED,
                         "key %s.attention.value_length is %" PRIu32
                         ", supported is the length of a key, which is %" PRIu32,
                         r->architecture, value_length, h->head_dim);
    return status;
}

/* The key's newer form is rope.scaling.type with .factor, the older one rope.scale_linear. */
static enum status read_rope_scaling(const struct hyper_reader *r, float *factor)
{
    char key[128];
    key_of(r, "rope.scaling.type", key);
    struct gguf_string type;
    enum status status = gguf_get_string(r->g, key, &type, r->error);
    if (status == ST_NOT_FOUND) {
        status = read_f32(r, "rope.scale_linear", false, factor);
        return status != ST_OK ? status : read_f32(r, "rope.scaling.factor", false, factor);
    }
    if (status != ST_OK || string_is(&type, "none"))
        return status;
    if (string_is(&type, "linear")) {
        status = read_f32(r, "rope.scale_linear", false, factor);
        return status != ST_OK ? status : read_f32(r, "rope.scaling.factor", false, factor);
    }
    char shown[64];
    string_copy(&type, shown, sizeof(shown));
    return error_set(r->error, ST_UNSUPPORTED,
                     "key %s is \"%s\", supported are \"none\" and \"linear\"", key, shown);
}

static enum status read_rope(const struct hyper_reader *r, struct model_hyper *h)
{
    h->rope_dim = h->head_dim;
    enum status status =
        read_u32_in(r, "rope.dimension_count", false, 2, h->head_dim, &h->rope_dim);
    if (status != ST_OK)
        return status;
    if (h->rope_dim % 2 != 0)
        return error_set(r->error, ST_INVALID,
                         "key %s.rope.dimension_count is %" PRIu32 ", want an even number",
                         r->architecture, h->rope_dim);
    h->rope_freq_base = 10000.0f;
    status = read_f32(r, "rope.freq_base", false, &h->rope_freq_base);
    if (status != ST_OK)
        return status;
    if (!(h->rope_freq_base > 0.0f) || !isfinite(h->rope_freq_base))
        return error_set(r->error, ST_INVALID, "key %s.rope.freq_base is %g, want a number above 0",
                         r->architecture, (double)h->rope_freq_base);
    float factor = 1.0f;
    status = read_rope_scaling(r, &factor);
    if (status != ST_OK)
        return status;
    if (factor == 0.0f)
        factor = 1.0f; /* how some converters write "none" */
    if (!(factor > 0.0f) || !isfinite(factor))
        return error_set(r->error, ST_INVALID,
                         "the factor of %s.rope.scaling is %g, want a number above 0",
                         r->architecture, (double)factor);
    h->rope_freq_scale = 1.0f / factor;
    return ST_OK;
}

/* Gemma 3: five of six layers see a window only (read_sizes keeps the context within it) and rotate
 * by a base of their own, unscaled. */
static enum status read_local(const struct hyper_reader *r, struct model_hyper *h)
{
    if (h->embedding_scale == 0)
        h->embedding_scale = sqrtf((float)h->hidden);
    /* The largest Gemma 3 divides by the width of a share of the hidden state instead. */
    bool share = h->local_period != 0 && h->layer_count == 62;
    h->attention_scale = 1.0f / sqrtf((float)(share ? h->hidden / h->head_count : h->head_dim));
    if (h->local_period == 0)
        return ST_OK;
    h->local_freq_base = 10000.0f;
    enum status status = read_f32(r, "rope.freq_base_swa", false, &h->local_freq_base);
    if (status == ST_OK)
        status = read_u32_in(r, "attention.sliding_window_pattern", false, 1, LIMIT_LAYERS,
                             &h->local_period);
    if (status == ST_OK && (!(h->local_freq_base > 0.0f) || !isfinite(h->local_freq_base)))
        return error_set(r->error, ST_INVALID,
                         "key %s.rope.freq_base_swa is %g, want a number above 0", r->architecture,
                         (double)h->local_freq_base);
    return status;
}

static enum status read_vocab(const struct hyper_reader *r, struct model_hyper *h)
{
    const struct gguf_tensor *t = gguf_tensor_find(r->g, "token_embd.weight");
    if (t == NULL)
        return error_set(r->error, ST_INVALID, "tensor token_embd.weight is missing");
    if (t->dim_count != 2 || t->dims[0] != h->hidden || t->dims[1] == 0 ||
        t->dims[1] > HYPER_VOCAB_MAX)
        return error_set(r->error, ST_INVALID,
                         "tensor token_embd.weight has %" PRIu32 " dimensions, %" PRIu64
                         " x %" PRIu64 ", want 2, %" PRIu32 " x vocabulary (1 to %u)",
                         t->dim_count, t->dims[0], t->dim_count > 1 ? t->dims[1] : 1, h->hidden,
                         HYPER_VOCAB_MAX);
    h->vocab = (uint32_t)t->dims[1];
    return ST_OK;
}

enum status model_hyper_read(const struct gguf *g, struct model_hyper *out, struct error *error)
{
    struct model_hyper h = {0};
    enum status status = read_architecture(g, &h, error);
    if (status != ST_OK)
        return status;
    const struct hyper_reader reader = {.g = g, .architecture = h.architecture, .error = error};
    const struct hyper_reader *r = &reader;
    status = read_sizes(r, &h);
    if (status == ST_OK)
        status = read_heads(r, &h);
    if (status == ST_OK)
        status = read_rope(r, &h);
    if (status == ST_OK)
        status = read_local(r, &h);
    if (status == ST_OK)
        status = read_f32(r, "attention.layer_norm_rms_epsilon", true, &h.norm_epsilon);
    if (status != ST_OK)
        return status;
    if (!(h.norm_epsilon >= 0.0f) || !(h.norm_epsilon < 1.0f))
        return error_set(error, ST_INVALID,
                         "key %s.attention.layer_norm_rms_epsilon is %g, want 0 up to below 1",
                         h.architecture, (double)h.norm_epsilon);
    uint32_t experts = 0;
    status = read_u32(r, "expert_count", false, &experts);
    if (status == ST_OK && experts != 0)
        return error_set(error, ST_UNSUPPORTED,
                         "key %s.expert_count is %" PRIu32 ", supported are dense models only",
                         h.architecture, experts);
    if (status == ST_OK)
        status = read_vocab(r, &h);
    if (status == ST_OK)
        *out = h;
    return status;
}
