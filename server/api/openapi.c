/* api_openapi: see the header. */
#include "server/api/openapi.h"

#include "server/api/known_fields.h"

#include <string.h>

static const struct {
    const char *path;
    const char *schema; /* Name of the schema of the body. */
} bodies[] = {
    {"/v1/completions", "Completion"},
    {"/v1/chat/completions", "ChatCompletion"},
    {"/v1/responses", "Response"},
    {"/v1/messages", "Message"},
    {"/v1/messages/count_tokens", "CountTokens"},
    {"/v1/embeddings", "Embedding"},
    {"/tokenize", "Tokenize"},
    {"/v1/tokenize", "Tokenize"},
    {"/detokenize", "Detokenize"},
    {"/v1/detokenize", "Detokenize"},
};

static void add_string(struct text *out, const char *text)
{
    text_add_json_string(out, text, strlen(text));
}

/* Writes a text of the table, without its links: "[text](target)" becomes "text". */
static void add_description(struct text *out, const char *text)
{
    struct text plain = {0};
    while (*text != 0) {
        size_t link = strncmp(text, "](", 2) == 0 ? strcspn(text, ")") : 0;
        if (link == 0 && *text != '[' && *text != '`')
            text_add(&plain, text, 1);
        text += text[link] == 0 ? link : link + 1;
    }
    text_add_json_string(out, plain.data, plain.bytes);
    out->broken = out->broken || plain.broken;
    text_done(&plain);
}

/* Writes "type": the types of a field, and null. */
static void write_types(struct text *out, const char *types)
{
    text_string_add(out, "\"type\":[");
    for (const char *at = types; *at != 0;) {
        size_t length = strcspn(at, " ");
        text_add_json_string(out, at, length);
        text_string_add(out, ",");
        at += length;
        at += strspn(at, " ");
    }
    text_string_add(out, "\"null\"]");
}

/* Writes the fields of a table that bodies of this kind use. */
static void write_fields(struct text *out, const struct api_known_field *fields, size_t count,
                         enum api_kind kind, const char **comma)
{
    bool used;
    for (size_t i = 0; i < count; i++) {
        const struct api_known_field *field = &fields[i];
        if (api_known_field_find(kind, field->name, &used) != field || !used)
            continue;
        text_string_add(out, *comma);
        add_string(out, field->name);
        text_string_add(out, ":{");
        write_types(out, field->types);
        text_string_add(out, ",\"description\":");
        add_description(out, field->values);
        text_string_add(out, "}");
        *comma = ",";
    }
}

/* Writes the schema of the bodies of an endpoint. `required`: JSON strings with commas. */
static void write_schema(struct text *out, const char *name, enum api_kind kind,
                         const char *required)
{
    const char *comma = "";
    size_t count;
    const struct api_known_field *own = api_form_fields(kind, &count);
    text_format_add(out, "\"%s\":{\"type\":\"object\",\"required\":[%s],\"properties\":{", name,
                    required);
    write_fields(out, own, count, kind, &comma);
    write_fields(out, api_known_fields, api_known_fields_count, kind, &comma);
    text_string_add(out, "}}");
}

static void write_path(struct text *out, const struct api_path *path)
{
    add_string(out, path->path);
    text_format_add(out, ":{\"%s\":{", path->post ? "post" : "get");
    if (path->needs_no_key)
        text_string_add(out, "\"security\":[],");
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        if (strcmp(path->path, bodies[i].path) == 0)
            text_format_add(out,
                            "\"requestBody\":{\"required\":true,\"content\":{\"application/json\":"
                            "{\"schema\":{\"$ref\":\"#/components/schemas/%s\"}}}},",
                            bodies[i].schema);
    text_string_add(out, "\"responses\":{\"200\":{\"description\":\"done\"},"
                         "\"default\":{\"description\":\"an error\"}}}}");
}

void api_openapi_write(const struct api_path *paths, size_t count, struct text *out)
{
    text_string_add(
        out, "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"cleave\",\"version\":\"" CLEAVE_VERSION
             "\"},\"security\":[{},{\"key\":[]}],\"paths\":{");
    for (size_t i = 0; i < count; i++) {
        text_string_add(out, i > 0 ? "," : "");
        write_path(out, &paths[i]);
    }
    text_string_add(out, "},\"components\":{\"securitySchemes\":{\"key\":{\"type\":\"http\","
                         "\"scheme\":\"bearer\"}},\"schemas\":{");
    write_schema(out, "Completion", API_COMPLETION, "\"prompt\"");
    text_string_add(out, ",");
    write_schema(out, "ChatCompletion", API_CHAT, "\"messages\"");
    text_string_add(out, ",");
    write_schema(out, "Response", API_RESPONSES, "\"input\"");
    text_string_add(out, ",");
    write_schema(out, "Message", API_MESSAGES, "\"max_tokens\",\"messages\"");
    text_string_add(out, ",");
    write_schema(out, "CountTokens", API_MESSAGES, "\"messages\"");
    text_string_add(out, ",");
    write_schema(out, "Embedding", API_EMBEDDINGS, "\"input\"");
    text_string_add(out,
                    ",\"Tokenize\":{\"type\":\"object\",\"properties\":{"
                    "\"prompt\":{\"type\":\"string\"},\"messages\":{\"type\":\"array\"},"
                    "\"add_special_tokens\":{\"type\":\"boolean\"},"
                    "\"return_token_strs\":{\"type\":\"boolean\"}}},"
                    "\"Detokenize\":{\"type\":\"object\",\"required\":[\"tokens\"],\"properties\":{"
                    "\"tokens\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}}}}}}\n");
}
