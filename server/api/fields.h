/* api_fields: typed look-ups in a JSON object, for the parsers of requests in server/api/. The
 * parsers run on the gateway's text threads (server/http/text_jobs.h), which parse and tokenize
 * requests. The functions keep no state, and any thread may call them. They parse no text (jansson
 * does) and do not notice unknown fields. */
#ifndef SERVER_API_FIELDS_H
#define SERVER_API_FIELDS_H

#include "server/api/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns the field's value, which the object owns; NULL = absent or null. */
json_t *api_field_get(json_t *object, const char *field);

/* The next four functions store the field's value in *value. If the field is absent or null, *value
 * keeps the default that the caller has set. They return false, with the 400 of api_field_wrong, if
 * the type is wrong or a number is not from `least` to `most`. api_field_integer accepts 16.0 as
 * 16. least_open: `least` itself is not allowed. The object owns the text of api_field_string. */
bool api_field_bool(json_t *object, const char *field, bool *value, struct api_error *error);
bool api_field_integer(json_t *object, const char *field, int64_t least, int64_t most,
                       int64_t *value, struct api_error *error);
bool api_field_number(json_t *object, const char *field, double least, double most, bool least_open,
                      float *value, struct api_error *error);
bool api_field_string(json_t *object, const char *field, const char **value,
                      struct api_error *error);

/* Returns the type of the JSON value as a text, such as "a string" or "an object". */
const char *api_type_name(const json_t *value);
/* Fills *error with a 400 and a text such as "n must be a whole number from 1 to 8, not 9", and
 * returns false. wanted: such as "a whole number from 1 to 8". The text shows a number, or a string
 * of at most 40 bytes; of any other value it shows the type (api_type_name). */
bool api_field_wrong(struct api_error *error, const char *field, const json_t *value,
                     const char *wanted);

#endif
