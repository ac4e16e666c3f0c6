/* json_read: parses the JSON files of a model or an adapter, and finds values in the documents.
 * Readers of model files call the functions, on the thread that uses the files. Values and texts
 * that the functions return belong to the JSON document, and are valid until the document is
 * released. This part has no state, opens no files, and does not know the meaning of names. */
#ifndef MODEL_FILE_JSON_READ_H
#define MODEL_FILE_JSON_READ_H

#include "common/status.h"
#include "model/file/mapped.h"

#include <jansson.h>

/* Parses `text`, which must be a JSON object. Whole numbers that do not fit in 64 bits become real
 * numbers. The caller releases *out with json_decref. Returns ST_INVALID if `text` is no JSON
 * object or a name occurs twice in one object, or ST_NO_MEMORY. The error's text begins with
 * `file`, the name of the file. */
enum status json_read(const char *file, struct mapped_text text, json_t **out, struct error *error);

/* Returns the value at a path such as "a/b": member b of member a of `root`. `paths` is one path or
 * several, separated by '|': the first path that has a value other than null is used. NULL = no
 * path has such a value. */
const json_t *json_find(const json_t *root, const char *paths);

/* The next four functions store the value that json_find finds. They return ST_NOT_FOUND, without
 * setting *error, if there is no value, and ST_INVALID if the value's type does not fit.
 * json_get_u32 accepts whole numbers from 0 to UINT32_MAX, also 5.0. The error's text names `file`
 * and the path. *out is written only on success. */
enum status json_get_u32(const char *file, const json_t *root, const char *paths, uint32_t *out,
                         struct error *error);
enum status json_get_f32(const char *file, const json_t *root, const char *paths, float *out,
                         struct error *error);
enum status json_get_bool(const char *file, const json_t *root, const char *paths, bool *out,
                          struct error *error);
enum status json_get_text(const char *file, const json_t *root, const char *paths,
                          struct mapped_text *out, struct error *error);

/* Returns the text of a JSON string; text NULL = `string` is not a JSON string. */
static inline struct mapped_text json_text_of(const json_t *string)
{
    return (struct mapped_text){json_string_value(string), json_string_length(string)};
}

/* Returns true if the member `name` of `object` is the string `text`. */
bool json_text_equals(const json_t *object, const char *name, const char *text);

/* Returns the kind of a value, such as "an object" or "true", for the text of an error. Requires a
 * value other than NULL. */
const char *json_kind(const json_t *value);

#endif
