/* api_encode: see the header. */
#include "server/api/encode.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum api_control_tokens api_control_tokens_parse(const char *text)
{
    return strcmp(text, "allow") == 0     ? API_CONTROL_ALLOW
           : strcmp(text, "prompts") == 0 ? API_CONTROL_PROMPTS
                                          : API_CONTROL_AS_TEXT;
}

bool api_context_refuse(struct api_error *error, const char *field, uint32_t context_tokens,
                        const char *prompt_length)
{
    api_error_set(error, 400, field,
                  "This model's maximum context length is %u tokens here, the answer included (the "
                  "model's, the configured, or what KV memory holds); the prompt has %s",
                  context_tokens, prompt_length);
    error->code = "context_length_exceeded";
    return false;
}

static bool encode(const struct api_encode *encoder, const char *field, const char *text,
                   size_t bytes, const struct tokenizer_encode_options *options, uint32_t **ids_out,
                   size_t *count_out, struct api_error *error)
{
    struct error why = {0};
    size_t least = tokenizer_tokens_min(encoder->tokenizer, text, bytes);
    if (encoder->context_tokens > 0 && least > encoder->context_tokens) {
        char tokens[64];
        snprintf(tokens, sizeof(tokens), "at least %zu tokens", least);
        return api_context_refuse(error, field, encoder->context_tokens, tokens);
    }
    uint32_t *ids = NULL;
    size_t capacity = 0;
    enum status status = tokenizer_encode(encoder->tokenizer, text, bytes, options, &ids, &capacity,
                                          count_out, &why);
    *ids_out = ids;
    if (status == ST_INVALID)
        return api_error_set(error, 400, field, "%s", why.text);
    if (status != ST_OK)
        return api_error_set(error, 503, NULL, "%s could not be tokenised: %s", field, why.text);
    return true;
}

bool api_encode_prompt(const struct api_encode *encoder, const char *field, const char *text,
                       size_t bytes, bool add_bos, bool add_eos, uint32_t **ids_out,
                       size_t *count_out, struct api_error *error)
{
    struct tokenizer_encode_options options = {.parse_special =
                                                   encoder->control != API_CONTROL_AS_TEXT,
                                               .add_bos = add_bos,
                                               .add_eos = add_eos};
    return encode(encoder, field, text, bytes, &options, ids_out, count_out, error);
}

bool api_encode_chat(const struct api_encode *encoder, const char *field,
                     const struct chat_request *request, uint32_t **ids_out, size_t *count_out,
                     enum answer_begin *begin_out, struct api_error *error)
{
    struct tokenizer_encode_options options = {.parse_special = true};
    struct chat_request now = *request;
    struct chat_text chat = {0};
    struct error why = {0};
    *ids_out = NULL;
    if (request->template_text != NULL && !encoder->templates_allowed) {
        api_error_set(error, 400, "chat_template",
                      "chat_template is not allowed by this server "
                      "(server/chat_template_in_requests)");
        error->code = "unsupported_parameter";
        return false;
    }
    now.now = time(NULL);
    enum status status = chat_render(encoder->chat, &now, &chat, &why);
    if (status == ST_NO_MEMORY)
        return api_error_set(error, 503, NULL, "%s", why.text);
    if (status != ST_OK)
        return api_error_set(error, 400, request->template_text != NULL ? "chat_template" : field,
                             "%s", why.text);
    options.add_bos = !chat.begins_with_bos;
    *begin_out = answer_begin_find(&encoder->format, chat.text, chat.bytes);
    if (encoder->control != API_CONTROL_ALLOW) {
        options.plain_ranges = chat.contents;
        options.plain_count = chat.content_count;
    }
    bool good = encode(encoder, field, chat.text, chat.bytes, &options, ids_out, count_out, error);
    chat_text_done(&chat);
    return good;
}
