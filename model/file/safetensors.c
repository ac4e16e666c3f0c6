/* safetensors: a file is the header's size in 8 bytes, the header as a JSON object, and the data.
 * Each value in the header is {"dtype", "shape", "data_offsets"}; offsets are counted from the
 * beginning of the data. */
#include "model/file/safetensors.h"

#include "model/file/json_read.h"
#include "model/file/lfs_pointer.h"

#include <inttypes.h>
#include <stdlib.h>

#define HEADER_BYTES_MAX (100u << 20) /* The format's rule. */

struct reader {
    const char *file;
    const uint8_t *data; /* The tensors' data. */
    size_t bytes;
    struct error *error;
};

static const struct {
    const char *name;
    size_t bytes;
    enum compute_type type;
    enum mapped_integer integer;
} types[] = {{"F32", 4, COMPUTE_F32, MAPPED_NO_INTEGER},
             {"F16", 2, COMPUTE_F16, MAPPED_NO_INTEGER},
             {"BF16", 2, COMPUTE_BF16, MAPPED_NO_INTEGER},
             {"F8_E4M3", 1, COMPUTE_F8_E4M3, MAPPED_NO_INTEGER},
             {"I8", 1, COMPUTE_TYPE_COUNT, MAPPED_I8},
             {"U8", 1, COMPUTE_TYPE_COUNT, MAPPED_U8},
             {"I32", 4, COMPUTE_TYPE_COUNT, MAPPED_I32},
             {"I64", 8, COMPUTE_TYPE_COUNT, MAPPED_I64}};

static enum status read_type(const struct reader *r, const char *name, const json_t *entry,
                             struct mapped_tensor *t, size_t *element_bytes_out)
{
    const json_t *value = json_object_get(entry, "dtype");
    if (!json_is_string(value))
        return error_set(r->error, ST_INVALID, "%s: tensor '%.100s' has no dtype", r->file, name);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(json_string_value(value), types[i].name) == 0) {
            t->type = types[i].type;
            t->integer = types[i].integer;
            *element_bytes_out = types[i].bytes;
            return ST_OK;
        }
    return error_set(r->error, ST_UNSUPPORTED,
                     "%s: tensor '%.100s' is of type %.20s: supported are F32, F16, BF16, F8_E4M3, "
                     "and I8, U8, I32 and I64 of packed weights",
                     r->file, name, json_string_value(value));
}

/* Reads a whole number that is not negative. */
static bool whole_number_read(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

/* The last dimension of a shape is the contiguous one. A scalar without dimensions is read as a
 * vector of one element. */
static enum status read_shape(const struct reader *r, const char *name, const json_t *entry,
                              size_t element_bytes, struct mapped_tensor *t)
{
    const json_t *shape = json_object_get(entry, "shape");
    size_t count = json_array_size(shape);
    if (!json_is_array(shape) || count > 4)
        return error_set(r->error, ST_INVALID,
                         "%s: tensor '%.100s' has %zu dimensions: want up to 4", r->file, name,
                         count);
    uint64_t elements = 1;
    t->dim_count = count > 0 ? (uint32_t)count : 1;
    for (size_t i = 0; i < 4; i++) {
        t->dims[i] = 1;
        if (i < count &&
            (!whole_number_read(json_array_get(shape, count - 1 - i), &t->dims[i]) ||
             t->dims[i] == 0 || __builtin_mul_overflow(elements, t->dims[i], &elements)))
            return error_set(r->error, ST_INVALID,
                             "%s: tensor '%.100s': dimension %zu of its shape: want a whole number "
                             "above 0, and a product below 2^64",
                             r->file, name, count - 1 - i);
    }
    if (__builtin_mul_overflow(elements, element_bytes, &t->bytes))
        return error_set(r->error, ST_INVALID,
                         "%s: tensor '%.100s': %" PRIu64 " elements are too many", r->file, name,
                         elements);
    return ST_OK;
}

static enum status read_place(const struct reader *r, const char *name, const json_t *entry,
                              struct mapped_tensor *t)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    uint64_t begin = 0, end = 0;
    if (json_array_size(offsets) != 2 || !whole_number_read(json_array_get(offsets, 0), &begin) ||
        !whole_number_read(json_array_get(offsets, 1), &end))
        return error_set(r->error, ST_INVALID,
                         "%s: tensor '%.100s': data_offsets: want two whole numbers", r->file,
                         name);
    if (begin > end || end - begin != t->bytes)
        return error_set(r->error, ST_INVALID,
                         "%s: tensor '%.100s': data_offsets are %" PRIu64 " and %" PRIu64
                         ": its type and shape take %zu bytes",
                         r->file, name, begin, end, t->bytes);
    if (end > r->bytes)
        return error_set(r->error, ST_INVALID,
                         "%s: tensor '%.100s' ends at byte %" PRIu64
                         " of the data, the file has %zu of them",
                         r->file, name, end, r->bytes);
    t->data = r->data + begin;
    return ST_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct mapped_tensor *x = a, *y = b;
    uintptr_t at_x = (uintptr_t)x->data, at_y = (uintptr_t)y->data;
    return at_x < at_y ? -1 : at_x > at_y;
}

/* Each tensor must begin where the one before ends, and the last one must end with the file. */
static enum status check_places(const struct reader *r, const struct safetensors *s)
{
    size_t end = 0;
    for (size_t i = 0; i < s->tensor_count; i++) {
        const struct mapped_tensor *t = &s->tensors[i];
        size_t begin = (size_t)((const uint8_t *)t->data - r->data);
        if (begin < end)
            return error_set(
                r->error, ST_INVALID,
                "%s: tensors '%.100s' and '%.100s' overlap: one ends at byte %zu of the "
                "data, the other begins at %zu",
                r->file, s->tensors[i - 1].name.text, t->name.text, end, begin);
        if (begin > end)
            return error_set(r->error, ST_INVALID,
                             "%s: bytes %zu to %zu of the data, before tensor '%.100s', belong to "
                             "no tensor",
                             r->file, end, begin, t->name.text);
        end = begin + t->bytes;
    }
    if (end != r->bytes)
        return error_set(r->error, ST_INVALID,
                         "%s: the last tensor ends at byte %zu of the data, the file has %zu",
                         r->file, end, r->bytes);
    return ST_OK;
}

static enum status read_tensors(const struct reader *r, struct safetensors *s)
{
    const char *name;
    json_t *entry;
    s->tensors = calloc(json_object_size(s->header) + 1, sizeof(*s->tensors));
    if (s->tensors == NULL)
        return error_set(r->error, ST_NO_MEMORY, "%s: no memory for its tensors", r->file);
    json_object_foreach(s->header, name, entry)
    {
        struct mapped_tensor *t = &s->tensors[s->tensor_count];
        if (strcmp(name, "__metadata__") == 0)
            continue;
        t->name = mapped_text_of(name);
        size_t element_bytes = 0;
        enum status status = read_type(r, name, entry, t, &element_bytes);
        if (status == ST_OK)
            status = read_shape(r, name, entry, element_bytes, t);
        if (status == ST_OK)
            status = read_place(r, name, entry, t);
        if (status != ST_OK)
            return status;
        s->tensor_count++;
    }
    qsort(s->tensors, s->tensor_count, sizeof(*s->tensors), by_place);
    return check_places(r, s);
}

enum status safetensors_read(const char *name, const void *data, size_t bytes,
                             struct safetensors *out, struct error *error)
{
    uint64_t header_bytes = 0;
    struct safetensors s = {.header = NULL};
    if (is_lfs_pointer(data, bytes))
        return error_set(error, ST_INVALID, "%s: " LFS_POINTER_TEXT, name);
    if (bytes < sizeof(header_bytes))
        return error_set(error, ST_INVALID, "%s: %zu bytes are no safetensors file", name, bytes);
    memcpy(&header_bytes, data, sizeof(header_bytes));
    if (header_bytes > HEADER_BYTES_MAX || header_bytes > bytes - sizeof(header_bytes))
        return error_set(error, ST_INVALID,
                         "%s: not a safetensors file, or cut: a header of %" PRIu64
                         " bytes in a file of %zu (at most %u)",
                         name, header_bytes, bytes, HEADER_BYTES_MAX);
    s.data_start = sizeof(header_bytes) + (size_t)header_bytes;
    const struct mapped_text header = {(const char *)data + sizeof(header_bytes),
                                       (size_t)header_bytes};
    enum status status = json_read(name, header, &s.header, error);
    if (status != ST_OK)
        return status;
    const struct reader reader = {name, (const uint8_t *)data + s.data_start, bytes - s.data_start,
                                  error};
    status = read_tensors(&reader, &s);
    if (status != ST_OK) {
        safetensors_done(&s);
        return status;
    }
    *out = s;
    return ST_OK;
}

void safetensors_done(struct safetensors *s)
{
    json_decref(s->header);
    free(s->tensors);
    *s = (struct safetensors){.header = NULL};
}
