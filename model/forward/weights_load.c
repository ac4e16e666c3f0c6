/* weights_load: see weights_load.h. */
#include "model/forward/weights_load.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tensor_is_there(const struct loader *l, enum model_role role, uint32_t layer)
{
    return model_file_find(l->file, role, layer) != NULL;
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
static enum status check_shape(const struct loader *l, const char *name,
                               const struct mapped_tensor *t, uint32_t cols, uint32_t rows)
{
    bool fits = t->dim_count >= 1 && t->dims[0] == cols;
    for (uint32_t i = 1; i < t->dim_count; i++)
        fits = fits && t->dims[i] == (i == 1 && rows != 0 ? rows : 1);
    if (rows > 1 && t->dim_count < 2)
        fits = false;
    if (fits)
        return ST_OK;
    char found[96], wanted[96];
    shape_text(l, t->dims, t->dim_count, found);
    shape_text(l, (const uint64_t[]){cols, rows}, rows == 0 ? 1 : 2, wanted);
    return error_set(l->error, ST_INVALID, "tensor %s has shape %s, want %s", name, found, wanted);
}

/* Finds the tensor and checks its shape. Writes its name to `name`, for errors. */
static enum status tensor_find(const struct loader *l, enum model_role role, uint32_t layer,
                               uint32_t cols, uint32_t rows, char name[ROLE_NAME_BYTES],
                               const struct mapped_tensor **out)
{
    model_file_tensor_name(l->file, role, layer, name);
    *out = model_file_find(l->file, role, layer);
    if (*out == NULL)
        return error_set(l->error, ST_INVALID, "tensor %s is missing", name);
    return check_shape(l, name, *out, cols, rows);
}

/* Returns the tensor's data aligned for reading numbers. (Some writers of safetensors do not align
 * data.) The caller frees *copy_out. NULL = no memory. */
static const void *aligned_data(const struct mapped_tensor *t, void **copy_out)
{
    *copy_out = NULL;
    if ((uintptr_t)t->data % _Alignof(float) == 0)
        return t->data;
    *copy_out = malloc(t->bytes);
    return *copy_out != NULL ? memcpy(*copy_out, t->data, t->bytes) : NULL;
}

static enum status open_matrix(const struct loader *l, const struct mapped_tensor *t,
                               const char *name, struct load_part cols, struct load_part rows,
                               struct compute_matrix **out)
{
    struct model *m = l->m;
    struct compute_source source;
    float *scales;
    void *copy;
    enum status status = model_file_source(l->file, t, &source, &scales, l->error);
    if (status != ST_OK)
        return status;
    source.data = aligned_data(t, &copy);
    if (source.data == NULL)
        status = ST_NO_MEMORY;
    else if (!compute_source_slice(&source, rows.first, rows.count, cols.first, cols.count,
                                   &source))
        status = ST_INVALID;
    else
        status = m->ops->matrix_open(m->compute, &source, out);
    free(scales);
    free(copy);
    if (status != ST_OK)
        return error_set(l->error, status, "tensor %s (%s, %" PRIu32 " x %" PRIu32 "): loading: %s",
                         name, compute_type_name(t->type), cols.count, rows.count,
                         status_name(status));
    return ST_OK;
}

static enum status check_blocks(const struct loader *l, const struct mapped_tensor *t,
                                const char *name, struct load_part cols)
{
    const struct model_shard *shard = &l->m->shard;
    const uint32_t block = compute_type_block_elements(t->type);
    if (cols.of % block != 0)
        return error_set(l->error, ST_INVALID,
                         "tensor %s of type %s has rows of %" PRIu32
                         " elements, want a multiple of %" PRIu32,
                         name, compute_type_name(t->type), cols.of, block);
    if (cols.first % block == 0 && cols.count % block == 0)
        return ST_OK;
    return error_set(l->error, ST_INVALID,
                     "tensor %s of type %s: rank %" PRIu32 " of %" PRIu32
                     " has its columns %" PRIu32 " to %" PRIu32 ", which cuts a block of %" PRIu32
                     ": want fewer ranks, or weights of another type",
                     name, compute_type_name(t->type), shard->rank, shard->ranks, cols.first,
                     cols.first + cols.count - 1, block);
}

enum status load_matrix(const struct loader *l, enum model_role role, uint32_t layer,
                        struct load_part cols, struct load_part rows, struct compute_matrix **out)
{
    const struct mapped_tensor *t;
    char name[ROLE_NAME_BYTES];
    enum status status = tensor_find(l, role, layer, cols.of, rows.of, name, &t);
    if (status == ST_OK)
        status = check_blocks(l, t, name, cols);
    if (status == ST_OK)
        status = open_matrix(l, t, name, cols, rows, out);
    if (status == ST_OK)
        l->m->weight_bytes += l->m->ops->matrix_bytes(*out);
    return status;
}

enum status load_vector(const struct loader *l, enum model_role role, uint32_t layer,
                        uint32_t count)
{
    const struct mapped_tensor *t;
    char name[ROLE_NAME_BYTES];
    enum status status = tensor_find(l, role, layer, count, 0, name, &t);
    if (status != ST_OK)
        return status;
    if (t->type != COMPUTE_F32 && t->type != COMPUTE_F16 && t->type != COMPUTE_BF16)
        return error_set(l->error, ST_UNSUPPORTED, "tensor %s has type %s, want F32, F16 or BF16",
                         name, compute_type_name(t->type));
    void *copy;
    const void *data = aligned_data(t, &copy);
    if (data == NULL)
        return error_set(l->error, ST_NO_MEMORY, "tensor %s: no memory for %zu bytes", name,
                         t->bytes);
    compute_dequantize(t->type, data, count, l->host);
    free(copy);
    return ST_OK;
}

const float *load_keep(const struct loader *l, struct load_part part)
{
    struct model *m = l->m;
    const float *from = l->host + part.first;
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
