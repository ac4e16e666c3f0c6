/* api_forms: see the header. Here: what both forms need to make messages, calls and tools. */
#include "server/api/forms_internal.h"

#include "common/json.h"
#include "server/api/fields.h"
#include "server/api/known_fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool out_of_memory(struct form *form)
{
    return api_error_set(form->error, 503, NULL, "out of memory");
}

bool form_member_set(struct form *form, json_t *object, const char *name, json_t *value)
{
    return (value != NULL && json_object_set_new(object, name, value) == 0) || out_of_memory(form);
}

bool form_field_copy(struct form *form, const char *name, const char *chat_name)
{
    json_t *value = api_field_get(form->body, name);
    return value == NULL || form_member_set(form, form->chat, chat_name, json_incref(value));
}

static bool append(struct form *form, json_t *list, json_t *value)
{
    if (form->item_count++ >= FORM_ITEMS_MAX) {
        json_decref(value);
        return api_error_set(form->error, 400, NULL,
                             "the body has too many messages, parts and calls: want at most %d",
                             FORM_ITEMS_MAX);
    }
    return (value != NULL && json_array_append_new(list, value) == 0) || out_of_memory(form);
}

const char *form_type(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    return type != NULL ? type : "";
}

bool form_type_wrong(struct form *form, const char *place, const json_t *object, const char *wanted)
{
    char at[FORM_PLACE_BYTES + 8];
    if (!json_is_object(object))
        return api_field_wrong(form->error, place, object, "an object");
    snprintf(at, sizeof(at), "%s.type", place);
    const json_t *type = json_object_get(object, "type");
    return type == NULL ? api_error_set(form->error, 400, at, "%s is missing: want %s", at, wanted)
                        : api_field_wrong(form->error, at, type, wanted);
}

bool form_field_string(struct form *form, json_t *object, const char *place, const char *field,
                       json_t **out)
{
    char at[FORM_PLACE_BYTES + 32];
    json_t *value = api_field_get(object, field);
    snprintf(at, sizeof(at), "%s.%s", place, field);
    if (value == NULL)
        return api_error_set(form->error, 400, at, "%s is missing", at);
    if (!json_is_string(value))
        return api_field_wrong(form->error, at, value, "a string");
    *out = value;
    return true;
}

/* ---- messages ---- */

json_t *form_message_add(struct form *form, const char *role)
{
    json_t *message = json_object();
    bool good = append(form, form->messages, message);
    return good && form_member_set(form, message, "role", json_string(role)) ? message : NULL;
}

json_t *form_message_last(const struct form *form, const char *role)
{
    size_t count = json_array_size(form->messages);
    json_t *last = count > 0 ? json_array_get(form->messages, count - 1) : NULL;
    const char *its = json_string_value(json_object_get(last, "role"));
    return its != NULL && strcmp(its, role) == 0 ? last : NULL;
}

bool form_text_add(struct form *form, json_t *message, json_t *text)
{
    json_t *content = json_object_get(message, "content");
    if (content == NULL)
        return form_member_set(form, message, "content", json_incref(text));
    if (json_is_string(content)) {
        json_t *parts = json_array();
        if (!append(form, parts, json_pack("{s:s, s:O}", "type", "text", "text", content))) {
            json_decref(parts);
            return false;
        }
        if (!form_member_set(form, message, "content", parts))
            return false;
        content = parts;
    }
    return append(form, content, json_pack("{s:s, s:O}", "type", "text", "text", text));
}

void form_reasoning_add(struct text *reasoning, const json_t *piece)
{
    text_add(reasoning, json_string_value(piece), json_string_length(piece));
}

bool form_reasoning_end(struct form *form, json_t *message, struct text *reasoning)
{
    const bool broken = reasoning->broken;
    json_t *text = reasoning->bytes > 0 ? json_stringn(reasoning->data, reasoning->bytes) : NULL;
    const bool wanted = reasoning->bytes > 0;
    text_done(reasoning);
    if (broken) {
        json_decref(text);
        return out_of_memory(form);
    }
    return !wanted || form_member_set(form, message, "reasoning_content", text);
}

bool form_content_add(struct form *form, json_t *message, json_t *content, const char *place)
{
    static const char *const types[] = {"text", "input_text", "output_text", "refusal"};
    if (json_is_string(content))
        return form_text_add(form, message, content);
    if (!json_is_array(content))
        return api_field_wrong(form->error, place, content, "a string or a list of parts");
    for (size_t i = 0; i < json_array_size(content); i++) {
        json_t *part = json_array_get(content, i), *text;
        char at[FORM_PLACE_BYTES];
        size_t k = 0, count = sizeof(types) / sizeof(types[0]);
        snprintf(at, sizeof(at), "%.40s[%zu]", place, i);
        while (k < count && strcmp(form_type(part), types[k]) != 0)
            k++;
        if (k == count)
            return form_type_wrong(form, at, part, "a part with text: this model reads text only");
        if (!form_field_string(form, part, at,
                               strcmp(types[k], "refusal") == 0 ? "refusal" : "text", &text) ||
            !form_text_add(form, message, text))
            return false;
    }
    return json_object_get(message, "content") != NULL ||
           form_member_set(form, message, "content", json_string(""));
}

bool form_call_add(struct form *form, json_t *message, json_t *id, json_t *name, json_t *arguments)
{
    json_t *calls = json_object_get(message, "tool_calls");
    if (calls == NULL) {
        calls = json_array();
        if (!form_member_set(form, message, "tool_calls", calls))
            return false;
    }
    return append(form, calls,
                  json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function",
                            "name", name, "arguments", arguments));
}

bool form_result_add(struct form *form, json_t *id, json_t *content, const char *place)
{
    json_t *message = form_message_add(form, "tool");
    if (message == NULL || !form_member_set(form, message, "tool_call_id", json_incref(id)))
        return false;
    return content != NULL ? form_content_add(form, message, content, place)
                           : form_member_set(form, message, "content", json_string(""));
}

/* ---- tools and formats ---- */

static bool tool_add(struct form *form, json_t *name, json_t *tool, const char *schema)
{
    json_t *tools = json_object_get(form->chat, "tools");
    if (tools == NULL) {
        tools = json_array();
        if (!form_member_set(form, form->chat, "tools", tools))
            return false;
    }
    /* The parser of tools adds to a schema without type or properties, so it gets a copy. */
    const json_t *given = api_field_get(tool, schema);
    json_t *parameters = json_value_copy(given);
    if (parameters == NULL && given != NULL)
        return out_of_memory(form);
    return append(form, tools,
                  json_pack("{s:s, s:{s:O*, s:O*, s:o*, s:O*}}", "type", "function", "function",
                            "name", name, "description", api_field_get(tool, "description"),
                            "parameters", parameters, "strict", api_field_get(tool, "strict")));
}

bool form_tools_convert(struct form *form, const char *type, bool type_optional, const char *schema)
{
    json_t *tools = api_field_get(form->body, "tools");
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "\"%s\": cleave runs no tools itself", type);
    if (tools != NULL && !json_is_array(tools))
        return api_field_wrong(form->error, "tools", tools, "a list");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *tool = json_array_get(tools, i), *name;
        char place[FORM_PLACE_BYTES];
        snprintf(place, sizeof(place), "tools[%zu]", i);
        bool own = (type_optional && api_field_get(tool, "type") == NULL) ||
                   strcmp(form_type(tool), type) == 0;
        if (!json_is_object(tool) || !own)
            return form_type_wrong(form, place, tool, wanted);
        if (!form_field_string(form, tool, place, "name", &name) ||
            !tool_add(form, name, tool, schema))
            return false;
    }
    return true;
}

bool form_tool_choice_set(struct form *form, json_t *name)
{
    return form_member_set(
        form, form->chat, "tool_choice",
        json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name));
}

bool form_schema_set(struct form *form, json_t *schema)
{
    return form_member_set(
        form, form->chat, "response_format",
        json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema", "schema", schema));
}

bool form_variable_set(struct form *form, const char *name, json_t *value)
{
    json_t *given = json_object_get(form->chat, "chat_template_kwargs");
    if (given != NULL && !json_is_object(given)) {
        json_decref(value);
        return true; /* the parser of chats refuses it */
    }
    if (json_object_get(given, name) != NULL) {
        json_decref(value);
        return true;
    }
    json_t *variables = given != NULL ? json_value_copy(given) : json_object();
    if (variables == NULL) {
        json_decref(value);
        return out_of_memory(form);
    }
    if (form_member_set(form, variables, name, value))
        return form_member_set(form, form->chat, "chat_template_kwargs", variables);
    json_decref(variables);
    return out_of_memory(form);
}

/* ---- the whole body ---- */

/* Copies the fields that mean the same in a chat. */
static bool copy_common(struct form *form, enum api_kind kind)
{
    const char *name;
    json_t *value;
    json_object_foreach(form->body, name, value)
    {
        if (api_form_field_find(kind, name) == NULL &&
            !form_member_set(form, form->chat, name, json_incref(value)))
            return false;
    }
    return true;
}

/* Dumps the members of an object, without the braces around them. Returns NULL if memory runs out.
 */
static char *dump_members(json_t *object)
{
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (text == NULL)
        return NULL;
    size_t length = strlen(text);
    memmove(text, text + 1, length - 1);
    text[length - 2] = 0;
    return text;
}

bool api_form_convert(enum api_kind kind, json_t *body, json_t **chat_out, char **echo_out,
                      struct api_error *error)
{
    struct form form = {.body = body, .chat = json_object(), .error = error};
    json_t *messages = json_array();
    bool good = form.chat != NULL && messages != NULL;
    form.messages = messages;
    good = good ? copy_common(&form, kind) &&
                      form_member_set(&form, form.chat, "messages", json_incref(messages))
                : out_of_memory(&form);
    good = good &&
           (kind == API_RESPONSES ? form_responses_convert(&form) : form_messages_convert(&form));
    json_decref(messages);
    if (good && echo_out != NULL) {
        *echo_out = kind == API_RESPONSES ? dump_members(form_responses_echo(body)) : NULL;
        good = kind != API_RESPONSES || *echo_out != NULL || out_of_memory(&form);
    }
    if (good)
        *chat_out = form.chat;
    else
        json_decref(form.chat);
    return good;
}
