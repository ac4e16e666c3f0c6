/* api_fields: typed look-ups in a JSON object for request parsers: absent and null give the
 * default; a wrong type or range gives an error that names field, value and what was wanted. */
#ifndef SERVER_API_FIELDS_H
#define SERVER_API_FIELDS_H

#include "server/api_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* The value, or NULL when it is absent or null. */
json_t *api_field(json_t *object, const char *field);

bool api_field_bool(json_t *object, const char *field, bool *value, struct api_error *error);
/* *value holds the default before and the field's value after. */
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
