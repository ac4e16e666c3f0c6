/* model: loads the weights of a stage's layers, or of a rank's slice of them: which tensors there
 * are, and which part of each is loaded (weights_load.h reads them). A tensor that the architecture
 * does not know is an error, because leaving it out would give wrong numbers silently. */
#include "model/forward/model.h"

#include "model/forward/adapters.h"
#include "model/forward/rope.h"
#include "model/forward/weights_load.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static bool role_known(const struct model_hyper *h, enum model_role role, uint32_t layer)
{
    if (role_is_of_layer(role) && layer >= h->layer_count + h->draft_layers)
        return false;
    if (role_is_of_draft(role))
        return layer >= h->layer_count;
    if (role == ROLE_Q_NORM || role == ROLE_K_NORM)
        return h->qk_norms != FAMILY_QK_NONE;
    if (role == ROLE_SINKS)
        return h->sinks;
    if (role >= ROLE_Q_A && role <= ROLE_V_B)
        return h->latent.rank != 0;
    if (role == ROLE_OUTPUT_NORM_BIAS)
        return h->layer_norms;
    if (role == ROLE_ATTENTION_NORM || role == ROLE_ATTENTION_NORM_BIAS)
        return h->pre_norms && (role == ROLE_ATTENTION_NORM || h->layer_norms);
    if (role == ROLE_FFN_NORM || role == ROLE_FFN_NORM_BIAS)
        return h->pre_norms && !h->parallel && (role == ROLE_FFN_NORM || h->layer_norms);
    if (role == ROLE_GATE || role == ROLE_GATE_BIAS || role == ROLE_GATE_UP)
        return !h->plain_ffn;
    return h->post_norms || (role != ROLE_ATTENTION_POST_NORM && role != ROLE_FFN_POST_NORM);
}

/* Returns true if the model has experts of the kind that the tensor belongs to. */
static bool expert_known(const struct model_hyper *h, enum model_role role, struct mapped_text name)
{
    const bool is_experts = role >= ROLE_ROUTER && role <= ROLE_SHARED_DOWN;
    const bool is_bias = role == ROLE_ROUTER_BIAS ||
                         (role >= ROLE_EXPERTS_GATE_UP_BIAS && role <= ROLE_EXPERTS_DOWN_BIAS);
    if (is_experts && h->experts.count == 0)
        return false;
    if (is_bias && !h->experts.biases)
        return false;
    return !role_is_of_expert(role) || role_expert_number(name) < h->experts.count;
}

/* Returns false if no function loads the tensor, because its layer has another form. */
static bool form_known(const struct loader *l, const struct model_hyper *h, enum model_role role,
                       uint32_t layer)
{
    const bool latent = h->latent.rank != 0;
    const bool routed = h->experts.count > 0 && loader_has_tensor(l, ROLE_ROUTER, layer);
    if (role == ROLE_Q && latent)
        return h->latent.q_rank == 0;
    if (role >= ROLE_Q_A && role <= ROLE_Q_B)
        return h->latent.q_rank != 0;
    if (role >= ROLE_Q && role <= ROLE_QKV_BIAS && latent)
        return false;
    if (role >= ROLE_Q && role <= ROLE_V)
        return !loader_has_tensor(l, ROLE_QKV, layer);
    if (role == ROLE_QKV_BIAS)
        return loader_has_tensor(l, ROLE_QKV, layer);
    if (role >= ROLE_GATE && role <= ROLE_DOWN_BIAS && routed)
        return false;
    if (role == ROLE_GATE || role == ROLE_UP)
        return !loader_has_tensor(l, ROLE_GATE_UP, layer);
    if (role >= ROLE_SHARED_ROUTER && role <= ROLE_SHARED_DOWN && h->experts.shared_ffn == 0)
        return false;
    return role < ROLE_ROUTER || role > ROLE_SHARED_DOWN || routed;
}

/* h: of the whole model. */
static enum status check_known(const struct loader *l, const struct model_hyper *h)
{
    enum model_role role = ROLE_COUNT;
    uint32_t layer = 0;
    bool known = false;
    const struct mapped_tensor *t;
    for (size_t i = 0; (t = model_file_tensor_at(l->file, i, &role, &layer, &known)) != NULL; i++)
        if (!known || !role_known(h, role, layer) || !expert_known(h, role, t->name) ||
            !form_known(l, h, role, layer))
            return error_set(l->error, ST_UNSUPPORTED,
                             "tensor %.*s is not one that a %s model of %" PRIu32
                             " layers has here",
                             (int)(t->name.bytes < 200 ? t->name.bytes : 200), t->name.text,
                             h->architecture, h->layer_count);
    return ST_OK;
}

static enum status load_norm_part(const struct loader *l, enum model_role role, uint32_t layer,
                                  struct load_part part, const float **out)
{
    enum status status = load_vector_to_host(l, role, layer, part.total);
    if (status != ST_OK)
        return status;
    const bool last = role == ROLE_OUTPUT_NORM || role == ROLE_DRAFT_OUTPUT_NORM;
    const float factor = last ? l->m->hyper.logit_scale : 1;
    for (uint32_t i = 0; i < part.total; i++)
        l->host_vector[i] = (l->host_vector[i] + l->m->hyper.norm_offset) * factor;
    *out = load_vector_to_device(l, part);
    return ST_OK;
}

static enum status load_norm(const struct loader *l, enum model_role role, uint32_t layer,
                             uint32_t count, const float **out)
{
    return load_norm_part(l, role, layer, load_whole(count), out);
}

/* Loads a bias, if the file has it or `required`. */
static enum status load_bias(const struct loader *l, enum model_role role, uint32_t layer,
                             bool required, struct load_part part, const float **out)
{
    if (!required && !loader_has_tensor(l, role, layer))
        return ST_OK;
    enum status status = load_vector_to_host(l, role, layer, part.total);
    if (status == ST_OK)
        *out = load_vector_to_device(l, part);
    return status;
}

/* Refuses a bias that belongs to a part of a joined tensor: the part's own bias is not loaded, and
 * leaving it out would give wrong numbers. */
static enum status refuse_bias(const struct loader *l, enum model_role role, uint32_t layer,
                               enum model_role joined)
{
    char name[ROLE_NAME_BYTES];
    const struct mapped_tensor *t = model_file_tensor_find(l->file, role, layer);
    if (t == NULL)
        return ST_OK;
    return error_set(l->error, ST_UNSUPPORTED,
                     "tensor %.*s: a bias beside the joined tensor %s is not supported",
                     (int)(t->name.bytes < 200 ? t->name.bytes : 200), t->name.text,
                     model_file_tensor_name(l->file, joined, layer, name));
}

/* Loads the bias of a norm, if the file has it. */
static enum status load_norm_bias(const struct loader *l, enum model_role role, uint32_t layer,
                                  const float **out)
{
    return load_bias(l, role, layer, false, load_whole(l->m->hyper.hidden), out);
}

/* Loads the biases of the last norm and of the logits, times logit_scale. */
static enum status load_output_bias(const struct loader *l, enum model_role role,
                                    struct load_part part, const float **out)
{
    if (!loader_has_tensor(l, role, 0))
        return ST_OK;
    enum status status = load_vector_to_host(l, role, 0, part.total);
    for (uint32_t i = 0; status == ST_OK && i < part.total; i++)
        l->host_vector[i] *= l->m->hyper.logit_scale;
    if (status == ST_OK)
        *out = load_vector_to_device(l, part);
    return status;
}

/* Loads a bias of a product that is summed over the ranks: only rank 0 adds it. */
static enum status load_sum_bias(const struct loader *l, enum model_role role, uint32_t layer,
                                 const float **out)
{
    return l->m->shard.rank != 0
               ? ST_OK
               : load_bias(l, role, layer, false, load_whole(l->m->hyper.hidden), out);
}

/* The rank's rows of q, and of k or v. */
static struct load_part part_of_q(const struct model *m)
{
    return load_heads_part(m, m->hyper.head_dim);
}

static struct load_part part_of_kv(const struct model *m)
{
    const uint32_t dim = m->hyper.head_dim;
    return (struct load_part){m->shard.kv_head_first * dim, m->shard.kv_head_count * dim,
                              m->hyper.kv_head_count * dim};
}

/* Loads the norms that only some families have. */
static enum status load_extra_norms(const struct loader *l, uint32_t i, struct model_layer *into)
{
    const struct model_hyper *h = &l->m->hyper;
    const bool whole = h->qk_norms == FAMILY_QK_WHOLE;
    const struct load_part q = whole ? part_of_q(l->m) : load_whole(h->head_dim);
    const struct load_part k = whole ? part_of_kv(l->m) : load_whole(h->head_dim);
    enum status status = ST_OK;
    if (h->qk_norms != FAMILY_QK_NONE)
        status = load_norm_part(l, ROLE_Q_NORM, i, q, &into->q_norm);
    if (h->qk_norms != FAMILY_QK_NONE && status == ST_OK)
        status = load_norm_part(l, ROLE_K_NORM, i, k, &into->k_norm);
    if (h->post_norms && status == ST_OK)
        status = load_norm(l, ROLE_ATTENTION_POST_NORM, i, h->hidden, &into->attention_post_norm);
    if (h->post_norms && status == ST_OK)
        status = load_norm(l, ROLE_FFN_POST_NORM, i, h->hidden, &into->ffn_post_norm);
    return status;
}

static enum status load_sinks(const struct loader *l, uint32_t i, struct model_layer *into)
{
    const struct model_shard *own = &l->m->shard;
    const uint32_t heads = l->m->hyper.head_count;
    if (!l->m->hyper.sinks)
        return ST_OK;
    enum status status = load_vector_to_host(l, ROLE_SINKS, i, heads);
    if (status == ST_OK)
        into->sinks =
            load_vector_to_device(l, (struct load_part){own->head_first, own->head_count, heads});
    return status;
}

static enum status load_qkv(const struct loader *l, uint32_t i, struct model_layer *into)
{
    const struct load_part hidden = load_whole(l->m->hyper.hidden);
    const struct load_part q = part_of_q(l->m), kv = part_of_kv(l->m);
    const bool biases = l->m->hyper.biases;
    enum status status = load_matrix(l, ROLE_Q, i, hidden, q, &into->q);
    if (status == ST_OK)
        status = load_matrix(l, ROLE_K, i, hidden, kv, &into->k);
    if (status == ST_OK)
        status = load_matrix(l, ROLE_V, i, hidden, kv, &into->v);
    if (status == ST_OK)
        status = load_bias(l, ROLE_Q_BIAS, i, biases, q, &into->q_bias);
    if (status == ST_OK)
        status = load_bias(l, ROLE_K_BIAS, i, biases, kv, &into->k_bias);
    if (status == ST_OK)
        status = load_bias(l, ROLE_V_BIAS, i, biases, kv, &into->v_bias);
    return status;
}

/* Returns the same part for a tensor that is stored from row `begin` on in a joined tensor of `of`
 * rows. */
static struct load_part part_within(struct load_part part, uint32_t begin, uint32_t of)
{
    return (struct load_part){begin + part.first, part.count, of};
}

static enum status load_qkv_joined(const struct loader *l, uint32_t i, struct model_layer *into)
{
    const struct load_part hidden = load_whole(l->m->hyper.hidden);
    const struct load_part own_q = part_of_q(l->m), own_kv = part_of_kv(l->m);
    const uint32_t all = own_q.total + 2 * own_kv.total;
    const struct load_part q = part_within(own_q, 0, all);
    const struct load_part k = part_within(own_kv, own_q.total, all);
    const struct load_part v = part_within(own_kv, own_q.total + own_kv.total, all);
    const bool biases = l->m->hyper.biases;
    enum status status = refuse_bias(l, ROLE_Q_BIAS, i, ROLE_QKV);
    if (status == ST_OK)
        status = refuse_bias(l, ROLE_K_BIAS, i, ROLE_QKV);
    if (status == ST_OK)
        status = refuse_bias(l, ROLE_V_BIAS, i, ROLE_QKV);
    if (status == ST_OK)
        status = load_matrix(l, ROLE_QKV, i, hidden, q, &into->q);
    if (status == ST_OK)
        status = load_matrix(l, ROLE_QKV, i, hidden, k, &into->k);
    if (status == ST_OK)
        status = load_matrix(l, ROLE_QKV, i, hidden, v, &into->v);
    if (status == ST_OK)
        status = load_bias(l, ROLE_QKV_BIAS, i, biases, q, &into->q_bias);
    if (status == ST_OK)
        status = load_bias(l, ROLE_QKV_BIAS, i, biases, k, &into->k_bias);
    if (status == ST_OK)
        status = load_bias(l, ROLE_QKV_BIAS, i, biases, v, &into->v_bias);
    return status;
}

static enum status load_attention(const struct loader *l, uint32_t i, struct model_layer *into)
{
    const struct model_hyper *h = &l->m->hyper;
    const struct load_part hidden = load_whole(h->hidden);
    const struct load_part q =
        h->latent.rank != 0 ? load_heads_part(l->m, h->latent.value) : part_of_q(l->m);
    enum status status = ST_OK;
    if (h->pre_norms)
        status = load_norm(l, ROLE_ATTENTION_NORM, i, h->hidden, &into->attention_norm);
    if (status == ST_OK)
        status = load_norm_bias(l, ROLE_ATTENTION_NORM_BIAS, i, &into->attention_norm_bias);
    if (status == ST_OK && h->latent.rank != 0)
        status = load_latent(l, i, into);
    else if (status == ST_OK && loader_has_tensor(l, ROLE_QKV, i))
        status = load_qkv_joined(l, i, into);
    else if (status == ST_OK)
        status = load_qkv(l, i, into);
    if (status == ST_OK)
        status = load_matrix(l, ROLE_ATTENTION_OUTPUT, i, q, hidden, &into->attention_output);
    if (status == ST_OK)
        status = load_sum_bias(l, ROLE_ATTENTION_OUTPUT_BIAS, i, &into->attention_output_bias);
    if (status == ST_OK)
        status = load_sinks(l, i, into);
    return status == ST_OK ? load_extra_norms(l, i, into) : status;
}

/* Returns the role of the tensor that has gate and up; ROLE_COUNT = they are two tensors. In GGUF
 * files it has the name of up. */
static enum model_role joined_gate_up(const struct loader *l, uint32_t i)
{
    if (loader_has_tensor(l, ROLE_GATE_UP, i))
        return ROLE_GATE_UP;
    const struct mapped_tensor *up = model_file_tensor_find(l->file, ROLE_UP, i);
    const bool joined = up != NULL && up->dim_count == 2 && !l->m->hyper.plain_ffn &&
                        !loader_has_tensor(l, ROLE_GATE, i) &&
                        up->dims[1] == 2 * (uint64_t)l->m->hyper.ffn;
    return joined ? ROLE_UP : ROLE_COUNT;
}

static enum status load_gate_up(const struct loader *l, uint32_t i, struct load_part hidden,
                                struct load_part ffn, struct model_layer *into)
{
    const enum model_role joined = joined_gate_up(l, i);
    const bool apart = joined == ROLE_COUNT;
    const struct load_part gate = apart ? ffn : part_within(ffn, 0, 2 * ffn.total);
    const struct load_part up = apart ? ffn : part_within(ffn, ffn.total, 2 * ffn.total);
    enum status status = ST_OK;
    if (!l->m->hyper.plain_ffn)
        status = load_matrix(l, apart ? ROLE_GATE : joined, i, hidden, gate, &into->gate);
    if (status == ST_OK)
        status = load_matrix(l, apart ? ROLE_UP : joined, i, hidden, up, &into->up);
    if (status == ST_OK)
        status = apart ? load_bias(l, ROLE_GATE_BIAS, i, false, ffn, &into->gate_bias)
                       : refuse_bias(l, ROLE_GATE_BIAS, i, joined);
    if (status == ST_OK)
        status = apart ? load_bias(l, ROLE_UP_BIAS, i, false, ffn, &into->up_bias)
                       : refuse_bias(l, ROLE_UP_BIAS, i, joined);
    return status;
}

static enum status load_ffn(const struct loader *l, uint32_t i, struct model_layer *into)
{
    const struct model_hyper *h = &l->m->hyper;
    const struct model_shard *own = &l->m->shard;
    const struct load_part hidden = load_whole(h->hidden);
    const struct load_part ffn = {own->ffn_first, own->ffn_count, h->ffn};
    enum status status = ST_OK;
    if (h->parallel)
        into->ffn_norm = into->attention_norm, into->ffn_norm_bias = into->attention_norm_bias;
    else if (h->pre_norms)
        status = load_norm(l, ROLE_FFN_NORM, i, h->hidden, &into->ffn_norm);
    if (status == ST_OK && !h->parallel)
        status = load_norm_bias(l, ROLE_FFN_NORM_BIAS, i, &into->ffn_norm_bias);
    if (status == ST_OK && h->experts.count > 0 && loader_has_tensor(l, ROLE_ROUTER, i))
        return load_experts(l, i, into);
    if (status == ST_OK)
        status = load_gate_up(l, i, hidden, ffn, into);
    if (status == ST_OK)
        status = load_matrix(l, ROLE_DOWN, i, ffn, hidden, &into->down);
    if (status == ST_OK)
        status = load_sum_bias(l, ROLE_DOWN_BIAS, i, &into->down_bias);
    return status;
}

/* Loads what is outside the layers: the embedding for the first stage, the final norm and the
 * output projection for the last. */
static enum status load_ends(const struct loader *l)
{
    struct model *m = l->m;
    const struct model_hyper *h = &m->hyper;
    const struct load_part hidden = load_whole(h->hidden);
    const struct load_part vocab = {m->shard.vocab_first, m->shard.vocab_count, h->vocab};
    bool own_output = loader_has_tensor(l, ROLE_OUTPUT, 0);
    enum status status = ST_OK;
    if (model_has_first(m))
        status = load_matrix(l, ROLE_EMBEDDING, 0, hidden, vocab, &m->embedding);
    if (status != ST_OK || !model_has_last(m))
        return status;
    status = load_norm(l, ROLE_OUTPUT_NORM, 0, h->hidden, &m->output_norm);
    if (status == ST_OK)
        status = load_output_bias(l, ROLE_OUTPUT_NORM_BIAS, hidden, &m->output_norm_bias);
    if (status == ST_OK)
        status = load_output_bias(l, ROLE_OUTPUT_BIAS, vocab, &m->output_bias);
    if (status != ST_OK)
        return status;
    if (!own_output && m->embedding != NULL) {
        m->output = m->embedding;
        return ST_OK;
    }
    return load_matrix(l, own_output ? ROLE_OUTPUT : ROLE_EMBEDDING, 0, hidden, vocab, &m->output);
}

/* Loads what makes the input of the draft layer. The projection becomes two matrices, so that their
 * inputs are activations of the usual width. */
static enum status load_draft(const struct loader *l, uint32_t layer)
{
    struct model_draft *into = &l->m->draft;
    const uint32_t hidden = l->m->hyper.hidden;
    const struct load_part rows = load_whole(hidden), first = {0, hidden, 2 * hidden},
                           second = {hidden, hidden, 2 * hidden};
    enum status status = load_norm(l, ROLE_DRAFT_TOKEN_NORM, layer, hidden, &into->token_norm);
    if (status == ST_OK)
        status = load_norm(l, ROLE_DRAFT_FINAL_NORM, layer, hidden, &into->final_norm);
    if (status == ST_OK)
        status = load_matrix(l, ROLE_DRAFT_PROJECTION, layer, first, rows, &into->token);
    if (status == ST_OK)
        status = load_matrix(l, ROLE_DRAFT_PROJECTION, layer, second, rows, &into->final);
    return status;
}

/* Returns `own` if the draft layer has a tensor of this role, else `role`, which is the model's. */
static enum model_role role_or_own(const struct loader *l, enum model_role own,
                                   enum model_role role, uint32_t layer)
{
    return loader_has_tensor(l, own, layer) ? own : role;
}

/* Loads what is outside the draft layer `layer`. */
static enum status load_draft_ends(const struct loader *l, uint32_t layer)
{
    struct model *m = l->m;
    const struct load_part hidden = load_whole(m->hyper.hidden), vocab = load_whole(m->hyper.vocab);
    const enum model_role embedding = role_or_own(l, ROLE_DRAFT_EMBEDDING, ROLE_EMBEDDING, layer);
    const enum model_role norm = role_or_own(l, ROLE_DRAFT_OUTPUT_NORM, ROLE_OUTPUT_NORM, layer);
    enum model_role output = role_or_own(l, ROLE_DRAFT_OUTPUT, ROLE_OUTPUT, layer);
    enum status status = load_matrix(l, embedding, layer, hidden, vocab, &m->embedding);
    if (status == ST_OK)
        status = load_norm(l, norm, layer, m->hyper.hidden, &m->output_norm);
    if (status == ST_OK && output == ROLE_OUTPUT && !loader_has_tensor(l, ROLE_OUTPUT, 0))
        output = ROLE_EMBEDDING;
    if (status == ST_OK)
        status = load_matrix(l, output, layer, hidden, vocab, &m->output);
    return status == ST_OK ? load_draft(l, layer) : status;
}

/* Elements of the longest vector: a norm, a bias, or the biases of all experts of a layer. */
static size_t vector_max(const struct model_hyper *h)
{
    size_t width = ((size_t)h->head_count + 2 * (size_t)h->kv_head_count) * h->head_dim;
    const size_t expert = h->experts.biases ? 2 * (size_t)h->experts.ffn + h->hidden : 1;
    width = width > h->experts.count * expert ? width : h->experts.count * expert;
    width = width > h->ffn ? width : h->ffn;
    width = width > h->latent.rank ? width : h->latent.rank;
    width = width > h->latent.q_rank ? width : h->latent.q_rank;
    width = width > h->vocab ? width : h->vocab;
    return width > h->hidden ? width : h->hidden;
}

static enum status take_memory(const struct loader *l)
{
    struct model *m = l->m;
    const struct model_hyper *h = &m->hyper;
    uint32_t layer_count = m->end_layer - m->first_layer;
    /* Per layer four norms, nine biases, the norms of q and k, the sinks, two biases of the
     * router, three of the experts, and two norms of latent attention, each rounded up to a cache
     * line; then the final norm, its bias, that of the logits, the RoPE factors and two norms of a
     * draft layer. */
    const uint32_t heads = 2 * m->shard.head_count + 3 * m->shard.kv_head_count;
    size_t per_layer = (size_t)h->hidden * 8 + (size_t)(heads + 2) * h->head_dim +
                       2 * m->shard.ffn_count + m->shard.head_count + 2 * h->experts.count +
                       h->latent.rank + h->latent.q_rank + 23 * 16;
    if (h->experts.biases)
        per_layer += m->shard.expert_count * (2 * (size_t)h->experts.ffn + h->hidden);
    m->vectors_capacity = per_layer * layer_count + 4 * (size_t)h->hidden + m->shard.vocab_count +
                          h->rope_dim + 6 * 16;
    m->layers = calloc(layer_count, sizeof(*m->layers));
    if (m->layers == NULL ||
        m->ops->memory_allocate(m->compute, m->vectors_capacity, &m->vectors) != ST_OK)
        return error_set(l->error, ST_NO_MEMORY, "no memory for the vectors of %" PRIu32 " layers",
                         layer_count);
    return ST_OK;
}

/* whole: the hyper-parameters of the whole model. */
static enum status load_all(const struct loader *l, const struct model_options *options,
                            const struct model_hyper *whole)
{
    struct model *m = l->m;
    const uint32_t layer_count = m->end_layer - m->first_layer;
    const uint32_t first = options->draft_layer ? whole->layer_count : m->first_layer;
    enum status status = check_known(l, whole);
    if (status == ST_OK)
        status = take_memory(l);
    if (status == ST_OK)
        status = rope_load(l);
    if (status == ST_OK)
        status = options->draft_layer ? load_draft_ends(l, first) : load_ends(l);
    for (uint32_t i = 0; status == ST_OK && i < layer_count; i++) {
        status = load_attention(l, first + i, &m->layers[i]);
        if (status == ST_OK)
            status = load_ffn(l, first + i, &m->layers[i]);
        if (status == ST_OK && options->progress != NULL)
            options->progress(options->progress_self, i + 1, layer_count);
    }
    return status == ST_OK ? adapters_load(l) : status;
}

enum status model_open(const struct model_file *file, const struct model_options *options,
                       struct model **out, struct error *error)
{
    struct model_hyper whole, hyper;
    enum status status = model_hyper_read(file, &whole, error);
    hyper = whole;
    if (status == ST_OK && options->draft_layer)
        status = model_hyper_read_draft_layer(file, &hyper, error);
    if (status != ST_OK)
        return status;
    uint32_t first = options->first_layer;
    uint32_t last = first == 0 && options->end_layer == 0 ? hyper.layer_count : options->end_layer;
    if (first >= last || last > hyper.layer_count)
        return error_set(error, ST_INVALID,
                         "layers %" PRIu32 " to %" PRIu32
                         " of a model that has layers 0 to %" PRIu32,
                         first, last == 0 ? 0 : last - 1, hyper.layer_count - 1);
    struct model_shard shard;
    status = model_shard_compute(&hyper, options->rank, options->rank_count, &shard, error);
    if (status != ST_OK)
        return status;
    if (!model_shard_is_whole(&shard) && options->ops->group == NULL)
        return error_set(error, ST_UNSUPPORTED, "devices of %s have no tensor parallelism",
                         options->ops->name);
    if (hyper.experts.count > 0 && options->ops->experts == NULL)
        return error_set(error, ST_UNSUPPORTED, "devices of %s compute no models with experts",
                         options->ops->name);
    struct model *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return error_set(error, ST_NO_MEMORY, "no memory for a model");
    m->hyper = hyper;
    m->shard = shard;
    m->ops = options->ops;
    m->compute = options->compute;
    m->first_layer = first;
    m->end_layer = last;
    m->context_tokens_max =
        options->context_tokens_max != 0 ? options->context_tokens_max : hyper.context_tokens;
    if (m->context_tokens_max > LIMIT_CONTEXT_TOKENS)
        m->context_tokens_max = LIMIT_CONTEXT_TOKENS;
    const struct loader loader = {
        .file = file,
        .m = m,
        .error = error,
        .host_vector = malloc(vector_max(&hyper) * sizeof(float)),
    };
    status = loader.host_vector != NULL ? load_all(&loader, options, &whole)
                                        : error_set(error, ST_NO_MEMORY, "no memory for a model");
    free(loader.host_vector);
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
    for (uint32_t i = 0; m->layers != NULL && i < m->end_layer - m->first_layer; i++) {
        struct model_layer *layer = &m->layers[i];
        matrix_close(m, layer->q);
        matrix_close(m, layer->k);
        matrix_close(m, layer->v);
        const struct model_latent_layer *latent = &layer->latent;
        struct compute_matrix *const of_latent[] = {latent->q_a,         latent->q_b,
                                                    latent->rotated_key, latent->latent,
                                                    latent->absorb,      latent->expand};
        for (size_t k = 0; k < sizeof(of_latent) / sizeof(of_latent[0]); k++)
            matrix_close(m, of_latent[k]);
        matrix_close(m, layer->attention_output);
        matrix_close(m, layer->gate);
        matrix_close(m, layer->up);
        matrix_close(m, layer->down);
        experts_unload(m, &layer->experts);
    }
    adapters_unload(m);
    if (m->output != m->embedding)
        matrix_close(m, m->output);
    matrix_close(m, m->embedding);
    matrix_close(m, m->draft.token);
    matrix_close(m, m->draft.final);
    if (m->rope != NULL)
        m->ops->rope_close(m->compute, m->rope);
    if (m->local_rope != NULL)
        m->ops->rope_close(m->compute, m->local_rope);
    if (m->vectors != NULL)
        m->ops->memory_free(m->compute, m->vectors);
    free(m->layers);
    free(m);
}

const struct model_hyper *model_hyper_get(const struct model *m)
{
    return &m->hyper;
}

const struct model_shard *model_shard_get(const struct model *m)
{
    return &m->shard;
}

size_t model_weight_bytes(const struct model *m)
{
    return m->weight_bytes;
}
