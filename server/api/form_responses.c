/* form_responses: bodies of POST /v1/responses as bodies of a chat (forms_internal.h). Nothing is
 * kept between requests, so the input is always the whole conversation. */
#include "server/api/forms_internal.h"

#include "common/limits.h"
#include "server/api/fields.h"

#include <stdio.h>
#include <string.h>

/* ---- input ---- */

/* Returns the last message if it is the assistant's, else a new one of the assistant. NULL = an
 * error. */
static json_t *turn_of(struct form *form)
{
    json_t *last = form_message_last(form, "assistant");
    return last != NULL ? last : form_message_add(form, "assistant");
}

static bool add_message(struct form *form, json_t *item, const char *place)
{
    json_t *role, *content = api_field_get(item, "content");
    char at[FORM_PLACE_BYTES];
    if (!form_field_string(form, item, place, "role", &role))
        return false;
    bool assistant = strcmp(json_string_value(role), "assistant") == 0;
    json_t *last = assistant ? form_message_last(form, "assistant") : NULL;
    /* The text of a turn whose reasoning came before it. */
    bool joins = last != NULL && json_object_get(last, "content") == NULL &&
                 json_object_get(last, "tool_calls") == NULL;
    json_t *message = joins ? last : form_message_add(form, json_string_value(role));
    if (message == NULL)
        return false;
    snprintf(at, sizeof(at), "%.40s.content", place);
    if (content == NULL)
        return api_error_set(form->error, 400, at, "%s is missing", at);
    return form_content_add(form, message, content, at);
}

static bool add_call(struct form *form, json_t *item, const char *place)
{
    json_t *id, *name, *arguments;
    if (!form_field_string(form, item, place, "call_id", &id) ||
        !form_field_string(form, item, place, "name", &name) ||
        !form_field_string(form, item, place, "arguments", &arguments))
        return false;
    json_t *message = turn_of(form);
    return message != NULL && form_call_add(form, message, id, name, arguments);
}

static bool add_result(struct form *form, json_t *item, const char *place)
{
    json_t *id;
    char at[FORM_PLACE_BYTES];
    snprintf(at, sizeof(at), "%.40s.output", place);
    return form_field_string(form, item, place, "call_id", &id) &&
           form_result_add(form, id, api_field_get(item, "output"), at);
}

/* The reasoning of earlier answers, as an answer's items have it, begins a turn. Items without text
 * are what other servers encrypt. */
static bool add_reasoning(struct form *form, json_t *item, const char *place)
{
    json_t *content = api_field_get(item, "content"), *piece;
    struct text reasoning = {0};
    char at[FORM_PLACE_BYTES];
    if (json_array_size(content) == 0)
        return true;
    for (size_t i = 0; i < json_array_size(content); i++) {
        snprintf(at, sizeof(at), "%.40s.content[%zu]", place, i);
        if (!form_field_string(form, json_array_get(content, i), at, "text", &piece)) {
            text_done(&reasoning);
            return false;
        }
        form_reasoning_add(&reasoning, piece);
    }
    json_t *message = form_message_add(form, "assistant");
    if (message != NULL)
        return form_reasoning_end(form, message, &reasoning);
    text_done(&reasoning);
    return false;
}

static bool add_item(struct form *form, json_t *item, uint32_t index)
{
    static const struct {
        const char *type;
        bool (*add)(struct form *form, json_t *item, const char *place);
    } kinds[] = {
        {"message", add_message},     {"", add_message},
        {"function_call", add_call},  {"function_call_output", add_result},
        {"reasoning", add_reasoning},
    };
    char place[FORM_PLACE_BYTES];
    snprintf(place, sizeof(place), "input[%u]", index);
    for (size_t i = 0; json_is_object(item) && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(form_type(item), kinds[i].type) == 0)
            return kinds[i].add(form, item, place);
    return form_type_wrong(form, place, item,
                           "message, function_call, function_call_output or reasoning");
}

static bool convert_input(struct form *form)
{
    json_t *instructions = api_field_get(form->body, "instructions");
    json_t *input = api_field_get(form->body, "input");
    if (instructions != NULL && !json_is_string(instructions))
        return api_field_wrong(form->error, "instructions", instructions, "a string");
    if (instructions != NULL) {
        json_t *message = form_message_add(form, "system");
        if (message == NULL || !form_text_add(form, message, instructions))
            return false;
    }
    if (input == NULL)
        return api_error_set(form->error, 400, "input", "input is missing");
    if (json_is_string(input)) {
        json_t *message = form_message_add(form, "user");
        return message != NULL && form_text_add(form, message, input);
    }
    if (!json_is_array(input) || json_array_size(input) == 0)
        return api_field_wrong(form->error, "input", input, "a string or a list of items");
    for (uint32_t i = 0; i < json_array_size(input); i++)
        if (!add_item(form, json_array_get(input, i), i))
            return false;
    /* A conversation that ends with the assistant's calls or reasoning alone has no content. */
    return true;
}

/* ---- tools ---- */

static bool convert_choice(struct form *form)
{
    json_t *choice = api_field_get(form->body, "tool_choice"), *name;
    if (choice == NULL)
        return true;
    if (!json_is_object(choice))
        return form_field_copy(form, "tool_choice", "tool_choice");
    if (strcmp(form_type(choice), "function") != 0)
        return form_type_wrong(form, "tool_choice", choice, "\"function\"");
    return form_field_string(form, choice, "tool_choice", "name", &name) &&
           form_tool_choice_set(form, name);
}

/* ---- the other fields ---- */

/* text: {format, verbosity} */
static bool convert_format(struct form *form)
{
    json_t *text = api_field_get(form->body, "text");
    if (text != NULL && !json_is_object(text))
        return api_field_wrong(form->error, "text", text, "an object");
    json_t *verbosity = api_field_get(text, "verbosity"), *format = api_field_get(text, "format");
    const char *word = json_string_value(verbosity);
    if (verbosity != NULL && (word == NULL || strcmp(word, "medium") != 0)) {
        api_field_wrong(form->error, "text.verbosity", verbosity, "\"medium\"");
        form->error->code = "unsupported_parameter";
        return false;
    }
    if (format == NULL)
        return true;
    if (strcmp(form_type(format), "json_schema") == 0) {
        json_t *schema = api_field_get(format, "schema");
        if (schema == NULL)
            return api_error_set(form->error, 400, "text.format.schema",
                                 "text.format.schema is missing");
        return form_schema_set(form, schema);
    }
    if (strcmp(form_type(format), "text") == 0 || strcmp(form_type(format), "json_object") == 0)
        return form_member_set(form, form->chat, "response_format", json_incref(format));
    return form_type_wrong(form, "text.format", format, "text, json_object or json_schema");
}

/* reasoning: {effort, summary}. No summaries are written: answers have the reasoning itself. */
static bool convert_reasoning(struct form *form)
{
    json_t *reasoning = api_field_get(form->body, "reasoning");
    if (reasoning != NULL && !json_is_object(reasoning))
        return api_field_wrong(form->error, "reasoning", reasoning, "an object");
    json_t *effort = api_field_get(reasoning, "effort");
    return effort == NULL ||
           form_member_set(form, form->chat, "reasoning_effort", json_incref(effort));
}

/* include: a list of words. top_logprobs has an effect only beside the first one. */
static bool convert_logprobs(struct form *form)
{
    json_t *include = api_field_get(form->body, "include"),
           *top = api_field_get(form->body, "top_logprobs");
    bool wanted = false;
    int64_t count = 0;
    if (include != NULL && !json_is_array(include))
        return api_field_wrong(form->error, "include", include, "a list");
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *word = json_string_value(json_array_get(include, i));
        if (word != NULL && strcmp(word, "message.output_text.logprobs") == 0) {
            wanted = true;
        } else if (word == NULL || strcmp(word, "reasoning.encrypted_content") != 0) {
            api_field_wrong(form->error, "include", json_array_get(include, i),
                            "message.output_text.logprobs or reasoning.encrypted_content");
            form->error->code = "unsupported_parameter";
            return false;
        }
    }
    if (!api_field_integer(form->body, "top_logprobs", 0, LIMIT_LOGPROBS, &count, form->error))
        return false;
    if (count > 0 && !wanted)
        return api_error_set(form->error, 400, "top_logprobs",
                             "top_logprobs needs include: [\"message.output_text.logprobs\"]");
    if (!wanted)
        return true;
    return form_member_set(form, form->chat, "logprobs", json_true()) &&
           (top == NULL || form_member_set(form, form->chat, "top_logprobs", json_incref(top)));
}

static bool convert_options(struct form *form)
{
    int64_t most = 0;
    bool obfuscated = false;
    json_t *options = api_field_get(form->body, "stream_options");
    if (options != NULL && !json_is_object(options))
        return api_field_wrong(form->error, "stream_options", options, "an object");
    return api_field_bool(options, "include_obfuscation", &obfuscated, form->error) &&
           api_field_integer(form->body, "max_output_tokens", 1, LIMIT_CONTEXT_TOKENS, &most,
                             form->error) &&
           form_field_copy(form, "max_output_tokens", "max_tokens");
}

bool form_responses_convert(struct form *form)
{
    return convert_input(form) && form_tools_convert(form, "function", false, "parameters") &&
           convert_choice(form) && convert_format(form) && convert_reasoning(form) &&
           convert_logprobs(form) && convert_options(form);
}

/* ---- what the answer repeats ---- */

/* Returns a new reference to the field's value, or to `otherwise`, which it takes over. */
static json_t *value_or(json_t *object, const char *name, json_t *otherwise)
{
    json_t *value = api_field_get(object, name);
    if (value == NULL)
        return otherwise;
    json_decref(otherwise);
    return json_incref(value);
}

json_t *form_responses_echo(json_t *body)
{
    json_t *reasoning = api_field_get(body, "reasoning"), *text = api_field_get(body, "text");
    return json_pack("{s:o, s:o, s:n, s:o, s:o, s:{s:o, s:n}, s:{s:o}, s:o, s:o, s:o}",
                     "instructions", value_or(body, "instructions", json_null()),
                     "max_output_tokens", value_or(body, "max_output_tokens", json_null()),
                     "max_tool_calls", "metadata", value_or(body, "metadata", json_object()),
                     "parallel_tool_calls", value_or(body, "parallel_tool_calls", json_true()),
                     "reasoning", "effort", value_or(reasoning, "effort", json_null()), "summary",
                     "text", "format", value_or(text, "format", json_pack("{s:s}", "type", "text")),
                     "tool_choice", value_or(body, "tool_choice", json_string("auto")), "tools",
                     value_or(body, "tools", json_array()), "user",
                     value_or(body, "user", json_null()));
}
