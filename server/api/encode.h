/* api_encode: converts the texts of requests to tokens. The config key
 * server/control_tokens_in_text decides whether control tokens that are spelled out in a text, such
 * as <|im_start|>, are recognised or are ordinary text. server/http/ and tokenize.c call the
 * functions on the text threads and on the gateway's event loop thread. The functions keep no
 * state, and do not detokenise. */
#ifndef SERVER_API_ENCODE_H
#define SERVER_API_ENCODE_H

#include "model/answer/answer_format.h"
#include "model/text/chat.h"
#include "model/text/tokenizer.h"
#include "server/api/error.h"

#include <stdbool.h>

/* The texts of clients in which control tokens are recognised. */
enum api_control_tokens {
    API_CONTROL_ALLOW,   /* Prompts, and the contents of chat messages. */
    API_CONTROL_PROMPTS, /* Prompts only. */
    API_CONTROL_AS_TEXT, /* None. */
};

/* Converts the value of server/control_tokens_in_text; unknown values give API_CONTROL_AS_TEXT. */
enum api_control_tokens api_control_tokens_parse(const char *text);

/* How the texts for one model are encoded. The pointers are not owned. */
struct api_encode {
    const struct tokenizer *tokenizer;
    const struct chat_template *chat;
    enum api_control_tokens control;
    bool templates_allowed;      /* Requests may have a chat template of their own. */
    struct answer_format format; /* How the model writes answers. */
    /* A text that surely has more tokens is refused before it is encoded; 0 = no limit. */
    uint32_t context_tokens;
};

/* Fills *error with a 400 for a prompt that does not fit the context, and returns false. field:
 * the body's field with the prompt. prompt_length: a text such as "at least 4 tokens". */
bool api_context_refuse(struct api_error *error, const char *field, uint32_t context_tokens,
                        const char *prompt_length);

/* Encodes a prompt, which is UTF-8. field: the body's field with the prompt, for errors. add_bos:
 * if the model uses BOS, BOS is put before the prompt. add_eos: if the model uses EOS, EOS is put
 * after the prompt. *ids_out must be NULL; the caller frees it, also after a failure. Returns
 * false, with *error filled, on failure. */
bool api_encode_prompt(const struct api_encode *encoder, const char *field, const char *text,
                       size_t bytes, bool add_bos, bool add_eos, uint32_t **ids_out,
                       size_t *count_out, struct api_error *error);
/* Encodes a chat with the model's template, or with the request's own template if such templates
 * are allowed. Control tokens that the template writes are recognised in any case. The prompt
 * begins with one BOS if the template writes BOS, or if the model's prompts begin with BOS.
 * field: the body's field with the conversation, for errors. request->now is ignored: the
 * time of the chat is that of the call. *begin_out: whether, at the end of the prompt, the
 * reasoning is still to begin, has begun or has ended. The caller frees *ids_out, also after a
 * failure. Returns false, with *error filled, on failure. */
bool api_encode_chat(const struct api_encode *encoder, const char *field,
                     const struct chat_request *request, uint32_t **ids_out, size_t *count_out,
                     enum answer_begin *begin_out, struct api_error *error);

#endif
