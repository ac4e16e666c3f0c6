/* form_messages: bodies of POST /v1/messages (Anthropic) as bodies of a chat (forms_internal.h). */
#include "server/api/forms_internal.h"

#include "common/limits.h"
#include "server/api/fields.h"

#include <stdio.h>
#include <string.h>

/* ---- messages ---- */

static bool add_text(struct form *form, const char *role, json_t *block, const char *place)
{
    json_t *text, *message = form_message_last(form, role);
    if (!form_field_string(form, block, place, "text", &text))
        return false;
    return message != NULL && form_text_add(form, message, text);
}

static bool add_use(struct form *form, json_t *block, const char *place)
{
    json_t *id, *name, *input = api_field_get(block, "input");
    char at[FORM_PLACE_BYTES];
    json_t *message = form_message_last(form, "assistant");
    snprintf(at, sizeof(at), "%.50s.input", place);
    if (!form_field_string(form, block, place, "id", &id) ||
        !form_field_string(form, block, place, "name", &name))
        return false;
    if (!json_is_object(input))
        return api_error_set(form->error, 400, at, "%s must be an object", at);
    return message != NULL && form_call_add(form, message, id, name, input);
}

static bool add_result(struct form *form, json_t *block, const char *place)
{
    json_t *id;
    bool is_error = false; /* Not used further: a result describes its error in its content. */
    char at[FORM_PLACE_BYTES];
    snprintf(at, sizeof(at), "%.50s.content", place);
    return form_field_string(form, block, place, "tool_use_id", &id) &&
           api_field_bool(block, "is_error", &is_error, form->error) &&
           form_result_add(form, id, api_field_get(block, "content"), at);
}

/* Adds one block of a message. Results of calls become messages of their own, so the text after
 * them needs a new message. */
static bool add_block(struct form *form, const char *role, json_t *block, const char *place,
                      struct text *reasoning)
{
    json_t *piece;
    const char *type = json_is_object(block) ? form_type(block) : "";
    const bool assistant = strcmp(role, "assistant") == 0;
    if (!assistant && strcmp(type, "tool_result") == 0)
        return add_result(form, block, place);
    if (strcmp(type, "text") == 0 || assistant) {
        if (form_message_last(form, role) == NULL && form_message_add(form, role) == NULL)
            return false;
    }
    if (strcmp(type, "text") == 0)
        return add_text(form, role, block, place);
    if (assistant && strcmp(type, "tool_use") == 0)
        return add_use(form, block, place);
    if (assistant && strcmp(type, "thinking") == 0) {
        if (!form_field_string(form, block, place, "thinking", &piece))
            return false;
        form_reasoning_add(reasoning, piece);
        return true;
    }
    return form_type_wrong(form, place, block,
                           assistant ? "text, tool_use or thinking"
                                     : "text or tool_result: this model reads text only");
}

static bool add_blocks(struct form *form, const char *role, json_t *blocks, const char *place)
{
    char at[FORM_PLACE_BYTES];
    struct text reasoning = {0};
    const bool assistant = strcmp(role, "assistant") == 0;
    const char *first = form_type(json_array_get(blocks, 0));
    if (strcmp(first, "tool_result") != 0 && form_message_add(form, role) == NULL)
        return false;
    for (size_t i = 0; i < json_array_size(blocks); i++) {
        snprintf(at, sizeof(at), "%.40s.content[%zu]", place, i);
        if (!add_block(form, role, json_array_get(blocks, i), at, &reasoning)) {
            text_done(&reasoning);
            return false;
        }
    }
    json_t *last = form_message_last(form, role);
    if (assistant && last != NULL)
        return form_reasoning_end(form, last, &reasoning);
    return last == NULL || json_object_get(last, "content") != NULL ||
           form_member_set(form, last, "content", json_string(""));
}

static bool add_message(struct form *form, json_t *message, uint32_t index)
{
    char place[FORM_PLACE_BYTES], at[FORM_PLACE_BYTES];
    json_t *role, *content = api_field_get(message, "content");
    snprintf(place, sizeof(place), "messages[%u]", index);
    if (!json_is_object(message))
        return api_field_wrong(form->error, place, message, "an object");
    if (!form_field_string(form, message, place, "role", &role))
        return false;
    const char *name = json_string_value(role);
    if (strcmp(name, "user") != 0 && strcmp(name, "assistant") != 0 &&
        strcmp(name, "system") != 0) {
        snprintf(at, sizeof(at), "%.40s.role", place);
        return api_field_wrong(form->error, at, role, "user or assistant");
    }
    if (!json_is_array(content)) {
        json_t *made = form_message_add(form, name);
        snprintf(at, sizeof(at), "%.40s.content", place);
        if (content == NULL)
            return api_error_set(form->error, 400, at, "%s is missing", at);
        return made != NULL && form_content_add(form, made, content, at);
    }
    return add_blocks(form, name, content, place);
}

static bool convert_messages(struct form *form)
{
    json_t *system = api_field_get(form->body, "system");
    json_t *messages = api_field_get(form->body, "messages");
    if (system != NULL) {
        json_t *message = form_message_add(form, "system");
        if (message == NULL || !form_content_add(form, message, system, "system"))
            return false;
    }
    if (messages == NULL)
        return api_error_set(form->error, 400, "messages", "messages is missing");
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return api_field_wrong(form->error, "messages", messages, "a list of messages");
    for (uint32_t i = 0; i < json_array_size(messages); i++)
        if (!add_message(form, json_array_get(messages, i), i))
            return false;
    /* An answer continues a last message of the assistant. */
    json_t *last = form_message_last(form, "assistant");
    return last == NULL || json_object_get(last, "content") == NULL ||
           json_object_get(last, "tool_calls") != NULL ||
           form_member_set(form, form->chat, "continue_final_message", json_true());
}

/* ---- tools ---- */

static bool convert_choice(struct form *form)
{
    static const char *const types[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    json_t *choice = api_field_get(form->body, "tool_choice"), *name;
    bool single = false;
    if (choice == NULL)
        return true;
    const char *type = json_is_object(choice) ? form_type(choice) : "";
    if (!api_field_bool(choice, "disable_parallel_tool_use", &single, form->error))
        return false;
    if (single && !form_member_set(form, form->chat, "parallel_tool_calls", json_false()))
        return false;
    for (int i = 0; i < 3; i++)
        if (strcmp(type, types[i][0]) == 0)
            return form_member_set(form, form->chat, "tool_choice", json_string(types[i][1]));
    if (strcmp(type, "tool") != 0)
        return form_type_wrong(form, "tool_choice", choice, "auto, any, tool or none");
    return form_field_string(form, choice, "tool_choice", "name", &name) &&
           form_tool_choice_set(form, name);
}

/* ---- the other fields ---- */

/* thinking: {type, budget_tokens} */
static bool convert_thinking(struct form *form)
{
    json_t *thinking = api_field_get(form->body, "thinking");
    const char *type = json_is_object(thinking) ? form_type(thinking) : "";
    int64_t budget = 0;
    if (thinking == NULL)
        return true;
    bool on = strcmp(type, "enabled") == 0 || strcmp(type, "adaptive") == 0;
    if (!on && strcmp(type, "disabled") != 0)
        return form_type_wrong(form, "thinking", thinking, "enabled, adaptive or disabled");
    return api_field_integer(thinking, "budget_tokens", 1, LIMIT_CONTEXT_TOKENS, &budget,
                             form->error) &&
           form_variable_set(form, "enable_thinking", json_boolean(on));
}

/* output_config: {effort, format}; output_format, an older place of the format. */
static bool convert_output(struct form *form)
{
    json_t *config = api_field_get(form->body, "output_config");
    json_t *format = api_field_get(form->body, "output_format");
    const char *place = "output_format";
    if (config != NULL && !json_is_object(config))
        return api_field_wrong(form->error, "output_config", config, "an object");
    json_t *effort = api_field_get(config, "effort");
    if (effort != NULL &&
        !form_member_set(form, form->chat, "reasoning_effort", json_incref(effort)))
        return false;
    if (format == NULL) {
        format = api_field_get(config, "format");
        place = "output_config.format";
    }
    if (format == NULL)
        return true;
    if (!json_is_object(format) || strcmp(form_type(format), "json_schema") != 0)
        return form_type_wrong(form, place, format, "\"json_schema\"");
    json_t *schema = api_field_get(format, "schema");
    if (schema == NULL)
        return api_error_set(form->error, 400, place, "%s.schema is missing", place);
    return form_schema_set(form, schema);
}

static bool convert_ends(struct form *form)
{
    int64_t most = 0;
    json_t *stops = api_field_get(form->body, "stop_sequences");
    if (stops != NULL && !json_is_array(stops))
        return api_field_wrong(form->error, "stop_sequences", stops, "a list of texts");
    return api_field_integer(form->body, "max_tokens", 1, LIMIT_CONTEXT_TOKENS, &most,
                             form->error) &&
           form_field_copy(form, "max_tokens", "max_tokens") &&
           form_field_copy(form, "stop_sequences", "stop");
}

bool form_messages_convert(struct form *form)
{
    return convert_messages(form) && form_tools_convert(form, "custom", true, "input_schema") &&
           convert_choice(form) && convert_thinking(form) && convert_output(form) &&
           convert_ends(form);
}
