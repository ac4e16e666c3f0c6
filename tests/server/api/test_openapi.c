/* Goal: /openapi.json is valid JSON, describes exactly the fields that are used, and forbids no
 * type that the parser accepts. Method: the schemas against the table of fields, and bodies in
 * which one field has a value of each type. */
#include "server/api/known_fields.h"
#include "server/api/openapi.h"
#include "server/api/request.h"
#include "tests/check.h"

#include <string.h>

static const struct api_path paths[] = {{"/v1/completions", .post = true},
                                        {"/v1/chat/completions", .post = true},
                                        {"/tokenize", .post = true},
                                        {"/detokenize", .post = true},
                                        {"/health", .needs_no_key = true}};

static json_t *described(void)
{
    struct text text = {0};
    json_error_t error;
    api_openapi_write(paths, sizeof(paths) / sizeof(paths[0]), &text);
    CHECK(!text.broken);
    json_t *root = json_loadb(text.data, text.bytes, JSON_REJECT_DUPLICATES, &error);
    CHECKF(root != NULL, "%s at %d: %.*s", error.text, error.position, (int)text.bytes, text.data);
    text_done(&text);
    return root;
}

static json_t *at(json_t *object, const char *name)
{
    json_t *found = json_object_get(object, name);
    CHECKF(found != NULL, "no %s", name);
    return found;
}

static bool has_type(json_t *types, const char *type)
{
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *name = json_string_value(json_array_get(types, i));
        if (strcmp(name, type) == 0 ||
            (strcmp(name, "number") == 0 && strcmp(type, "integer") == 0))
            return true;
    }
    return false;
}

/* The types of values that the parser accepts are described. Returns their number. */
static uint32_t check_types(const char *field, json_t *types, enum api_kind kind)
{
    static const struct {
        const char *type, *value;
    } samples[] = {{"boolean", "true"},    {"integer", "1"},
                   {"number", "0.5"},      {"string", "\"x\""},
                   {"array", "[1]"},       {"array", "[{\"role\": \"user\", \"content\": \"a\"}]"},
                   {"array", "[\"x\"]"},   {"object", "{}"},
                   {"null", "null"},       {"object", "{\"type\": \"text\"}"},
                   {"string", "\"none\""}, {"array", "[{\"function\": {\"name\": \"f\"}}]"}};
    uint32_t accepted = 0;
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
        struct api_request request;
        struct api_error error = {0};
        char body[512];
        const char *required = kind == API_CHAT ? "messages" : "prompt";
        const char *content =
            kind == API_CHAT ? "[{\"role\": \"user\", \"content\": \"a\"}]" : "\"a\"";
        bool itself = strcmp(field, required) == 0;
        snprintf(body, sizeof(body), "{\"max_tokens\": 1, %s%s%s%s%s\"%s\": %s}",
                 itself ? "" : "\"", itself ? "" : required,
                 itself ? "" : "\": ", itself ? "" : content, itself ? "" : ", ", field,
                 samples[i].value);
        if (strcmp(field, "stream_options") == 0)
            snprintf(body + strlen(body) - 1, 64, ", \"stream\": true}");
        if (strcmp(field, "top_logprobs") == 0)
            snprintf(body + strlen(body) - 1, 64, ", \"logprobs\": true}");
        if (!api_request_parse(kind, body, strlen(body), &request, &error))
            continue;
        api_request_done(&request);
        /* Of cleave, only objects are read. */
        CHECKF(has_type(types, samples[i].type) || strcmp(field, "cleave") == 0, "%s accepts %s",
               field, samples[i].value);
        accepted += strcmp(samples[i].type, "null") != 0;
    }
    return accepted;
}

/* The fields of a form's own table, and those that it shares with chats. */
static void check_form_schema(json_t *root, const char *name, enum api_kind kind)
{
    json_t *properties = at(at(at(at(root, "components"), "schemas"), name), "properties");
    size_t count, used = 0;
    const struct api_known_field *own = api_form_fields(kind, &count);
    for (size_t i = 0; i < count; i++) {
        CHECKF((json_object_get(properties, own[i].name) != NULL) == (own[i].used_by_kinds != 0),
               "%s", own[i].name);
        used += own[i].used_by_kinds != 0;
    }
    for (size_t i = 0; i < api_known_fields_count; i++) {
        const struct api_known_field *field = &api_known_fields[i];
        bool wanted = (field->used_by_kinds & (1u << API_CHAT)) != 0;
        if (api_form_field_find(kind, field->name) != NULL)
            continue;
        CHECKF((json_object_get(properties, field->name) != NULL) == wanted, "%s", field->name);
        used += wanted;
    }
    CHECK(json_object_size(properties) == used && used > 30);
}

static void check_schema(json_t *root, const char *name, enum api_kind kind)
{
    json_t *properties = at(at(at(at(root, "components"), "schemas"), name), "properties");
    size_t used = 0;
    for (size_t i = 0; i < api_known_fields_count; i++) {
        const struct api_known_field *field = &api_known_fields[i];
        json_t *property = json_object_get(properties, field->name);
        bool wanted = (field->used_by_kinds & (1u << kind)) != 0;
        CHECKF((property != NULL) == wanted, "%s", field->name);
        if (!wanted)
            continue;
        used++;
        CHECKF(check_types(field->name, at(property, "type"), kind) > 0, "%s: no value of any type",
               field->name);
        const char *description = json_string_value(at(property, "description"));
        CHECKF(description[0] != 0 && strstr(description, "](") == NULL, "%s", description);
    }
    CHECK(json_object_size(properties) == used);
}

/* Every schema that an endpoint names exists. */
static void check_paths(json_t *root)
{
    json_t *described_paths = at(root, "paths");
    static const char prefix[] = "#/components/schemas/";
    CHECK(json_object_size(described_paths) == sizeof(paths) / sizeof(paths[0]));
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        json_t *operation = at(at(described_paths, paths[i].path), paths[i].post ? "post" : "get");
        CHECK((json_object_get(operation, "security") != NULL) == paths[i].needs_no_key);
        if (!paths[i].post)
            continue;
        json_t *content = at(at(operation, "requestBody"), "content");
        json_t *schema = at(at(content, "application/json"), "schema");
        const char *name = json_string_value(at(schema, "$ref"));
        CHECK(strncmp(name, prefix, sizeof(prefix) - 1) == 0);
        at(at(at(root, "components"), "schemas"), name + sizeof(prefix) - 1);
    }
}

int main(void)
{
    json_t *root = described();
    CHECK(strcmp(json_string_value(at(root, "openapi")), "3.1.0") == 0);
    check_paths(root);
    check_schema(root, "Completion", API_COMPLETION);
    check_schema(root, "ChatCompletion", API_CHAT);
    check_form_schema(root, "Response", API_RESPONSES);
    check_form_schema(root, "Message", API_MESSAGES);
    check_form_schema(root, "CountTokens", API_MESSAGES);
    json_t *embedding = at(at(at(at(root, "components"), "schemas"), "Embedding"), "properties");
    CHECK(json_object_size(embedding) == 6 && json_object_get(embedding, "temperature") == NULL);
    json_decref(root);
    return 0;
}
