/* api_known_fields: see the header. */
#include "server/api/known_fields.h"

#include "server/api/fields.h"

#include <stdlib.h>
#include <string.h>

#define AT_COMPLETIONS (1u << API_COMPLETION)
#define AT_CHAT        (1u << API_CHAT)

/* clang-format off */
const struct api_known_field api_known_fields[] = {
    {"add_generation_prompt", AT_CHAT, API_NEUTRAL_TRUE, "nyy", "false: the prompt ends behind the last message; default true"},
    {"add_special_tokens", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "nyp", "adds the model's first token to the prompt; default true for completions, false for chat"},
    {"allowed_token_ids", 0, API_NEUTRAL_EMPTY, "nyn", ""},
    {"audio", 0, API_NEUTRAL_NULL, "ynn", ""},
    {"bad_words", 0, API_NEUTRAL_EMPTY, "nyn", ""},
    {"best_of", 0, API_NEUTRAL_ONE, "ypn", ""},
    {"cache_salt", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "nyn", "a text of 1 to 256 bytes: only requests with the same text share [cached prefixes](scheduling.md#the-prefix-cache)"},
    {"chat_template", AT_CHAT, API_NEUTRAL_EMPTY, "nyn", "replaces the model's chat template, if `server/chat_template_in_requests` allows it"},
    {"chat_template_kwargs", AT_CHAT, API_NEUTRAL_EMPTY, "nyy", "an object of variables for the chat template, such as `enable_thinking`"},
    {"cleave", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "nnn", "`{transfer}`: `auto`, `layerwise` or `one-piece`, the [transfer mode](contributing/glossary.md) of this request, for tests"},
    {"continue_final_message", AT_CHAT, API_NEUTRAL_FALSE, "nyn", "true: the answer continues the last message"},
    {"detokenize", 0, API_NEUTRAL_TRUE, "nyn", ""},
    {"documents", AT_CHAT, API_NEUTRAL_EMPTY, "nyn", "list of up to 4096 objects, for chat templates that read them"},
    {"dry_multiplier", 0, API_NEUTRAL_ZERO, "nny", ""},
    {"dynatemp_range", 0, API_NEUTRAL_ZERO, "nny", ""},
    {"early_stopping", 0, API_NEUTRAL_FALSE, "nnn", ""},
    {"ebnf", 0, API_NEUTRAL_EMPTY, "nnn", ""},
    {"echo", AT_COMPLETIONS, API_NEUTRAL_FALSE, "yyn", "true: the answer begins with the prompt"},
    {"enable_thinking", 0, API_NEUTRAL_NULL, "nnn", ""},
    {"frequency_penalty", 0, API_NEUTRAL_ZERO, "yyy", ""},
    {"function_call", 0, API_NEUTRAL_NONE_OR_AUTO, "ypn", ""},
    {"functions", 0, API_NEUTRAL_EMPTY, "ypn", ""},
    {"grammar", 0, API_NEUTRAL_EMPTY, "nny", ""},
    {"guided_choice", 0, API_NEUTRAL_EMPTY, "npn", ""},
    {"guided_decoding_backend", 0, API_NEUTRAL_ANY, "nin", ""},
    {"guided_grammar", 0, API_NEUTRAL_EMPTY, "npn", ""},
    {"guided_json", 0, API_NEUTRAL_EMPTY, "npn", ""},
    {"guided_regex", 0, API_NEUTRAL_EMPTY, "npn", ""},
    {"guided_whitespace_pattern", 0, API_NEUTRAL_EMPTY, "npn", ""},
    {"ignore_eos", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "nyy", "true: the model's end does not end the answer"},
    {"include_stop_str_in_output", 0, API_NEUTRAL_FALSE, "nyn", ""},
    {"json_schema", 0, API_NEUTRAL_EMPTY, "nny", ""},
    {"kv_transfer_params", 0, API_NEUTRAL_EMPTY, "nyn", ""},
    {"length_penalty", 0, API_NEUTRAL_ONE, "nyn", ""},
    {"logit_bias", 0, API_NEUTRAL_EMPTY, "yyy", ""},
    {"logits_processors", 0, API_NEUTRAL_EMPTY, "nyn", ""},
    {"logprobs", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "yyy", "completions: 0 to 20 alternatives; chat: true or false"},
    {"lora", 0, API_NEUTRAL_EMPTY, "nny", ""},
    {"lora_path", 0, API_NEUTRAL_EMPTY, "nnn", ""},
    {"max_completion_tokens", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "yyy", "as `max_tokens`, and wins over it"},
    {"max_tokens", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "yyy", "0 to 131072; without it, until the context is full"},
    {"messages", AT_CHAT, API_NEUTRAL_NULL, "yyy", "list of `{role, content}`; `content` is a text or a list of text parts"},
    {"metadata", 0, API_NEUTRAL_ANY, "yii", ""},
    {"min_p", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "nyy", "0 to 1; default 0"},
    {"min_tokens", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "nyn", "0 to `max_tokens`: the model's end is not sampled before"},
    {"mirostat", 0, API_NEUTRAL_ZERO, "nny", ""},
    {"mm_processor_kwargs", 0, API_NEUTRAL_EMPTY, "nyn", ""},
    {"modalities", 0, API_NEUTRAL_TEXT_LIST, "ynn", ""},
    {"model", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "yyy", "a name of `/v1/models`; without it, the served model"},
    {"n", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "yyy", "1 to 16 answers per prompt; default 1"},
    {"parallel_tool_calls", 0, API_NEUTRAL_ANY, "yyy", ""},
    {"prediction", 0, API_NEUTRAL_ANY, "yii", ""},
    {"presence_penalty", 0, API_NEUTRAL_ZERO, "yyy", ""},
    {"priority", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "nyn", "-1000 to 1000, lower is more urgent; the API key limits it"},
    {"prompt", AT_COMPLETIONS, API_NEUTRAL_NULL, "yyy", "a text, a list of texts, token ids, or lists of token ids; up to 64 prompts"},
    {"prompt_cache_key", 0, API_NEUTRAL_ANY, "yii", ""},
    {"prompt_cache_retention", 0, API_NEUTRAL_ANY, "yii", ""},
    {"prompt_embeds", 0, API_NEUTRAL_EMPTY, "nyn", ""},
    {"prompt_logprobs", 0, API_NEUTRAL_NULL, "nyn", ""},
    {"reasoning", 0, API_NEUTRAL_EMPTY, "nnn", ""},
    {"reasoning_effort", 0, API_NEUTRAL_NONE, "yyy", ""},
    {"regex", 0, API_NEUTRAL_EMPTY, "nnn", ""},
    {"repeat_penalty", 0, API_NEUTRAL_ONE, "nny", ""},
    {"repetition_penalty", 0, API_NEUTRAL_ONE, "nyn", ""},
    {"request_id", 0, API_NEUTRAL_ANY, "nyn", ""},
    {"response_format", 0, API_NEUTRAL_TEXT, "yyy", ""},
    {"return_progress", 0, API_NEUTRAL_FALSE, "nny", ""},
    {"return_token_ids", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "nyy", "true: the answer has `token_ids`"},
    {"return_tokens_as_token_ids", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "nyn", "true: `logprobs` has `token_id:N` instead of texts"},
    {"safety_identifier", 0, API_NEUTRAL_ANY, "yii", ""},
    {"seed", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "yyy", "a whole number of 64 bits: the same answer each time"},
    {"service_tier", 0, API_NEUTRAL_ANY, "yii", ""},
    {"skip_special_tokens", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "nyp", "false: control tokens appear in the text; default true"},
    {"spaces_between_special_tokens", 0, API_NEUTRAL_TRUE, "nyn", ""},
    {"stop", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "yyy", "a text or up to 16 texts of up to 256 bytes"},
    {"stop_regex", 0, API_NEUTRAL_EMPTY, "nnn", ""},
    {"stop_token_ids", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "nyn", "up to 8 token ids"},
    {"store", 0, API_NEUTRAL_ANY, "yii", ""},
    {"stream", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "yyy", "true: server-sent events"},
    {"stream_options", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "yyy", "`{include_usage, continuous_usage_stats}`"},
    {"structural_tag", 0, API_NEUTRAL_EMPTY, "nyn", ""},
    {"structured_outputs", 0, API_NEUTRAL_EMPTY, "nyn", ""},
    {"suffix", 0, API_NEUTRAL_EMPTY, "ynp", ""},
    {"temperature", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "yyy", "0 (greedy) to 2; default 1"},
    {"thinking", 0, API_NEUTRAL_NULL, "nnn", ""},
    {"thinking_token_budget", 0, API_NEUTRAL_NULL, "nyy", ""},
    {"timings_per_token", 0, API_NEUTRAL_FALSE, "nny", ""},
    {"tool_choice", 0, API_NEUTRAL_NONE_OR_AUTO, "yyy", ""},
    {"tools", 0, API_NEUTRAL_EMPTY, "yyy", ""},
    {"top_k", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "nyy", "-1 and 0: off; default 0"},
    {"top_logprobs", AT_CHAT, API_NEUTRAL_ZERO, "yyy", "0 to 20 alternatives"},
    {"top_n_sigma", 0, API_NEUTRAL_MINUS_ONE, "nny", ""},
    {"top_p", AT_COMPLETIONS | AT_CHAT, API_NEUTRAL_ANY, "yyy", "above 0, at most 1; default 1"},
    {"truncate_prompt_tokens", 0, API_NEUTRAL_NULL, "nyn", ""},
    {"typical_p", 0, API_NEUTRAL_ONE, "nny", ""},
    {"use_beam_search", 0, API_NEUTRAL_FALSE, "nyn", ""},
    {"user", 0, API_NEUTRAL_ANY, "yii", ""},
    {"verbosity", 0, API_NEUTRAL_MEDIUM, "ynn", ""},
    {"web_search_options", 0, API_NEUTRAL_NULL, "ynn", ""},
    {"xtc_probability", 0, API_NEUTRAL_ZERO, "nny", ""},
};
/* clang-format on */

const size_t api_known_fields_count = sizeof(api_known_fields) / sizeof(api_known_fields[0]);

const char *api_neutral_text(enum api_neutral neutral)
{
    switch (neutral) {
    case API_NEUTRAL_ANY:
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
    case API_NEUTRAL_ANY:
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

bool api_known_fields_check(json_t *body, enum api_kind kind, uint32_t *unknown,
                            struct api_error *error)
{
    const char *name;
    json_t *value;
    *unknown = 0;
    json_object_foreach(body, name, value)
    {
        const struct api_known_field *field = bsearch(
            name, api_known_fields, api_known_fields_count, sizeof(api_known_fields[0]), by_name);
        if (field == NULL) {
            ++*unknown;
            continue;
        }
        if ((field->used & (1u << kind)) != 0 || is_neutral(field->neutral, value))
            continue;
        api_error_set(error, 400, name, "%s is not supported%s: want %s, or no such field", name,
                      field->used != 0 ? " by this endpoint" : "",
                      api_neutral_text(field->neutral));
        error->code = "unsupported_parameter";
        return false;
    }
    return true;
}
