/* api_kind: the kinds of requests that machines compute, one for each form of body and answer. Used by
 * the parsers of this folder and by server/http. No state. */
#ifndef SERVER_API_KIND_H
#define SERVER_API_KIND_H

#include <stdbool.h>

enum api_kind {
    API_COMPLETION, /* POST /v1/completions */
    API_CHAT,       /* POST /v1/chat/completions */
    API_RESPONSES,  /* POST /v1/responses, OpenAI's newer form of chats */
    API_MESSAGES,   /* POST /v1/messages, Anthropic's form of chats */
    API_EMBEDDINGS, /* POST /v1/embeddings; generates no text */
    API_KINDS
};

/* True if the prompt is a conversation. */
static inline bool api_is_chat(enum api_kind kind)
{
    return kind != API_COMPLETION && kind != API_EMBEDDINGS;
}

/* True for chats whose bodies and answers have a form of their own (forms.h). */
static inline bool api_has_form(enum api_kind kind)
{
    return kind == API_RESPONSES || kind == API_MESSAGES;
}

#endif
