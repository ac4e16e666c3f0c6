/* api_tokenize: the endpoints POST /tokenize and /detokenize in vLLM's form, and Anthropic's
 * /v1/messages/count_tokens. Each function parses the JSON text of a body and writes the JSON text
 * of the answer. server/http/text_work.c calls them on the text threads, because a large body can
 * take seconds. They keep no state, and any thread may call them. They need no machine. */
#ifndef SERVER_API_TOKENIZE_H
#define SERVER_API_TOKENIZE_H

#include "common/text.h"
#include "server/api/encode.h"
#include "server/api/error.h"

struct api_tokenize {
    struct api_encode encode;
    uint32_t context_tokens; /* Value of max_model_len in answers. */
};

/* Answers {prompt or messages, add_special_tokens, return_token_strs} with {count, max_model_len,
 * tokens, token_strs}, which it appends to *out. Returns false, with *error filled, on failure. */
bool api_tokenize(const struct api_tokenize *settings, const char *body, size_t bytes,
                  struct text *out, struct api_error *error);
/* Answers a body in the form of POST /v1/messages with {input_tokens}. Returns false, with *error
 * filled, on failure. */
bool api_count_tokens(const struct api_tokenize *settings, const char *body, size_t bytes,
                      struct text *out, struct api_error *error);
/* Answers {tokens} with {prompt}. Returns false, with *error filled, on failure. */
bool api_detokenize(const struct api_tokenize *settings, const char *body, size_t bytes,
                    struct text *out, struct api_error *error);

#endif
