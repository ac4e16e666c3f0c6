/* experts_load: loads the experts of a layer, in each of the forms that files have (roles.h). Each
 * expert becomes a matrix of its own; gate and up of an expert are next to each other in memory. */
#include "model/forward/weights_load.h"

#include <stdlib.h>
#include <string.h>

enum kind { KIND_GATE, KIND_UP, KIND_DOWN, KIND_COUNT };

static const enum model_role stacked[KIND_COUNT] = {ROLE_EXPERTS_GATE, ROLE_EXPERTS_UP,
                                                    ROLE_EXPERTS_DOWN};
static const enum model_role separate[KIND_COUNT] = {ROLE_EXPERT_GATE, ROLE_EXPERT_UP,
                                                     ROLE_EXPERT_DOWN};

/* Writes the tensor's name as the file spells it, cut for errors. */
static const char *name_of(const struct mapped_tensor *t, char out[ROLE_NAME_BYTES])
{
    const size_t bytes = t->name.bytes < ROLE_NAME_BYTES ? t->name.bytes : ROLE_NAME_BYTES - 1;
    memcpy(out, t->name.text, bytes);
    out[bytes] = 0;
    return out;
}

/* Loads matrix `kind` of an expert from a tensor that has the matrices of all experts, `each` rows
 * of each expert, from row `first` of the expert on. */
static enum status load_stacked(const struct loader *l, const struct mapped_tensor *t,
                                enum kind kind, uint32_t expert, uint32_t each, uint32_t first,
                                struct compute_matrix **out)
{
    const struct model_hyper *h = &l->m->hyper;
    const uint32_t cols = kind == KIND_DOWN ? h->experts.ffn : h->hidden;
    const uint32_t rows = kind == KIND_DOWN ? h->hidden : h->experts.ffn;
    char name[ROLE_NAME_BYTES];
    enum status status = load_check_shape(l, name_of(t, name), t, cols, each, h->experts.count);
    if (status != ST_OK)
        return status;
    const struct load_part part = {expert * each + first, rows, h->experts.count * each};
    return load_tensor_part(l, t, name, load_whole(cols), part, out);
}

/* Copies rows first, first + 2, first + 4 … of gate and up, or all rows of down, out of a
 * transposed matrix: row r of the result is column first + step * r of the source. */
static void turn(const struct compute_source *source, uint32_t first, uint32_t step, uint32_t rows,
                 uint8_t *out)
{
    const size_t bytes = compute_type_block_bytes(source->type);
    const size_t row_bytes = compute_source_row_bytes(source);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < source->rows; c++, out += bytes)
            memcpy(out,
                   (const uint8_t *)source->data + c * row_bytes +
                       ((size_t)first + (size_t)step * r) * bytes,
                   bytes);
}

/* Loads matrix `kind` of an expert from a stack of the form of struct family.experts_alternate. */
static enum status load_alternate(const struct loader *l, const struct mapped_tensor *t,
                                  enum kind kind, uint32_t expert, struct compute_matrix **out)
{
    const struct model_hyper *h = &l->m->hyper;
    const bool down = kind == KIND_DOWN, turned = compute_type_block_elements(t->type) == 1;
    const uint32_t cols = down ? h->experts.ffn : h->hidden;
    const uint32_t rows = down ? h->hidden : h->experts.ffn, each = down ? rows : 2 * rows;
    const uint32_t first = kind == KIND_UP, step = down ? 1 : 2, stored = turned ? cols : each;
    struct compute_source source;
    void *memory, *copy = NULL;
    char name[ROLE_NAME_BYTES];
    enum status status =
        load_check_shape(l, name_of(t, name), t, turned ? each : cols, stored, h->experts.count);
    if (status == ST_OK)
        status = model_file_source(l->file, t, expert * stored, stored, &source, &memory, l->error);
    if (status != ST_OK)
        return status;
    if (turned && (copy = malloc((size_t)rows * cols * compute_type_block_bytes(t->type))) == NULL)
        status = error_set(l->error, ST_NO_MEMORY, "tensor %s: no memory", name);
    if (turned && status == ST_OK) {
        turn(&source, first, step, rows, copy);
        source = (struct compute_source){.type = t->type, .rows = rows, .cols = cols, .data = copy};
    } else {
        const size_t row_bytes = compute_source_row_bytes(&source);
        source.data = (const uint8_t *)source.data + first * row_bytes;
        source.row_bytes = step * row_bytes;
        source.rows = rows;
    }
    if (status == ST_OK)
        status = load_source(l, name, &source, out);
    free(copy);
    free(memory);
    return status;
}

static enum status load_separate(const struct loader *l, enum kind kind, uint32_t layer,
                                 uint32_t expert, struct compute_matrix **out)
{
    const struct model_hyper *h = &l->m->hyper;
    const uint32_t cols = kind == KIND_DOWN ? h->experts.ffn : h->hidden;
    const uint32_t rows = kind == KIND_DOWN ? h->hidden : h->experts.ffn;
    const struct mapped_tensor *t =
        model_file_tensor_find_expert(l->file, separate[kind], layer, expert);
    char name[ROLE_NAME_BYTES];
    if (t == NULL) {
        model_file_tensor_name(l->file, separate[kind], layer, name);
        return error_set(
            l->error, ST_INVALID,
            "layer %u: expert %u of %u has no matrix: want a tensor as %s for expert 0%s", layer,
            expert, h->experts.count, name,
            model_file_is_folder(l->file) ? "" : ", or a stack of all experts");
    }
    enum status status = load_check_shape(l, name_of(t, name), t, cols, rows, 0);
    if (status != ST_OK)
        return status;
    return load_tensor_part(l, t, name, load_whole(cols), load_whole(rows), out);
}

static enum status load_expert(const struct loader *l, enum kind kind, uint32_t layer,
                               uint32_t expert, struct compute_matrix **out)
{
    const struct model_hyper *h = &l->m->hyper;
    const uint32_t ffn = h->experts.ffn;
    const struct mapped_tensor *t = model_file_tensor_find(l->file, stacked[kind], layer);
    if (h->experts.alternate && kind != KIND_DOWN)
        t = model_file_tensor_find(l->file, ROLE_EXPERTS_GATE_UP, layer);
    if (h->experts.alternate && t != NULL)
        return load_alternate(l, t, kind, expert, out);
    if (t != NULL)
        return load_stacked(l, t, kind, expert, kind == KIND_DOWN ? h->hidden : ffn, 0, out);
    t = kind != KIND_DOWN ? model_file_tensor_find(l->file, ROLE_EXPERTS_GATE_UP, layer) : NULL;
    if (t != NULL)
        return load_stacked(l, t, kind, expert, 2 * ffn, kind == KIND_UP ? ffn : 0, out);
    return load_separate(l, kind, layer, expert, out);
}

/* Loads gate and up of all experts of the slice, then down: the order in which they are read. */
static enum status load_matrices(const struct loader *l, uint32_t layer,
                                 struct compute_matrix **matrices)
{
    const struct model_shard *own = &l->m->shard;
    const uint32_t count = own->expert_count;
    enum status status = ST_OK;
    for (uint32_t i = 0; i < count && status == ST_OK; i++) {
        status = load_expert(l, KIND_GATE, layer, own->expert_first + i, &matrices[i]);
        if (status == ST_OK)
            status = load_expert(l, KIND_UP, layer, own->expert_first + i, &matrices[count + i]);
    }
    for (uint32_t i = 0; i < count && status == ST_OK; i++)
        status = load_expert(l, KIND_DOWN, layer, own->expert_first + i, &matrices[2 * count + i]);
    return status;
}

/* The biases of the rank's experts. */
struct biases {
    const float *gate, *up, *down; /* NULL = none. */
};

/* Loads elements first, first + step, first + 2 step … of each expert's vector of `each`. */
static enum status load_expert_vectors(const struct loader *l, enum model_role role, uint32_t layer,
                                       uint32_t each, uint32_t first, uint32_t step,
                                       const float **out)
{
    const struct model_shard *own = &l->m->shard;
    const uint32_t count = each / step, all = own->expert_count * count;
    enum status status = load_vectors_to_host(l, role, layer, each, l->m->hyper.experts.count);
    if (status != ST_OK)
        return status;
    for (uint32_t e = 0; e < own->expert_count; e++) /* Every element moves towards the front. */
        for (uint32_t i = 0; i < count; i++)
            l->host_vector[(size_t)e * count + i] =
                l->host_vector[(size_t)(own->expert_first + e) * each + first + (size_t)step * i];
    *out = load_vector_to_device(l, load_whole(all));
    return ST_OK;
}

static enum status load_biases(const struct loader *l, uint32_t layer, struct biases *out)
{
    const struct model_hyper *h = &l->m->hyper;
    const uint32_t ffn = h->experts.ffn;
    const bool joined = loader_has_tensor(l, ROLE_EXPERTS_GATE_UP_BIAS, layer);
    const enum model_role gate = joined ? ROLE_EXPERTS_GATE_UP_BIAS : ROLE_EXPERTS_GATE_BIAS;
    const enum model_role up = joined ? ROLE_EXPERTS_GATE_UP_BIAS : ROLE_EXPERTS_UP_BIAS;
    const uint32_t step = joined ? 2 : 1;
    if (!h->experts.biases)
        return ST_OK;
    enum status status = load_expert_vectors(l, gate, layer, step * ffn, 0, step, &out->gate);
    if (status == ST_OK)
        status = load_expert_vectors(l, up, layer, step * ffn, step - 1, step, &out->up);
    if (status == ST_OK)
        status = load_expert_vectors(l, ROLE_EXPERTS_DOWN_BIAS, layer, h->hidden, 0, 1, &out->down);
    return status;
}

static enum status load_routed(const struct loader *l, uint32_t layer,
                               struct model_layer_experts *into)
{
    struct biases biases = {NULL, NULL, NULL};
    struct model *m = l->m;
    const struct model_experts *e = &m->hyper.experts;
    const uint32_t count = m->shard.expert_count;
    into->matrices = calloc(3 * (size_t)count, sizeof(struct compute_matrix *));
    if (into->matrices == NULL)
        return error_set(l->error, ST_NO_MEMORY, "no memory for %u experts", count);
    enum status status = load_matrices(l, layer, into->matrices);
    if (status == ST_OK)
        status = load_biases(l, layer, &biases);
    if (status != ST_OK)
        return status;
    const struct compute_matrix *const *all = (const struct compute_matrix *const *)into->matrices;
    const struct compute_experts_options options = {
        .routing = {.experts = e->count,
                    .used = e->used,
                    .sigmoid = e->sigmoid,
                    .normalise = e->normalise,
                    .scale = e->scale,
                    .groups = e->groups,
                    .groups_used = e->groups_used,
                    .group_best = e->group_best,
                    .choice_bias = into->choice_bias},
        .gate_kind = {.activation = m->hyper.activation, .limit = e->limit, .alpha = e->alpha},
        .first = m->shard.expert_first,
        .count = count,
        .hidden = m->hyper.hidden,
        .ffn = e->ffn,
        .gate = all,
        .up = all + count,
        .down = all + 2 * (size_t)count,
        .gate_bias = biases.gate,
        .up_bias = biases.up,
        .down_bias = biases.down,
    };
    status = m->ops->experts->open(m->compute, &options, &into->routed);
    if (status != ST_OK)
        return error_set(l->error, status, "experts of layer %u: %s", layer, status_name(status));
    return ST_OK;
}

static enum status load_shared(const struct loader *l, uint32_t layer,
                               struct model_layer_experts *into)
{
    const struct model_hyper *h = &l->m->hyper;
    const struct model_shard *own = &l->m->shard;
    const struct load_part hidden = load_whole(h->hidden);
    const struct load_part ffn = {own->shared_ffn_first, own->shared_ffn_count,
                                  h->experts.shared_ffn};
    if (ffn.total == 0)
        return ST_OK;
    enum status status = load_matrix(l, ROLE_SHARED_GATE, layer, hidden, ffn, &into->shared_gate);
    if (status == ST_OK)
        status = load_matrix(l, ROLE_SHARED_UP, layer, hidden, ffn, &into->shared_up);
    if (status == ST_OK)
        status = load_matrix(l, ROLE_SHARED_DOWN, layer, ffn, hidden, &into->shared_down);
    if (status == ST_OK && loader_has_tensor(l, ROLE_SHARED_ROUTER, layer))
        status = load_f32_matrix(l, ROLE_SHARED_ROUTER, layer, h->hidden, 1, &into->shared_router);
    return status;
}

enum status load_experts(const struct loader *l, uint32_t layer, struct model_layer *into)
{
    const struct model_hyper *h = &l->m->hyper;
    struct model_layer_experts *experts = &into->experts;
    enum status status =
        load_f32_matrix(l, ROLE_ROUTER, layer, h->hidden, h->experts.count, &experts->router);
    if (status == ST_OK && loader_has_tensor(l, ROLE_ROUTER_CHOICE_BIAS, layer)) {
        status = load_vector_to_host(l, ROLE_ROUTER_CHOICE_BIAS, layer, h->experts.count);
        if (status == ST_OK)
            experts->choice_bias = load_vector_to_device(l, load_whole(h->experts.count));
    }
    if (status == ST_OK && h->experts.biases) {
        status = load_vector_to_host(l, ROLE_ROUTER_BIAS, layer, h->experts.count);
        if (status == ST_OK)
            experts->router_bias = load_vector_to_device(l, load_whole(h->experts.count));
    }
    if (status == ST_OK)
        status = load_routed(l, layer, experts);
    return status == ST_OK ? load_shared(l, layer, experts) : status;
}

void experts_unload(struct model *m, struct model_layer_experts *experts)
{
    struct compute_matrix *const others[] = {experts->router, experts->shared_gate,
                                             experts->shared_up, experts->shared_down,
                                             experts->shared_router};
    if (experts->routed != NULL)
        m->ops->experts->close(m->compute, experts->routed);
    for (uint32_t i = 0; experts->matrices != NULL && i < 3 * m->shard.expert_count; i++)
        if (experts->matrices[i] != NULL)
            m->ops->matrix_close(m->compute, experts->matrices[i]);
    free(experts->matrices);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (others[i] != NULL)
            m->ops->matrix_close(m->compute, others[i]);
}
