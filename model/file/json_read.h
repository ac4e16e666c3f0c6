/* json_read: reads the JSON files of a model's folder. The other files of model/file/ call it, on
 * the thread that uses the model_file; no state. Texts that it returns are valid as long as the
 * JSON document. It does not know the meaning of the names in a file. */
#ifndef MODEL_FILE_JSON_READ_H
#define MODEL_FILE_JSON_READ_H

#include "common/status.h"
#include "model/file/mapped.h"

#include <jansson.h>

/* Parses `text`, which must be a JSON object. Whole numbers beyond 64 bits are read as real ones. A
 * name that occurs twice in one object is an error. The error names `file`, line and column. The
 * caller releases *out with json_decref. */
enum status json_read(const char *file, struct mapped_text text, json_t **out, struct error *error);

/* Returns the value at path "a/b" below root. `paths` may have several paths separated by '|': the
 * first path with a value that is not null is used. NULL = there is no such path. */
const json_t *json_find(const json_t *root, const char *paths);

/* Read one value. They return ST_NOT_FOUND, without an error text, if the value does not exist or
 * is null, and ST_INVALID, with `file` and the path, if its type or, for json_get_u32, its range
 * does not fit. *out is written only on success. */
enum status json_get_u32(const char *file, const json_t *root, const char *paths, uint32_t *out,
                         struct error *error);
enum status json_get_f32(const char *file, const json_t *root, const char *paths, float *out,
                         struct error *error);
enum status json_get_bool(const char *file, const json_t *root, const char *paths, bool *out,
                          struct error *error);
enum status json_get_text(const char *file, const json_t *root, const char *paths,
                          struct mapped_text *out, struct error *error);

/* Returns the text of a JSON string. */
static inline struct mapped_text json_text_of(const json_t *string)
{
    return (struct mapped_text){json_string_value(string), json_string_length(string)};
}

/* Returns true if `object` has a string `name` whose value is `text`. */
bool json_text_equals(const json_t *object, const char *name, const char *text);

/* Returns the kind of a value, for errors: "an object", "true" … */
const char *json_kind(const json_t *value);

#endif
