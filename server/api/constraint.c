/* api_constraint: see the header. */
#include "server/api/constraint.h"

#include "common/limits.h"
#include "server/api/fields.h"

#include <stdlib.h>
#include <string.h>

enum content {
    CONTENT_TEXT,   /* The value is a text, which is the content. */
    CONTENT_SCHEMA, /* An object, true or false, or a text with JSON. */
    CONTENT_LIST,
    CONTENT_TRUE, /* true = no content. */
};

/* A field at the top of the body, or a member of structured_outputs. */
struct form {
    const char *field;
    const char *kind;
    enum content content;
};

static const struct form forms[] = {
    {"guided_json", "json_schema:", CONTENT_SCHEMA},
    {"guided_regex", "regex:", CONTENT_TEXT},
    {"guided_choice", "choice:", CONTENT_LIST},
    {"guided_grammar", "grammar:", CONTENT_TEXT},
    {"json_schema", "json_schema:", CONTENT_SCHEMA},
    {"grammar", "grammar:", CONTENT_TEXT},
    {"regex", "regex:", CONTENT_TEXT},
    {"ebnf", "grammar:", CONTENT_TEXT},
};

static const struct form members[] = {
    {"json", "json_schema:", CONTENT_SCHEMA},      {"regex", "regex:", CONTENT_TEXT},
    {"choice", "choice:", CONTENT_LIST},           {"grammar", "grammar:", CONTENT_TEXT},
    {"json_object", "json_object:", CONTENT_TRUE},
};

static bool constraint_set(struct api_constraint *out, const char *field, const char *kind,
                           const char *content, size_t bytes, struct api_error *error)
{
    size_t head = strlen(kind);
    if (out->text != NULL)
        return api_error_set(error, 400, field, "%s and %s: want at most one constraint",
                             out->field, field);
    if (head + bytes > LIMIT_CONSTRAINT_BYTES)
        return api_error_set(error, 400, field, "%s has %zu bytes: want at most %u", field, bytes,
                             LIMIT_CONSTRAINT_BYTES - (unsigned)head);
    out->text = malloc(head + bytes + 1);
    if (out->text == NULL)
        return api_error_set(error, 503, NULL, "out of memory");
    memcpy(out->text, kind, head);
    memcpy(out->text + head, content, bytes);
    out->bytes = (uint32_t)(head + bytes);
    out->field = field;
    return true;
}

static bool constraint_dump(struct api_constraint *out, const char *field, const char *kind,
                            const json_t *value, struct api_error *error)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text == NULL)
        return api_error_set(error, 503, NULL, "out of memory");
    bool good = constraint_set(out, field, kind, text, strlen(text), error);
    free(text);
    return good;
}

/* `field` is the top-level field, `form` how its value (or a member) is read. */
static bool form_read(const struct form *form, const char *field, const json_t *value,
                      struct api_constraint *out, struct api_error *error)
{
    switch (form->content) {
    case CONTENT_TEXT:
        if (json_is_string(value))
            return constraint_set(out, field, form->kind, json_string_value(value),
                                  json_string_length(value), error);
        return api_field_wrong(error, field, value, "a text");
    case CONTENT_SCHEMA:
        if (json_is_string(value))
            return constraint_set(out, field, form->kind, json_string_value(value),
                                  json_string_length(value), error);
        if (json_is_object(value) || json_is_boolean(value))
            return constraint_dump(out, field, form->kind, value, error);
        return api_field_wrong(error, field, value, "a JSON schema");
    case CONTENT_LIST:
        if (json_is_array(value))
            return constraint_dump(out, field, form->kind, value, error);
        return api_field_wrong(error, field, value, "a list of texts");
    case CONTENT_TRUE:
        break;
    }
    if (json_is_true(value))
        return constraint_set(out, field, form->kind, "", 0, error);
    return json_is_false(value) || api_field_wrong(error, field, value, "true or false");
}

static bool response_format_read(json_t *format, struct api_constraint *out,
                                 struct api_error *error)
{
    static const char field[] = "response_format";
    const char *type = json_string_value(json_object_get(format, "type"));
    if (type == NULL)
        return api_field_wrong(error, field, format, "an object with a type");
    if (strcmp(type, "text") == 0)
        return true;
    json_t *schema = api_field_get(format, "schema"); /* llama-server takes it here */
    if (strcmp(type, "json_object") == 0)
        return schema != NULL ? constraint_dump(out, field, "json_schema:", schema, error)
                              : constraint_set(out, field, "json_object:", "", 0, error);
    if (strcmp(type, "json_schema") != 0)
        return api_error_set(error, 400, field,
                             "response_format.type = \"%.40s\": want text, json_object or "
                             "json_schema",
                             type);
    json_t *named = api_field_get(format, "json_schema");
    if (named != NULL)
        schema = api_field_get(named, "schema");
    if (schema == NULL)
        return api_error_set(error, 400, field, "response_format.json_schema.schema is missing");
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return api_field_wrong(error, "response_format.json_schema.schema", schema,
                               "a JSON schema");
    return constraint_dump(out, field, "json_schema:", schema, error);
}

static bool structured_outputs_read(json_t *outputs, struct api_constraint *out,
                                    struct api_error *error)
{
    static const char field[] = "structured_outputs";
    const char *name;
    json_t *value;
    if (!json_is_object(outputs))
        return api_field_wrong(error, field, outputs, "an object");
    json_object_foreach(outputs, name, value)
    {
        const struct form *form = NULL;
        for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
            if (strcmp(name, members[i].field) == 0)
                form = &members[i];
        if (json_is_null(value) || (form == NULL && json_is_false(value)))
            continue;
        if (form == NULL) {
            api_error_set(error, 400, field, "structured_outputs.%.40s is not supported", name);
            error->code = "unsupported_parameter";
            return false;
        }
        if (!form_read(form, field, value, out, error))
            return false;
    }
    return true;
}

/* An empty text is no constraint, and neither is an empty list of choices or an empty schema, as
 * for other servers. */
static bool is_empty(const struct form *form, const json_t *value)
{
    if (json_is_string(value))
        return json_string_length(value) == 0;
    if (form->content == CONTENT_LIST)
        return json_is_array(value) && json_array_size(value) == 0;
    return form->content == CONTENT_SCHEMA && json_is_object(value) && json_object_size(value) == 0;
}

bool api_constraint_parse(json_t *body, struct api_constraint *out, struct api_error *error)
{
    json_t *format = api_field_get(body, "response_format");
    json_t *outputs = api_field_get(body, "structured_outputs");
    if (format != NULL && !response_format_read(format, out, error))
        return false;
    if (outputs != NULL && !structured_outputs_read(outputs, out, error))
        return false;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        json_t *value = api_field_get(body, forms[i].field);
        if (value != NULL && !is_empty(&forms[i], value) &&
            !form_read(&forms[i], forms[i].field, value, out, error))
            return false;
    }
    return true;
}
