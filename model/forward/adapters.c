/* adapters: see adapters.h. The matrices are fp32: A as the file has it, B transposed and times the
 * scale. */
#include "model/forward/adapters.h"

#include "common/limits.h"
#include "model/forward/forward_state.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The shape of a product of the whole model, and the part that this rank computes. */
struct shape {
    struct load_part cols, rows;
    /* Rows of a head are in the order of GGUF files of llama: rotated pairs are neighbours. */
    uint32_t paired_dim; /* 0 = they are in the order of Hugging Face's files. */
};

/* Whether the conversion to GGUF has permuted the rows of q and k. */
static bool is_paired(const struct loader *l)
{
    return !model_file_is_folder(l->file) && !l->m->hyper.rope_neox;
}

static struct shape shape_of(const struct loader *l, enum adapter_matrix matrix)
{
    const struct model *m = l->m;
    const struct model_hyper *h = &m->hyper;
    const struct model_shard *own = &m->shard;
    const uint32_t dim = h->head_dim, paired = is_paired(l) ? dim : 0;
    const struct load_part hidden = load_whole(h->hidden);
    const struct load_part q = {own->head_first * dim, own->head_count * dim, h->head_count * dim};
    const struct load_part kv = {own->kv_head_first * dim, own->kv_head_count * dim,
                                 h->kv_head_count * dim};
    const struct load_part ffn = {own->ffn_first, own->ffn_count, h->ffn};
    switch (matrix) {
    case ADAPTER_Q:
        return (struct shape){hidden, q, paired};
    case ADAPTER_K:
        return (struct shape){hidden, kv, paired};
    case ADAPTER_V:
        return (struct shape){hidden, kv, 0};
    case ADAPTER_OUTPUT:
        return (struct shape){q, hidden, 0};
    case ADAPTER_DOWN:
        return (struct shape){ffn, hidden, 0};
    default:
        return (struct shape){hidden, ffn, 0};
    }
}

static enum status check_shape(const struct loader *l, const struct mapped_tensor *t, uint64_t cols,
                               uint64_t rows)
{
    if (t->dims[0] == cols && t->dims[1] == rows)
        return ST_OK;
    return error_set(l->error, ST_INVALID,
                     "tensor %.100s has shape %" PRIu64 " x %" PRIu64 ", want %" PRIu64
                     " x %" PRIu64,
                     t->name.text, t->dims[1], t->dims[0], rows, cols);
}

/* Describes the tensor. The caller frees *copy_out (load_aligned). data NULL = no memory. */
static struct compute_source source_of(const struct mapped_tensor *t, void **copy_out)
{
    return (struct compute_source){.type = t->type,
                                   .rows = (uint32_t)t->dims[1],
                                   .cols = (uint32_t)t->dims[0],
                                   .data = load_aligned(t->data, t->bytes, copy_out)};
}

/* Returns where Hugging Face's files have a row of the model's order. */
static uint32_t file_row(const struct shape *shape, uint32_t row)
{
    const uint32_t dim = shape->paired_dim;
    if (dim == 0)
        return row;
    const uint32_t within = row % dim;
    return row - within + within % 2 * (dim / 2) + within / 2;
}

/* Writes the rank's columns of A, and its rows of B transposed. `line` has room for one row.
 * Returns ST_OK or ST_NO_MEMORY. */
static enum status copy(const struct shape *shape, const struct mapped_tensor *a,
                        const struct mapped_tensor *b, float scale, float *line, float *down,
                        float *up)
{
    void *copy_a, *copy_b;
    const struct compute_source from_a = source_of(a, &copy_a), from_b = source_of(b, &copy_b);
    const bool readable = from_a.data != NULL && from_b.data != NULL;
    const uint32_t rank = from_a.rows;
    for (uint32_t r = 0; r < rank && readable; r++) {
        compute_source_row(&from_a, r, line);
        memcpy(down + (size_t)r * shape->cols.count, line + shape->cols.first,
               shape->cols.count * sizeof(float));
    }
    for (uint32_t i = 0; i < shape->rows.count && readable; i++) {
        compute_source_row(&from_b, file_row(shape, shape->rows.first + i), line);
        for (uint32_t r = 0; r < rank; r++)
            up[(size_t)r * shape->rows.count + i] = line[r] * scale;
    }
    free(copy_a);
    free(copy_b);
    return readable ? ST_OK : ST_NO_MEMORY;
}

/* Finds the adapter's rank for a product and checks its two tensors; rank 0 = it has none. */
static enum status find_rank(const struct loader *l, const struct adapter *adapter, uint32_t layer,
                             enum adapter_matrix matrix, uint32_t *rank_out)
{
    const struct mapped_tensor *a = adapter_tensor(adapter, layer, matrix, false);
    const struct mapped_tensor *b = adapter_tensor(adapter, layer, matrix, true);
    const struct shape shape = shape_of(l, matrix);
    *rank_out = 0;
    if (a == NULL)
        return ST_OK;
    if (matrix == ADAPTER_GATE && l->m->hyper.plain_ffn)
        return error_set(l->error, ST_UNSUPPORTED,
                         "tensor %.100s: the feed-forward of %s models has no gate", a->name.text,
                         l->m->hyper.architecture);
    const uint64_t rank = a->dims[1];
    if (rank < 1 || rank > COMPUTE_LOW_RANK_MAX)
        return error_set(l->error, ST_UNSUPPORTED,
                         "tensor %.100s has rank %" PRIu64 ", want 1 to %d", a->name.text, rank,
                         COMPUTE_LOW_RANK_MAX);
    if (matrix >= ADAPTER_GATE && l->m->layers[layer - l->m->first_layer].experts.router != NULL)
        return error_set(l->error, ST_UNSUPPORTED,
                         "layer %" PRIu32 " has experts, which adapters cannot change", layer);
    enum status status = check_shape(l, a, shape.cols.total, rank);
    if (status == ST_OK)
        status = check_shape(l, b, rank, shape.rows.total);
    if (status == ST_OK)
        *rank_out = (uint32_t)rank;
    return status;
}

/* The products of one matrix with all adapters: one piece of the device's memory, which has the
 * array struct compute_low_rank[adapter_count] and then the matrices. */
struct piece {
    struct shape shape;
    uint32_t ranks[LIMIT_ADAPTERS];
    uint32_t rank_max;
    size_t floats;
};

/* Floats of `bytes` bytes, rounded up to a cache line. */
static size_t floats_of(size_t bytes)
{
    return (bytes + 63) / 64 * 16;
}

static size_t matrices_floats(const struct shape *shape, uint32_t rank)
{
    return floats_of((size_t)rank * shape->cols.count * sizeof(float)) +
           floats_of((size_t)rank * shape->rows.count * sizeof(float));
}

static enum status measure(const struct loader *l, uint32_t layer, enum adapter_matrix matrix,
                           struct piece *out)
{
    const uint32_t count = l->m->adapter_count;
    *out = (struct piece){.shape = shape_of(l, matrix),
                          .floats = floats_of(count * sizeof(struct compute_low_rank))};
    for (uint32_t i = 0; i < count; i++) {
        const struct adapter *adapter = model_file_adapter(l->file, i);
        enum status status = find_rank(l, adapter, layer, matrix, &out->ranks[i]);
        if (status != ST_OK) {
            error_prefix(l->error, "adapter %s", model_file_adapter_name(l->file, i));
            return status;
        }
        out->rank_max = out->ranks[i] > out->rank_max ? out->ranks[i] : out->rank_max;
        out->floats += matrices_floats(&out->shape, out->ranks[i]);
    }
    return ST_OK;
}

/* Fills `host` with what `device` will hold. `line` has room for one row of a tensor.
 * Returns ST_OK or ST_NO_MEMORY. */
static enum status fill(const struct loader *l, uint32_t layer, enum adapter_matrix matrix,
                        const struct piece *piece, const float *device, float *line, float *host)
{
    const uint32_t count = l->m->adapter_count;
    const struct shape *shape = &piece->shape;
    struct compute_low_rank *each = (struct compute_low_rank *)(void *)host;
    size_t at = floats_of(count * sizeof(*each));
    enum status status = ST_OK;
    for (uint32_t i = 0; i < count && status == ST_OK; i++) {
        const uint32_t rank = piece->ranks[i];
        const struct adapter *adapter = model_file_adapter(l->file, i);
        const size_t up = at + floats_of((size_t)rank * shape->cols.count * sizeof(float));
        if (rank == 0)
            continue;
        each[i] = (struct compute_low_rank){rank, device + at, device + up};
        status = copy(shape, adapter_tensor(adapter, layer, matrix, false),
                      adapter_tensor(adapter, layer, matrix, true), adapter_scale(adapter, rank),
                      line, host + at, host + up);
        at += matrices_floats(shape, rank);
    }
    return status;
}

static enum status load_matrix_of(const struct loader *l, uint32_t layer,
                                  enum adapter_matrix matrix, struct compute_low_ranks *out)
{
    const struct compute_ops *ops = l->m->ops;
    struct piece piece;
    float *device = NULL;
    enum status status = measure(l, layer, matrix, &piece);
    if (status != ST_OK || piece.rank_max == 0)
        return status;
    const size_t cols = piece.shape.cols.total;
    float *host = calloc(piece.floats, sizeof(float));
    float *line = malloc((cols > piece.rank_max ? cols : piece.rank_max) * sizeof(float));
    status = host != NULL && line != NULL ? ST_OK : ST_NO_MEMORY;
    if (status == ST_OK)
        status = ops->memory_allocate(l->m->compute, piece.floats, &device);
    if (status == ST_OK) {
        /* adapters_unload frees the device's memory, also after an error. */
        *out = (struct compute_low_ranks){(const struct compute_low_rank *)(const void *)device,
                                          piece.shape.rows.count, piece.rank_max};
        status = fill(l, layer, matrix, &piece, device, line, host);
    }
    if (status == ST_OK)
        ops->memory_write(l->m->compute, device, host, piece.floats * sizeof(float));
    else
        error_set(l->error, status, "no memory for adapters");
    free(host);
    free(line);
    return status;
}

static enum status load_layer(const struct loader *l, uint32_t layer, struct model_layer *into)
{
    enum status status = ST_OK;
    for (int m = 0; m < ADAPTER_MATRIX_COUNT && status == ST_OK; m++)
        status = load_matrix_of(l, layer, (enum adapter_matrix)m, &into->adapters[m]);
    return status;
}

/* Refuses models that do not have the products that adapters name. In GGUF files whose rotated
 * pairs are neighbours, q and k are permuted; this is known only of llama. */
static enum status check_model(const struct loader *l)
{
    const struct model_hyper *h = &l->m->hyper;
    if (h->latent.rank > 0)
        return error_set(l->error, ST_UNSUPPORTED,
                         "adapters are not supported for models with latent attention");
    if (is_paired(l) && strcmp(h->architecture, "llama") != 0)
        return error_set(l->error, ST_UNSUPPORTED,
                         "adapters of %s are supported for a folder, not for a GGUF file",
                         h->architecture);
    return ST_OK;
}

enum status adapters_load(const struct loader *l)
{
    struct model *m = l->m;
    m->adapter_count = model_file_adapter_count(l->file);
    if (m->adapter_count > 0 && m->ops->low_rank == NULL)
        return error_set(l->error, ST_UNSUPPORTED, "devices of %s do not compute adapters",
                         m->ops->name);
    for (uint32_t i = 0; i < m->adapter_count; i++)
        if (adapter_layer_end(model_file_adapter(l->file, i)) > m->hyper.layer_count)
            return error_set(l->error, ST_INVALID,
                             "adapter %s is for %" PRIu32 " layers, the model has %" PRIu32,
                             model_file_adapter_name(l->file, i),
                             adapter_layer_end(model_file_adapter(l->file, i)),
                             m->hyper.layer_count);
    enum status status = ST_OK;
    if (m->adapter_count > 0)
        status = check_model(l);
    for (uint32_t i = m->first_layer; i < m->end_layer && m->adapter_count > 0 && status == ST_OK;
         i++)
        status = load_layer(l, i, &m->layers[i - m->first_layer]);
    return status;
}

void adapters_unload(struct model *m)
{
    for (uint32_t i = 0; m->layers != NULL && i < m->end_layer - m->first_layer; i++)
        for (int k = 0; k < ADAPTER_MATRIX_COUNT; k++)
            if (m->layers[i].adapters[k].by_adapter != NULL)
                m->ops->memory_free(m->compute,
                                    (float *)(void *)m->layers[i].adapters[k].by_adapter);
}

static bool any_adapter(const struct compute_batch *batch)
{
    for (uint32_t i = 0; i < batch->sequence_count; i++)
        if (batch->sequences[i].adapter != 0)
            return true;
    return false;
}

void adapters_add(const struct forward *f, const struct forward_lane *lane,
                  const struct model_layer *layer, enum adapter_matrix matrix,
                  const struct compute_batch *batch, const struct compute_activations *a, float *y)
{
    if (layer->adapters[matrix].by_adapter != NULL && any_adapter(batch))
        f->m->ops->low_rank(lane->compute, &layer->adapters[matrix], batch, a, y);
}
