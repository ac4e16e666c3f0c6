/* api_chat: the fields of a request that make its conversation (request.h). */
#include "server/api/fields.h"
#include "server/api/request.h"

#include <stdio.h>
#include <string.h>

#define MESSAGES_MAX  65536
#define DOCUMENTS_MAX 4096

/* Roles of messages that are accepted. */
static bool is_role(const char *role)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant"};
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        if (strcmp(role, roles[i]) == 0)
            return true;
    return false;
}

static bool check_role(const json_t *role, uint32_t index, struct api_error *error)
{
    char place[48], shown[32];
    size_t used = 0;
    snprintf(place, sizeof(place), "messages[%u].role", index);
    if (!json_is_string(role))
        return api_error_set(error, 400, place,
                             "%s is missing: want \"system\", \"user\" or "
                             "\"assistant\"",
                             place);
    if (is_role(json_string_value(role)))
        return true;
    for (const char *c = json_string_value(role); *c != 0 && used + 1 < sizeof(shown); c++)
        shown[used++] = *c >= ' ' && *c <= '~' ? *c : '?';
    shown[used] = 0;
    return api_error_set(error, 400, "messages",
                         "messages[%u]: role '%s': want system, developer, user or assistant",
                         index, shown);
}

static bool check_parts(const json_t *parts, const char *place, struct api_error *error)
{
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *type = json_object_get(part, "type");
        if (!json_is_string(type) || strcmp(json_string_value(type), "text") != 0 ||
            !json_is_string(json_object_get(part, "text")))
            return api_error_set(error, 400, place,
                                 "%s[%zu] must be {\"type\": \"text\", \"text\": …}: this model "
                                 "reads text only",
                                 place, i);
    }
    return true;
}

/* A message with calls of tools is refused: no answer is searched for calls yet. */
static bool check_no_calls(json_t *message, uint32_t index, struct api_error *error)
{
    static const char *const names[] = {"tool_calls", "function_call", "tool_call_id"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        json_t *value = api_field(message, names[i]);
        if (value == NULL || (json_is_array(value) && json_array_size(value) == 0))
            continue;
        char place[64];
        snprintf(place, sizeof(place), "messages[%u].%s", index, names[i]);
        api_error_set(error, 400, place, "%s is not supported: this server runs no tools", place);
        error->code = "unsupported_parameter";
        return false;
    }
    return true;
}

static bool check_message(json_t *message, uint32_t index, struct api_error *error)
{
    char place[48];
    const json_t *role = json_object_get(message, "role");
    const json_t *content = api_field(message, "content");
    if ((json_is_string(role) && !check_no_calls(message, index, error)) ||
        !check_role(role, index, error))
        return false;
    if (content == NULL && strcmp(json_string_value(role), "assistant") == 0)
        return true; /* clients send null for an answer without text */
    snprintf(place, sizeof(place), "messages[%u].content", index);
    if (json_is_array(content))
        return check_parts(content, place, error);
    if (!json_is_string(content))
        return api_error_set(error, 400, place, "%s must be a string or a list of text parts",
                             place);
    return true;
}

static bool parse_messages(json_t *messages, struct chat_request *out, struct api_error *error)
{
    if (messages == NULL)
        return api_error_set(error, 400, "messages", "messages is missing");
    if (!json_is_array(messages))
        return api_field_wrong(error, "messages", messages, "a list");
    size_t count = json_array_size(messages);
    if (count == 0 || count > MESSAGES_MAX)
        return api_error_set(error, 400, "messages", "messages has %zu entries: want 1 to %d",
                             count, MESSAGES_MAX);
    for (uint32_t i = 0; i < count; i++)
        if (!check_message(json_array_get(messages, i), i, error))
            return false;
    out->messages = json_incref(messages);
    return true;
}

static bool parse_documents(json_t *documents, struct chat_request *out, struct api_error *error)
{
    if (documents == NULL)
        return true;
    if (!json_is_array(documents) || json_array_size(documents) > DOCUMENTS_MAX)
        return api_field_wrong(error, "documents", documents, "a list of up to 4096 objects");
    for (size_t i = 0; i < json_array_size(documents); i++) {
        char place[48];
        snprintf(place, sizeof(place), "documents[%zu]", i);
        if (!json_is_object(json_array_get(documents, i)))
            return api_field_wrong(error, place, json_array_get(documents, i), "an object");
    }
    if (json_array_size(documents) > 0)
        out->documents = json_incref(documents);
    return true;
}

static bool parse_template(json_t *root, struct chat_request *out, struct api_error *error)
{
    json_t *text = api_field(root, "chat_template");
    json_t *variables = api_field(root, "chat_template_kwargs");
    bool begin = api_field(root, "add_generation_prompt") != NULL;
    if (text != NULL && !json_is_string(text))
        return api_field_wrong(error, "chat_template", text, "a string");
    if (variables != NULL && !json_is_object(variables))
        return api_field_wrong(error, "chat_template_kwargs", variables, "an object");
    if (!api_field_bool(root, "continue_final_message", &out->continue_final_message, error))
        return false;
    out->add_generation_prompt = !out->continue_final_message;
    if (begin && !api_field_bool(root, "add_generation_prompt", &out->add_generation_prompt, error))
        return false;
    if (out->add_generation_prompt && out->continue_final_message)
        return api_error_set(error, 400, "continue_final_message",
                             "continue_final_message and add_generation_prompt are both true: want "
                             "one of them");
    if (json_string_length(text) > 0)
        out->template_text = json_incref(text);
    if (json_object_size(variables) > 0)
        out->variables = json_incref(variables);
    return true;
}

bool api_chat_parse(json_t *root, struct chat_request *out, struct api_error *error)
{
    return parse_messages(api_field(root, "messages"), out, error) &&
           parse_documents(api_field(root, "documents"), out, error) &&
           parse_template(root, out, error);
}

void api_chat_done(struct chat_request *chat)
{
    json_decref(chat->messages);
    json_decref(chat->tools);
    json_decref(chat->documents);
    json_decref(chat->variables);
    json_decref(chat->template_text);
    *chat = (struct chat_request){0};
}
