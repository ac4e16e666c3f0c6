/* gguf: opening, look-ups and the hash. gguf_parse.c parses the file; it keeps pointers into the
 * mapping, so opening a file of any size reads its metadata only. */
#include "model/file/gguf_internal.h"

#include "model/file/content_hash.h"
#include "model/file/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *gguf_name_printable(struct mapped_text name, char shown[GGUF_PRINTABLE_BYTES])
{
    size_t bytes = name.bytes < GGUF_PRINTABLE_BYTES - 4 ? name.bytes : GGUF_PRINTABLE_BYTES - 4;
    for (size_t i = 0; i < bytes; i++)
        shown[i] = name.text[i] >= ' ' && name.text[i] <= '~' ? name.text[i] : '?';
    memcpy(shown + bytes, bytes < name.bytes ? "..." : "", bytes < name.bytes ? 4 : 1);
    return shown;
}

/* ---- open and close ---- */

static enum status open_bytes(const void *data, size_t bytes, const char *name, bool mapped,
                              struct gguf **out, struct error *error)
{
    const char *slash = strrchr(name, '/');
    struct gguf *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        if (mapped)
            mapping_close(data, bytes);
        return error_set(error, ST_NO_MEMORY, "%s: no memory to open it", name);
    }
    snprintf(g->name, sizeof(g->name), "%s", slash != NULL ? slash + 1 : name);
    g->data = data;
    g->bytes = bytes;
    g->mapped = mapped;
    enum status status = gguf_parse(g, error);
    if (status != ST_OK) {
        error_prefix(error, "%s", g->name);
        gguf_close(g);
        return status;
    }
    *out = g;
    return ST_OK;
}

enum status gguf_open_memory(const void *data, size_t bytes, const char *name, struct gguf **out,
                             struct error *error)
{
    if ((uintptr_t)data % 16 != 0)
        return error_set(error, ST_INVALID, "%s: the memory is not aligned to 16 bytes", name);
    return open_bytes(data, bytes, name, false, out, error);
}

enum status gguf_open(const char *path, struct gguf **out, struct error *error)
{
    struct gguf *g;
    enum status status = gguf_open_file(path, &g, error);
    if (status != ST_OK)
        return status;
    status = gguf_split_open(g, path, error);
    if (status != ST_OK) {
        gguf_close(g);
        return status;
    }
    *out = g;
    return ST_OK;
}

enum status gguf_open_file(const char *path, struct gguf **out, struct error *error)
{
    struct stat info;
    const void *data;
    enum status status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return error_set(error, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: cannot open: %s", path,
                         strerror(errno));
    if (fstat(file, &info) != 0) {
        status = error_set(error, ST_IO, "%s: cannot read: %s", path, strerror(errno));
        goto undo_file;
    }
    if (!S_ISREG(info.st_mode) || info.st_size == 0) {
        status = error_set(error, ST_INVALID, "%s: %s: want a GGUF file", path,
                           S_ISREG(info.st_mode) ? "is empty" : "is not a regular file");
        goto undo_file;
    }
    data = mapping_open(file, (size_t)info.st_size, path);
    if (data == NULL) {
        status = error_set(error, ST_IO, "%s: cannot map %" PRIdMAX " bytes: %s", path,
                           (intmax_t)info.st_size, strerror(errno));
        goto undo_file;
    }
    status =
        open_bytes(data, (size_t)info.st_size, path, true, out, error); /* Owns the mapping now. */

undo_file:
    close(file);
    return status;
}

void gguf_close(struct gguf *g)
{
    if (g == NULL)
        return;
    for (size_t i = 0; i < g->part_count; i++)
        gguf_close(g->parts[i]);
    free(g->parts);
    for (size_t i = 0; i < g->key_count; i++) {
        free(g->keys[i].strings);
        free(g->keys[i].numbers);
    }
    free(g->keys);
    free(g->key_index.slots);
    free(g->tensors);
    free(g->tensor_index.slots);
    if (g->mapped)
        mapping_close(g->data, g->bytes);
    free(g);
}

/* ---- hash ---- */

const struct digest *gguf_metadata_digest(struct gguf *g)
{
    if (digest_is_none(&g->metadata_digest)) {
        digest_add(&g->metadata_digest, &g->bytes, sizeof(g->bytes));
        digest_add(&g->metadata_digest, g->data, g->data_start);
        for (size_t i = 0; i < g->part_count; i++)
            digest_add(&g->metadata_digest, gguf_metadata_digest(g->parts[i]),
                       sizeof(struct digest));
    }
    return &g->metadata_digest;
}

/* Adds one file's tensor data. The data of each part of a model of `all` bytes gets its share of
 * the bytes that are read. */
static void data_digest_add(const struct gguf *g, uint64_t all, struct digest *digest)
{
    const size_t bytes = g->bytes - g->data_start;
    const double share = (double)CONTENT_HASH_BYTES_MAX * (double)bytes / (double)all;
    content_hash_add(digest, g->data + g->data_start, bytes,
                     all == g->bytes ? CONTENT_HASH_BYTES_MAX : (size_t)share, g->mapped);
}

const struct digest *gguf_digest(struct gguf *g)
{
    if (!digest_is_none(&g->digest))
        return &g->digest;
    g->digest = *gguf_metadata_digest(g);
    data_digest_add(g, gguf_bytes(g), &g->digest);
    for (size_t i = 0; i < g->part_count; i++)
        data_digest_add(g->parts[i], gguf_bytes(g), &g->digest);
    return &g->digest;
}

/* ---- look-ups ---- */

__attribute__((format(printf, 4, 5))) static enum status
fail(const struct gguf *g, struct error *error, enum status status, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return error_set(error, status, "%s: %s", g->name, text);
}

static const struct gguf_key *key_find(const struct gguf *g, const char *key)
{
    return gguf_key_find(g, key, strlen(key));
}

static enum status absent(const struct gguf *g, const char *key, struct error *error)
{
    return fail(g, error, ST_NOT_FOUND, "key '%s' is missing", key);
}

static enum status wrong_type(const struct gguf *g, const struct gguf_key *key, const char *name,
                              const char *wanted, struct error *error)
{
    if (key->type == GGUF_ARRAY)
        return fail(g, error, ST_INVALID, "key '%s' is an array of %s: want %s", name,
                    gguf_value_name(key->element), wanted);
    return fail(g, error, ST_INVALID, "key '%s' is of type %s: want %s", name,
                gguf_value_name(key->type), wanted);
}

/* Reads the value's bytes as a little-endian number, sign-extended for signed types. */
bool gguf_key_integer(const struct gguf_key *key, int64_t *out)
{
    uint64_t raw = 0;
    switch (key->type) {
    case GGUF_U8:
        *out = *key->value;
        return true;
    case GGUF_I8:
        *out = (int8_t)*key->value;
        return true;
    case GGUF_U16:
        memcpy(&raw, key->value, 2);
        *out = (int64_t)raw;
        return true;
    case GGUF_I16:
        memcpy(&raw, key->value, 2);
        *out = (int16_t)raw;
        return true;
    case GGUF_U32:
        memcpy(&raw, key->value, 4);
        *out = (int64_t)raw;
        return true;
    case GGUF_I32:
        memcpy(&raw, key->value, 4);
        *out = (int32_t)raw;
        return true;
    case GGUF_U64:
        memcpy(&raw, key->value, 8);
        *out = raw > INT64_MAX ? INT64_MAX : (int64_t)raw;
        return true;
    case GGUF_I64:
        memcpy(out, key->value, 8);
        return true;
    default:
        return false;
    }
}

enum status gguf_get_i64(const struct gguf *g, const char *key, int64_t *out, struct error *error)
{
    const struct gguf_key *found = key_find(g, key);
    if (found == NULL)
        return absent(g, key, error);
    return gguf_key_integer(found, out) ? ST_OK : wrong_type(g, found, key, "an integer", error);
}

enum status gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct error *error)
{
    int64_t value = 0;
    enum status status = gguf_get_i64(g, key, &value, error);
    if (status != ST_OK)
        return status;
    if (value < 0 || value > UINT32_MAX)
        return fail(g, error, ST_INVALID, "key '%s' is %" PRId64 ": want 0 to %u", key, value,
                    UINT32_MAX);
    *out = (uint32_t)value;
    return ST_OK;
}

enum status gguf_get_f32(const struct gguf *g, const char *key, float *out, struct error *error)
{
    const struct gguf_key *found = key_find(g, key);
    if (found == NULL)
        return absent(g, key, error);
    if (found->type == GGUF_F32) {
        memcpy(out, found->value, sizeof(*out));
        return ST_OK;
    }
    if (found->type != GGUF_F64)
        return wrong_type(g, found, key, "f32", error);
    double wide;
    memcpy(&wide, found->value, sizeof(wide));
    *out = (float)wide;
    return ST_OK;
}

enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *error)
{
    const struct gguf_key *found = key_find(g, key);
    if (found == NULL)
        return absent(g, key, error);
    if (found->type != GGUF_BOOL)
        return wrong_type(g, found, key, "bool", error);
    *out = *found->value != 0;
    return ST_OK;
}

enum status gguf_get_string(const struct gguf *g, const char *key, struct mapped_text *out,
                            struct error *error)
{
    const struct gguf_key *found = key_find(g, key);
    if (found == NULL)
        return absent(g, key, error);
    if (found->type != GGUF_STRING)
        return wrong_type(g, found, key, "a string", error);
    *out = found->string;
    return ST_OK;
}

enum status gguf_get_string_array(const struct gguf *g, const char *key,
                                  const struct mapped_text **out, size_t *count_out,
                                  struct error *error)
{
    const struct gguf_key *found = key_find(g, key);
    if (found == NULL)
        return absent(g, key, error);
    if (found->type != GGUF_ARRAY || found->element != GGUF_STRING)
        return wrong_type(g, found, key, "an array of string", error);
    *out = found->strings;
    *count_out = found->count;
    return ST_OK;
}

enum status gguf_get_i32_array(const struct gguf *g, const char *key, const int32_t **out,
                               size_t *count_out, struct error *error)
{
    const struct gguf_key *found = key_find(g, key);
    if (found == NULL)
        return absent(g, key, error);
    if (found->type != GGUF_ARRAY || found->numbers == NULL)
        return wrong_type(g, found, key, "an array of i32", error);
    for (size_t i = 0; i < found->count && found->element == GGUF_U32; i++) {
        if (found->numbers[i] < 0)
            return fail(g, error, ST_INVALID, "key '%s': element %zu is %u: want at most %d", key,
                        i, (uint32_t)found->numbers[i], INT32_MAX);
    }
    *out = found->numbers;
    *count_out = found->count;
    return ST_OK;
}

enum status gguf_get_bool_at(const struct gguf *g, const char *key, size_t index, bool *out,
                             struct error *error)
{
    const struct gguf_key *found = key_find(g, key);
    if (found == NULL || found->type != GGUF_ARRAY || found->element != GGUF_BOOL)
        return ST_NOT_FOUND;
    if (index >= found->count)
        return fail(g, error, ST_INVALID, "key '%s' has %zu elements: want more than %zu", key,
                    found->count, index);
    *out = found->value[index] != 0;
    return ST_OK;
}

enum status gguf_get_f32_array(const struct gguf *g, const char *key, size_t count, float *out,
                               struct error *error)
{
    const struct gguf_key *found = key_find(g, key);
    if (found == NULL)
        return absent(g, key, error);
    if (found->type != GGUF_ARRAY || found->element != GGUF_F32)
        return wrong_type(g, found, key, "an array of f32", error);
    if (found->count != count)
        return fail(g, error, ST_INVALID, "key '%s' has %zu elements: want %zu", key, found->count,
                    count);
    memcpy(out, found->value, count * sizeof(*out));
    return ST_OK;
}

uint64_t gguf_bytes(const struct gguf *g)
{
    uint64_t bytes = g->bytes;
    for (size_t i = 0; i < g->part_count; i++)
        bytes += g->parts[i]->bytes;
    return bytes;
}

const struct mapped_tensor *gguf_tensor_at(const struct gguf *g, size_t index)
{
    return index < g->tensor_count ? &g->tensors[index] : NULL;
}

const struct mapped_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    return gguf_tensor_find_bytes(g, name, strlen(name));
}
