/* api_fields: see the header. */
#include "server/api/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *api_field_get(json_t *object, const char *field)
{
    json_t *value = json_object_get(object, field);
    return json_is_null(value) ? NULL : value;
}

const char *api_type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        break;
    }
    return "null";
}

bool api_field_wrong(struct api_error *error, const char *field, const json_t *value,
                     const char *wanted)
{
    char shown[64];
    if (json_is_integer(value))
        snprintf(shown, sizeof(shown), "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(shown, sizeof(shown), "%g", json_real_value(value));
    else if (json_is_string(value) && json_string_length(value) <= 40)
        snprintf(shown, sizeof(shown), "\"%s\"", json_string_value(value));
    else
        snprintf(shown, sizeof(shown), "%s", api_type_name(value));
    api_error_set(error, 400, field, "%s must be %s, not %s", field, wanted, shown);
    error->code = "invalid_value";
    return false;
}

bool api_field_bool(json_t *object, const char *field, bool *value, struct api_error *error)
{
    json_t *given = api_field_get(object, field);
    if (given == NULL)
        return true;
    if (!json_is_boolean(given))
        return api_field_wrong(error, field, given, "true or false");
    *value = json_is_true(given);
    return true;
}

bool api_field_integer(json_t *object, const char *field, int64_t least, int64_t most,
                       int64_t *value, struct api_error *error)
{
    json_t *given = api_field_get(object, field);
    if (given == NULL)
        return true;
    char wanted[96];
    snprintf(wanted, sizeof(wanted), "a whole number from %lld to %lld", (long long)least,
             (long long)most);
    /* 16.0 is accepted as a whole number, because some clients send numbers as floats. */
    bool whole = json_is_integer(given);
    int64_t number = json_integer_value(given);
    if (json_is_real(given)) {
        double real = json_real_value(given);
        whole = real >= -0x1p53 && real <= 0x1p53 && real == (double)(int64_t)real;
        number = whole ? (int64_t)real : 0;
    }
    if (!whole || number < least || number > most)
        return api_field_wrong(error, field, given, wanted);
    *value = number;
    return true;
}

bool api_field_number(json_t *object, const char *field, double least, double most, bool least_open,
                      float *value, struct api_error *error)
{
    json_t *given = api_field_get(object, field);
    if (given == NULL)
        return true;
    double number = json_number_value(given);
    if (!json_is_number(given) || !(number <= most) ||
        !(least_open ? number > least : number >= least)) {
        char wanted[96];
        snprintf(wanted, sizeof(wanted), "a number %s %g and at most %g",
                 least_open ? "above" : "of at least", least, most);
        return api_field_wrong(error, field, given, wanted);
    }
    *value = (float)number;
    return true;
}

bool api_field_string(json_t *object, const char *field, const char **value,
                      struct api_error *error)
{
    json_t *given = api_field_get(object, field);
    if (given == NULL)
        return true;
    if (!json_is_string(given))
        return api_field_wrong(error, field, given, "a string");
    *value = json_string_value(given);
    return true;
}
