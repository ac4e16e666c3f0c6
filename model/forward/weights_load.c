/* weights_load: see weights_load.h. */
#include "model/forward/weights_load.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool loader_has_tensor(const struct loader *l, enum model_role role, uint32_t layer)
{
    return model_file_tensor_find(l->file, role, layer) != NULL;
}

/* Writes a shape in the order of dimensions that the file's format uses. */
static void shape_text(const struct loader *l, const uint64_t *dims, uint32_t count, char out[96])
{
    const bool reversed = model_file_is_folder(l->file);
    int used = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < count && used < 96; i++)
        used += snprintf(out + used, 96 - (size_t)used, "%s%" PRIu64, i > 0 ? " x " : "",
                         dims[reversed ? count - 1 - i : i]);
}

/* `cols` is the contiguous dimension; rows 0 = a vector. */
enum status load_check_shape(const struct loader *l, const char *name,
                             const struct mapped_tensor *t, uint32_t cols, uint32_t rows,
                             uint32_t experts)
{
    const uint64_t want[3] = {cols, rows == 0 ? 1 : rows, experts == 0 ? 1 : experts};
    const uint32_t count = experts > 0 ? 3 : rows > 0 ? 2 : 1;
    bool fits = t->dim_count >= 1;
    for (uint32_t i = 0; i < t->dim_count; i++)
        fits = fits && t->dims[i] == (i < 3 ? want[i] : 1);
    for (uint32_t i = t->dim_count; i < 3; i++)
        fits = fits && want[i] == 1;
    if (fits)
        return ST_OK;
    char found[96], wanted[96];
    shape_text(l, t->dims, t->dim_count, found);
    shape_text(l, want, count, wanted);
    return error_set(l->error, ST_INVALID, "tensor %s has shape %s, want %s", name, found, wanted);
}

/* Finds the tensor and checks its shape: [rows × cols], or a vector if rows is 0. Writes its name
 * to `name`, for errors. */
static enum status tensor_find(const struct loader *l, enum model_role role, uint32_t layer,
                               uint32_t cols, uint32_t rows, char name[ROLE_NAME_BYTES],
                               const struct mapped_tensor **out)
{
    model_file_tensor_name(l->file, role, layer, name);
    *out = model_file_tensor_find(l->file, role, layer);
    if (*out == NULL)
        return error_set(l->error, ST_INVALID, "tensor %s is missing", name);
    return load_check_shape(l, name, *out, cols, rows, 0);
}

const void *load_aligned(const void *data, size_t bytes, void **copy_out)
{
    *copy_out = NULL;
    if ((uintptr_t)data % _Alignof(float) == 0)
        return data;
    *copy_out = malloc(bytes);
    return *copy_out != NULL ? memcpy(*copy_out, data, bytes) : NULL;
}

/* Bytes from the first element of a source to its last one. */
static size_t source_bytes(const struct compute_source *source)
{
    return (source->rows - 1) * compute_source_row_bytes(source) +
           source->cols / compute_type_block_elements(source->type) *
               compute_type_block_bytes(source->type);
}

enum status load_source(const struct loader *l, const char *name,
                        const struct compute_source *source, struct compute_matrix **out)
{
    struct model *m = l->m;
    struct compute_source aligned = *source;
    void *copy;
    aligned.data = load_aligned(source->data, source_bytes(source), &copy);
    enum status status = ST_NO_MEMORY;
    if (aligned.data != NULL)
        status = m->ops->matrix_open(m->compute, &aligned, out);
    free(copy);
    if (status != ST_OK)
        return error_set(l->error, status, "tensor %s (%s, %" PRIu32 " x %" PRIu32 "): loading: %s",
                         name, compute_type_name(source->type), source->cols, source->rows,
                         status_name(status));
    m->weight_bytes += m->ops->matrix_bytes(*out);
    return ST_OK;
}

static enum status open_matrix(const struct loader *l, const struct mapped_tensor *t,
                               const char *name, struct load_part cols, struct load_part rows,
                               struct compute_matrix **out)
{
    struct compute_source source;
    void *memory;
    enum status status =
        model_file_source(l->file, t, rows.first, rows.count, &source, &memory, l->error);
    if (status != ST_OK)
        return status;
    status = compute_source_slice(&source, 0, rows.count, cols.first, cols.count, &source)
                 ? load_source(l, name, &source, out)
                 : error_set(l->error, ST_INVALID, "tensor %s: its columns cut a block", name);
    free(memory);
    return status;
}

static enum status check_float(const struct loader *l, const struct mapped_tensor *t,
                               const char *name)
{
    if (t->type == COMPUTE_F32 || t->type == COMPUTE_F16 || t->type == COMPUTE_BF16)
        return ST_OK;
    return error_set(l->error, ST_UNSUPPORTED, "tensor %s has type %s, want F32, F16 or BF16", name,
                     compute_type_name(t->type));
}

static enum status check_blocks(const struct loader *l, const struct mapped_tensor *t,
                                const char *name, struct load_part cols)
{
    const struct model_shard *shard = &l->m->shard;
    const uint32_t block = compute_type_block_elements(t->type);
    if (cols.total % block != 0)
        return error_set(l->error, ST_INVALID,
                         "tensor %s of type %s has rows of %" PRIu32
                         " elements, want a multiple of %" PRIu32,
                         name, compute_type_name(t->type), cols.total, block);
    if (cols.first % block == 0 && cols.count % block == 0)
        return ST_OK;
    return error_set(l->error, ST_INVALID,
                     "tensor %s of type %s: rank %" PRIu32 " of %" PRIu32
                     " has its columns %" PRIu32 " to %" PRIu32 ", which cuts a block of %" PRIu32
                     ": want fewer ranks, or weights of another type",
                     name, compute_type_name(t->type), shard->rank, shard->rank_count, cols.first,
                     cols.first + cols.count - 1, block);
}

enum status load_tensor_part(const struct loader *l, const struct mapped_tensor *t,
                             const char *name, struct load_part cols, struct load_part rows,
                             struct compute_matrix **out)
{
    enum status status = check_blocks(l, t, name, cols);
    return status == ST_OK ? open_matrix(l, t, name, cols, rows, out) : status;
}

enum status load_matrix(const struct loader *l, enum model_role role, uint32_t layer,
                        struct load_part cols, struct load_part rows, struct compute_matrix **out)
{
    const struct mapped_tensor *t;
    char name[ROLE_NAME_BYTES];
    enum status status = tensor_find(l, role, layer, cols.total, rows.total, name, &t);
    return status == ST_OK ? load_tensor_part(l, t, name, cols, rows, out) : status;
}

enum status load_f32_matrix(const struct loader *l, enum model_role role, uint32_t layer,
                            uint32_t cols, uint32_t rows, struct compute_matrix **out)
{
    struct model *m = l->m;
    const struct mapped_tensor *t;
    char name[ROLE_NAME_BYTES];
    enum status status = tensor_find(l, role, layer, cols, rows, name, &t);
    if (status == ST_OK)
        status = check_float(l, t, name);
    if (status != ST_OK)
        return status;
    const size_t count = (size_t)cols * rows;
    void *copy;
    const void *data = load_aligned(t->data, t->bytes, &copy);
    float *values = malloc(count * sizeof(*values));
    status = data != NULL && values != NULL ? ST_OK : ST_NO_MEMORY;
    if (status == ST_OK) {
        compute_dequantize(t->type, data, count, values);
        const struct compute_source source = {
            .type = COMPUTE_F32, .rows = rows, .cols = cols, .data = values};
        status = m->ops->matrix_open(m->compute, &source, out);
    }
    free(values);
    free(copy);
    if (status != ST_OK)
        return error_set(l->error, status, "tensor %s: loading: %s", name, status_name(status));
    m->weight_bytes += m->ops->matrix_bytes(*out);
    return ST_OK;
}

enum status load_vector_to_host(const struct loader *l, enum model_role role, uint32_t layer,
                                uint32_t count)
{
    return load_vectors_to_host(l, role, layer, count, 0);
}

enum status load_vectors_to_host(const struct loader *l, enum model_role role, uint32_t layer,
                                 uint32_t count, uint32_t stack)
{
    const struct mapped_tensor *t;
    char name[ROLE_NAME_BYTES];
    enum status status = tensor_find(l, role, layer, count, stack, name, &t);
    if (status != ST_OK)
        return status;
    if ((status = check_float(l, t, name)) != ST_OK)
        return status;
    void *copy;
    const void *data = load_aligned(t->data, t->bytes, &copy);
    if (data == NULL)
        return error_set(l->error, ST_NO_MEMORY, "tensor %s: no memory for %zu bytes", name,
                         t->bytes);
    compute_dequantize(t->type, data, (size_t)count * (stack > 0 ? stack : 1), l->host_vector);
    free(copy);
    return ST_OK;
}

const float *load_vector_to_device(const struct loader *l, struct load_part part)
{
    struct model *m = l->m;
    const float *from = l->host_vector + part.first;
    const size_t bytes = part.count * sizeof(float);
    /* Each vector starts on a cache line. */
    const size_t room = ((size_t)part.count + 15) / 16 * 16;
    assert(m->vectors_used + room <= m->vectors_capacity);
    float *vector = m->vectors + m->vectors_used;
    m->ops->memory_write(m->compute, vector, from, bytes);
    m->vectors_used += room;
    m->weight_bytes += bytes;
    return vector;
}
