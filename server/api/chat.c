/* api_chat: the fields of a request that make its conversation (request.h). */
#include "common/json.h"
#include "server/api/fields.h"
#include "server/api/request.h"
#include "server/api/tools.h"

#include <stdio.h>
#include <string.h>

#define MESSAGES_MAX  65536
#define DOCUMENTS_MAX 4096

/* Roles of messages that are accepted. */
static bool is_role(const char *role)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
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
                             "%s is missing: want \"system\", \"user\", "
                             "\"assistant\" or \"tool\"",
                             place);
    if (is_role(json_string_value(role)))
        return true;
    for (const char *c = json_string_value(role); *c != 0 && used + 1 < sizeof(shown); c++)
        shown[used++] = *c >= ' ' && *c <= '~' ? *c : '?';
    shown[used] = 0;
    return api_error_set(error, 400, "messages",
                         "messages[%u]: role '%s': want system, developer, user, assistant or tool",
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

/* Checks the fields of a message that belong to tool calls. `function_call`, which OpenAI
 * replaced by tool_calls, is refused. */
static bool check_calls(json_t *message, uint32_t index, struct api_error *error)
{
    static const char *const strings[] = {"tool_call_id", "name", "reasoning_content", "reasoning"};
    char place[64];
    json_t *calls = api_field_get(message, "tool_calls");
    snprintf(place, sizeof(place), "messages[%u].tool_calls", index);
    if (calls != NULL && !api_tool_calls_check(calls, place, error))
        return false;
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
        json_t *value = api_field_get(message, strings[i]);
        snprintf(place, sizeof(place), "messages[%u].%s", index, strings[i]);
        if (value != NULL && !json_is_string(value))
            return api_field_wrong(error, place, value, "a string");
    }
    if (api_field_get(message, "function_call") == NULL)
        return true;
    snprintf(place, sizeof(place), "messages[%u].function_call", index);
    api_error_set(error, 400, place, "%s is not supported: use tool_calls", place);
    error->code = "unsupported_parameter";
    return false;
}

static bool check_message(json_t *message, uint32_t index, struct api_error *error)
{
    char place[48];
    const json_t *role = json_object_get(message, "role");
    const json_t *content = api_field_get(message, "content");
    if ((json_is_string(role) && !check_calls(message, index, error)) ||
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

static bool is_missing(const struct chat_request *chat, const char *variable)
{
    return json_object_get(chat->variables, variable) == NULL;
}

/* reasoning_effort becomes a variable of the template; "none" also sets the one with which most
 * templates switch reasoning off. Variables of the request win. */
static bool parse_effort(const json_t *effort, struct chat_request *out, struct api_error *error)
{
    static const char *const names[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    size_t i = 0, count = sizeof(names) / sizeof(names[0]);
    if (effort == NULL)
        return true;
    while (i < count &&
           !(json_is_string(effort) && strcmp(json_string_value(effort), names[i]) == 0))
        i++;
    if (i == count)
        return api_field_wrong(error, "reasoning_effort", effort,
                               "none, minimal, low, medium, high, xhigh or max");
    json_t *variables = out->variables != NULL ? json_value_copy(out->variables) : json_object();
    bool good = variables != NULL &&
                (!is_missing(out, "reasoning_effort") ||
                 json_object_set_new(variables, "reasoning_effort", json_string(names[i])) == 0) &&
                (i > 0 || !is_missing(out, "enable_thinking") ||
                 json_object_set_new(variables, "enable_thinking", json_false()) == 0);
    if (!good) {
        json_decref(variables);
        return api_error_set(error, 503, NULL, "out of memory");
    }
    json_decref(out->variables);
    out->variables = variables;
    return true;
}

static bool parse_template(json_t *root, struct chat_request *out, struct api_error *error)
{
    json_t *text = api_field_get(root, "chat_template");
    json_t *variables = api_field_get(root, "chat_template_kwargs");
    bool begin = api_field_get(root, "add_generation_prompt") != NULL;
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
    return parse_effort(api_field_get(root, "reasoning_effort"), out, error);
}

bool api_chat_parse(json_t *root, struct chat_request *out, struct api_tools *tools,
                    struct api_error *error)
{
    return api_tools_parse(root, tools, &out->tools, error) &&
           parse_messages(api_field_get(root, "messages"), out, error) &&
           parse_documents(api_field_get(root, "documents"), out, error) &&
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
