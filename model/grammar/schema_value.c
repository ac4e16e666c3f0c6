/* schema: enum and const. */
#include "model/grammar/schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Equal as JSON Schema says: 1 and 1.0 are. */
static bool value_equal(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b))
        return json_integer_value(a) == json_integer_value(b);
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    if (json_typeof(a) != json_typeof(b))
        return false;
    if (json_is_array(a)) {
        for (size_t i = 0; i < json_array_size(a); i++)
            if (json_array_size(a) != json_array_size(b) ||
                !value_equal(json_array_get(a, i), json_array_get(b, i)))
                return false;
        return json_array_size(a) == json_array_size(b);
    }
    if (json_is_object(a)) {
        const char *name;
        json_t *mine;
        json_object_foreach((json_t *)(uintptr_t)a, name, mine)
        {
            const json_t *its = json_object_get(b, name);
            if (its == NULL || !value_equal(mine, its))
                return false;
        }
        return json_object_size(a) == json_object_size(b);
    }
    return json_equal(a, b);
}

/* The values that a subschema allows: element `i` of its enum, or its const. */
static const json_t *value_at(const json_t *schema, size_t i)
{
    const json_t *one = json_object_get(schema, "const");
    if (one != NULL)
        return i == 0 ? one : NULL;
    return json_array_get(json_object_get(schema, "enum"), i);
}

static bool value_allowed(const json_t *schema, const json_t *value)
{
    const json_t *one = json_object_get(schema, "const");
    const json_t *list = json_object_get(schema, "enum");
    bool found = list == NULL;
    if (one != NULL && !value_equal(one, value))
        return false;
    for (size_t i = 0; i < json_array_size(list) && !found; i++)
        found = value_equal(json_array_get(list, i), value);
    return found;
}

bool schema_values_disjoint(const json_t *a, const json_t *b)
{
    for (size_t i = 0; value_at(a, i) != NULL; i++)
        if (value_allowed(a, value_at(a, i)) && value_allowed(b, value_at(a, i)))
            return false;
    return true;
}

static unsigned type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    case JSON_OBJECT:
        return TYPE_OBJECT;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_INTEGER:
        return TYPE_INTEGER;
    default: {
        double number = json_real_value(value);
        return number == floor(number) ? TYPE_INTEGER : TYPE_FRACTION;
    }
    }
}

/* ---- text ---- */

/* The shortest text of a number that reads back as this number. */
static int number_print(const json_t *value, char *out, size_t bytes)
{
    if (json_is_integer(value))
        return snprintf(out, bytes, "%lld", (long long)json_integer_value(value));
    double number = json_real_value(value);
    if (number == floor(number) && fabs(number) < 1e15)
        return snprintf(out, bytes, "%.0f", number);
    int used = 0;
    for (int digits = 15; digits <= 17; digits++) {
        used = snprintf(out, bytes, "%.*g", digits, number);
        if (strtod(out, NULL) == number)
            break;
    }
    return used;
}

static struct fragment text_of(struct schema *s, const char *text)
{
    struct builder *b = s->b;
    struct fragment result =
        fragment_join(b, fragment_text(b, "\""), fragment_json_text(b, text, strlen(text)));
    return fragment_join(b, result, fragment_text(b, "\""));
}

#define NESTED_MAX 32

static struct fragment literal_of(struct schema *s, const json_t *value, unsigned depth)
{
    struct builder *b = s->b;
    char number[40];
    const char *name;
    json_t *member;
    struct fragment result;
    bool object = json_is_object(value), first = true;
    if (depth == NESTED_MAX)
        builder_fail(b, ST_TOO_LARGE, "%s: a value of enum or const is nested too deep", s->place);
    if (b->status != ST_OK)
        return fragment_never(b);
    if (json_is_string(value))
        return text_of(s, json_string_value(value));
    if (json_is_number(value)) {
        number_print(value, number, sizeof(number));
        return fragment_text(b, number);
    }
    if (!object && !json_is_array(value))
        return fragment_text(b, json_is_null(value)   ? "null"
                                : json_is_true(value) ? "true"
                                                      : "false");
    result = fragment_join(b, fragment_text(b, object ? "{" : "["), schema_space(s));
    json_object_foreach((json_t *)(uintptr_t)value, name, member)
    {
        if (!first)
            result =
                fragment_join(b, fragment_join(b, result, fragment_text(b, ",")), schema_space(s));
        first = false;
        result = fragment_join(b, result, text_of(s, name));
        result = fragment_join(b, fragment_join(b, result, fragment_text(b, ":")), schema_space(s));
        result = fragment_join(b, result, literal_of(s, member, depth + 1));
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (i > 0)
            result =
                fragment_join(b, fragment_join(b, result, fragment_text(b, ",")), schema_space(s));
        result = fragment_join(b, result, literal_of(s, json_array_get(value, i), depth + 1));
    }
    if (json_object_size(value) + json_array_size(value) > 0)
        result = fragment_join(b, result, schema_space(s));
    return fragment_join(b, result, fragment_text(b, object ? "}" : "]"));
}

/* ---- values ---- */

/* Whether a facet has a keyword about objects and lists. */
static const char *container_keyword(const json_t *schema)
{
    static const char *const keys[] = {
        "properties",    "required", "additionalProperties", "patternProperties", "minProperties",
        "maxProperties", "items",    "prefixItems",          "minItems",          "maxItems"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (json_object_get(schema, keys[i]) != NULL)
            return keys[i];
    return NULL;
}

/* `from`: the subschema whose enum has the value. */
static bool value_fits(struct schema *s, const struct facets *list, unsigned types,
                       const struct facet *from, const json_t *value)
{
    unsigned type = type_of(value);
    if ((type & types) == 0)
        return false;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct facet *facet = &list->items[i];
        const bool listed = facet == from && json_object_get(facet->schema, "const") == NULL;
        if (!listed && !value_allowed(facet->schema, value))
            return false;
        if ((type & (TYPE_OBJECT | TYPE_ARRAY)) != 0 && container_keyword(facet->schema) != NULL)
            schema_refuse(s, ST_UNSUPPORTED, facet->place, container_keyword(facet->schema),
                          "not supported beside objects or lists in enum or const");
    }
    if (type == TYPE_STRING)
        return schema_string_matches(s, list, value);
    return (type & TYPE_NUMBER) == 0 || schema_number_matches(s, list, json_number_value(value));
}

/* Scalars share one tree of texts. Returns their number. */
static struct fragment scalars_of(struct schema *s, const json_t **values, size_t count)
{
    struct literal *literals = schema_allocate(s, (count + 1) * sizeof(*literals));
    if (literals == NULL)
        return fragment_never(s->b);
    for (size_t i = 0; i < count; i++) {
        const json_t *value = values[i];
        size_t length = json_string_length(value);
        char *text = schema_allocate(s, 6 * length + 48);
        if (text == NULL)
            return fragment_never(s->b);
        size_t used = 0;
        if (json_is_string(value)) {
            text[0] = '"';
            used = 1 + json_spell(json_string_value(value), length, text + 1);
            text[used++] = '"';
        } else if (json_is_number(value))
            used = (size_t)number_print(value, text, 48);
        else
            used = strlen(strcpy(text, json_is_null(value)   ? "null"
                                       : json_is_true(value) ? "true"
                                                             : "false"));
        literals[i] = (struct literal){text, used};
    }
    return fragment_literals(s->b, literals, count);
}

bool schema_values(struct schema *s, const struct facets *list, unsigned types,
                   struct fragment *out)
{
    const struct facet *from = NULL;
    for (uint32_t i = 0; i < list->count && from == NULL; i++) {
        const json_t *schema = list->items[i].schema;
        const json_t *choices = json_object_get(schema, "enum");
        if (choices != NULL && !json_is_array(choices))
            schema_refuse(s, ST_INVALID, list->items[i].place, "enum", "want a list of values");
        if (choices != NULL || json_object_get(schema, "const") != NULL)
            from = &list->items[i];
    }
    if (from == NULL)
        return false;
    size_t most = json_array_size(json_object_get(from->schema, "enum")) + 1, count = 0;
    const json_t **scalars = schema_allocate(s, most * sizeof(*scalars)), *value;
    *out = fragment_never(s->b);
    for (size_t i = 0; scalars != NULL && (value = value_at(from->schema, i)) != NULL; i++) {
        if (s->b->status != ST_OK || !value_fits(s, list, types, from, value))
            continue;
        if ((type_of(value) & (TYPE_OBJECT | TYPE_ARRAY)) == 0)
            scalars[count++] = value;
        else
            *out = fragment_either(s->b, *out, literal_of(s, value, 0));
    }
    if (scalars != NULL)
        *out = fragment_either(s->b, *out, scalars_of(s, scalars, count));
    return true;
}
