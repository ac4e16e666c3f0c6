/* api_encode: turns the texts of requests into tokens. Control tokens, such as <|im_start|>, that
 * are spelled out in a text are recognised or are ordinary text, as server/control_tokens_in_text
 * says. The endpoints for completions and /tokenize call it. No state: any thread may call it. */
#ifndef SERVER_API_ENCODE_H
#define SERVER_API_ENCODE_H

#include "model/answer/answer_format.h"
#include "model/text/chat.h"
#include "model/text/tokenizer.h"
#include "server/api/error.h"

#include <stdbool.h>

/* Texts of clients in which control tokens are recognised. */
enum api_control_tokens {
    API_CONTROL_ALLOW,   /* Prompts, and the contents of chat messages. */
    API_CONTROL_PROMPTS, /* Prompts only. */
    API_CONTROL_AS_TEXT, /* None. */
};

/* Reads the value of server/control_tokens_in_text. */
enum api_control_tokens api_control_tokens_parse(const char *text);

struct api_encode {
    const struct tokenizer *tokenizer;
    const struct chat_template *chat;
    enum api_control_tokens control;
    bool templates_allowed; /* Requests may bring a chat template. */
    struct answer_format format;
    /* A text whose bytes cannot fit into this many tokens is refused without being encoded; 0 = no
     * limit. */
    uint32_t context_tokens;
};

/* Fills *error with the refusal of a prompt that is longer than the context. `tokens`: what the
 * prompt has, such as "4 tokens". Returns false. */
bool api_context_refuse(struct api_error *error, const char *field, uint32_t context_tokens,
                        const char *tokens);

/* Encodes a prompt, which is UTF-8. add_bos, add_eos: put the model's tokens around it, if it has
 * some. The caller frees *ids_out. Returns false with the HTTP error in *error. */
bool api_encode_prompt(const struct api_encode *with, const char *text, size_t bytes, bool add_bos,
                       bool add_eos, uint32_t **ids_out, size_t *count_out,
                       struct api_error *error);
/* Encodes a chat in the model's template, whose own markers are always control tokens. The prompt
 * begins with one BOS if the template writes one, or if the model's prompts begin with BOS.
 * *begin_out: where in its reasoning the answer begins. */
bool api_encode_chat(const struct api_encode *with, const struct chat_request *request,
                     uint32_t **ids_out, size_t *count_out, enum answer_begin *begin_out,
                     struct api_error *error);

#endif
