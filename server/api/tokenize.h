/* api_tokenize: the endpoints POST /tokenize and /detokenize in vLLM's form, and Anthropic's
 * /v1/messages/count_tokens. JSON text in, JSON text out. server/http/text_work.c makes the calls, on a text thread, because 8 MiB can take
 * seconds. No state: any thread may call them. No machine takes part. */
#ifndef SERVER_API_TOKENIZE_H
#define SERVER_API_TOKENIZE_H

#include "common/text.h"
#include "server/api/encode.h"
#include "server/api/error.h"

struct api_tokenize {
    struct api_encode encode;
    uint32_t context_tokens;
};

/* {prompt | messages, add_special_tokens, return_token_strs} → {count, max_model_len, tokens,
 * token_strs}. Returns false with *error filled. */
bool api_tokenize(const struct api_tokenize *with, const char *body, size_t bytes, struct text *out,
                  struct api_error *error);
/* A body of POST /v1/messages → {input_tokens}. Returns false with *error filled. */
bool api_count_tokens(const struct api_tokenize *with, const char *body, size_t bytes,
                      struct text *out, struct api_error *error);
/* {tokens} → {prompt}. Returns false with *error filled. */
bool api_detokenize(const struct api_tokenize *with, const char *body, size_t bytes,
                    struct text *out, struct api_error *error);

#endif
