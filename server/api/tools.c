/* api_tools: see the header. */
#include "server/api/tools.h"

#include "common/limits.h"
#include "server/api/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACE_BYTES 64

/* Letters, digits, "_" and "-". */
static bool is_name(const json_t *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    size_t bytes = json_string_length(name);
    return bytes > 0 && bytes <= LIMIT_TOOL_NAME_BYTES &&
           strspn(json_string_value(name), allowed) == bytes;
}

static bool check_name(const json_t *name, const char *place, struct api_error *error)
{
    if (name == NULL)
        return api_error_set(error, 400, place, "%s is missing", place);
    if (is_name(name))
        return true;
    return api_field_wrong(error, place, name, "1 to 64 letters, digits, underscores and hyphens");
}

/* ---- tools ---- */

/* A tool without parameters takes none. Gives it the schema that says so, because templates expect
 * one, and sets the type that a schema of arguments has. */
static bool fill_parameters(json_t *function, const char *tool, struct api_error *error)
{
    char place[PLACE_BYTES];
    json_t *parameters = api_field_get(function, "parameters");
    snprintf(place, sizeof(place), "%s.function.parameters", tool);
    if (parameters != NULL && !json_is_object(parameters))
        return api_field_wrong(error, place, parameters, "a JSON schema of an object");
    if (json_object_size(parameters) == 0)
        return json_object_set_new(function, "parameters",
                                   json_pack("{s:s, s:{}}", "type", "object", "properties")) == 0 ||
               api_error_set(error, 503, NULL, "out of memory");
    json_t *type = api_field_get(parameters, "type");
    if (type == NULL)
        return json_object_set_new(parameters, "type", json_string("object")) == 0 ||
               api_error_set(error, 503, NULL, "out of memory");
    if (json_is_string(type) && strcmp(json_string_value(type), "object") == 0)
        return true;
    snprintf(place, sizeof(place), "%s.function.parameters.type", tool);
    return api_field_wrong(error, place, type, "\"object\"");
}

static bool check_tool(json_t *tool, uint32_t index, bool *strict, struct api_error *error)
{
    char at[32], place[PLACE_BYTES];
    snprintf(at, sizeof(at), "tools[%u]", index);
    if (!json_is_object(tool))
        return api_field_wrong(error, at, tool, "an object");
    json_t *type = api_field_get(tool, "type");
    json_t *function = api_field_get(tool, "function");
    snprintf(place, sizeof(place), "%s.type", at);
    if (type != NULL && (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0))
        return api_field_wrong(error, place, type, "\"function\"");
    snprintf(place, sizeof(place), "%s.function", at);
    if (function == NULL)
        return api_error_set(error, 400, place, "%s is missing", place);
    if (!json_is_object(function))
        return api_field_wrong(error, place, function, "an object");
    snprintf(place, sizeof(place), "%s.function.name", at);
    if (!check_name(api_field_get(function, "name"), place, error))
        return false;
    json_t *words = api_field_get(function, "description"),
           *is_strict = api_field_get(function, "strict");
    snprintf(place, sizeof(place), "%s.function.description", at);
    if (words != NULL && !json_is_string(words))
        return api_field_wrong(error, place, words, "a string");
    snprintf(place, sizeof(place), "%s.function.strict", at);
    if (is_strict != NULL && !json_is_boolean(is_strict))
        return api_field_wrong(error, place, is_strict, "true or false");
    *strict |= json_is_true(is_strict);
    return fill_parameters(function, at, error);
}

static const char *name_of(const json_t *tools, size_t index)
{
    const json_t *function = json_object_get(json_array_get(tools, index), "function");
    return json_string_value(json_object_get(function, "name"));
}

/* Returns the number of the tool with this name; the number of tools = none. */
static size_t tool_find(const json_t *tools, size_t count, const char *name)
{
    size_t i = 0;
    while (i < count && strcmp(name_of(tools, i), name) != 0)
        i++;
    return i < count ? i : json_array_size(tools);
}

static bool check_tools(json_t *tools, bool *strict, struct api_error *error)
{
    size_t count = json_array_size(tools);
    if (!json_is_array(tools))
        return api_field_wrong(error, "tools", tools, "a list");
    if (count > LIMIT_TOOLS)
        return api_error_set(error, 400, "tools", "tools has %zu entries: at most %d are taken",
                             count, LIMIT_TOOLS);
    for (uint32_t i = 0; i < count; i++) {
        if (!check_tool(json_array_get(tools, i), i, strict, error))
            return false;
        if (tool_find(tools, i, name_of(tools, i)) < count)
            return api_error_set(error, 400, "tools",
                                 "tools[%u].function.name: \"%s\" stands twice", i,
                                 name_of(tools, i));
    }
    size_t bytes = json_dumpb(tools, NULL, 0, JSON_COMPACT);
    if (bytes > LIMIT_TOOLS_BYTES)
        return api_error_set(error, 400, "tools",
                             "tools has %zu bytes of JSON: at most %d are taken", bytes,
                             LIMIT_TOOLS_BYTES);
    return true;
}

/* ---- the choice ---- */

static bool parse_named(json_t *choice, const json_t *tools, struct api_tools *out,
                        struct api_error *error)
{
    const char *type = json_string_value(json_object_get(choice, "type"));
    json_t *name = json_object_get(json_object_get(choice, "function"), "name");
    if (type == NULL || strcmp(type, "function") != 0)
        return api_error_set(error, 400, "tool_choice",
                             "tool_choice.type must be \"function\"%s%.32s", type ? ", not " : "",
                             type ? type : "");
    if (!check_name(name, "tool_choice.function.name", error))
        return false;
    size_t found = tool_find(tools, json_array_size(tools), json_string_value(name));
    if (found == json_array_size(tools))
        return api_error_set(error, 400, "tool_choice",
                             "tool_choice.function.name: \"%s\" is not one of the tools",
                             json_string_value(name));
    out->choice = API_TOOLS_NAMED;
    out->named = (uint32_t)found;
    return true;
}

static bool parse_choice(json_t *choice, const json_t *tools, struct api_tools *out,
                         struct api_error *error)
{
    static const char *const names[] = {"none", "auto", "required"};
    out->choice = json_array_size(tools) > 0 ? API_TOOLS_AUTO : API_TOOLS_NONE;
    if (choice == NULL)
        return true;
    if (json_is_object(choice))
        return parse_named(choice, tools, out, error);
    for (int i = 0; json_is_string(choice) && i < 3; i++) {
        if (strcmp(json_string_value(choice), names[i]) != 0)
            continue;
        if (i == API_TOOLS_REQUIRED && json_array_size(tools) == 0)
            return api_error_set(error, 400, "tool_choice",
                                 "tool_choice: \"required\" needs tools");
        if (json_array_size(tools) > 0)
            out->choice = (enum api_tool_choice)i;
        return true;
    }
    return api_field_wrong(error, "tool_choice", choice,
                           "\"none\", \"auto\", \"required\" or {\"type\": \"function\", "
                           "\"function\": {\"name\": …}}");
}

static bool names_join(const json_t *tools, struct api_tools *out, struct api_error *error)
{
    size_t bytes = 2, used = 1;
    for (size_t i = 0; i < json_array_size(tools); i++)
        bytes += strlen(name_of(tools, i)) + 1;
    out->packed_names = malloc(bytes);
    if (out->packed_names == NULL)
        return api_error_set(error, 503, NULL, "out of memory");
    out->packed_names[0] = '\n';
    for (size_t i = 0; i < json_array_size(tools); i++)
        used += (size_t)snprintf(out->packed_names + used, bytes - used, "%s\n", name_of(tools, i));
    return true;
}

bool api_tools_parse(json_t *root, struct api_tools *out, json_t **tools_out,
                     struct api_error *error)
{
    struct api_tools parsed = {.parallel = true};
    json_t *tools = api_field_get(root, "tools");
    if ((tools != NULL && !check_tools(tools, &parsed.strict, error)) ||
        !parse_choice(api_field_get(root, "tool_choice"), tools, &parsed, error) ||
        !api_field_bool(root, "parallel_tool_calls", &parsed.parallel, error))
        return false;
    if (parsed.choice != API_TOOLS_NONE && !names_join(tools, &parsed, error))
        return false;
    *tools_out = parsed.choice != API_TOOLS_NONE ? json_incref(tools) : NULL;
    *out = parsed;
    return true;
}

/* ---- calls in messages ---- */

static bool check_call(const json_t *call, const char *place, struct api_error *error)
{
    char at[PLACE_BYTES + 48];
    const json_t *type = json_object_get(call, "type");
    const json_t *function = json_object_get(call, "function");
    const json_t *id = json_object_get(call, "id");
    if (!json_is_object(call))
        return api_field_wrong(error, place, call, "an object");
    snprintf(at, sizeof(at), "%s.type", place);
    if (type != NULL && (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0))
        return api_field_wrong(error, at, type, "\"function\"");
    snprintf(at, sizeof(at), "%s.id", place);
    if (id != NULL && !json_is_string(id) && !json_is_null(id))
        return api_field_wrong(error, at, id, "a string");
    snprintf(at, sizeof(at), "%s.function", place);
    if (!json_is_object(function))
        return api_error_set(error, 400, at, "%s must be {\"name\": …, \"arguments\": …}", at);
    const json_t *name = json_object_get(function, "name");
    const json_t *arguments = json_object_get(function, "arguments");
    snprintf(at, sizeof(at), "%s.function.name", place);
    if (!json_is_string(name) || json_string_length(name) == 0)
        return api_error_set(error, 400, at, "%s must be a string that is not empty", at);
    snprintf(at, sizeof(at), "%s.function.arguments", place);
    if (arguments != NULL && !json_is_string(arguments) && !json_is_object(arguments))
        return api_field_wrong(error, at, arguments, "a string with a JSON object");
    return true;
}

bool api_tool_calls_check(const json_t *calls, const char *place, struct api_error *error)
{
    char at[PLACE_BYTES + 16];
    if (!json_is_array(calls))
        return api_field_wrong(error, place, calls, "a list");
    if (json_array_size(calls) > LIMIT_TOOLS)
        return api_error_set(error, 400, place, "%s has %zu entries: at most %d are taken", place,
                             json_array_size(calls), LIMIT_TOOLS);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        snprintf(at, sizeof(at), "%s[%zu]", place, i);
        if (!check_call(json_array_get(calls, i), at, error))
            return false;
    }
    return true;
}
