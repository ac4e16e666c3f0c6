/* api_tokenize: the endpoints POST /tokenize and /detokenize as in vLLM, and Anthropic's
 * /v1/messages/count_tokens. Each function parses the JSON text of a body and appends the JSON text
 * of the answer to *out. On failure the function returns false, with *error filled.
 * server/http/text_work.c calls the functions on the text threads. The functions keep no state and
 * need no machine. */
#ifndef SERVER_API_TOKENIZE_H
#define SERVER_API_TOKENIZE_H

#include "common/text.h"
#include "server/api/encode.h"
#include "server/api/error.h"

struct api_tokenize {
    struct api_encode encode;
    uint32_t context_tokens; /* Value of max_model_len in answers. */
};

/* Answers {prompt or the fields of api_chat_parse, add_special_tokens, return_token_strs} with
 * {count, max_model_len, tokens, token_strs}. */
bool api_tokenize(const struct api_tokenize *settings, const char *body, size_t bytes,
                  struct text *out, struct api_error *error);
/* Answers a body of POST /v1/messages with {input_tokens}. */
bool api_count_tokens(const struct api_tokenize *settings, const char *body, size_t bytes,
                      struct text *out, struct api_error *error);
/* Answers {tokens} with {prompt}. */
bool api_detokenize(const struct api_tokenize *settings, const char *body, size_t bytes,
                    struct text *out, struct api_error *error);

#endif
