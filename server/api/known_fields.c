/* api_known_fields: see the header. */
#include "server/api/known_fields.h"

#include "server/api/fields.h"

#include <stdlib.h>
#include <string.h>

#define AT_COMPLETIONS (1u << API_COMPLETION)
#define AT_CHAT        (1u << API_CHAT)
#define AT_RESPONSES   (1u << API_RESPONSES)
#define AT_MESSAGES    (1u << API_MESSAGES)
#define AT_EMBEDDINGS  (1u << API_EMBEDDINGS)

/* clang-format off */
const struct api_known_field api_known_fields[] = {
    {"add_generation_prompt", AT_CHAT, API_NEUTRAL_TRUE, "nyy", "boolean", "false: the prompt ends after the last message, without the template's beginning of an answer; default true"},
    {"add_special_tokens", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyp", "boolean", "true: the prompt begins with the model's BOS token; default true for completions, false for chat"},
    {"allowed_token_ids", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyn", "array", "up to 1024 token ids: no other token is generated"},
    {"audio", 0, API_NEUTRAL_NULL, "ynn", "", ""},
    {"bad_words", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyn", "array", "up to 128 texts of up to 256 bytes; the answer contains none of them"},
    {"best_of", AT_COMPLETIONS, API_NEUTRAL_ONE, "ypn", "integer", "number of answers generated per prompt, `n` (default) to 16; the `n` most likely of them are returned; above `n` not with `stream`"},
    {"cache_salt", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyn", "string", "a text of 1 to 256 bytes: only requests with the same text share [cached prefixes](scheduling.md#the-prefix-cache)"},
    {"chat_template", AT_CHAT, API_NEUTRAL_EMPTY, "nyn", "string", "replaces the model's chat template, if `server/chat_template_in_requests` allows it"},
    {"chat_template_kwargs", AT_CHAT, API_NEUTRAL_EMPTY, "nyy", "object", "an object of variables for the chat template, such as `enable_thinking`"},
    {"cleave", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nnn", "object", "`{transfer, events}`. `transfer`, for tests: the [transfer mode](contributing/glossary.md) of this request, `auto`, `layerwise` or `one-piece`. `events: true`, with `stream`: the stream also shows [what happens to the request](operation.md#the-life-of-a-request)"},
    {"continue_final_message", AT_CHAT, API_NEUTRAL_FALSE, "nyn", "boolean", "true: the answer continues the last message"},
    {"detokenize", 0, API_NEUTRAL_TRUE, "nyn", "", ""},
    {"documents", AT_CHAT, API_NEUTRAL_EMPTY, "nyn", "array", "list of up to 4096 objects, for chat templates that read them"},
    {"dry_multiplier", 0, API_NEUTRAL_ZERO, "nny", "", ""},
    {"dynatemp_range", 0, API_NEUTRAL_ZERO, "nny", "", ""},
    {"early_stopping", 0, API_NEUTRAL_FALSE, "nnn", "", ""},
    {"ebnf", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nnn", "string", "same as `guided_grammar`"},
    {"echo", AT_COMPLETIONS, API_NEUTRAL_FALSE, "yyn", "boolean", "true: the answer begins with the prompt"},
    {"enable_thinking", 0, API_NEUTRAL_NULL, "nnn", "", ""},
    {"frequency_penalty", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "number", "-2 to 2; default 0. Only tokens of the answer count"},
    {"function_call", 0, API_NEUTRAL_NONE_OR_AUTO, "ypn", "", ""},
    {"functions", 0, API_NEUTRAL_EMPTY, "ypn", "", ""},
    {"grammar", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nny", "string", "same as `guided_grammar`"},
    {"guided_choice", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "npn", "array", "a list of texts; the answer is [one of them](constraints.md)"},
    {"guided_decoding_backend", 0, API_NEUTRAL_EVERY, "nin", "", ""},
    {"guided_grammar", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "npn", "string", "a GBNF grammar that the answer [follows](constraints.md)"},
    {"guided_json", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "npn", "boolean object string", "a JSON schema that the answer [follows](constraints.md)"},
    {"guided_regex", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "npn", "string", "a regular expression that [matches the whole answer](constraints.md)"},
    {"guided_whitespace_pattern", 0, API_NEUTRAL_EMPTY, "npn", "", ""},
    {"ignore_eos", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyy", "boolean", "true: the answer goes on after the model's end token"},
    {"include_stop_str_in_output", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyn", "boolean", "true: the stop string, or the text of the stop token, stays in the text"},
    {"json_schema", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nny", "boolean object string", "same as `guided_json`"},
    {"kv_transfer_params", 0, API_NEUTRAL_EMPTY, "nyn", "", ""},
    {"length_penalty", 0, API_NEUTRAL_ONE, "nyn", "", ""},
    {"logit_bias", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "object", "an object with up to 300 token ids, each with a number from -100 to 100 that is added to the token's logit"},
    {"logits_processors", 0, API_NEUTRAL_EMPTY, "nyn", "", ""},
    {"logprobs", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "integer boolean", "completions: 0 to 20 alternatives per token; chat: true or false"},
    {"lora", 0, API_NEUTRAL_EMPTY, "nny", "", ""},
    {"lora_path", 0, API_NEUTRAL_EMPTY, "nnn", "", ""},
    {"max_completion_tokens", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "integer", "same as `max_tokens`, which it overrides"},
    {"max_tokens", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "integer", "0 to 1048576; default: until the context is full"},
    {"messages", AT_CHAT, API_NEUTRAL_NULL, "yyy", "array", "list of `{role, content}`; `content` is a text or a list of text parts; messages of an assistant may have `tool_calls`, those of a tool `tool_call_id`"},
    {"metadata", 0, API_NEUTRAL_EVERY, "yii", "", ""},
    {"min_p", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyy", "number", "0 to 1; default 0"},
    {"min_tokens", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyn", "integer", "least tokens of the answer, 0 (default) to `max_tokens`"},
    {"mirostat", 0, API_NEUTRAL_ZERO, "nny", "", ""},
    {"mm_processor_kwargs", 0, API_NEUTRAL_EMPTY, "nyn", "", ""},
    {"modalities", 0, API_NEUTRAL_TEXT_LIST, "ynn", "", ""},
    {"model", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "string", "a name that `/v1/models` lists; default: the served model"},
    {"n", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "integer", "1 to 16 answers per prompt; default 1"},
    {"parallel_tool_calls", AT_CHAT, API_NEUTRAL_EVERY, "yyy", "boolean", "false: an answer has at most one call; default true"},
    {"prediction", 0, API_NEUTRAL_EVERY, "yii", "", ""},
    {"presence_penalty", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "number", "-2 to 2; default 0. Only tokens of the answer count"},
    {"priority", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyn", "integer", "-1000 to 1000, lower = more urgent; default 0; the API key limits it (`priority_best`)"},
    {"prompt", AT_COMPLETIONS, API_NEUTRAL_NULL, "yyy", "string array", "a text or a list of token ids, or a list of up to 64 of these"},
    {"prompt_cache_key", 0, API_NEUTRAL_EVERY, "yii", "", ""},
    {"prompt_cache_retention", 0, API_NEUTRAL_EVERY, "yii", "", ""},
    {"prompt_embeds", 0, API_NEUTRAL_EMPTY, "nyn", "", ""},
    {"prompt_logprobs", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyn", "integer", "0 to 20 alternatives for each token of the prompt; not with `stream`. If the prompt's token is not among them, its `rank` is null"},
    {"reasoning", 0, API_NEUTRAL_EMPTY, "nnn", "", ""},
    {"reasoning_effort", AT_CHAT, API_NEUTRAL_NONE, "yyy", "string", "none, minimal, low, medium, high, xhigh or max: a variable of the [chat template](tools.md#reasoning)"},
    {"regex", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nnn", "string", "same as `guided_regex`"},
    {"repeat_penalty", 0, API_NEUTRAL_ONE, "nny", "", ""},
    {"repetition_penalty", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyn", "number", "above 0, at most 100; default 1. Tokens of prompt and answer count"},
    {"request_id", 0, API_NEUTRAL_EVERY, "nyn", "", ""},
    {"response_format", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "object", "an object whose `type` is `text`, `json_object` or `json_schema` (with a schema) ([constraints.md](constraints.md))"},
    {"return_progress", 0, API_NEUTRAL_FALSE, "nny", "", ""},
    {"return_token_ids", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyy", "boolean", "true: the answer has `token_ids`"},
    {"return_tokens_as_token_ids", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyn", "boolean", "true: `logprobs` has `token_id:N` instead of texts"},
    {"safety_identifier", 0, API_NEUTRAL_EVERY, "yii", "", ""},
    {"seed", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "integer", "a whole number of 64 bits; default: random. Equal requests with the same seed get the same answer"},
    {"service_tier", 0, API_NEUTRAL_EVERY, "yii", "", ""},
    {"skip_special_tokens", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyp", "boolean", "false: control tokens appear in the text; default true"},
    {"spaces_between_special_tokens", 0, API_NEUTRAL_TRUE, "nyn", "", ""},
    {"stop", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "string array", "a text, or up to 16 texts, of up to 256 bytes: the answer ends before it"},
    {"stop_regex", 0, API_NEUTRAL_EMPTY, "nnn", "", ""},
    {"stop_token_ids", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyn", "array", "up to 8 token ids: the answer ends at any of them"},
    {"store", 0, API_NEUTRAL_EVERY, "yii", "", ""},
    {"stream", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "boolean", "true: server-sent events"},
    {"stream_options", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "object", "`include_usage: true`: a last event has `usage`; `continuous_usage_stats: true`: every event has `usage`"},
    {"structural_tag", 0, API_NEUTRAL_EMPTY, "nyn", "", ""},
    {"structured_outputs", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyn", "object", "an object with one of `json`, `regex`, `choice`, `grammar`, which mean the same as the `guided_` fields, or `json_object: true`"},
    {"suffix", 0, API_NEUTRAL_EMPTY, "ynp", "", ""},
    {"temperature", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "number", "0 (greedy) to 2; default 1"},
    {"thinking", 0, API_NEUTRAL_NULL, "nnn", "", ""},
    {"thinking_token_budget", 0, API_NEUTRAL_NULL, "nyy", "", ""},
    {"timings_per_token", 0, API_NEUTRAL_FALSE, "nny", "", ""},
    {"tool_choice", AT_CHAT, API_NEUTRAL_NONE_OR_AUTO, "yyy", "string object", "none, auto, required, or `{type, function: {name}}`; default auto if there are [tools](tools.md)"},
    {"tools", AT_CHAT, API_NEUTRAL_EMPTY, "yyy", "array", "up to 128 functions that the answer [may call](tools.md): `{type, function: {name, description, parameters, strict}}`"},
    {"top_k", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "nyy", "integer", "each token is drawn from the `top_k` most likely tokens; -1 or 0 (default) = from all"},
    {"top_logprobs", AT_CHAT, API_NEUTRAL_ZERO, "yyy", "integer", "0 to 20 alternatives per token; needs `logprobs: true`"},
    {"top_n_sigma", 0, API_NEUTRAL_MINUS_ONE, "nny", "", ""},
    {"top_p", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_EVERY, "yyy", "number", "above 0, at most 1; default 1"},
    {"truncate_prompt_tokens", 0, API_NEUTRAL_NULL, "nyn", "", ""},
    {"typical_p", 0, API_NEUTRAL_ONE, "nny", "", ""},
    {"use_beam_search", 0, API_NEUTRAL_FALSE, "nyn", "", ""},
    {"user", 0, API_NEUTRAL_EVERY, "yii", "", ""},
    {"verbosity", 0, API_NEUTRAL_MEDIUM, "ynn", "", ""},
    {"web_search_options", 0, API_NEUTRAL_NULL, "ynn", "", ""},
    {"xtc_probability", 0, API_NEUTRAL_ZERO, "nny", "", ""},
};

/* The next two: fields that only this form has, and those that it does not have although chats have
 * them. */
static const struct api_known_field responses_fields[] = {
    {"add_generation_prompt", 0, API_NEUTRAL_TRUE, "", "", ""},
    {"background", 0, API_NEUTRAL_FALSE, "", "", ""},
    {"continue_final_message", 0, API_NEUTRAL_FALSE, "", "", ""},
    {"conversation", 0, API_NEUTRAL_NULL, "", "", ""},
    {"include", AT_RESPONSES, API_NEUTRAL_EVERY, "", "array", "`message.output_text.logprobs`: the answer's text has log-probabilities; `reasoning.encrypted_content` has no effect: answers have the reasoning as text"},
    {"input", AT_RESPONSES, API_NEUTRAL_NULL, "", "string array", "a text, or the whole conversation as a list of items: `message`, `function_call`, `function_call_output`, `reasoning`; `content` is a text or a list of `input_text` and `output_text`"},
    {"instructions", AT_RESPONSES, API_NEUTRAL_EVERY, "", "string", "a system message before the input"},
    {"logprobs", 0, API_NEUTRAL_NULL, "", "", ""},
    {"max_completion_tokens", 0, API_NEUTRAL_NULL, "", "", ""},
    {"max_output_tokens", AT_RESPONSES, API_NEUTRAL_EVERY, "", "integer", "1 to 1048576; default: until the context is full"},
    {"max_tokens", 0, API_NEUTRAL_NULL, "", "", ""},
    {"max_tool_calls", 0, API_NEUTRAL_NULL, "", "", ""},
    {"messages", 0, API_NEUTRAL_NULL, "", "", ""},
    {"n", 0, API_NEUTRAL_ONE, "", "", ""},
    {"previous_response_id", 0, API_NEUTRAL_NULL, "", "", ""},
    {"prompt", 0, API_NEUTRAL_NULL, "", "", ""},
    {"prompt_logprobs", 0, API_NEUTRAL_NULL, "", "", ""},
    {"reasoning", AT_RESPONSES, API_NEUTRAL_EMPTY, "", "object", "`{effort}`, as `reasoning_effort` of a chat; `summary` has no effect"},
    {"reasoning_effort", 0, API_NEUTRAL_NULL, "", "", ""},
    {"response_format", 0, API_NEUTRAL_NULL, "", "", ""},
    {"return_token_ids", 0, API_NEUTRAL_FALSE, "", "", ""},
    {"stream_options", AT_RESPONSES, API_NEUTRAL_EVERY, "", "object", "`{include_obfuscation}` has no effect: events are never padded"},
    {"text", AT_RESPONSES, API_NEUTRAL_EMPTY, "", "object", "`{format}`: an object whose `type` is `text`, `json_object` or `json_schema` (with `schema`) ([constraints.md](constraints.md))"},
    {"tool_choice", AT_RESPONSES, API_NEUTRAL_NONE_OR_AUTO, "", "string object", "none, auto, required, or `{type: function, name}`"},
    {"tools", AT_RESPONSES, API_NEUTRAL_EMPTY, "", "array", "up to 128 functions: `{type: function, name, description, parameters, strict}`; `strict` is false by default"},
    {"top_logprobs", AT_RESPONSES, API_NEUTRAL_ZERO, "", "integer", "0 to 20 alternatives; needs `include`"},
    {"truncation", 0, API_NEUTRAL_DISABLED, "", "", ""},
};

static const struct api_known_field messages_fields[] = {
    {"add_generation_prompt", 0, API_NEUTRAL_TRUE, "", "", ""},
    {"cache_control", 0, API_NEUTRAL_EVERY, "", "", ""},
    {"container", 0, API_NEUTRAL_NULL, "", "", ""},
    {"context_management", 0, API_NEUTRAL_NULL, "", "", ""},
    {"continue_final_message", 0, API_NEUTRAL_FALSE, "", "", ""},
    {"logprobs", 0, API_NEUTRAL_FALSE, "", "", ""},
    {"max_completion_tokens", 0, API_NEUTRAL_NULL, "", "", ""},
    {"max_tokens", AT_MESSAGES, API_NEUTRAL_NULL, "", "integer", "1 to 1048576; required"},
    {"mcp_servers", 0, API_NEUTRAL_EMPTY, "", "", ""},
    {"messages", AT_MESSAGES, API_NEUTRAL_NULL, "", "array", "list of `{role, content}`; `content` is a text or a list of blocks: `text`, `tool_use`, `tool_result`, `thinking`. If the last message is the assistant's and has no `tool_use`, the answer continues it"},
    {"n", 0, API_NEUTRAL_ONE, "", "", ""},
    {"output_config", AT_MESSAGES, API_NEUTRAL_EMPTY, "", "object", "`{effort, format}`: `effort` as `reasoning_effort` of a chat; `format`: `{type: json_schema, schema}` ([constraints.md](constraints.md))"},
    {"output_format", AT_MESSAGES, API_NEUTRAL_NULL, "", "object", "same as `output_config.format`"},
    {"prompt", 0, API_NEUTRAL_NULL, "", "", ""},
    {"prompt_logprobs", 0, API_NEUTRAL_NULL, "", "", ""},
    {"reasoning_effort", 0, API_NEUTRAL_NULL, "", "", ""},
    {"response_format", 0, API_NEUTRAL_NULL, "", "", ""},
    {"return_token_ids", 0, API_NEUTRAL_FALSE, "", "", ""},
    {"stop", 0, API_NEUTRAL_EMPTY, "", "", ""},
    {"stop_sequences", AT_MESSAGES, API_NEUTRAL_EMPTY, "", "array", "up to 16 texts of up to 256 bytes"},
    {"stream_options", 0, API_NEUTRAL_EMPTY, "", "", ""},
    {"system", AT_MESSAGES, API_NEUTRAL_EMPTY, "", "string array", "a system message before the others: a text or a list of `text` blocks"},
    {"thinking", AT_MESSAGES, API_NEUTRAL_NULL, "", "object", "`{type}`: `enabled` and `adaptive` set the template's variable `enable_thinking` to true, `disabled` to false; `budget_tokens` has no effect; `max_tokens` counts the reasoning too"},
    {"tool_choice", AT_MESSAGES, API_NEUTRAL_NULL, "", "object", "`{type, name, disable_parallel_tool_use}`; `type` is auto, any, tool or none"},
    {"tools", AT_MESSAGES, API_NEUTRAL_EMPTY, "", "array", "up to 128 functions: `{name, description, input_schema, strict}`"},
    {"top_logprobs", 0, API_NEUTRAL_ZERO, "", "", ""},
};

/* All fields that embeddings use, and fields of other servers that clients may send. */
static const struct api_known_field embeddings_fields[] = {
    {"add_special_tokens", AT_EMBEDDINGS, API_NEUTRAL_EVERY, "", "boolean",
     "true: texts begin and end with the BOS and EOS tokens that the model wants; default true"},
    {"dimensions", AT_EMBEDDINGS, API_NEUTRAL_NULL, "", "integer",
     "1 to the size of the model's vectors: each vector is cut to this size and scaled to length 1 "
     "again; for models that were trained for this"},
    {"encoding_format", AT_EMBEDDINGS, API_NEUTRAL_NULL, "", "string",
     "float (default), or base64: little-endian floats of 32 bits"},
    {"input", AT_EMBEDDINGS, API_NEUTRAL_NULL, "", "string array",
     "a text or a list of token ids, or a list of up to 64 of these"},
    {"messages", 0, API_NEUTRAL_NULL, "", "", ""},
    {"model", AT_EMBEDDINGS, API_NEUTRAL_EVERY, "", "string",
     "a name that `/v1/models` lists; default: the served model"},
    {"priority", AT_EMBEDDINGS, API_NEUTRAL_EVERY, "", "integer",
     "-1000 to 1000, lower = more urgent; default 0; the API key limits it (`priority_best`)"},
    {"prompt", 0, API_NEUTRAL_NULL, "", "", ""},
    {"stream", 0, API_NEUTRAL_FALSE, "", "", ""},
};
/* clang-format on */

const size_t api_known_fields_count = sizeof(api_known_fields) / sizeof(api_known_fields[0]);

const struct api_known_field *api_form_fields(enum api_kind kind, size_t *count_out)
{
    static const struct {
        const struct api_known_field *fields;
        size_t count;
    } tables[API_KINDS] = {
        [API_COMPLETION] = {api_known_fields, 0},
        [API_CHAT] = {api_known_fields, 0},
        [API_RESPONSES] = {responses_fields,
                           sizeof(responses_fields) / sizeof(responses_fields[0])},
        [API_MESSAGES] = {messages_fields, sizeof(messages_fields) / sizeof(messages_fields[0])},
        [API_EMBEDDINGS] = {embeddings_fields,
                            sizeof(embeddings_fields) / sizeof(embeddings_fields[0])},
    };
    *count_out = tables[kind].count;
    return tables[kind].fields;
}

const char *api_neutral_text(enum api_neutral neutral)
{
    switch (neutral) {
    case API_NEUTRAL_EVERY:
        return "any value";
    case API_NEUTRAL_NULL:
        return "null";
    case API_NEUTRAL_EMPTY:
        return "an empty value";
    case API_NEUTRAL_FALSE:
        return "false";
    case API_NEUTRAL_TRUE:
        return "true";
    case API_NEUTRAL_ZERO:
        return "0";
    case API_NEUTRAL_ONE:
        return "1";
    case API_NEUTRAL_MINUS_ONE:
        return "-1";
    case API_NEUTRAL_NONE:
        return "\"none\"";
    case API_NEUTRAL_NONE_OR_AUTO:
        return "\"none\" or \"auto\"";
    case API_NEUTRAL_MEDIUM:
        return "\"medium\"";
    case API_NEUTRAL_DISABLED:
        return "\"disabled\"";
    case API_NEUTRAL_TEXT:
        return "{\"type\": \"text\"}";
    case API_NEUTRAL_TEXT_LIST:
        break;
    }
    return "[\"text\"]";
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static bool is_neutral(enum api_neutral neutral, json_t *value)
{
    if (json_is_null(value))
        return true;
    switch (neutral) {
    case API_NEUTRAL_EVERY:
        return true;
    case API_NEUTRAL_NULL:
        return false;
    case API_NEUTRAL_EMPTY:
        return (json_is_string(value) && json_string_length(value) == 0) ||
               (json_is_array(value) && json_array_size(value) == 0) ||
               (json_is_object(value) && json_object_size(value) == 0);
    case API_NEUTRAL_FALSE:
        return json_is_false(value);
    case API_NEUTRAL_TRUE:
        return json_is_true(value);
    case API_NEUTRAL_ZERO:
        return json_is_number(value) && json_number_value(value) == 0;
    case API_NEUTRAL_ONE:
        return json_is_number(value) && json_number_value(value) == 1;
    case API_NEUTRAL_MINUS_ONE:
        return json_is_number(value) && json_number_value(value) == -1;
    case API_NEUTRAL_NONE:
        return is_text(value, "none");
    case API_NEUTRAL_NONE_OR_AUTO:
        return is_text(value, "none") || is_text(value, "auto");
    case API_NEUTRAL_MEDIUM:
        return is_text(value, "medium");
    case API_NEUTRAL_DISABLED:
        return is_text(value, "disabled");
    case API_NEUTRAL_TEXT:
        return json_object_size(value) == 1 && is_text(json_object_get(value, "type"), "text");
    case API_NEUTRAL_TEXT_LIST:
        break;
    }
    return json_array_size(value) == 1 && is_text(json_array_get(value, 0), "text");
}

static int by_name(const void *name, const void *field)
{
    return strcmp(name, ((const struct api_known_field *)field)->name);
}

static const struct api_known_field *find_in(const struct api_known_field *fields, size_t count,
                                             const char *name)
{
    return bsearch(name, fields, count, sizeof(*fields), by_name);
}

const struct api_known_field *api_form_field_find(enum api_kind kind, const char *name)
{
    size_t count;
    const struct api_known_field *fields = api_form_fields(kind, &count);
    return find_in(fields, count, name);
}

const struct api_known_field *api_known_field_find(enum api_kind kind, const char *name,
                                                   bool *used_out)
{
    const struct api_known_field *field = api_form_field_find(kind, name);
    const enum api_kind common = api_has_form(kind) && field == NULL ? API_CHAT : kind;
    if (field == NULL)
        field = find_in(api_known_fields, api_known_fields_count, name);
    *used_out = field != NULL && (field->used_by_kinds & (1u << common)) != 0;
    return field;
}

bool api_known_fields_check(json_t *body, enum api_kind kind, uint32_t *unknown_count_out,
                            struct api_error *error)
{
    const char *name;
    json_t *value;
    bool used;
    *unknown_count_out = 0;
    json_object_foreach(body, name, value)
    {
        const struct api_known_field *field = api_known_field_find(kind, name, &used);
        if (field == NULL) {
            ++*unknown_count_out;
            continue;
        }
        if (used || is_neutral(field->neutral, value))
            continue;
        const struct api_known_field *elsewhere =
            find_in(api_known_fields, api_known_fields_count, name);
        api_error_set(error, 400, name, "%s is not supported%s: want %s, or no such field", name,
                      elsewhere != NULL && elsewhere->used_by_kinds != 0 ? " by this endpoint" : "",
                      api_neutral_text(field->neutral));
        error->code = "unsupported_parameter";
        return false;
    }
    return true;
}
