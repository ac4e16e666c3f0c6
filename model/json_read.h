/* json_read: JSON of a model's files, with errors that name file and place. What is read lives as
 * long as the document. Internal to model/. */
#ifndef MODEL_JSON_READ_H
#define MODEL_JSON_READ_H

#include "common/status.h"
#include "model/mapped.h"

#include <jansson.h>

/* Of an object; a name twice in one object is an error. */
enum status json_read(const char *file, struct mapped_text text, json_t **out, struct error *error);

/* The value at "a/b"; of paths with '|' between, the first that is there. NULL: none, or null. */
const json_t *json_at(const json_t *root, const char *paths);

/* ST_NOT_FOUND if it is absent; ST_INVALID names `file` and the path. */
enum status json_get_u32(const char *file, const json_t *root, const char *paths, uint32_t *out,
                         struct error *error);
enum status json_get_f32(const char *file, const json_t *root, const char *paths, float *out,
                         struct error *error);
enum status json_get_bool(const char *file, const json_t *root, const char *paths, bool *out,
                          struct error *error);
enum status json_get_text(const char *file, const json_t *root, const char *paths,
                          struct mapped_text *out, struct error *error);

static inline struct mapped_text json_text_of(const json_t *string)
{
    return (struct mapped_text){json_string_value(string), json_string_length(string)};
}

/* True where `object` has a string of that name that says `text`. */
bool json_says(const json_t *object, const char *name, const char *text);

/* What a value is, for errors: "an object", "true" … */
const char *json_kind(const json_t *value);

#endif
