/* model: loads the weights of a stage's layers. Every tensor is looked up by name, its shape and
 * type checked, and matrices repacked through compute_ops; small vectors (norms, biases) become
 * fp32 in one piece of device memory. A tensor that the architecture does not know is an error:
 * leaving it out would give wrong numbers without a word. */
#include "model/model.h"

#include "model/weights.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSOR_NAME_BYTES 64

/* Every tensor of a layer that forward.c computes. */
static const char *const layer_tensors[] =
    {
        "attn_norm.weight",   "attn_q.weight",   "attn_k.weight", "attn_v.weight",
        "attn_output.weight", "attn_q.bias",     "attn_k.bias",   "attn_v.bias",
        "ffn_norm.weight",    "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight",
        "attn_rot_embd", /* RoPE tables of old files: made anew */
};

static const char *const head_norm_tensors[] = {"attn_q_norm.weight", "attn_k_norm.weight"};

static const char *const post_norm_tensors[] = {"post_attention_norm.weight",
                                                "post_ffw_norm.weight"};

static const char *const model_tensors[] = {
    "token_embd.weight",
    "output_norm.weight",
    "output.weight",
    "rope_freqs.weight",
};

struct loader {
    const struct gguf *g;
    struct model *m;
    struct error *error;
    float *staging; /* one vector on its way to a device whose memory the host cannot write */
};

static bool name_is(const struct gguf_string *name, size_t skip, const char *text)
{
    size_t bytes = strlen(text);
    return name->bytes - skip == bytes && memcmp(name->text + skip, text, bytes) == 0;
}

/* Parses "blk.12."; returns the bytes of that prefix, 0 if it is none. */
static size_t layer_prefix(const struct gguf_string *name, uint32_t *layer_out)
{
    size_t at = 4;
    uint32_t layer = 0;
    if (name->bytes < 7 || memcmp(name->text, "blk.", 4) != 0)
        return 0;
    while (at < name->bytes && at < 10 && name->text[at] >= '0' && name->text[at] <= '9')
        layer = layer * 10 + (uint32_t)(name->text[at++] - '0');
    if (at == 4 || at >= name->bytes || name->text[at] != '.')
        return 0;
    *layer_out = layer;
    return at + 1;
}

static bool name_among(const struct gguf_string *name, size_t skip, const char *const *texts,
                       size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (name_is(name, skip, texts[i]))
            return true;
    return false;
}

#define NAME_AMONG(name, skip, texts)                                                              \
    name_among(name, skip, texts, sizeof(texts) / sizeof(texts[0]))

static bool tensor_known(const struct model *m, const struct gguf_string *name)
{
    const struct model_hyper *h = &m->hyper;
    uint32_t layer;
    size_t skip = layer_prefix(name, &layer);
    if (skip == 0)
        return NAME_AMONG(name, 0, model_tensors);
    return layer < h->layer_count &&
           (NAME_AMONG(name, skip, layer_tensors) ||
            (h->head_norms && NAME_AMONG(name, skip, head_norm_tensors)) ||
            (h->post_norms && NAME_AMONG(name, skip, post_norm_tensors)));
}

static enum status check_known(const struct loader *l)
{
    for (size_t i = 0; i < gguf_tensor_count(l->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(l->g, i);
        if (!tensor_known(l->m, &t->name))
            return error_set(l->error, ST_UNSUPPORTED,
                             "tensor %.*s is not one that a %s model of %" PRIu32
                             " layers has here",
                             (int)(t->name.bytes < 200 ? t->name.bytes : 200), t->name.text,
                             l->m->hyper.architecture, l->m->hyper.layer_count);
    }
    return ST_OK;
}

static enum status find(const struct loader *l, const char *name, const struct gguf_tensor **out)
{
    *out = gguf_tensor_find(l->g, name);
    if (*out == NULL)
        return error_set(l->error, ST_INVALID, "tensor %s is missing", name);
    return ST_OK;
}

static void shape_text(const struct gguf_tensor *t, char out[96])
{
    int used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < t->dim_count && used < 96; i++)
        used +=
            snprintf(out + used, 96 - (size_t)used, "%s%" PRIu64, i > 0 ? " x " : "", t->dims[i]);
}

/* `cols` is the contiguous dimension, which GGUF names first; rows 0 is a vector. */
static enum status check_shape(const struct loader *l, const char *name,
                               const struct gguf_tensor *t, uint32_t cols, uint32_t rows)
{
    bool fits = t->dim_count >= 1 && t->dims[0] == cols;
    for (uint32_t i = 1; i < t->dim_count; i++)
        fits = fits && t->dims[i] == (i == 1 && rows != 0 ? rows : 1);
    if (rows > 1 && t->dim_count < 2)
        fits = false;
    if (fits)
        return ST_OK;
    char found[96];
    shape_text(t, found);
    if (rows == 0)
        return error_set(l->error, ST_INVALID, "tensor %s has shape %s, want %" PRIu32, name, found,
                         cols);
    return error_set(l->error, ST_INVALID, "tensor %s has shape %s, want %" PRIu32 " x %" PRIu32,
                     name, found, cols, rows);
}

static enum status load_matrix(const struct loader *l, const char *name, uint32_t cols,
                               uint32_t rows, struct compute_matrix **out)
{
    const struct gguf_tensor *t;
    enum status status = find(l, name, &t);
    if (status == ST_OK)
        status = check_shape(l, name, t, cols, rows);
    if (status != ST_OK)
        return status;
    uint32_t block = compute_type_block_elements(t->type);
    if (cols % block != 0)
        return error_set(l->error, ST_INVALID,
                         "tensor %s of type %s has rows of %" PRIu32
                         " elements, want a multiple of %" PRIu32,
                         name, compute_type_name(t->type), cols, block);
    struct model *m = l->m;
    status = m->ops->matrix_open(m->compute, t->type, rows, cols, t->data, out);
    if (status != ST_OK)
        return error_set(l->error, status, "tensor %s (%s, %" PRIu32 " x %" PRIu32 "): loading: %s",
                         name, compute_type_name(t->type), cols, rows, status_name(status));
    m->weight_bytes += m->ops->matrix_bytes(*out);
    return ST_OK;
}

/* Where the host cannot write, the vector comes by way of `l->staging`. */
static void vector_write(const struct loader *l, const struct gguf_tensor *t, uint32_t count,
                         float *vector)
{
    const struct model *m = l->m;
    float *host = m->ops->memory_write != NULL ? l->staging : vector;
    compute_dequantize(t->type, t->data, count, host);
    if (m->ops->memory_write != NULL)
        m->ops->memory_write(m->compute, vector, host, count * sizeof(float));
}

static enum status load_vector(const struct loader *l, const char *name, uint32_t count,
                               const float **out)
{
    const struct gguf_tensor *t;
    enum status status = find(l, name, &t);
    if (status == ST_OK)
        status = check_shape(l, name, t, count, 0);
    if (status != ST_OK)
        return status;
    if (t->type != COMPUTE_F32 && t->type != COMPUTE_F16 && t->type != COMPUTE_BF16)
        return error_set(l->error, ST_UNSUPPORTED, "tensor %s has type %s, want F32, F16 or BF16",
                         name, compute_type_name(t->type));
    struct model *m = l->m;
    size_t room = ((size_t)count + 15) / 16 * 16; /* each vector starts on a cache line */
    assert(m->vectors_used + room <= m->vectors_capacity);
    float *vector = m->vectors + m->vectors_used;
    vector_write(l, t, count, vector);
    m->vectors_used += room;
    m->weight_bytes += (size_t)count * sizeof(float);
    *out = vector;
    return ST_OK;
}

static const char *layer_name(char out[TENSOR_NAME_BYTES], uint32_t layer, const char *suffix)
{
    snprintf(out, TENSOR_NAME_BYTES, "blk.%" PRIu32 ".%s", layer, suffix);
    return out;
}

/* A bias that files of some families must have and others may. */
static enum status load_bias(const struct loader *l, const char *name, uint32_t count,
                             const float **out)
{
    if (!l->m->hyper.biases && gguf_tensor_find(l->g, name) == NULL)
        return ST_OK;
    return load_vector(l, name, count, out);
}

/* The norms that only some families have. */
static enum status load_extra_norms(const struct loader *l, uint32_t layer,
                                    struct model_layer *into)
{
    const struct model_hyper *h = &l->m->hyper;
    char name[TENSOR_NAME_BYTES];
    enum status status = ST_OK;
    if (h->head_norms)
        status = load_vector(l, layer_name(name, layer, "attn_q_norm.weight"), h->head_dim,
                             &into->q_norm);
    if (h->head_norms && status == ST_OK)
        status = load_vector(l, layer_name(name, layer, "attn_k_norm.weight"), h->head_dim,
                             &into->k_norm);
    if (h->post_norms && status == ST_OK)
        status = load_vector(l, layer_name(name, layer, "post_attention_norm.weight"), h->hidden,
                             &into->attention_post_norm);
    if (h->post_norms && status == ST_OK)
        status = load_vector(l, layer_name(name, layer, "post_ffw_norm.weight"), h->hidden,
                             &into->ffn_post_norm);
    return status;
}

static enum status load_attention(const struct loader *l, uint32_t layer, struct model_layer *into)
{
    const struct model_hyper *h = &l->m->hyper;
    const uint32_t q_width = h->head_count * h->head_dim;
    const uint32_t kv_width = h->kv_head_count * h->head_dim;
    char name[TENSOR_NAME_BYTES];
    enum status status = load_vector(l, layer_name(name, layer, "attn_norm.weight"), h->hidden,
                                     &into->attention_norm);
    if (status == ST_OK)
        status =
            load_matrix(l, layer_name(name, layer, "attn_q.weight"), h->hidden, q_width, &into->q);
    if (status == ST_OK)
        status =
            load_matrix(l, layer_name(name, layer, "attn_k.weight"), h->hidden, kv_width, &into->k);
    if (status == ST_OK)
        status =
            load_matrix(l, layer_name(name, layer, "attn_v.weight"), h->hidden, kv_width, &into->v);
    if (status == ST_OK)
        status = load_bias(l, layer_name(name, layer, "attn_q.bias"), q_width, &into->q_bias);
    if (status == ST_OK)
        status = load_bias(l, layer_name(name, layer, "attn_k.bias"), kv_width, &into->k_bias);
    if (status == ST_OK)
        status = load_bias(l, layer_name(name, layer, "attn_v.bias"), kv_width, &into->v_bias);
    if (status == ST_OK)
        status = load_matrix(l, layer_name(name, layer, "attn_output.weight"), q_width, h->hidden,
                             &into->attention_output);
    if (status == ST_OK)
        status = load_extra_norms(l, layer, into);
    return status;
}

static enum status load_ffn(const struct loader *l, uint32_t layer, struct model_layer *into)
{
    const struct model_hyper *h = &l->m->hyper;
    char name[TENSOR_NAME_BYTES];
    enum status status =
        load_vector(l, layer_name(name, layer, "ffn_norm.weight"), h->hidden, &into->ffn_norm);
    if (status == ST_OK)
        status = load_matrix(l, layer_name(name, layer, "ffn_gate.weight"), h->hidden, h->ffn,
                             &into->gate);
    if (status == ST_OK)
        status =
            load_matrix(l, layer_name(name, layer, "ffn_up.weight"), h->hidden, h->ffn, &into->up);
    if (status == ST_OK)
        status = load_matrix(l, layer_name(name, layer, "ffn_down.weight"), h->ffn, h->hidden,
                             &into->down);
    return status;
}

/* What lies outside the layers: the embedding for the first stage, norm and vocabulary for the
 * last. */
static enum status load_ends(const struct loader *l)
{
    struct model *m = l->m;
    const struct model_hyper *h = &m->hyper;
    bool own_output = gguf_tensor_find(l->g, "output.weight") != NULL;
    enum status status = ST_OK;
    if (model_has_first(m))
        status = load_matrix(l, "token_embd.weight", h->hidden, h->vocab, &m->embedding);
    if (status != ST_OK || !model_has_last(m))
        return status;
    status = load_vector(l, "output_norm.weight", h->hidden, &m->output_norm);
    if (status != ST_OK)
        return status;
    if (!own_output && m->embedding != NULL) {
        m->output = m->embedding;
        return ST_OK;
    }
    return load_matrix(l, own_output ? "output.weight" : "token_embd.weight", h->hidden, h->vocab,
                       &m->output);
}

static enum status load_rope(const struct loader *l)
{
    struct model *m = l->m;
    const struct model_hyper *h = &m->hyper;
    struct compute_rope rope = {
        .dim = h->rope_dim,
        .neox = h->rope_neox,
        .freq_base = h->rope_freq_base,
        .freq_scale = h->rope_freq_scale,
        .positions_max = m->context_tokens_max,
    };
    enum status status = ST_OK;
    if (gguf_tensor_find(l->g, "rope_freqs.weight") != NULL)
        status = load_vector(l, "rope_freqs.weight", h->rope_dim / 2, &rope.factors);
    if (status != ST_OK)
        return status;
    if (rope.factors != NULL && l->staging != NULL)
        rope.factors = l->staging;
    for (uint32_t i = 0; rope.factors != NULL && i < h->rope_dim / 2; i++)
        if (!(rope.factors[i] > 0.0f) || !isfinite(rope.factors[i]))
            return error_set(l->error, ST_INVALID,
                             "tensor rope_freqs.weight: element %" PRIu32
                             " is %g, want a number above 0",
                             i, (double)rope.factors[i]);
    status = m->ops->rope_open(m->compute, &rope, &m->rope);
    if (status == ST_OK && h->local_period != 0) {
        rope.freq_base = h->local_freq_base;
        rope.freq_scale = 1;
        status = m->ops->rope_open(m->compute, &rope, &m->local_rope);
    }
    if (status != ST_OK)
        return error_set(l->error, status, "rotary embedding of %" PRIu32 " positions: %s",
                         rope.positions_max, status_name(status));
    return ST_OK;
}

/* Elements of the longest vector: a norm's, or a bias's. */
static size_t vector_max(const struct model_hyper *h)
{
    size_t width = (size_t)h->head_count * h->head_dim;
    return width > h->hidden ? width : h->hidden;
}

static enum status take_memory(const struct loader *l)
{
    struct model *m = l->m;
    const struct model_hyper *h = &m->hyper;
    uint32_t layer_count = m->last_layer - m->first_layer;
    /* Four norms, three biases and two norms of heads a layer, each rounded up to a cache line;
     * final norm and RoPE factors. */
    size_t per_layer = (size_t)h->hidden * 4 +
                       (size_t)(h->head_count + 2 * h->kv_head_count + 2) * h->head_dim + 9 * 16;
    m->vectors_capacity = per_layer * layer_count + h->hidden + h->rope_dim + 2 * 16;
    m->layers = calloc(layer_count, sizeof(*m->layers));
    if (m->layers == NULL ||
        m->ops->memory_take(m->compute, m->vectors_capacity, &m->vectors) != ST_OK)
        return error_set(l->error, ST_NO_MEMORY, "no memory for the vectors of %" PRIu32 " layers",
                         layer_count);
    return ST_OK;
}

static enum status load_all(const struct loader *l, const struct model_options *options)
{
    struct model *m = l->m;
    uint32_t layer_count = m->last_layer - m->first_layer;
    enum status status = check_known(l);
    if (status == ST_OK)
        status = take_memory(l);
    if (status == ST_OK)
        status = load_rope(l);
    if (status == ST_OK)
        status = load_ends(l);
    for (uint32_t i = 0; status == ST_OK && i < layer_count; i++) {
        status = load_attention(l, m->first_layer + i, &m->layers[i]);
        if (status == ST_OK)
            status = load_ffn(l, m->first_layer + i, &m->layers[i]);
        if (status == ST_OK && options->progress != NULL)
            options->progress(options->progress_self, i + 1, layer_count);
    }
    return status;
}

enum status model_open(const struct gguf *g, const struct model_options *options,
                       struct model **out, struct error *error)
{
    struct model_hyper hyper;
    enum status status = model_hyper_read(g, &hyper, error);
    if (status != ST_OK)
        return status;
    uint32_t first = options->first_layer;
    uint32_t last =
        first == 0 && options->last_layer == 0 ? hyper.layer_count : options->last_layer;
    if (first >= last || last > hyper.layer_count)
        return error_set(error, ST_INVALID,
                         "layers %" PRIu32 " to %" PRIu32
                         " of a model that has layers 0 to %" PRIu32,
                         first, last == 0 ? 0 : last - 1, hyper.layer_count - 1);
    struct model *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a model");
    m->hyper = hyper;
    m->ops = options->ops;
    m->compute = options->compute;
    m->first_layer = first;
    m->last_layer = last;
    m->context_tokens_max =
        options->context_tokens_max != 0 ? options->context_tokens_max : hyper.context_tokens;
    if (m->context_tokens_max > LIMIT_CONTEXT_TOKENS)
        m->context_tokens_max = LIMIT_CONTEXT_TOKENS;
    struct loader loader = {.g = g, .m = m, .error = error};
    if (m->ops->memory_write != NULL)
        loader.staging = malloc(vector_max(&hyper) * sizeof(float));
    if (m->ops->memory_write != NULL && loader.staging == NULL)
        status = error_set(error, ST_NO_MEMORY, "no memory for a model");
    if (status == ST_OK)
        status = load_all(&loader, options);
    free(loader.staging);
    if (status != ST_OK) {
        model_close(m);
        return status;
    }
    *out = m;
    return ST_OK;
}

static void matrix_close(struct model *m, struct compute_matrix *matrix)
{
    if (matrix != NULL)
        m->ops->matrix_close(m->compute, matrix);
}

void model_close(struct model *m)
{
    if (m == NULL)
        return;
    for (uint32_t i = 0; m->layers != NULL && i < m->last_layer - m->first_layer; i++) {
        struct model_layer *layer = &m->layers[i];
        matrix_close(m, layer->q);
        matrix_close(m, layer->k);
        matrix_close(m, layer->v);
        matrix_close(m, layer->attention_output);
        matrix_close(m, layer->gate);
        matrix_close(m, layer->up);
        matrix_close(m, layer->down);
    }
    if (m->output != m->embedding)
        matrix_close(m, m->output);
    matrix_close(m, m->embedding);
    if (m->rope != NULL)
        m->ops->rope_close(m->compute, m->rope);
    if (m->local_rope != NULL)
        m->ops->rope_close(m->compute, m->local_rope);
    if (m->vectors != NULL)
        m->ops->memory_free(m->compute, m->vectors);
    free(m->layers);
    free(m);
}

const struct model_hyper *model_hyper_of(const struct model *m)
{
    return &m->hyper;
}

size_t model_weight_bytes(const struct model *m)
{
    return m->weight_bytes;
}
