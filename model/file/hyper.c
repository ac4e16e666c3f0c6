/* hyper: reads a model's hyper-parameters from its files and refuses models that this engine would
 * compute wrongly: every key that changes the numbers is either used or an error. See hyper.h. */
#include "model/file/hyper_internal.h"

#include "common/limits.h"
#include "model/file/family.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Wider than any dense model; keeps products of two such sizes in 32 bits. */
#define HYPER_HIDDEN_MAX 65536
#define HYPER_FFN_MAX    524288 /* 8 × HYPER_HIDDEN_MAX. */
#define HYPER_VOCAB_MAX  (1u << 20)

struct hyper_key_text hyper_key_name(const struct hyper_reader *r, enum model_key key)
{
    struct hyper_key_text shown = {.text = ""};
    key_name(r->file, key, shown.text);
    return shown;
}

static enum status missing(const struct hyper_reader *r, enum model_key key, bool required)
{
    return required
               ? error_set(r->error, ST_INVALID, "key %s is missing", hyper_key_name(r, key).text)
               : ST_OK;
}

static enum status number_read(const struct hyper_reader *r, enum model_key key, bool required,
                               uint32_t *value)
{
    enum status status = key_u32(r->file, key, value, r->error);
    return status == ST_NOT_FOUND ? missing(r, key, required) : status;
}

enum status hyper_read_f32(const struct hyper_reader *r, enum model_key key, bool required,
                           float *value)
{
    enum status status = key_f32(r->file, key, value, r->error);
    return status == ST_NOT_FOUND ? missing(r, key, required) : status;
}

enum status hyper_read_u32_range(const struct hyper_reader *r, enum model_key key, bool required,
                                 uint32_t min, uint32_t max, uint32_t *value)
{
    enum status status = number_read(r, key, required, value);
    if (status != ST_OK || (*value >= min && *value <= max))
        return status;
    return error_set(r->error, ST_INVALID, "key %s is %" PRIu32 ", want %" PRIu32 " to %" PRIu32,
                     hyper_key_name(r, key).text, *value, min, max);
}

enum status hyper_read_f32_positive(const struct hyper_reader *r, enum model_key key, bool required,
                                    float *value)
{
    enum status status = hyper_read_f32(r, key, required, value);
    if (status != ST_OK || (*value > 0.0f && isfinite(*value)))
        return status;
    return error_set(r->error, ST_INVALID, "key %s is %g, want a number above 0",
                     hyper_key_name(r, key).text, (double)*value);
}

static void text_copy(struct mapped_text s, char *out, size_t capacity)
{
    size_t bytes = s.bytes < capacity ? s.bytes : capacity - 1;
    memcpy(out, s.text, bytes);
    out[bytes] = 0;
}

enum status hyper_refuse_text(const struct hyper_reader *r, enum model_key key,
                              struct mapped_text value, const char *supported)
{
    char shown[64];
    text_copy(value, shown, sizeof(shown));
    return error_set(r->error, ST_UNSUPPORTED, "key %s is \"%s\", supported %s",
                     hyper_key_name(r, key).text, shown, supported);
}

/* ---- the family ---- */

static enum status read_architecture(const struct hyper_reader *r, struct model_hyper *h,
                                     const struct family **family_out)
{
    const bool folder = model_file_is_folder(r->file);
    struct mapped_text name;
    enum status status = key_text(r->file, KEY_ARCHITECTURE, &name, r->error);
    if (status == ST_NOT_FOUND)
        return missing(r, KEY_ARCHITECTURE, true);
    if (status != ST_OK)
        return status;
    const struct family *family = family_find(name, folder);
    if (family == NULL) {
        char known[FAMILY_LIST_BYTES];
        return hyper_refuse_text(r, KEY_ARCHITECTURE, name, family_list(folder, known));
    }
    snprintf(h->architecture, sizeof(h->architecture), "%s", family->architecture);
    h->rope_neox = folder ? !family->rope_pairs : family->rope_neox;
    h->biases = family->biases;
    h->qk_norms = family->qk_norms;
    h->layer_norms = family->layer_norms;
    h->pre_norms = !family->no_pre_norms;
    h->post_norms = family->post_norms;
    h->experts.normalise = family->experts_normalise;
    h->experts.sigmoid = family->experts_sigmoid;
    h->experts.biases = family->experts_biases;
    h->experts.alternate = folder && family->experts_alternate;
    h->experts.limit = family->experts_limited ? 7 : 0;
    h->experts.alpha = family->experts_limited ? 1.702f : 0;
    h->sinks = family->sinks;
    h->parallel = family->parallel;
    h->plain_ffn = family->plain_ffn;
    h->activation = family->gelu ? COMPUTE_GELU : COMPUTE_SILU;
    h->norm_offset = folder && family->norms_from_1 ? 1 : 0;
    h->local_freq_base = family->local_base;
    h->rope_freq_base = folder && family->freq_base > 0 ? family->freq_base : 10000.0f;
    name = model_file_name(r->file);
    text_copy(name.text != NULL ? name : mapped_text_of(h->architecture), h->name, sizeof(h->name));
    *family_out = family;
    return ST_OK;
}

/* ---- sizes ---- */

static enum status read_sizes(const struct hyper_reader *r, struct model_hyper *h)
{
    enum status status =
        hyper_read_u32_range(r, KEY_LAYERS, true, 1, LIMIT_LAYERS, &h->layer_count);
    if (status == ST_OK)
        status = hyper_read_u32_range(r, KEY_HIDDEN, true, 1, HYPER_HIDDEN_MAX, &h->hidden);
    if (status == ST_OK)
        status = hyper_read_u32_range(r, KEY_FFN, true, 1, HYPER_FFN_MAX, &h->ffn);
    if (status == ST_OK)
        status = hyper_read_u32_range(r, KEY_CONTEXT, true, 1, UINT32_MAX, &h->context_tokens);
    return status;
}

/* Counts the draft layers: 0 if the files have the key but not the layers, as some converters leave
 * the files. */
static enum status read_draft_layers(const struct hyper_reader *r, const struct family *family,
                                     struct model_hyper *h)
{
    const bool folder = model_file_is_folder(r->file);
    uint32_t count = 0;
    if (!family->draft_layers)
        return ST_OK;
    enum status status = hyper_read_u32_range(r, KEY_DRAFT_LAYERS, false, 0,
                                              folder ? LIMIT_LAYERS : h->layer_count - 1, &count);
    if (status != ST_OK)
        return status;
    h->layer_count -= folder ? 0 : count;
    if (model_file_tensor_find(r->file, ROLE_DRAFT_PROJECTION, h->layer_count) != NULL)
        h->draft_layers = count;
    return ST_OK;
}

static enum status multiple(const struct hyper_reader *r, enum model_key key, uint32_t value,
                            enum model_key of, uint32_t part)
{
    if (value % part == 0)
        return ST_OK;
    return error_set(r->error, ST_INVALID,
                     "key %s is %" PRIu32 ", want a multiple of %s, which is %" PRIu32,
                     hyper_key_name(r, key).text, value, hyper_key_name(r, of).text, part);
}

static enum status check_heads(const struct hyper_reader *r, const struct model_hyper *h)
{
    if (h->head_dim % 2 != 0 || h->head_dim > HYPER_HEAD_DIM_MAX)
        return error_set(r->error, ST_INVALID,
                         "a head of %s has %" PRIu32 " dimensions, want an even number up to %d",
                         h->architecture, h->head_dim, HYPER_HEAD_DIM_MAX);
    if (h->head_count * h->head_dim > HYPER_HIDDEN_MAX)
        return error_set(r->error, ST_INVALID,
                         "%s has %" PRIu32 " heads of %" PRIu32 " dimensions, want up to %d in all",
                         h->architecture, h->head_count, h->head_dim, HYPER_HIDDEN_MAX);
    uint32_t value_length = h->head_dim;
    enum status status = number_read(r, KEY_VALUE_DIM, false, &value_length);
    if (status == ST_OK && value_length != h->head_dim)
        return error_set(r->error, ST_UNSUPPORTED,
                         "key %s is %" PRIu32
                         ", supported is the length of a key, which is %" PRIu32,
                         hyper_key_name(r, KEY_VALUE_DIM).text, value_length, h->head_dim);
    return status;
}

static enum status read_heads(const struct hyper_reader *r, struct model_hyper *h)
{
    enum status status = hyper_read_u32_range(r, KEY_HEADS, true, 1, LIMIT_HEADS, &h->head_count);
    if (status != ST_OK)
        return status;
    h->kv_head_count = h->head_count;
    status = hyper_read_u32_range(r, KEY_KV_HEADS, false, 1, h->head_count, &h->kv_head_count);
    if (status == ST_OK)
        status = multiple(r, KEY_HEADS, h->head_count, KEY_KV_HEADS, h->kv_head_count);
    h->head_dim = 0;
    if (status == ST_OK)
        status = hyper_read_u32_range(r, KEY_HEAD_DIM, false, 0, HYPER_HEAD_DIM_MAX, &h->head_dim);
    if (status == ST_OK && h->head_dim == 0) {
        status = multiple(r, KEY_HIDDEN, h->hidden, KEY_HEADS, h->head_count);
        h->head_dim = h->hidden / h->head_count;
    }
    return status == ST_OK ? check_heads(r, h) : status;
}

/* ---- the rest ---- */

/* Reads the factors of the embedding, attention scores, branches and logits. */
static enum status read_scales(const struct hyper_reader *r, const struct family *family,
                               struct model_hyper *h)
{
    const bool share =
        family->hidden_scale_layers != 0 && h->layer_count == family->hidden_scale_layers;
    const uint32_t dim = h->latent.rank != 0 ? h->latent.plain + h->latent.rotated : h->head_dim;
    float divisor = (float)(share ? h->hidden / h->head_count : dim);
    h->embedding_scale = family->embedding_scaled ? sqrtf((float)h->hidden) : 1;
    h->residual_scale = h->logit_scale = 1;
    enum status status = hyper_read_f32_positive(r, KEY_QUERY_SCALAR, false, &divisor);
    h->attention_scale = 1.0f / sqrtf(divisor);
    if (status == ST_OK)
        status = hyper_read_f32_positive(r, KEY_ATTENTION_SCALE, false, &h->attention_scale);
    if (status == ST_OK)
        status = hyper_read_f32_positive(r, KEY_EMBEDDING_SCALE, false, &h->embedding_scale);
    if (status == ST_OK)
        status = hyper_read_f32_positive(r, KEY_RESIDUAL_SCALE, false, &h->residual_scale);
    if (status == ST_OK)
        status = hyper_read_f32_positive(r, KEY_LOGIT_SCALE, false, &h->logit_scale);
    if (family->logits_divided)
        h->logit_scale = 1 / h->logit_scale;
    return status;
}

static enum status read_epsilon(const struct hyper_reader *r, struct model_hyper *h)
{
    const enum model_key key = h->layer_norms ? KEY_EPSILON_LAYER_NORM : KEY_EPSILON;
    enum status status = hyper_read_f32(r, key, true, &h->norm_epsilon);
    if (status != ST_OK || (h->norm_epsilon >= 0.0f && h->norm_epsilon < 1.0f))
        return status;
    return error_set(r->error, ST_INVALID, "key %s is %g, want 0 up to below 1",
                     hyper_key_name(r, key).text, (double)h->norm_epsilon);
}

/* Reads a cap; null or 0 = none. */
static enum status read_cap(const struct hyper_reader *r, enum model_key key, float *cap)
{
    enum status status = hyper_read_f32(r, key, false, cap);
    if (status != ST_OK || (*cap >= 0 && isfinite(*cap)))
        return status;
    return error_set(r->error, ST_INVALID, "key %s is %g, want a number above 0, or 0 for no cap",
                     hyper_key_name(r, key).text, (double)*cap);
}

static enum status read_caps(const struct hyper_reader *r, struct model_hyper *h)
{
    enum status status = read_cap(r, KEY_SOFTCAP_LOGITS, &h->logits_cap);
    return status == ST_OK ? read_cap(r, KEY_SOFTCAP_ATTENTION, &h->attention_cap) : status;
}

/* Reads the activation of the feed-forward; without the key it is the family's. */
static enum status read_activation(const struct hyper_reader *r, struct model_hyper *h)
{
    static const struct {
        const char *name;
        enum compute_activation activation;
    } known[] = {{"silu", COMPUTE_SILU},
                 {"gelu_pytorch_tanh", COMPUTE_GELU},
                 {"gelu_new", COMPUTE_GELU},
                 {"gelu", COMPUTE_GELU_ERF}};
    struct mapped_text text;
    enum status status = key_text(r->file, KEY_ACTIVATION, &text, r->error);
    if (status != ST_OK)
        return status == ST_NOT_FOUND ? ST_OK : status;
    for (size_t i = h->plain_ffn ? 1 : 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (mapped_text_equals(text, known[i].name)) {
            h->activation = known[i].activation;
            return ST_OK;
        }
    return hyper_refuse_text(r, KEY_ACTIVATION, text,
                             h->plain_ffn ? "are \"gelu_pytorch_tanh\", \"gelu_new\" and \"gelu\""
                                          : "are \"silu\", \"gelu_pytorch_tanh\", \"gelu_new\" and "
                                            "\"gelu\"");
}

static enum status read_parallel(const struct hyper_reader *r, struct model_hyper *h)
{
    enum status status = key_bool(r->file, KEY_PARALLEL, &h->parallel, r->error);
    return status == ST_NOT_FOUND ? ST_OK : status;
}

/* Refuses models whose q, k and v have a limit. */
static enum status refuse_clip(const struct hyper_reader *r)
{
    float clip = 0;
    enum status status = hyper_read_f32(r, KEY_CLIP_QKV, false, &clip);
    if (status != ST_OK || clip == 0)
        return status;
    return error_set(r->error, ST_UNSUPPORTED,
                     "key %s is %g, supported are q, k and v without limit",
                     hyper_key_name(r, KEY_CLIP_QKV).text, (double)clip);
}

static enum status read_vocab(const struct hyper_reader *r, struct model_hyper *h)
{
    const struct mapped_tensor *t = model_file_tensor_find(r->file, ROLE_EMBEDDING, 0);
    char name[ROLE_NAME_BYTES];
    model_file_tensor_name(r->file, ROLE_EMBEDDING, 0, name);
    if (t == NULL)
        return error_set(r->error, ST_INVALID, "tensor %s is missing", name);
    if (t->dim_count != 2 || t->dims[0] != h->hidden || t->dims[1] == 0 ||
        t->dims[1] > HYPER_VOCAB_MAX)
        return error_set(r->error, ST_INVALID,
                         "tensor %s has %" PRIu32 " dimensions, %" PRIu64 " x %" PRIu64
                         ", want 2, %" PRIu32 " x vocabulary (1 to %u)",
                         name, t->dim_count, t->dims[0], t->dim_count > 1 ? t->dims[1] : 1,
                         h->hidden, HYPER_VOCAB_MAX);
    h->vocab = (uint32_t)t->dims[1];
    uint32_t said = h->vocab;
    return hyper_read_u32_range(r, KEY_VOCAB, false, h->vocab, h->vocab, &said);
}

uint32_t hyper_block_elements(const struct model_file *file, enum model_role role,
                              uint32_t first_layer, uint32_t layer_count)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < layer_count; i++) {
        const struct mapped_tensor *t = model_file_tensor_find(file, role, first_layer + i);
        uint32_t block = t != NULL ? compute_type_block_elements(t->type) : 1;
        most = block > most ? block : most;
    }
    return most;
}

enum status model_hyper_read(const struct model_file *file, struct model_hyper *out,
                             struct error *error)
{
    const struct hyper_reader reader = {.file = file, .error = error};
    const struct hyper_reader *r = &reader;
    struct model_hyper h = {0};
    const struct family *family = NULL;
    enum status status = read_architecture(r, &h, &family);
    if (status == ST_OK)
        status = read_sizes(r, &h);
    if (status == ST_OK)
        status = read_draft_layers(r, family, &h);
    if (status == ST_OK)
        status = hyper_read_experts(r, family->experts, &h);
    if (status == ST_OK)
        status = family->latent ? hyper_read_latent(r, &h) : read_heads(r, &h);
    if (status == ST_OK)
        status = hyper_read_rope(r, family, &h);
    if (status == ST_OK)
        status = hyper_read_layers(r, family, &h);
    if (status == ST_OK)
        status = read_scales(r, family, &h);
    if (status == ST_OK)
        status = hyper_finish_latent(r, &h);
    if (status == ST_OK)
        status = read_epsilon(r, &h);
    if (status == ST_OK)
        status = read_caps(r, &h);
    if (status == ST_OK)
        status = read_activation(r, &h);
    if (status == ST_OK)
        status = read_parallel(r, &h);
    if (status == ST_OK)
        status = refuse_clip(r);
    if (status == ST_OK)
        status = read_vocab(r, &h);
    if (status != ST_OK)
        return status;
    h.ffn_block = hyper_block_elements(file, ROLE_DOWN, 0, h.layer_count);
    *out = h;
    return status;
}

enum status model_hyper_read_draft_layer(const struct model_file *file, struct model_hyper *out,
                                         struct error *error)
{
    struct model_hyper h;
    char key[KEY_NAME_BYTES];
    enum status status = model_hyper_read(file, &h, error);
    if (status == ST_OK && h.draft_layers == 0)
        status = error_set(error, ST_INVALID,
                           "the model has no draft layer (key %s, and the layer's tensors)",
                           key_name(file, KEY_DRAFT_LAYERS, key));
    if (status != ST_OK)
        return status;
    h.ffn_block = hyper_block_elements(file, ROLE_DOWN, h.layer_count, 1);
    if (h.experts.count > 0)
        h.experts.shared_block = hyper_block_elements(file, ROLE_SHARED_DOWN, h.layer_count, 1);
    h.layer_count = 1;
    h.draft_layers = 0;
    memset(h.layer_bits, 0, sizeof(h.layer_bits));
    *out = h;
    return ST_OK;
}
