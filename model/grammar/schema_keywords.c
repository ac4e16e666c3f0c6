/* schema: the table of keywords. */
#include "model/grammar/schema.h"

#include <string.h>

/* clang-format off */
const struct grammar_keyword grammar_keywords[] = {
    {"type", GRAMMAR_HONOURED, "one type or a list; integers are written without fraction and exponent"},
    {"enum", GRAMMAR_HONOURED, "if a value is an object or a list, `type` is the only other keyword allowed"},
    {"const", GRAMMAR_HONOURED, "as `enum`"},
    {"properties", GRAMMAR_HONOURED, "in the order of the schema"},
    {"required", GRAMMAR_HONOURED, "names that are not in `properties` come after the properties"},
    {"additionalProperties", GRAMMAR_HONOURED, "additional properties come last"},
    {"patternProperties", GRAMMAR_HONOURED, "if no name can match two patterns, or a pattern and a property"},
    {"minProperties", GRAMMAR_HONOURED, "if other names are allowed: at most the number of required properties, plus one"},
    {"maxProperties", GRAMMAR_HONOURED, ""},
    {"items", GRAMMAR_HONOURED, "one schema, or a list of schemas as in draft 7"},
    {"prefixItems", GRAMMAR_HONOURED, ""},
    {"additionalItems", GRAMMAR_HONOURED, "if `items` is a list"},
    {"minItems", GRAMMAR_HONOURED, ""},
    {"maxItems", GRAMMAR_HONOURED, ""},
    {"minLength", GRAMMAR_HONOURED, "in code points"},
    {"maxLength", GRAMMAR_HONOURED, "in code points"},
    {"pattern", GRAMMAR_HONOURED, "ECMAScript, without backreferences, lookaround, `\\b`, `\\p`, and anchors in the middle"},
    {"format", GRAMMAR_HONOURED, "date, time, date-time, duration, uuid, ipv4, ipv6, hostname, email, uri; for numbers int32, int64, float, double"},
    {"minimum", GRAMMAR_HONOURED, "numbers with bounds have no exponent and, if they are not integers, at most 15 digits"},
    {"maximum", GRAMMAR_HONOURED, "as `minimum`"},
    {"exclusiveMinimum", GRAMMAR_HONOURED, "as `minimum`"},
    {"exclusiveMaximum", GRAMMAR_HONOURED, "as `minimum`"},
    {"multipleOf", GRAMMAR_HONOURED, "whole numbers up to 1000"},
    {"allOf", GRAMMAR_HONOURED, ""},
    {"anyOf", GRAMMAR_HONOURED, ""},
    {"oneOf", GRAMMAR_HONOURED, "if no value can satisfy two alternatives, because they differ in type, in constants, or in the constants of a required property"},
    {"$ref", GRAMMAR_HONOURED, "within the schema: `#` and `#/…`, also recursive"},
    {"$defs", GRAMMAR_HONOURED, ""},
    {"definitions", GRAMMAR_HONOURED, ""},
    {"$schema", GRAMMAR_ANNOTATION, "with draft 7 or older, keywords beside `$ref` are ignored"},
    {"$id", GRAMMAR_ANNOTATION, "of the whole schema; refused in a subschema"},
    {"$comment", GRAMMAR_ANNOTATION, ""},
    {"title", GRAMMAR_ANNOTATION, ""},
    {"description", GRAMMAR_ANNOTATION, ""},
    {"default", GRAMMAR_ANNOTATION, ""},
    {"examples", GRAMMAR_ANNOTATION, ""},
    {"deprecated", GRAMMAR_ANNOTATION, ""},
    {"readOnly", GRAMMAR_ANNOTATION, ""},
    {"writeOnly", GRAMMAR_ANNOTATION, ""},
    {"uniqueItems", GRAMMAR_REFUSED, "earlier items are not remembered (false is accepted)"},
    {"contains", GRAMMAR_REFUSED, "earlier items are not remembered"},
    {"minContains", GRAMMAR_REFUSED, "earlier items are not remembered"},
    {"maxContains", GRAMMAR_REFUSED, "earlier items are not remembered"},
    {"propertyNames", GRAMMAR_REFUSED, "use `patternProperties` with `additionalProperties: false`"},
    {"not", GRAMMAR_REFUSED, "the complement is not computed"},
    {"if", GRAMMAR_REFUSED, "use `anyOf`"},
    {"then", GRAMMAR_REFUSED, "use `anyOf`"},
    {"else", GRAMMAR_REFUSED, "use `anyOf`"},
    {"dependentRequired", GRAMMAR_REFUSED, "use `anyOf`"},
    {"dependentSchemas", GRAMMAR_REFUSED, "use `anyOf`"},
    {"dependencies", GRAMMAR_REFUSED, "use `anyOf`"},
    {"unevaluatedItems", GRAMMAR_REFUSED, "needs the other keywords' results"},
    {"unevaluatedProperties", GRAMMAR_REFUSED, "needs the other keywords' results"},
    {"nullable", GRAMMAR_REFUSED, "not JSON Schema: use a list of types (false is accepted)"},
    {"$dynamicRef", GRAMMAR_REFUSED, "use `$ref`"},
    {"$recursiveRef", GRAMMAR_REFUSED, "use `$ref`"},
};
/* clang-format on */

const size_t grammar_keywords_count = sizeof(grammar_keywords) / sizeof(grammar_keywords[0]);

void schema_keywords_check(struct schema *s, const json_t *schema, const struct pointer *at)
{
    for (size_t i = 0; i < grammar_keywords_count && s->b->status == ST_OK; i++) {
        const struct grammar_keyword *keyword = &grammar_keywords[i];
        const json_t *value = json_object_get(schema, keyword->name);
        if (value == NULL || keyword->use != GRAMMAR_REFUSED)
            continue;
        bool off = json_is_false(value) && (strcmp(keyword->name, "uniqueItems") == 0 ||
                                            strcmp(keyword->name, "nullable") == 0);
        if (!off)
            schema_refuse(s, ST_UNSUPPORTED, at, keyword->name, "not supported: %s", keyword->note);
    }
    if (schema != s->root && json_object_get(schema, "$id") != NULL)
        schema_refuse(s, ST_UNSUPPORTED, at, "$id", "not supported in a part of the schema");
}

bool schema_keywords_any(const json_t *schema)
{
    for (size_t i = 0; i < grammar_keywords_count; i++)
        if (grammar_keywords[i].use == GRAMMAR_HONOURED &&
            json_object_get(schema, grammar_keywords[i].name) != NULL)
            return true;
    return false;
}
