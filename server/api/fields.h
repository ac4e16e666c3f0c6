/* api_fields: typed look-ups in a JSON object, for parsers of requests. An absent or null field
 * gives the default; a wrong type or range gives an error (400) that names the field, the value and
 * what was wanted. request.c and tokenize.c of this folder call it. No state: any thread. It parses
 * no text (jansson does) and does not notice unknown fields. */
#ifndef SERVER_API_FIELDS_H
#define SERVER_API_FIELDS_H

#include "server/api/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns the field's value; NULL = absent or null. The object owns it. */
json_t *api_field(json_t *object, const char *field);

bool api_field_bool(json_t *object, const char *field, bool *value, struct api_error *error);
/* *value holds the default before the call and the field's value after it. Returns false with
 * *error filled. */
bool api_field_integer(json_t *object, const char *field, int64_t least, int64_t most,
                       int64_t *value, struct api_error *error);
bool api_field_number(json_t *object, const char *field, double least, double most, bool least_open,
                      float *value, struct api_error *error);
bool api_field_string(json_t *object, const char *field, const char **value,
                      struct api_error *error);

/* "a string", "an object", … */
const char *api_type_name(const json_t *value);
/* Fills *error: `field` must be `wanted`, not `value`. Returns false. */
bool api_field_wrong(struct api_error *error, const char *field, const json_t *value,
                     const char *wanted);

#endif
