/* json_read: parses the JSON files of a model or an adapter, and reads values from them. It has no
 * state. The other files of model/file/ call it, on the thread that uses the model_file. Texts that
 * it returns are valid until the JSON document is released. It opens no files, and does not know
 * the meaning of the names in a file. */
#ifndef MODEL_FILE_JSON_READ_H
#define MODEL_FILE_JSON_READ_H

#include "common/status.h"
#include "model/file/mapped.h"

#include <jansson.h>

/* Parses `text`, which must be a JSON object. Whole numbers that do not fit in 64 bits become real
 * numbers. The caller releases *out with json_decref. Returns ST_INVALID if `text` is no JSON
 * object or a name occurs twice in one object; ST_NO_MEMORY. The error's text begins with
 * `file`. */
enum status json_read(const char *file, struct mapped_text text, json_t **out, struct error *error);

/* Returns the value at a path such as "a/b": member b of member a of root. `paths` may be several
 * paths separated by '|': the function uses the first path that has a value other than null. NULL =
 * no path has one. */
const json_t *json_find(const json_t *root, const char *paths);

/* Store the value that json_find returns. Return ST_NOT_FOUND, without setting *error, if there is
 * no value; ST_INVALID if the value's type or, for json_get_u32, its range does not fit. The
 * error's text names `file` and the path. *out is written only on success. */
enum status json_get_u32(const char *file, const json_t *root, const char *paths, uint32_t *out,
                         struct error *error);
enum status json_get_f32(const char *file, const json_t *root, const char *paths, float *out,
                         struct error *error);
enum status json_get_bool(const char *file, const json_t *root, const char *paths, bool *out,
                          struct error *error);
enum status json_get_text(const char *file, const json_t *root, const char *paths,
                          struct mapped_text *out, struct error *error);

/* Returns the text of a JSON string; text NULL = the value is no string. */
static inline struct mapped_text json_text_of(const json_t *string)
{
    return (struct mapped_text){json_string_value(string), json_string_length(string)};
}

/* Returns true if `object` has a string `name` whose value is `text`. */
bool json_text_equals(const json_t *object, const char *name, const char *text);

/* Returns the kind of a value, for errors: "an object", "true" … */
const char *json_kind(const json_t *value);

#endif
