/* latent_load: loads the matrices of latent attention. The matrix that makes keys and values from
 * the latent vector is divided into one that is multiplied with queries (transposed) and one that
 * is multiplied with the result of attention, both as fp32. */
#include "compute/latent.h"
#include "model/forward/weights_load.h"

#include <stdlib.h>
#include <string.h>

/* Returns a whole tensor as fp32, [rows × cols], or a stack of such matrices (0 = no stack); the
 * caller frees it. */
static enum status load_floats(const struct loader *l, enum model_role role, uint32_t layer,
                               uint32_t cols, uint32_t rows, uint32_t stack, float **out)
{
    struct compute_source source;
    void *memory;
    char name[ROLE_NAME_BYTES];
    model_file_tensor_name(l->file, role, layer, name);
    const struct mapped_tensor *t = model_file_tensor_find(l->file, role, layer);
    if (t == NULL)
        return error_set(l->error, ST_INVALID, "tensor %s is missing", name);
    enum status status = load_check_shape(l, name, t, cols, rows, stack);
    rows *= stack > 0 ? stack : 1;
    if (status == ST_OK && cols % compute_type_block_elements(t->type) != 0)
        status = error_set(l->error, ST_INVALID, "tensor %s: rows cut a block of its type", name);
    if (status == ST_OK)
        status = model_file_source(l->file, t, 0, rows, &source, &memory, l->error);
    if (status != ST_OK)
        return status;
    float *values = malloc((size_t)rows * cols * sizeof(float));
    void *copy = NULL;
    source.data = values != NULL
                      ? load_aligned(source.data, rows * compute_source_row_bytes(&source), &copy)
                      : NULL;
    for (uint32_t r = 0; source.data != NULL && r < rows; r++)
        compute_source_row(&source, r, values + (size_t)r * cols);
    free(copy);
    free(memory);
    if (source.data == NULL) {
        free(values);
        return error_set(l->error, ST_NO_MEMORY, "tensor %s: no memory", name);
    }
    *out = values;
    return ST_OK;
}

static enum status open_floats(const struct loader *l, uint32_t rows, uint32_t cols,
                               const float *values, struct compute_matrix **out)
{
    struct model *m = l->m;
    const struct compute_source source = {
        .type = COMPUTE_F32, .rows = rows, .cols = cols, .data = values};
    enum status status = m->ops->matrix_open(m->compute, &source, out);
    if (status != ST_OK)
        return error_set(l->error, status, "matrices of latent attention: loading: %s",
                         status_name(status));
    m->weight_bytes += m->ops->matrix_bytes(*out);
    return ST_OK;
}

/* Loads one of the two matrices of newer GGUF files: those of the rank's heads. */
static enum status load_apart(const struct loader *l, enum model_role role, uint32_t layer,
                              uint32_t cols, uint32_t rows, struct compute_matrix **out)
{
    const struct model_shard *own = &l->m->shard;
    float *values;
    enum status status = load_floats(l, role, layer, cols, rows, l->m->hyper.head_count, &values);
    if (status != ST_OK)
        return status;
    status = open_floats(l, own->head_count * rows, cols,
                         values + (size_t)own->head_first * rows * cols, out);
    free(values);
    return status;
}

/* Divides the matrix of keys and values, [head][plain, then value][rank], for the rank's heads. */
static enum status load_heads(const struct loader *l, uint32_t layer,
                              struct model_latent_layer *into)
{
    const struct model_latent *h = &l->m->hyper.latent;
    const uint32_t heads = l->m->shard.head_count, each = h->plain + h->value;
    float *all = NULL, *absorb = malloc((size_t)heads * h->rank * h->plain * sizeof(float));
    float *expand = malloc((size_t)heads * h->rank * h->value * sizeof(float));
    enum status status =
        load_floats(l, ROLE_KV_B, layer, h->rank, l->m->hyper.head_count * each, 0, &all);
    if (status == ST_OK && (absorb == NULL || expand == NULL)) {
        free(all);
        status = error_set(l->error, ST_NO_MEMORY, "no memory for latent attention");
    }
    if (status != ST_OK) {
        free(absorb);
        free(expand);
        return status;
    }
    for (uint32_t head = 0; head < heads; head++) {
        const float *from = all + (size_t)(l->m->shard.head_first + head) * each * h->rank;
        for (uint32_t i = 0; i < h->plain; i++, from += h->rank)
            for (uint32_t j = 0; j < h->rank; j++)
                absorb[((size_t)head * h->rank + j) * h->plain + i] = from[j];
        memcpy(expand + (size_t)head * h->value * h->rank, from,
               (size_t)h->value * h->rank * sizeof(float));
    }
    status = open_floats(l, heads * h->rank, h->plain, absorb, &into->absorb);
    if (status == ST_OK)
        status = open_floats(l, heads * h->value, h->rank, expand, &into->expand);
    free(all);
    free(absorb);
    free(expand);
    return status;
}

static enum status load_query(const struct loader *l, uint32_t layer, struct model_layer *into)
{
    const struct model_hyper *h = &l->m->hyper;
    const uint32_t rank = h->latent.q_rank;
    const struct load_part hidden = load_whole(h->hidden), low = load_whole(rank);
    const struct load_part q = load_heads_part(l->m, h->latent.plain + h->latent.rotated);
    if (rank == 0)
        return load_matrix(l, ROLE_Q, layer, hidden, q, &into->q);
    enum status status = load_matrix(l, ROLE_Q_A, layer, hidden, low, &into->latent.q_a);
    if (status == ST_OK)
        status = load_vector_to_host(l, ROLE_Q_A_NORM, layer, rank);
    if (status == ST_OK)
        into->latent.q_norm = load_vector_to_device(l, low);
    return status == ST_OK ? load_matrix(l, ROLE_Q_B, layer, low, q, &into->latent.q_b) : status;
}

enum status load_latent(const struct loader *l, uint32_t layer, struct model_layer *into)
{
    const struct model_hyper *h = &l->m->hyper;
    const uint32_t rank = h->latent.rank, rotated = h->latent.rotated;
    const struct load_part hidden = load_whole(h->hidden);
    const struct load_part latent = {0, rank, rank + rotated},
                           own = {rank, rotated, rank + rotated};
    if (l->m->ops->latent == NULL)
        return error_set(l->error, ST_UNSUPPORTED, "devices of %s have no latent attention",
                         l->m->ops->name);
    enum status status = load_query(l, layer, into);
    if (status == ST_OK)
        status = load_matrix(l, ROLE_KV_A, layer, hidden, own, &into->latent.rotated_key);
    if (status == ST_OK)
        status = load_matrix(l, ROLE_KV_A, layer, hidden, latent, &into->latent.latent);
    if (status == ST_OK)
        status = load_vector_to_host(l, ROLE_KV_A_NORM, layer, rank);
    if (status == ST_OK)
        into->latent.norm = load_vector_to_device(l, load_whole(rank));
    if (status != ST_OK || !loader_has_tensor(l, ROLE_K_B, layer))
        return status != ST_OK ? status : load_heads(l, layer, &into->latent);
    status = load_apart(l, ROLE_K_B, layer, h->latent.plain, rank, &into->latent.absorb);
    if (status == ST_OK)
        status = load_apart(l, ROLE_V_B, layer, rank, h->latent.value, &into->latent.expand);
    return status;
}
