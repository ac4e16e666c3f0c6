/* json_read: see json_read.h. */
#include "model/file/json_read.h"

#include "common/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 96

static bool in_number(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

#define DIGITS_FIT 18 /* json_int_t holds every number of 18 digits. */

/* True if the number at `at` is whole, and json_int_t cannot hold it. */
static bool whole_too_large(const char *at, size_t bytes)
{
    char number[400];
    if (bytes <= DIGITS_FIT || bytes >= sizeof(number))
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (at[i] == '.' || at[i] == 'e' || at[i] == 'E')
            return false;
    memcpy(number, at, bytes);
    number[bytes] = 0;
    errno = 0;
    strtoll(number, NULL, 10);
    return errno == ERANGE;
}

/* Returns the text with ".0" after each whole number that jansson cannot hold, so that it is read
 * as a real number; NULL = out of memory. The caller frees it. transformers writes 10^30 where a
 * tokenizer has no limit (model_max_length). */
static char *large_numbers_real(struct mapped_text text, size_t *bytes_out)
{
    char *out = malloc(text.bytes + text.bytes / (DIGITS_FIT / 2) + 1);
    const char *in = text.text;
    size_t used = 0;
    bool string = false;
    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < text.bytes;) {
        size_t count = 0;
        while (!string && i + count < text.bytes && in_number(in[i + count]))
            count++;
        if (count > 0) {
            memcpy(out + used, in + i, count);
            used += count;
            if (whole_too_large(in + i, count)) {
                memcpy(out + used, ".0", 2);
                used += 2;
            }
            i += count;
            continue;
        }
        bool escape = string && in[i] == '\\' && i + 1 < text.bytes;
        if (in[i] == '"')
            string = !string;
        for (int k = 0; k < (escape ? 2 : 1); k++)
            out[used++] = in[i++];
    }
    *bytes_out = used;
    return out;
}

static enum status json_parse(struct mapped_text text, json_t **out, json_error_t *why)
{
    enum status status = json_text_load(text.text, text.bytes, JSON_REJECT_DUPLICATES, out, why);
    if (status != ST_INVALID || json_error_code(why) != json_error_numeric_overflow)
        return status;
    size_t bytes;
    char *real = large_numbers_real(text, &bytes);
    status =
        real != NULL ? json_text_load(real, bytes, JSON_REJECT_DUPLICATES, out, why) : ST_NO_MEMORY;
    free(real);
    return status;
}

enum status json_read(const char *file, struct mapped_text text, json_t **out, struct error *error)
{
    json_error_t why;
    json_t *root;
    enum status status = json_parse(text, &root, &why);
    if (status == ST_NO_MEMORY)
        return error_set(error, status, "%s: out of memory", file);
    if (status != ST_OK)
        return error_set(error, status, "%s:%d:%d: %s", file, why.line, why.column, why.text);
    if (!json_is_object(root)) {
        status = error_set(error, ST_INVALID, "%s: is %s: want an object", file, json_kind(root));
        json_decref(root);
        return status;
    }
    *out = root;
    return ST_OK;
}

const char *json_kind(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "a whole number";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        return "null";
    }
    return "?";
}

/* Returns the value at one path, which ends at `end`. */
static const json_t *at_one(const json_t *root, const char *path, const char *end)
{
    while (root != NULL && path < end) {
        const char *slash = memchr(path, '/', (size_t)(end - path));
        const char *stop = slash != NULL ? slash : end;
        char name[PATH_BYTES];
        snprintf(name, sizeof(name), "%.*s", (int)(stop - path), path);
        root = json_object_get(root, name);
        path = stop < end ? stop + 1 : end;
    }
    return root != NULL && !json_is_null(root) ? root : NULL;
}

/* Finds the value as json_find does; `shown` receives the path that was found, or the first one. */
static const json_t *value_find(const json_t *root, const char *paths, char shown[PATH_BYTES])
{
    const char *first_end = strchrnul(paths, '|');
    for (const char *path = paths;; path++) {
        const char *end = strchrnul(path, '|');
        const json_t *value = at_one(root, path, end);
        if (value != NULL) {
            snprintf(shown, PATH_BYTES, "%.*s", (int)(end - path), path);
            return value;
        }
        path = end;
        if (*end == 0)
            break;
    }
    snprintf(shown, PATH_BYTES, "%.*s", (int)(first_end - paths), paths);
    return NULL;
}

const json_t *json_find(const json_t *root, const char *paths)
{
    char shown[PATH_BYTES];
    return value_find(root, paths, shown);
}

static enum status value_wrong(const char *file, const char *path, const json_t *value,
                               const char *wanted, struct error *error)
{
    if (json_is_integer(value))
        return error_set(error, ST_INVALID, "%s: %s is %" JSON_INTEGER_FORMAT ": want %s", file,
                         path, json_integer_value(value), wanted);
    if (json_is_real(value))
        return error_set(error, ST_INVALID, "%s: %s is %g: want %s", file, path,
                         json_real_value(value), wanted);
    return error_set(error, ST_INVALID, "%s: %s is %s: want %s", file, path, json_kind(value),
                     wanted);
}

enum status json_get_u32(const char *file, const json_t *root, const char *paths, uint32_t *out,
                         struct error *error)
{
    char path[PATH_BYTES];
    const json_t *value = value_find(root, paths, path);
    if (value == NULL)
        return ST_NOT_FOUND;
    double real = json_number_value(value);
    if (!json_is_number(value) || real < 0 || real > UINT32_MAX || real != floor(real))
        return value_wrong(file, path, value, "a whole number from 0 to 4294967295", error);
    *out = (uint32_t)real;
    return ST_OK;
}

enum status json_get_f32(const char *file, const json_t *root, const char *paths, float *out,
                         struct error *error)
{
    char path[PATH_BYTES];
    const json_t *value = value_find(root, paths, path);
    if (value == NULL)
        return ST_NOT_FOUND;
    if (!json_is_number(value))
        return value_wrong(file, path, value, "a number", error);
    *out = (float)json_number_value(value);
    return ST_OK;
}

enum status json_get_bool(const char *file, const json_t *root, const char *paths, bool *out,
                          struct error *error)
{
    char path[PATH_BYTES];
    const json_t *value = value_find(root, paths, path);
    if (value == NULL)
        return ST_NOT_FOUND;
    if (!json_is_boolean(value))
        return value_wrong(file, path, value, "true or false", error);
    *out = json_is_true(value);
    return ST_OK;
}

enum status json_get_text(const char *file, const json_t *root, const char *paths,
                          struct mapped_text *out, struct error *error)
{
    char path[PATH_BYTES];
    const json_t *value = value_find(root, paths, path);
    if (value == NULL)
        return ST_NOT_FOUND;
    if (!json_is_string(value))
        return value_wrong(file, path, value, "a string", error);
    *out = json_text_of(value);
    return ST_OK;
}

bool json_text_equals(const json_t *object, const char *name, const char *text)
{
    const char *value = json_string_value(json_object_get(object, name));
    return value != NULL && strcmp(value, text) == 0;
}
