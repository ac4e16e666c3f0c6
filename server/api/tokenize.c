/* api_tokenize: see the header. */
#include "server/api/tokenize.h"

#include "server/api/fields.h"
#include "server/api/forms.h"
#include "server/api/known_fields.h"
#include "server/api/request.h"

#include <stdlib.h>
#include <string.h>

static bool encode_messages(const struct api_tokenize *settings, json_t *root, uint32_t **ids,
                            size_t *count, struct api_error *error)
{
    struct chat_request chat = {0};
    struct api_tools tools = {0};
    enum answer_begin begin;
    bool good = api_chat_parse(root, &chat, &tools, error) &&
                api_encode_chat(&settings->encode, "messages", &chat, ids, count, &begin, error);
    api_chat_done(&chat);
    free(tools.packed_names);
    return good;
}

static void write_tokens(const struct api_tokenize *settings, const uint32_t *ids, size_t count,
                         bool with_strings, struct text *out)
{
    text_format_add(out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", count,
                    settings->context_tokens);
    for (size_t i = 0; i < count; i++)
        text_format_add(out, i > 0 ? ",%u" : "%u", ids[i]);
    text_string_add(out, "],\"token_strs\":");
    if (!with_strings) {
        text_string_add(out, "null}\n");
        return;
    }
    text_string_add(out, "[");
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        const char *piece = tokenizer_piece(settings->encode.tokenizer, ids[i], &bytes);
        text_string_add(out, i > 0 ? "," : "");
        text_add_json_string(out, piece, bytes);
    }
    text_string_add(out, "]}\n");
}

bool api_tokenize(const struct api_tokenize *settings, const char *body, size_t bytes,
                  struct text *out, struct api_error *error)
{
    json_t *root = api_body_parse(body, bytes, error);
    if (root == NULL)
        return false;
    uint32_t *ids = NULL;
    size_t count = 0;
    bool special = true, strings = false;
    json_t *prompt = api_field_get(root, "prompt");
    json_t *messages = api_field_get(root, "messages");
    /* Fields that would change the prompt are refused as for completions, not ignored. */
    uint32_t unknown;
    bool good = api_known_fields_check(root, messages != NULL ? API_CHAT : API_COMPLETION, &unknown,
                                       error) &&
                api_field_bool(root, "add_special_tokens", &special, error) &&
                api_field_bool(root, "return_token_strs", &strings, error);
    if (good && messages != NULL)
        good = encode_messages(settings, root, &ids, &count, error);
    else if (good && !json_is_string(prompt))
        good = prompt == NULL ? api_error_set(error, 400, "prompt", "prompt is missing")
                              : api_field_wrong(error, "prompt", prompt, "a string");
    else if (good)
        good = api_encode_prompt(&settings->encode, "prompt", json_string_value(prompt),
                                 json_string_length(prompt), special, false, &ids, &count, error);
    if (good)
        write_tokens(settings, ids, count, strings, out);
    free(ids);
    json_decref(root);
    return good;
}

bool api_count_tokens(const struct api_tokenize *settings, const char *body, size_t bytes,
                      struct text *out, struct api_error *error)
{
    json_t *root = api_body_parse(body, bytes, error), *chat = NULL;
    if (root == NULL)
        return false;
    uint32_t *ids = NULL;
    size_t count = 0;
    uint32_t unknown;
    bool good = api_known_fields_check(root, API_MESSAGES, &unknown, error) &&
                api_form_convert(API_MESSAGES, root, &chat, NULL, error) &&
                encode_messages(settings, chat, &ids, &count, error);
    if (good)
        text_format_add(out, "{\"input_tokens\":%zu}\n", count);
    free(ids);
    json_decref(chat);
    json_decref(root);
    return good;
}

bool api_detokenize(const struct api_tokenize *settings, const char *body, size_t bytes,
                    struct text *out, struct api_error *error)
{
    json_t *root = api_body_parse(body, bytes, error);
    if (root == NULL)
        return false;
    uint32_t *ids = NULL;
    uint32_t count = 0;
    json_t *tokens = api_field_get(root, "tokens");
    bool good = json_is_array(tokens)
                    ? api_ids_parse(tokens, "tokens", &ids, &count, error)
                    : api_error_set(error, 400, "tokens", "tokens must be a list of token ids");
    struct text plain = {0};
    uint32_t vocab = tokenizer_token_count(settings->encode.tokenizer);
    for (uint32_t i = 0; good && i < count; i++) {
        size_t piece_bytes = 0;
        if (ids[i] >= vocab) {
            good = api_error_set(error, 400, "tokens",
                                 "tokens[%u] is %u: the model's vocabulary has ids 0 to %u", i,
                                 ids[i], vocab - 1);
            break;
        }
        const char *piece = tokenizer_piece(settings->encode.tokenizer, ids[i], &piece_bytes);
        text_add(&plain, piece, piece_bytes);
    }
    if (good) {
        text_string_add(out, "{\"prompt\":");
        text_add_json_string(out, plain.data, plain.bytes);
        text_string_add(out, "}\n");
    }
    text_done(&plain);
    free(ids);
    json_decref(root);
    return good;
}
